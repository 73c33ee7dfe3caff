//! What a storage has lost of its place in the object store, made again from its seal.

use bytes::Bytes;
use io_trace::Cause;
use storage_format::{
    StorageId,
    paths::{FileName, FileRole},
    tier_file::TierFile,
};

use super::Tiering;
use crate::{StorageError, storage::Storage, tier::has_holes};

impl Tiering {
    /// The storages of which it is not known any more where they are in the store, or what the
    /// checksums of their granules are: see [`Self::restore`].
    #[must_use]
    pub fn lost(&self) -> Vec<StorageId> {
        self.slots.lost()
    }

    /// Whether a storage is one of these.
    #[must_use]
    pub fn has_lost(&self, id: StorageId) -> bool {
        self.slots.has_lost(id)
    }

    /// Ready when there is one more.
    pub async fn loss(&self) {
        self.slots.loss().await;
    }

    /// Notes again where a storage is in the store, as its seal says. What is known of it besides
    /// stays, if its tier file is whole.
    ///
    /// # Errors
    /// When there is no such storage, the seal is not the one that was noted or not one of these
    /// files, or a file cannot be written.
    pub async fn restore(&self, made: TierFile, sums: Bytes) -> Result<(), StorageError> {
        let storage = self.finalized(made.storage)?;
        let _changing = storage.changing.lock().await;
        for file in &made.files {
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            let end = file.sums_at.saturating_add(file.sums_length());
            let of_file = sums.get(at(file.sums_at)..at(end)).unwrap_or_default();
            let path = storage.path(&FileName::TierSums(storage.id));
            let checked = file.check_sums(of_file);
            checked.map_err(StorageError::damaged(path))?;
        }
        let known = storage.tier();
        let tier = match known {
            Some(known) if known.seal == made.seal => TierFile {
                files: made.files,
                ..TierFile::clone(&known)
            },
            Some(known) if known.is_own => {
                let what = "another node has sealed it since".to_owned();
                return Err(refused(storage.id, what));
            }
            known => {
                let about = storage.clone();
                let (files, slots) = (made.clone(), self.slots.clone());
                let check = move || {
                    check(&about, &files)?;
                    Ok(slots.refuses(&about.folder))
                };
                let has_holes = self.blocking.run(Cause::Manage, check).await?;
                let is_evicted = known.map_or(has_holes, |known| known.is_evicted);
                TierFile { is_evicted, ..made }
            }
        };
        let names: Vec<_> = tier.files.iter().map(|file| file.name.clone()).collect();
        let name = FileName::TierSums(storage.id);
        self.publish(&storage, &name, sums).await?;
        self.publish_tier(&storage, tier).await?;
        // Holes were no damage.
        for name in names {
            storage.checked.forget_damage(&name);
        }
        Ok(())
    }

    /// Stops to look for the place of a storage that has no seal, if all of it is here: its upload
    /// had not come so far.
    pub fn give_up_lost(&self, id: StorageId) {
        if let Ok(storage) = self.finalized(id)
            && !self.slots.refuses(&storage.folder)
        {
            self.slots.found(&storage.folder, id);
        }
    }
}

/// Whether the files in the store are those that the storage lists, by name, length and checksum,
/// and all that have holes here are among them; blocks the thread.
fn check(storage: &Storage, made: &TierFile) -> Result<(), StorageError> {
    let file = storage.info();
    for tiered in &made.files {
        let listed = file.files.iter().find(|entry| entry.name == tiered.name);
        let role = tiered.name.parse::<FileName>().map(|name| name.role());
        let is_same = match listed {
            Some(entry) => (entry.length, entry.checksum) == (tiered.length, tiered.checksum),
            None => matches!(role, Ok(FileRole::ChunkIndex | FileRole::Provenance)),
        };
        if !is_same {
            let what = format!("`{}` is another file in the store", tiered.name);
            return Err(refused(storage.id, what));
        }
    }
    for entry in &file.files {
        let is_there = made.files.iter().any(|tiered| tiered.name == entry.name);
        let path = storage.folder.join(&entry.name);
        if !is_there && has_holes(&path).unwrap_or(true) {
            let what = format!("`{}` is neither here nor in the store", entry.name);
            return Err(refused(storage.id, what));
        }
    }
    Ok(())
}

fn refused(id: StorageId, problem: String) -> StorageError {
    StorageError::Invalid {
        what: "seal in the object store",
        problem: format!("storage {id}: {problem}"),
    }
}
