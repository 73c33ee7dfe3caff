//! Writing sidecars next to trace files, and the checksum of a trace file while it is read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use chunk_index::{Identity, Index};

use crate::ReadError;
use crate::sidecar_file::{folder_of, modified, sidecar_path};

/// Writes the sidecar of `path`, whole or not at all: into a file beside it that is then renamed.
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
        // Two who index one file at once write two files; the last rename wins, both are right.
        let mut file = temporary(path, ".idx.tmp")?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        file.persist(&target).map_err(|error| error.error)?;
        File::open(folder_of(path))?.sync_all()
    };
    write().map_err(|error| ReadError::fetch(&*place, error))?;
    Ok(bytes.len() as u64)
}

/// A file in the folder of `path` that goes away unless it gets a name.
pub(crate) fn temporary(path: &Path, suffix: &str) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".tracehold-")
        .suffix(suffix)
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder_of(path))
}

/// A file whose checksum is made while it is read.
pub(crate) struct Checked {
    file: File,
    modified: Option<i64>,
    checksum: u32,
    len: u64,
}

impl Checked {
    /// Opens `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Checked> {
        let file = File::open(path)?;
        Ok(Checked {
            // What is written from here on makes the index one of another file.
            modified: modified(&file.metadata()?),
            file,
            checksum: 0,
            len: 0,
        })
    }

    /// By what the file is known, once all that is left of it was read.
    pub(crate) fn finish(mut self) -> io::Result<Identity> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Identity {
            length: self.len,
            modified: self.modified,
            checksum: Some(u64::from(self.checksum)),
        })
    }
}

impl Read for Checked {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(room)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &room[..read]);
        self.len += read as u64;
        Ok(read)
    }
}
