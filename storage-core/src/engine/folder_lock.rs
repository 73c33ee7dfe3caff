//! The lock of a data folder: one process uses it at a time.

use std::{fs::File, path::Path};

use rustix::fs::{FlockOperation, flock};

use crate::StorageError;

/// Locks a data folder until the file is dropped.
pub(super) fn lock_folder(folder: &Path) -> Result<File, StorageError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(StorageError::io("create", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err(StorageError::DataDirInUse {
            path: folder.to_owned(),
        }),
    }
}
