//! What a storage knows of itself in the object store.

use std::sync::Arc;

use storage_format::{
    limits::ENVELOPE_BODY_BYTES_MAX,
    paths::{FileName, FileRole},
    storage_file::StorageState,
    tier_file::{TierFile, TieredFile},
};

use super::{Slots, forget_folder};
use crate::{StorageError, read::read_small, storage::Storage};

impl Storage {
    /// Where it is in the object store.
    pub(crate) fn tier(&self) -> Option<Arc<TierFile>> {
        self.tier.read().clone()
    }

    /// Takes what is known, and lets the files that may have holes be filled.
    pub(crate) fn set_tier(&self, tier: TierFile, slots: &Slots) {
        if tier.is_evicted {
            // None of them is forgotten in between: a reader would take its holes for zeros.
            for file in evictable(&tier) {
                slots.add(&self.folder, self.id, file);
            }
        } else {
            forget_folder(&self.folder);
        }
        slots.found(&self.folder, self.id);
        *self.tier.write() = Some(Arc::new(tier));
    }

    /// Reads the tier file, if there is one; blocks the thread.
    pub(crate) fn load_tier(&self, slots: &Slots) {
        if self.state() != StorageState::Finalized {
            return;
        }
        // Of a storage that was here before under the same name.
        forget_folder(&self.folder);
        let path = self.path(&FileName::Tier(self.id));
        let bytes = match read_small(&path, u64::from(ENVELOPE_BODY_BYTES_MAX)) {
            // The checksums are written before and removed never.
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound
                    && !self.path(&FileName::TierSums(self.id)).exists() =>
            {
                return;
            }
            read => read.map_err(StorageError::io("read", &path)),
        };
        let decoded = bytes.and_then(|bytes| {
            let tier = TierFile::decode(&bytes).map_err(StorageError::damaged(&path))?;
            tier.check_id(self.id)
                .map_err(StorageError::damaged(&path))?;
            Ok(tier)
        });
        match decoded {
            Ok(tier) => self.set_tier(tier, slots),
            Err(error) => {
                slots.lose(&self.folder, self.id);
                tracing::error!(
                    %error, storage = %self.id,
                    "it is not known where the storage is in the object store; that is made again \
                     from its seal, and until then evicted bytes are not served. Check the disk"
                );
            }
        }
    }
}

/// The files of a storage that may have holes once it is evicted. Where it was written, its chunk
/// indexes stay: they say what need not be fetched.
pub(crate) fn evictable(tier: &TierFile) -> impl Iterator<Item = &TieredFile> {
    tier.files.iter().filter(|file| {
        let name = file.name.parse::<FileName>();
        let is_data = name.is_ok_and(|name| name.role() == FileRole::Data);
        is_data || !tier.is_own
    })
}
