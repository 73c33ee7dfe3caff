//! Reading files of a storage: positioned, checked, never a map, so that a disk error is an error.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// Reads `length` bytes at `offset`; fewer is an error.
pub(crate) fn read_at(path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    read_file_at(&File::open(path)?, offset, length)
}

/// Reads `length` bytes at `offset` of an open file; fewer is an error.
pub(crate) fn read_file_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Reads a whole small file; more than `max` bytes is an error.
pub(crate) fn read_small(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > max {
        let problem = format!("the file has {length} bytes, the limit is {max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    read_file_at(&file, 0, usize::try_from(length).map_err(io::Error::other)?)
}
