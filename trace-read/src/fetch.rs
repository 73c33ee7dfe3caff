//! The door through which bytes come.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of one file, from wherever it lies.
///
/// Implemented for local files here, for remote storages by the client (one multi-range request a
/// call), and for storages in the server by its own reader.
pub trait Fetch: Send + Sync {
    /// What messages call the file.
    fn place(&self) -> String;

    /// The bytes of each range, in the order of `ranges`, which are sorted and do not overlap.
    ///
    /// # Errors
    ///
    /// When any of the bytes cannot be had; a range beyond the end is
    /// [`io::ErrorKind::UnexpectedEof`].
    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>>;

    /// The bytes of one range.
    ///
    /// # Errors
    ///
    /// As [`Fetch::fetch`].
    fn fetch_one(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut parts = self.fetch(std::slice::from_ref(&range))?;
        parts
            .pop()
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// A file on this machine.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
}

impl LocalFile {
    /// Opens `path`.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<LocalFile> {
        Ok(LocalFile {
            path: path.to_owned(),
            file: File::open(path)?,
        })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Fetch for LocalFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let read = |range: &Range<u64>| {
            let len = usize::try_from(range.end.saturating_sub(range.start))
                .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            let mut bytes = vec![0; len];
            self.file.read_exact_at(&mut bytes, range.start)?;
            Ok(bytes)
        };
        ranges.iter().map(read).collect()
    }
}
