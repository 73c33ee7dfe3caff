//! Which parts of a file were written.

use std::{
    fs::File,
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use rustix::fs::{SeekFrom, seek};
use storage_format::paths::{FileName, FileRole};

/// The parts of a file that are no holes.
pub(super) fn data_of(file: &File, length: u64) -> io::Result<Vec<Range<u64>>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < length {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(data))?;
        if end <= at {
            break;
        }
        found.push(data..end.min(length));
        at = end;
    }
    Ok(found)
}

/// Whether a file has parts that were never written. Blocks the thread.
pub(crate) fn has_holes(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let parts = data_of(&file, length)?;
    let written: u64 = parts
        .iter()
        .map(|part| part.end.saturating_sub(part.start))
        .sum();
    Ok(written < length)
}

/// The files of a folder that may have been evicted, and have holes. Blocks the thread.
pub(super) fn files_with_holes(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let role = entry.file_name().to_string_lossy().parse::<FileName>();
        let role = role.map(|name| name.role());
        let is_evictable = matches!(
            role,
            Ok(FileRole::Data | FileRole::ChunkIndex | FileRole::Provenance)
        );
        let path = entry.path();
        if is_evictable && has_holes(&path)? {
            found.push(path);
        }
    }
    Ok(found)
}
