//! What a deletion, an import in its place and a repair of a storage exclude.

use std::{path::PathBuf, sync::atomic::Ordering};

use crate::{StorageError, io::rename, labels::is_held, storage::Storage, traced::on_thread};

/// Whether a storage is deleted whose labels are lost, so that a legal hold may protect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownLabels {
    /// It stays.
    Refused,
    /// It is deleted all the same.
    Accepted,
}

impl Storage {
    /// Waits for a change that is under way, and lets none begin while the result exists.
    ///
    /// # Errors
    /// When the storage is deleted, or was replaced.
    pub(crate) async fn hold(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, StorageError> {
        let changing = self.changing.lock().await;
        self.check_there()?;
        if self.is_deleted.load(Ordering::SeqCst) {
            return Err(StorageError::StorageNotFound(self.id));
        }
        Ok(changing)
    }

    /// Refuses changes from now on, because a repair has put another in its place.
    pub(crate) fn set_replaced(&self) {
        self.is_replaced.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::SeqCst)
    }

    /// The error of a request that waits until the storage is open again.
    pub(crate) fn not_open_now(&self) -> StorageError {
        StorageError::Recovering {
            storage: self.id,
            bytes_scanned: 0,
            bytes_total: 0,
        }
    }

    /// Whether a repair has ended the writer, or has put another storage in its place: who repeats
    /// a request later finds an open one.
    pub(crate) fn is_between_writers(&self) -> bool {
        self.is_being_repaired.load(Ordering::SeqCst) || self.is_replaced()
    }

    /// Gives the folder the name `to`, because the storage is deleted. No change of the storage
    /// file is under way then, and none comes after it.
    pub(crate) async fn move_away(&self, to: PathBuf) -> Result<(), StorageError> {
        let _changing = self.changing.lock().await;
        let from = self.folder.clone();
        let moving = move || rename(&from, &to).map_err(StorageError::io("move", from));
        let moved = on_thread(io_trace::current(), moving).await;
        moved.map_err(|_| StorageError::Stopping)??;
        self.is_moved.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Marks the storage as deleted although its files stay, elsewhere. A hold does not prevent it.
    pub(crate) async fn mark_set_aside(&self) -> Result<(), StorageError> {
        let _changing = self.changing.lock().await;
        self.check_there()?;
        self.is_deleted.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Marks the storage as deleted, unless it is held, or may be held and that is not
    /// accepted. No label changes meanwhile, so that a hold is either seen here or
    /// refused.
    pub(crate) async fn mark_deleted(&self, labels: UnknownLabels) -> Result<(), StorageError> {
        let _changing = self.changing.lock().await;
        self.check_there()?;
        if is_held(&self.file.read()) {
            return Err(StorageError::Held { storage: self.id });
        }
        if self.are_labels_lost && labels == UnknownLabels::Refused {
            return Err(StorageError::LabelsUnknown { storage: self.id });
        }
        self.is_deleted.store(true, Ordering::SeqCst);
        Ok(())
    }
}
