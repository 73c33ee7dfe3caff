//! Reading files of a storage: positioned reads and no memory maps, so a disk error is an error.
//!
//! Every read uses [`ReadFile`], which records it in the I/O trace.

use std::{
    fs::File,
    io::{self, IoSliceMut},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::Arc,
};

use io_trace::{Access, FileTag, Operation, errno};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use storage_format::checksum::crc32c_append;

use crate::{
    file_ends::FileEnds,
    tier::{Resident, resident_at},
    traced,
};

/// A file that is open for reading.
#[derive(Debug, Clone)]
pub(crate) struct ReadFile {
    file: Arc<File>,
    /// Set while I/O is traced.
    tag: Option<FileTag>,
    /// Set if bytes of it may be absent.
    resident: Option<Arc<Resident>>,
}

impl ReadFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let resident = resident_at(path)?;
        let file = match &resident {
            Some(resident) => Arc::clone(resident.file()),
            None => Arc::new(traced::operation(Operation::Open, path, || {
                File::open(path)
            })?),
        };
        Ok(Self {
            file,
            tag: traced::tag_in_scope(path),
            resident,
        })
    }

    /// The file with another tag.
    pub(crate) fn tagged(self, tag: FileTag) -> Self {
        let tag = Some(tag);
        Self { tag, ..self }
    }

    /// What lets absent bytes be read, if bytes of it may be absent.
    pub(crate) fn resident(&self) -> Option<&Arc<Resident>> {
        self.resident.as_ref()
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Numbers that differ from those of a file that replaces this one: its inode, and the time of
    /// its last change.
    pub(crate) fn version(&self) -> io::Result<[u64; 2]> {
        let metadata = self.file.metadata()?;
        let changed = metadata.ctime().wrapping_mul(1_000_000_000);
        let changed = changed.wrapping_add(metadata.ctime_nsec());
        Ok([metadata.ino(), changed.cast_unsigned()])
    }

    pub(crate) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Fills `buffer` from `offset`; a short read is an error.
    pub(crate) fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.fill_traced(buffer, offset).map(|_| ())
    }

    /// As [`Self::fill`]; also returns whether all bytes were in the page cache, which is only
    /// checked while I/O is traced.
    pub(crate) fn fill_traced(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<bool>> {
        let Some(tag) = &self.tag else {
            return match &self.resident {
                Some(resident) => resident.fill(buffer, offset).map(|()| None),
                None => fill_exactly(&self.file, buffer, offset).map(|()| None),
            };
        };
        let started = tag.begin();
        let result = match &self.resident {
            Some(resident) => resident.fill(buffer, offset).map(|()| Some(false)),
            None => fill_and_report(&self.file, buffer, offset),
        };
        tag.end(started, Operation::Read, || Access {
            offset: Some(offset),
            asked: buffer.len() as u64,
            done: if result.is_ok() {
                buffer.len() as u64
            } else {
                0
            },
            errno: errno(&result),
            cache_hit: *result.as_ref().unwrap_or(&None),
            ..Access::default()
        });
        result
    }

    /// Length and CRC32C of the complete file.
    pub(crate) fn checksum(&self) -> io::Result<(u64, u32)> {
        let mut checksum = 0;
        let length = self.each_window(|bytes| checksum = crc32c_append(checksum, bytes))?;
        Ok((length, checksum))
    }

    /// Passes the complete file to `each`, a small part at a time; returns its length.
    pub(crate) fn each_window(&self, mut each: impl FnMut(&[u8])) -> io::Result<u64> {
        const WINDOW_BYTES: u64 = 256 << 10;
        let (mut at, length) = (0, self.length()?);
        while at < length {
            let window = WINDOW_BYTES.min(length.saturating_sub(at));
            each(&self.read(at, usize::try_from(window).map_err(io::Error::other)?)?);
            at = at.saturating_add(window);
        }
        Ok(length)
    }

    /// Reads `length` bytes at `offset`; a short read is an error.
    pub(crate) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes, offset)?;
        Ok(bytes)
    }
}

fn fill_exactly(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(test)]
    crate::io::faulty::refusals::check(file, buffer.len(), offset)?;
    match file.read_exact_at(buffer, offset) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let ends = FileEnds {
                length: file.metadata()?.len(),
                expected: offset.saturating_add(buffer.len() as u64),
            };
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, ends))
        }
        result => result,
    }
}

/// Reads what is in the page cache first, to find out whether that is all.
fn fill_and_report(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<Option<bool>> {
    let mut slices = [IoSliceMut::new(buffer)];
    let cached = match preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
        Ok(count) => count,
        Err(Errno::AGAIN | Errno::INTR) => 0,
        // The file system does not support this, or the error occurs again in the read itself.
        Err(_) => return fill_exactly(file, buffer, offset).map(|()| None),
    };
    if cached == buffer.len() {
        return Ok(Some(true));
    }
    let rest = offset.saturating_add(cached as u64);
    fill_exactly(file, &mut buffer[cached..], rest)?;
    Ok(Some(false))
}

/// Reads `length` bytes at `offset`; a short read is an error.
pub(crate) fn read_at(path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    ReadFile::open(path)?.read(offset, length)
}

/// Reads a complete file that the server wrote.
pub(crate) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    read_small(path, u64::MAX)
}

/// Length and CRC32C of a complete file of any size.
pub(crate) fn checksum_of(path: &Path) -> io::Result<(u64, u32)> {
    ReadFile::open(path)?.checksum()
}

/// Reads a complete small file; more than `max` bytes is an error.
pub(crate) fn read_small(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    // Who opens a pipe waits for a writer.
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(rustix::io::Errno::NXIO.into());
    }
    let file = ReadFile::open(path)?;
    let length = file.length()?;
    if length > max {
        let problem = format!("the file has {length} bytes, the limit is {max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    file.read(0, usize::try_from(length).map_err(io::Error::other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_past_the_end_names_the_lengths() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1; 10]).unwrap();
        let error = read_at(file.path(), 4, 8).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(error.to_string(), "the file ends at byte 10, 12 expected");
        let error = crate::StorageError::io("read", file.path())(error);
        assert_eq!(error.code(), "damaged");
        assert!(
            error
                .to_string()
                .contains("12 bytes are needed, 10 are there"),
            "{error}"
        );
        assert_eq!(read_at(file.path(), 4, 6).unwrap(), [1; 6]);
    }
}
