//! What a storage knows of its repairs, and of damage that was not repaired.

use std::{io, path::Path, sync::Arc};

use storage_format::{
    paths::{FileName, FileRole},
    repair_file::RepairFile,
    storage_file::StorageState,
};

use crate::{StorageError, io_thread::IoThread, recovery::read_repairs, storage::Storage};

impl Storage {
    /// How its log was repaired.
    pub(crate) fn repairs(&self) -> Arc<RepairFile> {
        Arc::clone(&self.repairs.read())
    }

    pub(crate) fn set_repairs(&self, repairs: RepairFile) {
        *self.repairs.write() = Arc::new(repairs);
    }

    /// Reads the repair file of a finalized storage that lists one; blocks the thread.
    pub(crate) fn load_repairs(&self) {
        let file = self.info();
        if file.state != StorageState::Finalized || !file.lists(FileRole::Repairs) {
            return;
        }
        let name = FileName::Repairs(self.id).to_string();
        let gone = || {
            let path = self.folder.join(&name);
            StorageError::io("read", path)(io::ErrorKind::NotFound.into())
        };
        let read = read_repairs(&self.folder, self.id);
        match read.and_then(|repairs| repairs.ok_or_else(gone)) {
            Ok(repairs) => {
                self.set_repairs(repairs);
                if self.unknown_repairs.write().take().is_some() {
                    self.checked.damage.remove(&name, 0);
                }
            }
            Err(error) => {
                let reason = error.to_string();
                if self.unknown_repairs.write().replace(reason).is_none() {
                    tracing::error!(
                        %error, storage = %self.id,
                        "it is not known which packets of a repaired storage are missing; restore \
                         the file and verify the storage"
                    );
                }
                if error.is_loss() {
                    self.checked.damage.add(&name, 0, error.to_string());
                }
            }
        }
    }

    /// Reads the repair file again if it could not be read; blocks the thread.
    pub(crate) fn reload_repairs(&self) {
        if self.unknown_repairs.read().is_some() {
            self.load_repairs();
        }
    }

    /// The error for a packet that the storage does not have.
    pub(crate) fn without_packet(&self, number: u64) -> StorageError {
        let storage = self.id;
        if self.repairs().is_missing(number) {
            return StorageError::PacketMissing { storage, number };
        }
        let not_found = StorageError::PacketNotFound { storage, number };
        self.check_whole().err().unwrap_or(not_found)
    }

    /// Notes the damage at which recovery stopped.
    pub(crate) fn set_damage(&self, damage: StorageError) {
        assert!(!self.readiness.is_ready(), "only a recovery finds this");
        self.damage.get_or_init(|| damage);
    }

    /// The damage at which recovery stopped: what is behind it is not in the tree.
    pub(crate) fn damage(&self) -> Option<&StorageError> {
        self.damage.get()
    }

    /// Why it may have, or have had, more than what can be found in it and is known to be missing.
    pub(crate) fn unknown(&self) -> Option<String> {
        if let Some(damage) = self.damage() {
            return Some(format!(
                "its log is damaged, and what is behind the damage is not read until it is \
                 repaired: {damage}"
            ));
        }
        let reason = self.unknown_repairs.read().clone()?;
        Some(format!(
            "it was repaired, and which packets are missing since is not known: {reason}"
        ))
    }

    /// Refuses what needs everything that was acknowledged.
    pub(crate) fn check_whole(&self) -> Result<(), StorageError> {
        match self.unknown() {
            None => Ok(()),
            Some(reason) => Err(StorageError::Incomplete {
                storage: self.id,
                reason,
            }),
        }
    }
}

/// Writes the repair file of the storage in `folder`.
///
/// # Errors
/// When it cannot be written, or has too many repairs.
pub(crate) async fn publish_repairs(
    folder: &Path,
    repairs: &RepairFile,
    io_thread: &IoThread,
) -> Result<(), StorageError> {
    let name = FileName::Repairs(repairs.storage).to_string();
    let path = folder.join(&name);
    let bytes = repairs.encode().map_err(StorageError::damaged(&path))?;
    let published = io_thread
        .publish(folder.to_owned(), name, bytes.into())
        .await;
    published.map_err(StorageError::io("write", path))
}
