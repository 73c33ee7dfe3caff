//! Reads past the page cache.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use io_trace::{Access, FileTag, Operation, errno};
use rustix::{
    fs::OFlags,
    io::{Errno, pread},
};

use super::{
    BLOCK_BYTES, BUFFER_BYTES,
    buffer::{aligned_start, slack_memory},
};
use crate::traced;

/// A file that is read from the disk where the file system allows it, and otherwise through the
/// page cache.
#[derive(Debug)]
pub(crate) struct DirectFile {
    file: File,
    path: PathBuf,
    is_direct: bool,
    memory: Vec<u8>,
    tag: Option<FileTag>,
}

impl DirectFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let direct = OFlags::DIRECT.bits().cast_signed();
        let open = |flags| {
            let open = || OpenOptions::new().read(true).custom_flags(flags).open(path);
            traced::operation(Operation::Open, path, open)
        };
        let (file, is_direct) = match open(direct) {
            Ok(file) => (file, true),
            Err(error) if is_refused(&error) => (open(0)?, false),
            Err(error) => return Err(error),
        };
        Ok(Self {
            file,
            path: path.to_owned(),
            is_direct,
            memory: slack_memory(),
            tag: traced::tag_in_scope(path),
        })
    }

    /// The bytes at `offset`, a multiple of [`BUFFER_BYTES`]: as many, or fewer at the end of the
    /// file.
    pub(crate) fn read(&mut self, offset: u64) -> io::Result<&[u8]> {
        let started = self.tag.as_ref().map(FileTag::begin);
        let mut result = self.fill(offset);
        if self.is_direct && result.as_ref().is_err_and(is_refused) {
            // Some file systems say so only now.
            self.file = File::open(&self.path)?;
            self.is_direct = false;
            result = self.fill(offset);
        }
        if let Some((tag, started)) = self.tag.as_ref().zip(started) {
            tag.end(started, Operation::Read, || Access {
                offset: Some(offset),
                asked: BUFFER_BYTES as u64,
                done: *result.as_ref().unwrap_or(&0) as u64,
                errno: errno(&result),
                cache_hit: self.is_direct.then_some(false),
                ..Access::default()
            });
        }
        let count = result?;
        let start = aligned_start(&self.memory);
        Ok(&self.memory[start..][..count])
    }

    fn fill(&mut self, offset: u64) -> io::Result<usize> {
        let start = aligned_start(&self.memory);
        let buffer = &mut self.memory[start..][..BUFFER_BYTES];
        let mut filled = 0;
        while filled < BUFFER_BYTES {
            let at = offset.saturating_add(filled as u64);
            match pread(&self.file, &mut buffer[filled..], at) {
                Ok(0) => break,
                Ok(count) => {
                    filled = filled.saturating_add(count);
                    // The end of the file; nothing can be read at an odd offset.
                    if self.is_direct && !count.is_multiple_of(BLOCK_BYTES) {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }
}

/// Whether a file system does not support direct reads.
fn is_refused(error: &io::Error) -> bool {
    let refusals = [Errno::INVAL, Errno::OPNOTSUPP];
    Errno::from_io_error(error).is_some_and(|errno| refusals.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for length in [
            0,
            1,
            4095,
            4096,
            4097,
            BUFFER_BYTES,
            2 * BUFFER_BYTES + 5000,
        ] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            let mut file = DirectFile::open(&path).unwrap();
            let mut found = Vec::new();
            loop {
                let part = file.read(found.len() as u64).unwrap();
                if part.is_empty() {
                    break;
                }
                found.extend_from_slice(part);
            }
            assert!(found == bytes, "{length}");
        }
    }
}
