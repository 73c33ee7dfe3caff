//! Writing sidecars next to trace files, and the checksum of a trace file while it is read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use chunk_index::{FileStamp, Identity, Index};

use crate::sidecar_file::{folder_of, modified, sidecar_path, stamp_at_rest};
use crate::{Progress, ReadError};

/// Writes the sidecar of `path` atomically: into a temporary file, which is then renamed.
///
/// # Errors
///
/// When it cannot be written.
pub fn write_sidecar(path: &Path, index: &Index) -> Result<u64, ReadError> {
    let target = sidecar_path(path);
    let place = target.display().to_string();
    let bytes = index.encode().map_err(|source| ReadError::Sidecar {
        place: place.clone(),
        source,
    })?;
    let write = || {
        // Concurrent writers use different temporary files; the last rename wins, both are valid.
        let mut file = temporary(path, ".idx.tmp")?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        file.persist(&target).map_err(|error| error.error)?;
        File::open(folder_of(path))?.sync_all()
    };
    write().map_err(|error| ReadError::fetch(&*place, error))?;
    Ok(bytes.len() as u64)
}

/// Removes a derived file, if it exists.
pub(super) fn remove_derived(path: &Path) -> Result<(), ReadError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ReadError::fetch(path.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

const TEMPORARY_PREFIX: &str = ".tracehold-";
/// Endings of temporary files.
const TEMPORARY_ENDINGS: [&str; 2] = [".idx.tmp", ".cidx.tmp"];

/// A temporary file in the folder of `path` that is removed unless it is renamed. It is locked
/// while it is open, so that [`remove_leftovers`] spares it.
pub(crate) fn temporary(path: &Path, suffix: &str) -> io::Result<tempfile::NamedTempFile> {
    debug_assert!(TEMPORARY_ENDINGS.contains(&suffix), "{suffix} is removed");
    loop {
        let file = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .suffix(suffix)
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder_of(path))?;
        match file.as_file().lock() {
            // It may have been removed before it was locked.
            Ok(()) if !file.path().exists() => {}
            // A file system without locks has no leftovers removed, either.
            Ok(()) | Err(_) => return Ok(file),
        }
    }
}

/// Removes the temporary files in a folder whose writers were killed. Returns how many there were.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn remove_leftovers(folder: &Path) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_temporary = name.starts_with(TEMPORARY_PREFIX)
            && TEMPORARY_ENDINGS
                .iter()
                .any(|ending| name.ends_with(ending));
        // Whoever writes one holds its lock.
        if is_temporary
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
            && fs::remove_file(&path).is_ok()
        {
            removed += 1;
        }
    }
    Ok(removed)
}

/// A file whose checksum is computed while it is read.
pub(crate) struct ChecksummedFile {
    file: File,
    modified: Option<i64>,
    stamp: Option<FileStamp>,
    checksum: u32,
    len: u64,
    /// The length and the checksum of what the file begins with.
    before: Option<(u64, u64)>,
    progress: Progress,
}

impl ChecksummedFile {
    /// Opens `path`.
    pub(crate) fn open(path: &Path, progress: &Progress) -> io::Result<ChecksummedFile> {
        let file = File::open(path)?;
        // Read first: a later write to the file makes its index stale.
        let metadata = file.metadata()?;
        Ok(ChecksummedFile {
            modified: modified(&metadata),
            stamp: stamp_at_rest(&metadata),
            file,
            checksum: 0,
            len: 0,
            before: None,
            progress: progress.clone(),
        })
    }

    /// Goes on at `offset`. Reading fails where it shows that the file does not begin with the one
    /// of this length and checksum.
    pub(crate) fn resume(&mut self, offset: u64, before: (u64, u64)) -> io::Result<()> {
        self.before = Some(before);
        io::copy(&mut self.by_ref().take(offset), &mut io::sink())?;
        Ok(())
    }

    /// Reads the rest of the file; its identity, and its stamp if it was at rest.
    pub(crate) fn finish(mut self) -> io::Result<(Identity, Option<FileStamp>)> {
        io::copy(&mut self, &mut io::sink())?;
        let identity = Identity {
            length: self.len,
            modified: self.modified,
            checksum: Some(u64::from(self.checksum)),
        };
        Ok((identity, self.stamp))
    }
}

impl Read for ChecksummedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let before = self.before.filter(|(length, _)| self.len < *length);
        let most = before.map_or(u64::MAX, |(length, _)| length - self.len);
        let most = usize::try_from(most)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = self.file.read(&mut buffer[..most])?;
        self.checksum = crc32c::crc32c_append(self.checksum, &buffer[..read]);
        self.len += read as u64;
        self.progress.add_bytes(read as u64);
        match before {
            Some((length, checksum))
                if self.len == length && u64::from(self.checksum) != checksum =>
            {
                Err(io::Error::other(
                    "the file begins with other bytes than before",
                ))
            }
            _ => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_files_without_a_writer_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.pfw");
        let open = temporary(&path, ".idx.tmp").unwrap();
        let left = temporary(&path, ".cidx.tmp").unwrap().keep().unwrap();
        drop(left.0);
        let others = ["trace.pfw.idx", ".tracehold-x", "x.idx.tmp"];
        for name in others {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        assert_eq!(remove_leftovers(folder.path()).unwrap(), 1);
        assert!(open.path().exists() && !left.1.exists());
        assert!(others.iter().all(|name| folder.path().join(name).exists()));
        assert_eq!(remove_leftovers(folder.path()).unwrap(), 0);
    }
}
