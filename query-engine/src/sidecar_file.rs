//! Sidecars next to trace files: `FILE.idx`, or `.FILE.idx` in the folder of a CTF trace.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use chunk_index::{FileStamp, Identity, Index, Sidecar};

use crate::file_content::is_ctf_folder;
use crate::open_sidecar::OpenSidecar;
use crate::{LocalFile, ReadError, clock};

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

/// The stamp of a file.
fn stamp(metadata: &Metadata) -> FileStamp {
    let nanoseconds = metadata.ctime().saturating_mul(1_000_000_000);
    FileStamp {
        inode: metadata.ino(),
        changed: nanoseconds.saturating_add(metadata.ctime_nsec()),
    }
}

/// A file that changed later than this before now may change again without another time: clocks
/// of file systems advance in steps.
const AT_REST: Duration = Duration::from_millis(100);

/// The stamp of a file that was at rest when it was opened.
pub(crate) fn stamp_at_rest(metadata: &Metadata) -> Option<FileStamp> {
    let stamp = stamp(metadata);
    let changed = Duration::from_nanos(u64::try_from(stamp.changed).ok()?);
    let since = clock::now().duration_since(UNIX_EPOCH + changed).ok()?;
    (since > AT_REST).then_some(stamp)
}

/// Adds the stamp of its file to an index, if it has another one. Returns whether it had.
pub(crate) fn refresh_stamp(path: &Path, index: &mut Index) -> bool {
    let now = fs::metadata(path).ok();
    let Some(now) = now.and_then(|metadata| stamp_at_rest(&metadata)) else {
        return false;
    };
    let bytes = now.encode();
    let is_old = index.attachment(FileStamp::NAME).map(AsRef::as_ref) != Some(bytes.as_slice());
    if is_old {
        index.attach(FileStamp::NAME, bytes);
    }
    is_old
}

/// Whether a file is the one that an index was made of. A file with another stamp, such as a copy,
/// is read to compare its checksum: length and time of a modification can be restored.
fn check_identity(path: &Path, indexed: &Identity, bytes: Option<&[u8]>) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    let known = bytes.and_then(|bytes| FileStamp::decode(bytes).ok());
    let is_unchanged = known == Some(stamp(&metadata));
    let has_length = indexed.length == metadata.len();
    let found = identity(path, has_length && !is_unchanged);
    let found = found.map_err(|error| error.to_string())?;
    let checked = match (is_unchanged, has_length) {
        (true, true) => Ok(()),
        _ => indexed.check(&found),
    };
    checked.map_err(|stale| stale.to_string())
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
        let stamp = open.undamaged_attachment(FileStamp::NAME);
        let stamp = stamp.map_err(|error| refused(&error))?;
        let checked = check_identity(path, open.index().identity(), stamp.as_deref());
        checked.map_err(|reason| refused(&reason))?;
        Ok(open)
    }
}

/// The complete index of `path`, which may be of other bytes, and the bytes of the sidecar.
pub(crate) fn found(path: &Path) -> Option<(Index, u64)> {
    let bytes = fs::read(sidecar_path(path)).ok()?;
    let index = Sidecar::read(&bytes).ok()?;
    Some((index, bytes.len() as u64))
}

/// The complete index of `path`, if it belongs to the file, and the bytes of the sidecar.
pub(crate) fn usable(path: &Path) -> Option<(Index, u64)> {
    found(path).filter(|(index, _)| is_of(path, index))
}

/// Whether an index belongs to the file at `path`.
pub(crate) fn is_of(path: &Path, index: &Index) -> bool {
    let stamp = index.attachment(FileStamp::NAME).map(AsRef::as_ref);
    check_identity(path, index.identity(), stamp).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_believed_while_its_inode_is_unchanged_and_by_its_checksum_otherwise() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let metadata = fs::metadata(&path).unwrap();
        let now = stamp(&metadata);
        let right = identity(&path, true).unwrap();
        let wrong = Identity {
            checksum: Some(1),
            ..right
        };
        let shorter = Identity {
            length: right.length - 1,
            ..right
        };
        let changed = FileStamp {
            changed: now.changed - 1,
            ..now
        };
        let replaced = FileStamp {
            inode: now.inode + 1,
            ..now
        };
        for (indexed, stamp, expected) in [
            (right, Some(now), true),
            (right, Some(changed), true),
            (right, Some(replaced), true),
            (right, None, true),
            // The checksum is not computed.
            (wrong, Some(now), true),
            (wrong, Some(changed), false),
            (wrong, Some(replaced), false),
            (wrong, None, false),
            (shorter, Some(now), false),
        ] {
            let bytes = stamp.map(|stamp| stamp.encode());
            let checked = check_identity(&path, &indexed, bytes.as_deref());
            assert_eq!(
                checked.is_ok(),
                expected,
                "{indexed:?} {stamp:?}: {checked:?}"
            );
        }
    }
}
