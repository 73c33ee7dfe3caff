//! The second copy of the storage file of a finalized storage.
//!
//! The storage file lists all others, so its damage would cost the whole storage. The copy has the
//! same bytes. It is written after the storage file: there is none before the storage is
//! FINALIZED, and it may be one change of labels older after a crash.

use std::{io, path::Path};

use storage_format::{
    StorageId,
    limits::ENVELOPE_BODY_BYTES_MAX,
    paths::{FileName, UNPUBLISHED_ENDING},
    storage_file::{StorageFile, StorageState},
};

use crate::{
    StorageError,
    io::{StagedFile, remove_file, rename, sync_folder},
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
    // Only a finalized storage has a copy.
    if file.state != StorageState::Finalized {
        return None;
    }
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
