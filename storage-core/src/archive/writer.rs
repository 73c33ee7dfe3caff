//! Writes archives: every length is known before the first byte.

use super::layout::{
    CENTRAL, DESCRIPTOR, END, END_64, END_BYTES, EXTRA_64, FLAG_DESCRIPTOR, IN_END_64, IN_EXTRA,
    LOCAL, LOCAL_BYTES, LOCATOR_64, LOCATOR_64_BYTES, STORED,
};

/// Version of the format that supports ZIP64.
const VERSION: u16 = 45;
/// Created on Unix: the attributes are Unix file modes.
const MADE_BY: u16 = 3 << 8 | VERSION;
/// A regular file with mode 644.
const ATTRIBUTES: u32 = 0o100_644 << 16;
/// The first day of the format, so that the archive of a storage is always the same bytes.
const DATE: u16 = 1 << 5 | 1;
/// Bytes of the ZIP64 end, signature and length included.
const END_64_BYTES: u64 = 56;

/// A file that will be in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedEntry {
    /// Name in the archive.
    pub(crate) name: String,
    /// Length in bytes.
    pub(crate) length: u64,
    /// CRC-32 if it is known before the bytes are read; otherwise it follows them.
    pub(crate) crc: Option<u32>,
}

impl PlannedEntry {
    fn flags(&self) -> u16 {
        match self.crc {
            Some(_) => 0,
            None => FLAG_DESCRIPTOR,
        }
    }
}

/// The layout of an archive, built while the archive is written.
#[derive(Debug, Default)]
pub(crate) struct ArchivePlan {
    offset: u64,
    count: u64,
    directory: Vec<u8>,
    /// Offset in the directory of the header of the current entry.
    last_header: usize,
}

fn is_wide(value: u64) -> bool {
    value >= u64::from(IN_EXTRA)
}

/// The 32-bit field of a value that may be too large for it.
fn short(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(IN_EXTRA)
}

impl ArchivePlan {
    /// Length of the archive of `entries`.
    pub(crate) fn length<'a>(entries: impl Iterator<Item = &'a PlannedEntry>) -> u64 {
        let mut plan = Self::default();
        for entry in entries {
            plan.local(entry);
            plan.descriptor(entry, 0);
        }
        let offset = plan.offset;
        offset.saturating_add(plan.end().len() as u64)
    }

    /// The local header before the bytes of an entry.
    pub(crate) fn local(&mut self, entry: &PlannedEntry) -> Vec<u8> {
        let is_wide = is_wide(entry.length);
        let mut header = Vec::with_capacity((LOCAL_BYTES + 24).saturating_add(entry.name.len()));
        header.extend_from_slice(&LOCAL.to_le_bytes());
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&entry.flags().to_le_bytes());
        header.extend_from_slice(&STORED.to_le_bytes());
        header.extend_from_slice(&0_u16.to_le_bytes());
        header.extend_from_slice(&DATE.to_le_bytes());
        header.extend_from_slice(&entry.crc.unwrap_or(0).to_le_bytes());
        // Lengths that follow the bytes are zero here; the ZIP64 markers announce their width.
        let length = match entry.crc {
            _ if is_wide => IN_EXTRA,
            Some(_) => short(entry.length),
            None => 0,
        };
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(&name_length(&entry.name).to_le_bytes());
        let known = entry.crc.map_or(0, |_| entry.length);
        let extra = if is_wide {
            extra_64(&[known, known])
        } else {
            Vec::new()
        };
        header.extend_from_slice(&extra_length(&extra).to_le_bytes());
        header.extend_from_slice(entry.name.as_bytes());
        header.extend_from_slice(&extra);
        self.central(entry);
        self.advance(header.len() as u64);
        header
    }

    /// The data descriptor after the bytes of the current entry; empty when its checksum
    /// was known before.
    pub(crate) fn descriptor(&mut self, entry: &PlannedEntry, crc: u32) -> Vec<u8> {
        if entry.crc.is_some() {
            self.advance(entry.length);
            return Vec::new();
        }
        let mut descriptor = DESCRIPTOR.to_le_bytes().to_vec();
        descriptor.extend_from_slice(&crc.to_le_bytes());
        for _ in 0..2 {
            if is_wide(entry.length) {
                descriptor.extend_from_slice(&entry.length.to_le_bytes());
            } else {
                descriptor.extend_from_slice(&short(entry.length).to_le_bytes());
            }
        }
        // The directory header was built with the local one, before the checksum was known.
        self.directory[self.last_header..][16..20].copy_from_slice(&crc.to_le_bytes());
        self.advance(entry.length);
        self.advance(descriptor.len() as u64);
        descriptor
    }

    /// Lengths come from a storage file: an impossible one must not wrap, and reading that file
    /// reports it.
    fn advance(&mut self, bytes: u64) {
        self.offset = self.offset.saturating_add(bytes);
    }

    fn central(&mut self, entry: &PlannedEntry) {
        let mut wide = Vec::new();
        if is_wide(entry.length) {
            wide.extend([entry.length, entry.length]);
        }
        if is_wide(self.offset) {
            wide.push(self.offset);
        }
        let extra = if wide.is_empty() {
            Vec::new()
        } else {
            extra_64(&wide)
        };
        self.last_header = self.directory.len();
        let to = &mut self.directory;
        to.extend_from_slice(&CENTRAL.to_le_bytes());
        to.extend_from_slice(&MADE_BY.to_le_bytes());
        to.extend_from_slice(&VERSION.to_le_bytes());
        to.extend_from_slice(&entry.flags().to_le_bytes());
        to.extend_from_slice(&STORED.to_le_bytes());
        to.extend_from_slice(&0_u16.to_le_bytes());
        to.extend_from_slice(&DATE.to_le_bytes());
        to.extend_from_slice(&entry.crc.unwrap_or(0).to_le_bytes());
        to.extend_from_slice(&short(entry.length).to_le_bytes());
        to.extend_from_slice(&short(entry.length).to_le_bytes());
        to.extend_from_slice(&name_length(&entry.name).to_le_bytes());
        to.extend_from_slice(&extra_length(&extra).to_le_bytes());
        // No comment, the first disk, no internal attributes.
        to.extend_from_slice(&[0; 6]);
        to.extend_from_slice(&ATTRIBUTES.to_le_bytes());
        to.extend_from_slice(&short(self.offset).to_le_bytes());
        to.extend_from_slice(entry.name.as_bytes());
        to.extend_from_slice(&extra);
        self.count = self.count.saturating_add(1);
    }

    /// The directory and the end, which complete the archive.
    pub(crate) fn end(self) -> Vec<u8> {
        let (begin, count) = (self.offset, self.count);
        let mut end = self.directory;
        let length = end.len() as u64;
        if is_wide(begin) || is_wide(length) || count >= u64::from(IN_END_64) {
            let at = begin.saturating_add(length);
            end.extend_from_slice(&END_64.to_le_bytes());
            end.extend_from_slice(&(END_64_BYTES - 12).to_le_bytes());
            end.extend_from_slice(&MADE_BY.to_le_bytes());
            end.extend_from_slice(&VERSION.to_le_bytes());
            end.extend_from_slice(&[0; 8]);
            for value in [count, count, length, begin] {
                end.extend_from_slice(&value.to_le_bytes());
            }
            let mut locator = [0; LOCATOR_64_BYTES];
            locator[4..12].copy_from_slice(&at.to_le_bytes());
            locator[12..].copy_from_slice(&1_u32.to_le_bytes());
            end.extend_from_slice(&LOCATOR_64.to_le_bytes());
            end.extend_from_slice(&locator);
        }
        let count = u16::try_from(count).unwrap_or(IN_END_64);
        let mut last = [0; END_BYTES];
        last[4..6].copy_from_slice(&count.to_le_bytes());
        last[6..8].copy_from_slice(&count.to_le_bytes());
        last[8..12].copy_from_slice(&short(length).to_le_bytes());
        last[12..16].copy_from_slice(&short(begin).to_le_bytes());
        end.extend_from_slice(&END.to_le_bytes());
        end.extend_from_slice(&last);
        end
    }
}

/// Names of files of a storage are far shorter than the field allows.
fn name_length(name: &str) -> u16 {
    u16::try_from(name.len()).expect("names of files are short")
}

/// Length of the extra fields of a header.
fn extra_length(extra: &[u8]) -> u16 {
    u16::try_from(extra.len()).expect("a header has one short extra field")
}

fn extra_64(values: &[u64]) -> Vec<u8> {
    let mut extra = EXTRA_64.to_le_bytes().to_vec();
    let length = u16::try_from(size_of_val(values));
    let length = length.expect("a ZIP64 field has at most three values");
    extra.extend_from_slice(&length.to_le_bytes());
    for value in values {
        extra.extend_from_slice(&value.to_le_bytes());
    }
    extra
}
