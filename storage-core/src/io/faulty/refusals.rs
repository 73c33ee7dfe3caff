//! Bytes of files that cannot be read, as on a disk with bad blocks.

use std::{fs::File, io, ops::Range, os::unix::fs::MetadataExt, path::Path};

use parking_lot::Mutex;
use rustix::io::Errno;

/// Bytes of a file, by device and inode, and the error of their reads.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RefusedBytes {
    file: (u64, u64),
    bytes: Range<u64>,
    errno: Errno,
}

static REFUSED: Mutex<Vec<RefusedBytes>> = Mutex::new(Vec::new());

/// Bytes that are refused as long as this exists.
#[derive(Debug)]
pub(crate) struct Refusal(RefusedBytes);

/// Refuses reads of these bytes.
pub(crate) fn refuse(path: &Path, bytes: Range<u64>, errno: Errno) -> Refusal {
    let metadata = std::fs::metadata(path).unwrap();
    let refused = RefusedBytes {
        file: (metadata.dev(), metadata.ino()),
        bytes,
        errno,
    };
    REFUSED.lock().push(refused.clone());
    Refusal(refused)
}

impl Drop for Refusal {
    fn drop(&mut self) {
        let mut all = REFUSED.lock();
        if let Some(at) = all.iter().position(|refused| *refused == self.0) {
            all.swap_remove(at);
        }
    }
}

/// Fails if some of these bytes are refused.
pub(crate) fn check(file: &File, length: usize, offset: u64) -> io::Result<()> {
    let all = REFUSED.lock();
    if all.is_empty() {
        return Ok(());
    }
    let metadata = file.metadata()?;
    let end = offset.saturating_add(length as u64);
    let found = all.iter().find(|refused| {
        let is_file = refused.file == (metadata.dev(), metadata.ino());
        is_file && refused.bytes.start < end && offset < refused.bytes.end
    });
    found.map_or(Ok(()), |refused| Err(refused.errno.into()))
}
