//! What a storage knows of its repairs.

use std::sync::Arc;

use storage_format::{paths::FileRole, repair_file::RepairFile};

use crate::{StorageError, recovery::read_repairs, storage::Storage};

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
        if !self.info().lists(FileRole::Repairs) {
            return;
        }
        match read_repairs(&self.folder, self.id) {
            Ok(repairs) => self.set_repairs(repairs),
            Err(error) => tracing::error!(
                %error, storage = %self.id,
                "it is not known which packets of a repaired storage are missing"
            ),
        }
    }

    /// The error for a packet that the storage does not have.
    pub(crate) fn without_packet(&self, number: u64) -> StorageError {
        let storage = self.id;
        if self.repairs().is_missing(number) {
            StorageError::PacketMissing { storage, number }
        } else {
            StorageError::PacketNotFound { storage, number }
        }
    }
}
