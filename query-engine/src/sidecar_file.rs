//! Sidecars next to trace files: `FILE.idx`, or `.FILE.idx` in the folder of a CTF trace.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use chunk_index::{Identity, Index, Sidecar};

use crate::file_content::is_ctf_folder;
use crate::open_sidecar::OpenSidecar;
use crate::{LocalFile, ReadError};

/// Path of the sidecar of `path`. In the folder of a CTF trace it is hidden, because CTF
/// readers read every other file there as packets.
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
    is_ctf_folder(folder_of(path))
}

/// Time of the last write of a file, in nanoseconds since the epoch.
pub(crate) fn modified(metadata: &Metadata) -> Option<i64> {
    let since = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
}

/// The identity of the file at `path`.
///
/// # Errors
///
/// When its metadata cannot be read, or the file for its checksum.
pub fn identity(path: &Path, with_checksum: bool) -> io::Result<Identity> {
    let metadata = fs::metadata(path)?;
    let checksum = if with_checksum {
        Some(u64::from(checksum(path)?))
    } else {
        None
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
    /// It is damaged or belongs to another file, as described.
    Refused(String),
}

impl OpenSidecar {
    /// Opens the sidecar of `path`, if it is usable.
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
            // A copy of the file has another time and the same bytes.
            found = identity(path, true).map_err(|error| refused(&error))?;
        }
        indexed.check(&found).map_err(|stale| refused(&stale))?;
        Ok(open)
    }
}

/// The complete index of `path`, if it belongs to the file, and the bytes of the sidecar.
pub(crate) fn usable(path: &Path) -> Option<(Index, u64)> {
    let bytes = fs::read(sidecar_path(path)).ok()?;
    let index = Sidecar::read(&bytes).ok()?;
    let same = |with_checksum| {
        let found = identity(path, with_checksum);
        found.is_ok_and(|found| index.identity().check(&found).is_ok())
    };
    (same(false) || same(true)).then_some((index, bytes.len() as u64))
}
