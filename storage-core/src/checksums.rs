//! Checksums of the pieces of data files.
//!
//! Arranging computes them while it writes. A log that is published as it is was written with
//! direct writes, so its bytes are not in memory: a small one is read when the storage is
//! finalized, a larger one afterwards, so that finalization does not wait for it.

use std::{collections::BTreeSet, path::Path};

use parking_lot::Mutex;
use storage_format::{
    DataFileId, FormatError, FormatErrorKind, StorageId,
    checksum_file::{ChecksumFile, FileChecksums, PieceSums},
    paths::{FileName, FileRole, UNPUBLISHED_ENDING},
    storage_file::{FileEntry, StorageFile},
};
use tokio::sync::Notify;

use crate::{
    StorageError,
    io::StagedFile,
    io_thread::IoThread,
    progress::Pace,
    read::{ReadFile, read_small},
};

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;
/// Longest checksum file that is read, in bytes: that of 256 TiB.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The checksums of the first `limit` bytes of a file; `read` gets each part of them.
pub(crate) fn sum_file(
    path: &Path,
    limit: u64,
    mut read: impl FnMut(&[u8]) -> Result<(), StorageError>,
) -> Result<PieceSums, StorageError> {
    let failed = |error| StorageError::io("read", path)(error);
    let file = ReadFile::open(path).map_err(StorageError::io("open", path))?;
    let end = file.length().map_err(failed)?.min(limit);
    let mut window = vec![0; READ_BYTES];
    let mut sums = PieceSums::default();
    while sums.length() < end {
        let left = usize::try_from(end.saturating_sub(sums.length())).unwrap_or(usize::MAX);
        let part = &mut window[..left.min(READ_BYTES)];
        file.fill(part, sums.length()).map_err(failed)?;
        sums.extend(part);
        read(part)?;
    }
    Ok(sums)
}

/// The data file of a listed file.
fn data_file(entry: &FileEntry) -> Option<DataFileId> {
    match entry.name.parse() {
        Ok(FileName::Data(file)) => Some(file),
        _ => None,
    }
}

/// Reads the data files in `files` and compares them with their entries; blocks the thread.
///
/// # Errors
/// When a file cannot be read, does not match its entry, or the work is cancelled.
pub(crate) fn sum_files(
    folder: &Path,
    storage: StorageId,
    files: &[FileEntry],
    pace: &mut Pace,
) -> Result<ChecksumFile, StorageError> {
    let mut found: Vec<FileChecksums> = Vec::new();
    for entry in files {
        let Some(file) = data_file(entry) else {
            continue;
        };
        let path = folder.join(&entry.name);
        let sums = sum_file(&path, u64::MAX, |part| pace.take(part.len() as u64))?;
        let kind = if sums.length() != entry.length {
            FormatErrorKind::Truncated {
                needed: entry.length,
                available: sums.length(),
            }
        } else if sums.checksum() != entry.checksum {
            FormatErrorKind::Checksum {
                stored: entry.checksum,
                computed: sums.checksum(),
            }
        } else {
            found.push(sums.finish(file));
            continue;
        };
        let what = "data file";
        let offset = 0;
        return Err(StorageError::damaged(&path)(FormatError {
            what,
            offset,
            kind,
        }));
    }
    found.sort_by_key(|file| file.file);
    let files = found;
    Ok(ChecksumFile { storage, files })
}

/// Reads the checksum file that a storage file lists; `None` if it lists none.
pub(crate) fn read_checksums(
    folder: &Path,
    file: &StorageFile,
) -> Option<Result<ChecksumFile, StorageError>> {
    let listed = |entry: &&FileEntry| entry.role == FileRole::Checksums;
    let path = folder.join(&file.files.iter().find(listed)?.name);
    let bytes = read_small(&path, FILE_BYTES_MAX).map_err(StorageError::io("read", &path));
    let decode = |bytes: Vec<u8>| {
        let checksums = ChecksumFile::decode(&bytes).map_err(StorageError::damaged(&path))?;
        checksums
            .check_id(file.id)
            .map_err(StorageError::damaged(&path))?;
        Ok(checksums)
    };
    Some(bytes.and_then(decode))
}

/// Publishes a checksum file; returns the entry for the storage file.
pub(crate) async fn publish_checksums(
    folder: &Path,
    file: &ChecksumFile,
    io_thread: &IoThread,
) -> Result<FileEntry, StorageError> {
    let name = FileName::Checksums(file.storage).to_string();
    let path = folder.join(&name);
    let bytes = bytes::Bytes::from(file.encode());
    let entry = FileEntry {
        name: name.clone(),
        role: FileRole::Checksums,
        length: bytes.len() as u64,
        checksum: storage_format::checksum::crc32c(&bytes),
    };
    let published = io_thread.publish(folder.to_owned(), name, bytes).await;
    published.map_err(StorageError::io("write", path))?;
    Ok(entry)
}

/// Notes in the folder of a storage that its checksums are to be computed; blocks the thread.
/// Without this note a storage that was finalized before checksums existed is left as it is.
pub(crate) fn note_missing(folder: &Path, id: StorageId) {
    let path = folder.join(format!("{}{UNPUBLISHED_ENDING}", FileName::Checksums(id)));
    if path.exists() {
        return;
    }
    if let Err(error) = StagedFile::create(path.clone()) {
        tracing::warn!(
            %error, path = %path.display(),
            "if the server ends now, the storage will have no checksums of pieces"
        );
    }
}

/// Whether the checksums of a storage were to be computed when the server ended.
pub(crate) fn are_missing(folder: &Path, file: &StorageFile) -> bool {
    let name = FileName::Checksums(file.id).to_string();
    let unpublished = folder.join(format!("{name}{UNPUBLISHED_ENDING}"));
    !file.lists(FileRole::Checksums) && (folder.join(&name).exists() || unpublished.exists())
}

/// The finalized storages whose checksums are to be computed. One at a time is read.
#[derive(Debug, Default)]
pub(crate) struct MissingChecksums {
    storages: Mutex<BTreeSet<StorageId>>,
    added: Notify,
}

impl MissingChecksums {
    pub(crate) fn add(&self, storage: StorageId) {
        self.storages.lock().insert(storage);
        self.added.notify_one();
    }

    /// The next storage, once there is one.
    pub(crate) async fn next(&self) -> StorageId {
        loop {
            let next = self.storages.lock().pop_first();
            if let Some(storage) = next {
                return storage;
            }
            self.added.notified().await;
        }
    }
}
