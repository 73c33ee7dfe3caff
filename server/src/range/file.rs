//! File reads that do not block other requests.
//!
//! Most reads hit the page cache and are made at once, in the task of the request. If the kernel
//! would have to wait for the disk (`RWF_NOWAIT`), the read moves to the blocking pool. The I/O
//! trace records both, the first kind as a page cache hit.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use io_trace::{Access, FileTag, Operation, errno};
use rustix::fs::sendfile;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use storage_core::{CheckedFile, RangeScan, StorageError};

use super::header::ByteRange;
use super::residency::Residency;

/// A file that is served.
#[derive(Debug)]
pub(crate) struct RangeFile {
    file: Arc<File>,
    tag: FileTag,
    /// Compares its bytes with their checksums.
    checked: Option<CheckedFile>,
    residency: Residency,
}

impl RangeFile {
    /// A file, with its tag for the I/O trace.
    pub(crate) fn new(file: Arc<File>, tag: FileTag, checked: CheckedFile) -> Self {
        Self {
            file,
            tag,
            checked: Some(checked),
            residency: Residency::new(),
        }
    }

    /// A file that is not traced and has no checksums.
    #[cfg(test)]
    pub(crate) fn untraced(file: File) -> Self {
        let tag = FileTag::new(&Arc::default(), "file", io_trace::FileClass::Other, None);
        Self {
            file: Arc::new(file),
            tag,
            checked: None,
            residency: Residency::new(),
        }
    }

    /// Whether the bytes of `ranges` are known to match their checksums.
    pub(super) fn are_checked(&self, ranges: &[ByteRange]) -> Result<bool, StorageError> {
        match &self.checked {
            Some(checked) => checked.are_checked(ranges.iter().copied().map(half_open)),
            None => Ok(true),
        }
    }

    /// The last byte of the block that contains a byte; blocks are compared as a whole.
    pub(super) fn block_last(&self, offset: u64) -> u64 {
        let end = self.checked.as_ref().map(|file| file.block_end(offset));
        end.map_or(u64::MAX, |end| end.saturating_sub(1))
    }

    /// Compares the bytes of `range` with their checksums, unless that was done before.
    pub(super) async fn ensure(&self, range: ByteRange) -> Result<(), StorageError> {
        match &self.checked {
            Some(checked) => checked.ensure(half_open(range)).await,
            None => Ok(()),
        }
    }

    /// Whether bytes of the file may be absent: all ranges are fetched at once then.
    pub(super) fn may_have_holes(&self) -> bool {
        let checked = self.checked.as_ref();
        checked.is_some_and(CheckedFile::may_have_holes)
    }

    /// A reader of a range that is so long that its bytes pass by the file, if some are absent;
    /// returned when the first ones have arrived.
    pub(super) async fn scan(&self, range: ByteRange) -> Result<Option<RangeScan>, StorageError> {
        match &self.checked {
            Some(checked) => checked.scan(half_open(range)).await,
            None => Ok(None),
        }
    }

    /// Records a read of bytes that are not in the file.
    pub(super) fn note_scanned(&self, offset: u64, length: usize) {
        let started = self.tag.begin();
        self.tag.end(started, Operation::Read, || Access {
            offset: Some(offset),
            asked: length as u64,
            done: length as u64,
            cache_hit: Some(false),
            ..Access::default()
        });
    }

    /// As [`Self::ensure`] of each range.
    pub(super) async fn ensure_all(&self, ranges: Vec<ByteRange>) -> Result<(), StorageError> {
        match &self.checked {
            Some(checked) => {
                let ranges = ranges.into_iter().map(half_open);
                checked.ensure_all(ranges.collect()).await
            }
            None => Ok(()),
        }
    }

    /// Whether damage of the file is known.
    pub(super) fn is_damaged(&self) -> bool {
        let checked = self.checked.as_ref();
        checked.is_some_and(CheckedFile::is_damaged)
    }

    /// Whether it holds up space that was given to others.
    pub(super) fn is_given_up(&self) -> bool {
        let checked = self.checked.as_ref();
        checked.is_some_and(CheckedFile::is_given_up)
    }

    /// Whether the bytes around `offset` can probably be read without waiting for the disk.
    pub(super) fn is_cached(&self, offset: u64) -> bool {
        let ask = || matches!(read_cached(&self.file, &mut [0], offset), Ok(1));
        self.residency.is_cached(offset, ask)
    }

    /// Lets the kernel send up to `length` bytes from `offset`; like a write, it may send fewer.
    pub(crate) fn send(&self, socket: impl AsFd, offset: u64, length: usize) -> io::Result<usize> {
        let started = self.tag.begin();
        // The file position is shared with other readers and is not changed.
        let mut position = offset;
        let result = sendfile(socket, &self.file, Some(&mut position), length);
        let result = match result {
            Ok(0) => Err(ended_early()),
            result => result.map_err(io::Error::from),
        };
        let would_block = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        // Waiting for the client is not I/O of the server.
        if !result.as_ref().is_err_and(would_block) {
            self.tag.end(started, Operation::Read, || Access {
                offset: Some(offset),
                asked: length as u64,
                done: *result.as_ref().unwrap_or(&0) as u64,
                errno: errno(&result),
                cache_hit: result.is_ok().then_some(true),
                ..Access::default()
            });
        }
        result
    }

    /// Reads what is in the page cache at `offset` into `buffer`; returns 0 if nothing is.
    pub(super) fn read_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let started = self.tag.begin();
        let requested = buffer.len() as u64;
        let result = read_cached(&self.file, buffer, offset);
        // Bytes that are not in memory are read, and traced, by `read_exact`.
        if !matches!(result, Ok(0)) {
            self.tag.end(started, Operation::Read, || Access {
                offset: Some(offset),
                asked: requested,
                done: *result.as_ref().unwrap_or(&0) as u64,
                errno: errno(&result),
                cache_hit: result.is_ok().then_some(true),
                ..Access::default()
            });
        }
        result
    }

    /// Fills `buffer` from `offset`, waiting for the disk if necessary.
    pub(super) fn read_exact(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let started = self.tag.begin();
        let requested = buffer.len() as u64;
        let result = read_exact(&self.file, buffer, offset);
        self.tag.end(started, Operation::Read, || Access {
            offset: Some(offset),
            asked: requested,
            done: if result.is_ok() { requested } else { 0 },
            errno: errno(&result),
            cache_hit: Some(false),
            ..Access::default()
        });
        result
    }
}

fn half_open(range: ByteRange) -> Range<u64> {
    range.first..range.last.saturating_add(1)
}

fn read_cached(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        let mut slices = [IoSliceMut::new(buffer)];
        return match preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(0) => Err(ended_early()),
            Ok(count) => Ok(count),
            Err(Errno::INTR) => continue,
            // Not in memory, or the file system does not support the flag.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(0),
            Err(error) => Err(error.into()),
        };
    }
}

fn read_exact(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match pread(file, &mut *buffer, offset) {
            Ok(0) => return Err(ended_early()),
            Ok(count) => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The file is shorter than announced to the reader.
fn ended_early() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the file ends before its known length",
    )
}
