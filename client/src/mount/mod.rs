//! Downloading a finalized storage: a *mount* fetches its index and agent files, a *download* all
//! files.
//!
//! The folder then contains the files of the storage, and a local file that records their origin
//! and which of them are complete. A file gets its name only when its length and CRC32C match the
//! storage file. Until then its name ends in `.tmp`, and another run resumes it. A run fetches only
//! what is missing. In a folder that was complete, every file is read and verified again, and of a
//! damaged data file only the damaged pieces are fetched.

mod bytes;
mod leaves;
mod publish;
mod report;
mod times;
mod transfer;
mod verify;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use storage_format::StorageId;
use storage_format::checksum_file::{ChecksumFile, FileChecksums};
use storage_format::limits::ENVELOPE_BODY_BYTES_MAX;
use storage_format::local_file::LocalFile;
use storage_format::paths::{FileName, FileRole};
use storage_format::storage_file::{FileEntry, StorageFile, StorageState};
use tokio::task::JoinSet;

use crate::ClientError;
use crate::clock;
use crate::http::{Client, FileInfo, FileList, StorageUrl};
use publish::publish;
use transfer::Transfer;

pub use leaves::{Mounted, leaves};
pub(crate) use leaves::{bundles, names_in};
pub use report::{MountProgress, MountReport, Progress};
pub use verify::verify_folder;

/// Number of files that are fetched in parallel.
const FILES_MAX: usize = 4;

/// How often the server is asked whether chunk indexes are made: more and more rarely.
const POLL_MIN: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(2);

/// What the server says of chunk indexes that it is making.
const IN_PROGRESS: &str = "in_progress";

/// Which files to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Index and agent files, and chunk indexes: what is needed to rule out packets.
    Index,
    /// All files.
    All,
}

impl Extent {
    fn wants(self, role: FileRole) -> bool {
        match role {
            FileRole::Storage | FileRole::Agent | FileRole::Index | FileRole::ChunkIndex => true,
            FileRole::Repairs => true,
            FileRole::Data | FileRole::Provenance | FileRole::Checksums | FileRole::Seal => {
                self == Self::All
            }
            FileRole::Local | FileRole::StorageCopy | FileRole::Tier | FileRole::TierSums => false,
        }
    }
}

/// What to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Which files.
    pub extent: Extent,
    /// How long to wait for chunk indexes that the server is making.
    pub index_wait: Duration,
}

/// Fetches the files of `storage` into `folder`.
pub async fn mount(
    client: &Client,
    storage: &StorageUrl,
    folder: &Path,
    Wanted { extent, index_wait }: Wanted,
    progress: &Progress,
) -> Result<MountReport, ClientError> {
    let (description, bytes) = describe(client, storage).await?;
    let id = description.id;
    let mut files = description.files;
    let derived = derived_files(client, storage, index_wait, progress).await?;
    files.extend(derived.files.into_iter().filter_map(derived_file));
    let files = checked_files(files, storage)?;
    let (wanted, left_out): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| extent.wants(file.role));
    let mut local = open_folder(folder, id, storage)?;
    // Nothing is known about the files of a folder that was complete before.
    let was_complete = folder.join(FileName::Storage(id).to_string()).exists();
    let mut report = MountReport {
        left_out_files: left_out.len() as u64,
        chunk_indexes: derived.chunk_indexes,
        ..MountReport::default()
    };
    progress(MountProgress::Total(
        wanted.iter().map(|file| file.length).sum(),
    ));
    // The checksums of pieces come first: they tell what is damaged of the others.
    let (sums, others): (Vec<_>, Vec<_>) =
        (wanted.into_iter()).partition(|file| file.role == FileRole::Checksums);
    let mut waiting = sums.into_iter().chain(others);
    let mut pieces: Option<ChecksumFile> = None;
    let mut running = JoinSet::new();
    loop {
        while running.len() < FILES_MAX {
            let Some(file) = waiting.next() else { break };
            let is_alone = file.role == FileRole::Checksums;
            let transfer = Transfer {
                client: client.clone(),
                storage: storage.clone(),
                path: folder.join(&file.name),
                known_complete: !was_complete && local.complete.contains(&file.name),
                pieces: pieces_of(pieces.as_ref(), &file),
                file,
                progress: Arc::clone(progress),
            };
            running.spawn(transfer.run());
            if is_alone {
                break;
            }
        }
        let (name, fetched) = match running.join_next().await {
            None => break,
            Some(Ok(done)) => done?,
            Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
        };
        if !report.add(fetched) {
            continue;
        }
        if let Ok(FileName::Checksums(_)) = name.parse() {
            pieces = read_pieces(&folder.join(&name));
        }
        if !local.complete.contains(&name) {
            local.complete.push(name);
            local.complete.sort();
            write_local(folder, &local)?;
        }
    }
    // The storage file is written last: a folder that has it is complete.
    publish(&folder.join(FileName::Storage(id).to_string()), &bytes)?;
    local.fetched = now_nanos();
    write_local(folder, &local)?;
    Ok(report)
}

/// The checksums of pieces in a file that was just verified.
fn read_pieces(path: &Path) -> Option<ChecksumFile> {
    let bytes = fs::read(path).ok()?;
    ChecksumFile::decode(&bytes).ok()
}

/// The checksums of the pieces of a data file, if they are known.
fn pieces_of(known: Option<&ChecksumFile>, file: &FileEntry) -> Option<FileChecksums> {
    match file.name.parse() {
        Ok(FileName::Data(id)) => known?.of(id).cloned(),
        _ => None,
    }
}

/// The storage file of a finalized storage, decoded and as bytes.
pub(crate) async fn describe(
    client: &Client,
    storage: &StorageUrl,
) -> Result<(StorageFile, Vec<u8>), ClientError> {
    let id = storage.id.to_string().parse::<StorageId>();
    let id = id.map_err(|error| ClientError::input(format!("{storage}: {error}")))?;
    let name = FileName::Storage(id).to_string();
    let place = || format!("{storage}/{name}");
    let bytes = fetch_whole(client, storage, &name).await?;
    let description = StorageFile::decode(&bytes)
        .map_err(|error| ClientError::damaged(place(), error.to_string()))?;
    if description.id != id {
        let what = format!("it describes storage {}", description.id);
        return Err(ClientError::damaged(place(), what));
    }
    if description.state != StorageState::Finalized {
        return Err(ClientError::input(format!(
            "storage {id} is not finalized; finalize it first: tracehold storage finalize {id}"
        )));
    }
    Ok((description, bytes))
}

pub(crate) async fn fetch_whole(
    client: &Client,
    storage: &StorageUrl,
    name: &str,
) -> Result<Vec<u8>, ClientError> {
    let mut whole = Vec::new();
    let mut answer = client.file(storage, name, &[], None).await?;
    while let Some((_, bytes)) = answer.next().await? {
        if whole.len() + bytes.len() > ENVELOPE_BODY_BYTES_MAX as usize {
            let what = format!("longer than {ENVELOPE_BODY_BYTES_MAX} bytes");
            return Err(ClientError::damaged(format!("{storage}/{name}"), what));
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole)
}

/// The files of the storage as the server lists them, among them the chunk indexes and provenance
/// that the storage file does not list, because they may be rebuilt. Waits until the chunk indexes
/// of a storage that was just finalized are made.
async fn derived_files(
    client: &Client,
    storage: &StorageUrl,
    wait: Duration,
    progress: &Progress,
) -> Result<FileList, ClientError> {
    let begin = Instant::now();
    let mut pause = POLL_MIN;
    loop {
        let listed = match client.files(storage.id).await {
            Ok(listed) => listed,
            // A plain file server has no such list; queries work without derived files.
            Err(ClientError::Refused(problem)) if problem.status == 404 => FileList {
                files: Vec::new(),
                chunk_indexes: None,
            },
            Err(error) => return Err(error),
        };
        let left = wait.saturating_sub(begin.elapsed());
        if listed.chunk_indexes.as_deref() != Some(IN_PROGRESS) || left.is_zero() {
            return Ok(listed);
        }
        progress(MountProgress::WaitingForIndexes);
        tokio::time::sleep(pause.min(left)).await;
        pause = POLL_MAX.min(pause.saturating_mul(2));
    }
}

/// A file that the storage file does not list.
fn derived_file(file: FileInfo) -> Option<FileEntry> {
    let role = match file.role.as_str() {
        "chunk_index" => FileRole::ChunkIndex,
        "provenance" => FileRole::Provenance,
        _ => return None,
    };
    let checksum = file.checksum?;
    Some(FileEntry {
        name: file.name,
        role,
        length: file.length,
        checksum: u32::from_str_radix(checksum.as_str()?, 16).ok()?,
    })
}

/// Validates the names of files, which the server sends and which become paths.
fn checked_files(
    files: Vec<FileEntry>,
    storage: &StorageUrl,
) -> Result<Vec<FileEntry>, ClientError> {
    let mut names = BTreeSet::new();
    for file in &files {
        let role = file.name.parse::<FileName>().map(|name| name.role());
        if role.ok() != Some(file.role) || !names.insert(&file.name) {
            let what = format!(
                "{:?} is not a valid name for a file with the role {}",
                file.name,
                file.role.as_str()
            );
            return Err(ClientError::damaged(storage.to_string(), what));
        }
    }
    Ok(files)
}

/// Creates the folder, or resumes an existing one of the same storage.
fn open_folder(
    folder: &Path,
    id: StorageId,
    storage: &StorageUrl,
) -> Result<LocalFile, ClientError> {
    fs::create_dir_all(folder).map_err(|error| ClientError::file(folder, error))?;
    let origin = storage.to_string();
    let fresh = LocalFile {
        storage: id,
        origin: origin.clone(),
        fetched: 0,
        complete: Vec::new(),
    };
    let path = folder.join(FileName::Local(id).to_string());
    match fs::read(&path) {
        // If the local file is damaged, the files are checked again.
        Ok(bytes) => Ok(LocalFile::decode(&bytes)
            .map(|local| LocalFile { origin, ..local })
            .unwrap_or(fresh)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            refuse_other_storage(folder, id)?;
            Ok(fresh)
        }
        Err(error) => Err(ClientError::file(&path, error)),
    }
}

/// Refuses a folder that contains another storage.
fn refuse_other_storage(folder: &Path, id: StorageId) -> Result<(), ClientError> {
    let failed = |error| ClientError::file(folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy().parse::<FileName>();
        let other = match name {
            Ok(FileName::Local(other) | FileName::Storage(other)) if other != id => other,
            _ => continue,
        };
        let what = format!("{} already contains storage {other}", folder.display());
        return Err(ClientError::input(format!("{what}; choose another folder")));
    }
    Ok(())
}

fn write_local(folder: &Path, local: &LocalFile) -> Result<(), ClientError> {
    let path = folder.join(FileName::Local(local.storage).to_string());
    let bytes = local
        .encode()
        .map_err(|error| ClientError::damaged(path.display().to_string(), error.to_string()))?;
    publish(&path, &bytes)
}

fn now_nanos() -> i64 {
    i64::try_from(clock::now().as_nanosecond()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
