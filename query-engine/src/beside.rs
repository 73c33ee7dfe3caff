//! Sidecars beside trace files: `FILE.idx`, or `.FILE.idx` in the folder of a CTF trace.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use chunk_index::{Identity, Index, Sidecar};

use crate::sidecar::OpenSidecar;
use crate::{LocalFile, ReadError};

/// Where the sidecar of `path` lies: in a folder with a file `metadata` hidden, because readers of
/// CTF take every other file there for packets.
pub fn sidecar_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".idx");
    if is_in_trace_folder(path) {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        name = hidden;
    }
    path.with_file_name(name)
}

fn is_in_trace_folder(path: &Path) -> bool {
    folder_of(path).join("metadata").is_file()
}

/// Last write of a file, in nanoseconds since the epoch.
pub(crate) fn modified(metadata: &Metadata) -> Option<i64> {
    let since = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
}

/// By what the file at `path` is known.
///
/// # Errors
///
/// When it cannot be asked, or read for its checksum.
pub fn identity(path: &Path, with_checksum: bool) -> io::Result<Identity> {
    let metadata = fs::metadata(path)?;
    let checksum = match with_checksum {
        true => Some(u64::from(checksum(path)?)),
        false => None,
    };
    Ok(Identity {
        length: metadata.len(),
        modified: modified(&metadata),
        checksum,
    })
}

fn checksum(path: &Path) -> io::Result<u32> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut checksum = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(checksum),
            read => checksum = crc32c::crc32c_append(checksum, &buffer[..read]),
        }
    }
}

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

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A file in the folder of `path` that goes away unless it gets a name.
pub(crate) fn temporary(path: &Path, suffix: &str) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".tracehold-")
        .suffix(suffix)
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder_of(path))
}

/// Why a sidecar is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// There is none.
    Missing,
    /// It is damaged, or another file's.
    Refused(String),
}

impl OpenSidecar {
    /// Opens the sidecar of `path` unless it is not usable.
    pub(crate) fn open(path: &Path) -> Result<OpenSidecar, Unusable> {
        let target = sidecar_path(path);
        let refused = |reason: &dyn std::fmt::Display| {
            Unusable::Refused(format!("{}: {reason}", target.display()))
        };
        let local = match LocalFile::open(&target) {
            Ok(local) => local,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Missing),
            Err(error) => return Err(refused(&error)),
        };
        let len = local
            .file()
            .metadata()
            .map_err(|error| refused(&error))?
            .len();
        let open = OpenSidecar::of_file(Arc::new(local), len).map_err(|error| match error {
            ReadError::Sidecar { source, .. } => refused(&source),
            other => refused(&other),
        })?;
        let mut found = identity(path, false).map_err(|error| refused(&error))?;
        let indexed = open.index().identity();
        if indexed.check(&found).is_err() && indexed.length == found.length {
            // A copy has another time and the same bytes.
            found = identity(path, true).map_err(|error| refused(&error))?;
        }
        indexed.check(&found).map_err(|stale| refused(&stale))?;
        Ok(open)
    }
}

/// The index in the sidecar of `path`, whole, when it belongs to the file, and its bytes.
pub(crate) fn usable(path: &Path) -> Option<(Index, u64)> {
    let bytes = fs::read(sidecar_path(path)).ok()?;
    let index = Sidecar::read(&bytes).ok()?;
    let same = |with_checksum| {
        let found = identity(path, with_checksum);
        found.is_ok_and(|found| index.identity().check(&found).is_ok())
    };
    (same(false) || same(true)).then_some((index, bytes.len() as u64))
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
