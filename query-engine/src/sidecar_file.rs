//! Sidecars beside trace files: `FILE.idx`, or `.FILE.idx` in the folder of a CTF trace.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use chunk_index::{Identity, Index, Sidecar};

use crate::open_sidecar::OpenSidecar;
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

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
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
