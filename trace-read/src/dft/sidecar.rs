//! Sidecars beside trace files: `FILE.idx`.

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use trace_index::{Identity, Index};

use super::attachment::{self, FileFacts};
use crate::sidecar::OpenSidecar;
use crate::{LocalFile, ReadError};

/// Where the sidecar of `path` lies.
pub fn sidecar_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".idx");
    PathBuf::from(name)
}

/// Last write of a file, in nanoseconds since the epoch.
pub(super) fn modified(metadata: &Metadata) -> Option<i64> {
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
    let mut file = fs::File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut checksum = 0;
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
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
        fs::File::open(folder_of(path))?.sync_all()
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
pub(super) fn temporary(path: &Path, suffix: &str) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".tracehold-")
        .suffix(suffix)
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder_of(path))
}

/// Why a sidecar is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unusable {
    /// There is none.
    Missing,
    /// It is damaged, or another file's.
    Refused(String),
}

impl OpenSidecar {
    /// Opens the sidecar of `path` unless it is not usable.
    pub(super) fn open(path: &Path) -> Result<OpenSidecar, Unusable> {
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

    /// What the file says about itself; `None` where another version wrote it.
    pub(super) fn facts(&self) -> Result<Option<FileFacts>, ReadError> {
        let bytes = self.attachment(attachment::FACTS)?;
        Ok(bytes.and_then(|bytes| attachment::decode_facts(&bytes)))
    }

    /// What the hashes of the file stand for, packed; `None` where it is damaged.
    pub(super) fn names(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.sound_attachment(attachment::NAMES)
    }
}
