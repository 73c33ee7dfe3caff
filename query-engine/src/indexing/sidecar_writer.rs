//! Writing sidecars next to trace files, and the checksum of a trace file while it is read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use chunk_index::{Identity, Index};

use crate::ReadError;
use crate::sidecar_file::{folder_of, modified, sidecar_path};

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

/// A temporary file in the folder of `path` that is removed unless it is renamed.
pub(crate) fn temporary(path: &Path, suffix: &str) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".tracehold-")
        .suffix(suffix)
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder_of(path))
}

/// A file whose checksum is computed while it is read.
pub(crate) struct ChecksummedFile {
    file: File,
    modified: Option<i64>,
    checksum: u32,
    len: u64,
}

impl ChecksummedFile {
    /// Opens `path`.
    pub(crate) fn open(path: &Path) -> io::Result<ChecksummedFile> {
        let file = File::open(path)?;
        Ok(ChecksummedFile {
            // Read first: a later write to the file makes its index stale.
            modified: modified(&file.metadata()?),
            file,
            checksum: 0,
            len: 0,
        })
    }

    /// Reads the rest of the file; its identity.
    pub(crate) fn finish(mut self) -> io::Result<Identity> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Identity {
            length: self.len,
            modified: self.modified,
            checksum: Some(u64::from(self.checksum)),
        })
    }
}

impl Read for ChecksummedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &buffer[..read]);
        self.len += read as u64;
        Ok(read)
    }
}
