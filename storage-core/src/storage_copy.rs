//! The second copy of the storage file.
//!
//! The storage file has the state, the labels and the list of files, so its damage would cost the
//! whole storage. The copy has the same bytes. A storage file that is intact counts; the copy is
//! used only when the storage file is lost.
//!
//! While a storage is not FINALIZED, the copy is written *before* the storage file: after a crash
//! it is as new, or one change ahead that nobody was told of. So it never lacks an arranged file
//! whose packets are nowhere else any more. It is removed before the storage file says FINALIZED,
//! and written *after* each storage file that does: it never says FINALIZED when the storage is
//! not, and may be one change of labels older after a crash. Where there is no copy, of a new
//! storage or after a finalization that failed, it is written after the storage file, too (decision
//! 0141).

use std::{io, path::Path, sync::Arc};

use storage_format::{
    StorageId,
    limits::ENVELOPE_BODY_BYTES_MAX,
    paths::{FileName, UNPUBLISHED_ENDING},
    storage_file::{StorageFile, StorageState},
};

use crate::{
    StorageError,
    catalog::Catalog,
    io::{StagedFile, remove_file, rename, sync_folder},
    io_thread::IoThread,
    read::read_small,
};

/// Reads and decodes the storage file of `id` that is called `name` in `folder`.
pub(crate) fn read(
    folder: &Path,
    id: StorageId,
    name: &FileName,
) -> Result<(StorageFile, Vec<u8>), StorageError> {
    let path = folder.join(name.to_string());
    let max = u64::from(ENVELOPE_BODY_BYTES_MAX);
    let bytes = read_small(&path, max).map_err(StorageError::io("read", &path))?;
    let file = StorageFile::decode(&bytes).map_err(StorageError::damaged(&path))?;
    file.check_id(id).map_err(StorageError::damaged(&path))?;
    Ok((file, bytes))
}

/// The storage file from its second copy, after `error` when the first was read; blocks the
/// thread. `None` without an intact copy.
pub(crate) fn restore(folder: &Path, id: StorageId, error: &StorageError) -> Option<StorageFile> {
    let (file, bytes) = match read(folder, id, &FileName::StorageCopy(id)) {
        Ok(found) if error.is_loss() => found,
        _ => return None,
    };
    mend(folder, &FileName::Storage(id), &bytes, error);
    Some(file)
}

/// Replaces a storage file, or its copy, that is lost after `error`; blocks the thread.
pub(crate) fn mend(folder: &Path, name: &FileName, bytes: &[u8], error: &StorageError) {
    let file = folder.join(name.to_string());
    match replace(folder, name, bytes) {
        Ok(()) => tracing::warn!(
            %error, file = %file.display(),
            "a storage file was damaged or lost and is restored from its second copy; check the disk"
        ),
        Err(failed) => tracing::error!(
            %error, %failed, file = %file.display(),
            "a storage file is damaged or lost, and cannot be restored from its second copy"
        ),
    }
}

/// Writes the copy of a storage that is not finalized if it is another one: it may be one change
/// ahead after a crash, and earlier servers wrote none. Blocks the thread.
///
/// # Errors
/// When a copy remains that says that the storage is finalized.
pub(crate) fn refresh_open(folder: &Path, file: &StorageFile) -> Result<(), StorageError> {
    let name = FileName::StorageCopy(file.id);
    let path = folder.join(name.to_string());
    let bytes = file.encode().map_err(StorageError::damaged(&path))?;
    let found = read(folder, file.id, &name).ok();
    if found.as_ref().is_some_and(|(_, found)| *found == bytes) {
        return Ok(());
    }
    let says_finalized = found.is_some_and(|(found, _)| found.state == StorageState::Finalized);
    match replace(folder, &name, &bytes) {
        Err(error) if says_finalized => Err(error),
        Err(error) => {
            tracing::warn!(
                %error, storage = %file.id, "the second copy of its storage file is not written"
            );
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Publishes a storage file and stores it in the catalog; returns its bytes. Unless it says that
/// the storage is finalized, its second copy is written before, if there is one, or else after. If
/// the storage file cannot be written then, the copy gets the content `before` again, if it can be
/// written: the change is refused, and must not come back from the copy.
pub(crate) async fn publish_file(
    folder: &Path,
    (file, before): (&StorageFile, Option<&StorageFile>),
    io_thread: &IoThread,
    catalog: &Arc<Catalog>,
) -> Result<bytes::Bytes, StorageError> {
    let name = FileName::Storage(file.id).to_string();
    let path = folder.join(&name);
    let bytes = bytes::Bytes::from(file.encode().map_err(StorageError::damaged(&path))?);
    if crate::sabotaged!("skip-publish") && path.exists() {
        return Ok(bytes);
    }
    // A creation that fails leaves nothing: the storage file is the first file of a storage. Nor is
    // there a copy after a finalization that failed: the storage file may say FINALIZED, and no
    // copy next to it may say otherwise.
    let is_copied = file.state != StorageState::Finalized;
    let has_copy = is_copied && is_there(folder, file.id).await?;
    let is_copied_first = has_copy && !crate::sabotaged!("copy-last");
    if is_copied_first {
        write(folder, file.id, &bytes, io_thread).await?;
        crate::fault_point!(async "change.copied");
    }
    let published = io_thread
        .publish(folder.to_owned(), name, bytes.clone())
        .await;
    if let Err(error) = published {
        if let (true, Some(before)) = (is_copied_first, before) {
            take_back(folder, before, io_thread).await;
        }
        return Err(StorageError::io("write", &path)(error));
    }
    if is_copied
        && !is_copied_first
        && let Err(error) = write(folder, file.id, &bytes, io_thread).await
    {
        tracing::warn!(
            %error, storage = %file.id,
            "the second copy of the storage file is not written; the next change or start writes it"
        );
    }
    crate::fault_point!(async "catalog.behind");
    let (catalog, id) = (Arc::clone(catalog), file.id);
    let published = bytes.clone();
    let remember = move || catalog.remember(id, &path, &bytes);
    tokio::task::spawn_blocking(remember)
        .await
        .map_err(|_| StorageError::Stopping)?;
    Ok(published)
}

/// Writes the copy durably.
///
/// # Errors
/// When it cannot be written.
pub(crate) async fn write(
    folder: &Path,
    id: StorageId,
    bytes: &bytes::Bytes,
    io_thread: &IoThread,
) -> Result<(), StorageError> {
    let name = FileName::StorageCopy(id).to_string();
    let path = folder.join(&name);
    let written = io_thread.publish(folder.to_owned(), name, bytes.clone());
    written.await.map_err(StorageError::io("write", path))
}

/// Writes the copy as it was `before` a change that was refused.
pub(crate) async fn take_back(folder: &Path, before: &StorageFile, io_thread: &IoThread) {
    let encoded = before.encode().map_err(StorageError::damaged(folder));
    let written = match encoded {
        Ok(bytes) => write(folder, before.id, &bytes.into(), io_thread).await,
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        tracing::warn!(
            %error, storage = %before.id,
            "the second copy of the storage file has a change that was refused; the next change, \
             verification or start writes it"
        );
    }
}

/// Whether there is a copy.
///
/// # Errors
/// When that is not known: written before the storage file, a copy might say otherwise than one
/// that says FINALIZED; written after it, it might be older than an arranged file.
pub(crate) async fn is_there(folder: &Path, id: StorageId) -> Result<bool, StorageError> {
    let path = folder.join(FileName::StorageCopy(id).to_string());
    let looking = path.clone();
    let look = tokio::task::spawn_blocking(move || looking.try_exists());
    let found = look.await.map_err(|_| StorageError::Stopping)?;
    found.map_err(StorageError::io("look for", path))
}

/// Removes the copy durably: the storage file is about to say that the storage is finalized.
///
/// # Errors
/// When it cannot be removed.
pub(crate) async fn remove(
    folder: &Path,
    id: StorageId,
    io_thread: &IoThread,
) -> Result<(), StorageError> {
    let path = folder.join(FileName::StorageCopy(id).to_string());
    let removing = path.clone();
    let removed = tokio::task::spawn_blocking(move || remove_file(&removing)).await;
    match removed.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => removed.map_err(StorageError::io("remove", &path))?,
    }
    let synced = io_thread.sync_folder(folder.to_owned()).await;
    synced.map_err(StorageError::io("sync", folder))
}

/// Whether the copy was written after the storage file.
pub(crate) fn is_current(folder: &Path, id: StorageId) -> bool {
    let stamp = |name: FileName| {
        let found = std::fs::metadata(folder.join(name.to_string())).ok()?;
        Some((found.len(), found.modified().ok()?))
    };
    match (
        stamp(FileName::Storage(id)),
        stamp(FileName::StorageCopy(id)),
    ) {
        (Some(own), Some(copy)) => own.0 == copy.0 && own.1 <= copy.1,
        _ => false,
    }
}

/// Writes a small file in the place of another; blocks the thread.
pub(crate) fn replace(folder: &Path, name: &FileName, bytes: &[u8]) -> Result<(), StorageError> {
    let path = folder.join(name.to_string());
    let unpublished = folder.join(format!("{name}{UNPUBLISHED_ENDING}"));
    // What a killed server left.
    match remove_file(&unpublished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StorageError::io("remove", &unpublished)(error));
        }
        _ => {}
    }
    let mut staged = StagedFile::create(unpublished.clone())?;
    staged.write(bytes)?;
    staged.finish()?;
    rename(&unpublished, &path).map_err(StorageError::io("replace", &path))?;
    sync_folder(folder)
}
