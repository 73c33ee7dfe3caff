//! Reading files of a storage: positioned, checked, never a map, so that a disk error is an error.
//!
//! Every read goes through [`ReadFile`], which tells the I/O trace of it.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use io_trace::{Access, FileTag, Operation, errno};

use crate::traced;

/// A file that is open for reading.
pub(crate) struct ReadFile {
    file: File,
    /// Known while I/O is traced.
    tag: Option<FileTag>,
}

impl ReadFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: traced::operation(Operation::Open, path, || File::open(path))?,
            tag: traced::tag_in_scope(path),
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Fills `room` from `offset`; fewer bytes are an error.
    pub(crate) fn fill(&self, room: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(tag) = &self.tag else {
            return self.file.read_exact_at(room, offset);
        };
        let started = tag.begin();
        let result = self.file.read_exact_at(room, offset);
        tag.end(started, Operation::Read, || Access {
            offset: Some(offset),
            asked: room.len() as u64,
            done: if result.is_ok() { room.len() as u64 } else { 0 },
            errno: errno(&result),
            ..Access::default()
        });
        result
    }

    /// Reads `length` bytes at `offset`; fewer is an error.
    pub(crate) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// Reads `length` bytes at `offset`; fewer is an error.
pub(crate) fn read_at(path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    ReadFile::open(path)?.read(offset, length)
}

/// Reads a whole file of our own making.
pub(crate) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    read_small(path, u64::MAX)
}

/// Reads a whole small file; more than `max` bytes is an error.
pub(crate) fn read_small(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = ReadFile::open(path)?;
    let length = file.length()?;
    if length > max {
        let problem = format!("the file has {length} bytes, the limit is {max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    file.read(0, usize::try_from(length).map_err(io::Error::other)?)
}
