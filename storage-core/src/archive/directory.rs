//! The directory and the end of an archive: they must agree with the entries before them.

use std::io::Read;

use super::{
    entry::Found,
    fault::{damaged, refused},
    layout::{
        CENTRAL_BYTES, END_BYTES, IN_END_64, IN_EXTRA, LOCATOR_64_BYTES, u16_at, u32_at, u64_at,
        widen,
    },
    source::Source,
};
use crate::StorageError;

/// Bytes of a ZIP64 end after its length.
const END_64_BODY_BYTES: usize = 44;
/// Systems whose attributes are file modes of Unix: Unix itself, and macOS.
const UNIX_LIKE: [u8; 2] = [3, 19];
const MODE_KIND: u32 = 0o170_000;
const MODE_FILE: u32 = 0o100_000;
const MODE_FOLDER: u32 = 0o040_000;

/// The part of the directory that was read.
#[derive(Debug, Default)]
pub(super) struct Directory {
    begin: u64,
    length: u64,
    count: u64,
    /// Offset of the ZIP64 end, if there is one.
    end_64: Option<u64>,
}

impl Directory {
    /// Reads a header after its signature; it must be that of the entry that is
    /// next in `found`.
    pub(super) fn header<R: Read>(
        &mut self,
        source: &mut Source<R>,
        found: &[Found],
    ) -> Result<(), StorageError> {
        let begin = source.record_offset();
        if self.count == 0 {
            self.begin = begin;
        }
        let head: [u8; CENTRAL_BYTES] = source.array().map_err(|error| damaged(source, error))?;
        let mut read = |length| source.bytes(length);
        let texts = (|| {
            let name = read(u16_at(&head, 24))?;
            let extra = read(u16_at(&head, 26))?;
            read(u16_at(&head, 28))?;
            std::io::Result::Ok((name, extra))
        })();
        let (name, extra) = texts.map_err(|error| damaged(source, error))?;
        let short = [u32_at(&head, 20), u32_at(&head, 16), u32_at(&head, 38)];
        let Some(([raw, stored, offset], _)) = widen(&extra, short) else {
            return Err(damaged(source, "extra fields that are cut"));
        };
        let entry = usize::try_from(self.count)
            .ok()
            .and_then(|at| found.get(at));
        let is_same = entry.is_some_and(|entry| {
            entry.name.as_bytes() == name
                && (entry.method, entry.crc) == (u16_at(&head, 6), u32_at(&head, 12))
                && (entry.stored, entry.raw, entry.offset) == (stored, raw, offset)
        });
        let Some(entry) = entry.filter(|_| is_same) else {
            let name = String::from_utf8_lossy(&name);
            let what = format!(
                "the directory describes an entry {name:?} that differs from the one found"
            );
            return Err(damaged(source, what));
        };
        check_mode(&entry.name, head[1], u32_at(&head, 34) >> 16)?;
        self.count = self.count.saturating_add(1);
        self.length = source.offset().saturating_sub(self.begin);
        Ok(())
    }

    /// Reads the ZIP64 end after its signature.
    pub(super) fn end_64<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), StorageError> {
        let begin = source.record_offset();
        let length: [u8; 8] = source.array().map_err(|error| damaged(source, error))?;
        if u64_at(&length, 0) != END_64_BODY_BYTES as u64 || self.end_64.is_some() {
            return Err(damaged(source, "an unsupported ZIP64 end"));
        }
        let body: [u8; END_64_BODY_BYTES] =
            source.array().map_err(|error| damaged(source, error))?;
        let stated = [12, 20, 28, 36].map(|at| u64_at(&body, at));
        if stated != [self.count, self.count, self.length, self.begin] {
            return Err(damaged(
                source,
                "a ZIP64 end that does not match the directory",
            ));
        }
        self.end_64 = Some(begin);
        Ok(())
    }

    /// Reads the locator of the ZIP64 end after its signature.
    pub(super) fn locator_64<R: Read>(
        &mut self,
        source: &mut Source<R>,
    ) -> Result<(), StorageError> {
        let body: [u8; LOCATOR_64_BYTES] =
            source.array().map_err(|error| damaged(source, error))?;
        match self.end_64 {
            Some(begin) if u64_at(&body, 4) == begin => Ok(()),
            _ => Err(damaged(
                source,
                "a ZIP64 locator that does not match the archive",
            )),
        }
    }

    /// Reads the end after its signature, and checks that nothing follows it.
    pub(super) fn end<R: Read>(
        &self,
        source: &mut Source<R>,
        found: &[Found],
    ) -> Result<(), StorageError> {
        let end: [u8; END_BYTES] = source.array().map_err(|error| damaged(source, error))?;
        let comment = source.bytes(u16_at(&end, 16));
        comment.map_err(|error| damaged(source, error))?;
        if self.count != found.len() as u64 {
            let what = format!("{} entries, the directory has {}", found.len(), self.count);
            return Err(damaged(source, what));
        }
        // Wider values are in the ZIP64 end, which was compared.
        let is = |stated: u32, mark: u32, value: u64| {
            u64::from(stated) == value || (stated == mark && self.end_64.is_some())
        };
        let is_same = [6, 4]
            .into_iter()
            .all(|at| is(u16_at(&end, at).into(), IN_END_64.into(), self.count))
            && is(u32_at(&end, 8), IN_EXTRA, self.length)
            && (self.count == 0 || is(u32_at(&end, 12), IN_EXTRA, self.begin));
        if !is_same {
            return Err(damaged(source, "an end that does not match the directory"));
        }
        if source.is_at_end().map_err(|error| damaged(source, error))? {
            Ok(())
        } else {
            Err(damaged(source, "bytes after the end"))
        }
    }
}

/// Only regular files and folders are accepted.
fn check_mode(name: &str, made_by: u8, mode: u32) -> Result<(), StorageError> {
    let kind = mode & MODE_KIND;
    let wanted = if name.ends_with('/') {
        MODE_FOLDER
    } else {
        MODE_FILE
    };
    if UNIX_LIKE.contains(&made_by) && kind != 0 && kind != wanted {
        Err(refused(
            name,
            "is not a regular file: links and devices are refused",
        ))
    } else {
        Ok(())
    }
}
