//! Storages in an object store: what has to be uploaded, what may be evicted, and storages that
//! come from there.

mod adoption;
mod restoring;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use io_trace::Cause;
use storage_format::{
    StorageId,
    paths::{FileName, FileRole},
    storage_file::StorageState,
    tier_file::TierFile,
};

pub use self::adoption::Adoption;
use super::{blocking::Blocking, derived::derived_names, registry::Registry, transfer::Transfer};
use crate::{
    BlockSource, CachedBytes, Progress, StorageError,
    io::sync_folder,
    io_thread::IoThread,
    storage::Storage,
    tier::{Slots, evictable, resident_at},
};

/// Files up to this length are no objects of their own.
const SMALL_BYTES_MAX: u64 = 256 << 10;
/// Bytes of a step of fetching everything.
const STEP_BYTES: u64 = 16 << 20;

/// A file of a storage that is to be uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierPart {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Length in bytes.
    pub length: u64,
    /// CRC32C of all its bytes; `None` for a derived file, whose readers check it.
    pub checksum: Option<u32>,
}

/// What of a finalized storage is to be uploaded.
#[derive(Debug, Clone)]
pub struct TierParts {
    /// The storage file.
    pub storage_file: Bytes,
    /// Files that are needed to open the storage, and others that are small.
    pub small: Vec<TierPart>,
    /// Files that are objects of their own.
    pub large: Vec<TierPart>,
    /// Where an upload may note how far it is.
    pub journal: PathBuf,
}

/// Where a storage is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierInfo {
    /// What is known of it in the store.
    pub file: Arc<TierFile>,
    /// Bytes of its objects that are here.
    pub here: u64,
}

/// Storages in an object store.
#[derive(Debug, Clone)]
pub struct Tiering {
    pub(super) registry: Arc<Registry>,
    pub(super) transfer: Transfer,
    pub(super) io_thread: IoThread,
    pub(super) blocking: Blocking,
    pub(super) slots: Slots,
}

impl Tiering {
    /// Where absent bytes come from, and how many of them readers in order may have in memory, all
    /// of them together.
    pub fn set_source(&self, source: Arc<dyn BlockSource>, ahead_bytes_max: u64) {
        self.slots.set_source(source, ahead_bytes_max);
    }

    fn finalized(&self, id: StorageId) -> Result<Arc<Storage>, StorageError> {
        let storage = self.registry.find(id)?;
        if storage.state() == StorageState::Finalized {
            return Ok(storage);
        }
        Err(storage.wrong_state("the object store", "FINALIZED"))
    }

    /// What is to be uploaded of a storage.
    ///
    /// # Errors
    /// When there is no such storage, it is not finalized, or its folder cannot be read.
    pub async fn parts(&self, id: StorageId) -> Result<TierParts, StorageError> {
        let storage = self.finalized(id)?;
        self.blocking
            .run(Cause::Export, move || parts_of(&storage))
            .await
    }

    /// Where a storage is in the store; `None` if it is only here.
    ///
    /// # Errors
    /// When there is no such storage.
    pub fn info(&self, id: StorageId) -> Result<Option<TierInfo>, StorageError> {
        let storage = self.registry.known(id)?;
        Ok(storage.tier().map(|file| {
            let here = if file.is_evicted {
                let evicted = evictable(&file).map(|file| file.length).sum::<u64>();
                let others = file.bytes().saturating_sub(evicted);
                others.saturating_add(self.slots.cached_in(&storage.folder))
            } else {
                file.bytes()
            };
            TierInfo { file, here }
        }))
    }

    /// What is known of a storage in the store, without looking at what of it is here.
    ///
    /// # Errors
    /// When there is no such storage.
    pub fn known(&self, id: StorageId) -> Result<Option<Arc<TierFile>>, StorageError> {
        Ok(self.registry.known(id)?.tier())
    }

    /// Notes that a storage is in the store. The checksums of granules of its files are durable
    /// before.
    ///
    /// # Errors
    /// When there is no such storage, or a file cannot be written.
    pub async fn uploaded(&self, tier: TierFile, sums: Bytes) -> Result<(), StorageError> {
        let storage = self.finalized(tier.storage)?;
        let _changing = storage.changing.lock().await;
        let name = FileName::TierSums(storage.id);
        self.publish(&storage, &name, sums).await?;
        crate::fault_point!(async "tier.upload.sums_noted");
        self.publish_tier(&storage, tier).await
    }

    async fn publish(
        &self,
        storage: &Storage,
        name: &FileName,
        bytes: Bytes,
    ) -> Result<(), StorageError> {
        storage.check_there()?;
        let (folder, path) = (storage.folder.clone(), storage.path(name));
        let published = self
            .io_thread
            .publish(folder, name.to_string(), bytes)
            .await;
        published.map_err(|error| storage.unless_deleted(StorageError::io("write", path)(error)))
    }

    /// Publishes the tier file; the caller holds the lock of changes.
    async fn publish_tier(&self, storage: &Storage, tier: TierFile) -> Result<(), StorageError> {
        let name = FileName::Tier(storage.id);
        let bytes = tier
            .encode()
            .map_err(StorageError::damaged(storage.path(&name)))?;
        self.publish(storage, &name, bytes.into()).await?;
        storage.set_tier(tier, &self.slots);
        Ok(())
    }

    async fn change(
        &self,
        storage: &Storage,
        change: impl FnOnce(&mut TierFile),
    ) -> Result<(), StorageError> {
        let _changing = storage.changing.lock().await;
        let Some(known) = storage.tier() else {
            return Err(not_there(storage.id));
        };
        let mut tier = TierFile::clone(&known);
        change(&mut tier);
        if tier == *known {
            return Ok(());
        }
        self.publish_tier(storage, tier).await
    }

    /// Notes the last change of labels that is known here, and what the labels are since.
    ///
    /// # Errors
    /// When there is no such storage, it is not in the store, or the file cannot be written.
    pub async fn note_labels(
        &self,
        id: StorageId,
        number: u64,
        checksum: u32,
    ) -> Result<(), StorageError> {
        let storage = self.finalized(id)?;
        let note = |tier: &mut TierFile| {
            if number >= tier.label_number {
                (tier.label_number, tier.labels_checksum) = (number, checksum);
            }
        };
        self.change(&storage, note).await
    }

    /// Gives the space of the data files of a storage back that is in the store; returns the bytes.
    /// Whoever reads them goes on.
    ///
    /// # Errors
    /// When there is no such storage, it is not in the store, or its files cannot be replaced.
    pub async fn evict(&self, id: StorageId) -> Result<u64, StorageError> {
        let storage = self.finalized(id)?;
        // First, and durably: from now on a hole is no damage.
        self.change(&storage, |tier| tier.is_evicted = true).await?;
        crate::fault_point!(async "tier.evict.noted");
        let (slots, folder) = (self.slots.clone(), storage.folder.clone());
        let empty = move || {
            let freed = slots.empty_folder(&folder);
            let freed = freed.map_err(StorageError::io("evict files of", &folder))?;
            crate::fault_point!("tier.evict.emptied");
            sync_folder(&folder)?;
            Ok(freed)
        };
        self.blocking.run(Cause::Manage, empty).await
    }

    /// Fetches all bytes of a storage, durably: afterwards it is read without the store.
    ///
    /// # Errors
    /// When there is no such storage, it is not in the store, or the store does not answer.
    pub async fn fetch(&self, id: StorageId, progress: &Progress) -> Result<(), StorageError> {
        let storage = self.finalized(id)?;
        let Some(tier) = storage.tier() else {
            return Err(not_there(id));
        };
        let Some(_kept) = self.slots.keep(&storage.folder) else {
            return Err(StorageError::Invalid {
                what: "storage",
                problem: format!("{id} is being fetched already"),
            });
        };
        progress.begin(evictable(&tier).map(|file| file.length).sum());
        for file in evictable(&tier) {
            let path = storage.folder.join(&file.name);
            let opened = resident_at(&path).map_err(StorageError::io("open", &path))?;
            let Some(resident) = opened else {
                continue;
            };
            let mut at = 0;
            while at < file.length {
                progress.check()?;
                let end = at.saturating_add(STEP_BYTES).min(file.length);
                let step = at..end;
                let fetched = resident.ensure(std::slice::from_ref(&step)).await;
                fetched.map_err(StorageError::fetch(&path))?;
                progress.add(end.saturating_sub(at));
                at = end;
            }
            let opened = Arc::clone(resident.file());
            let sync = move || opened.sync_all().map_err(StorageError::io("sync", path));
            self.blocking.run(Cause::Manage, sync).await?;
        }
        self.change(&storage, |tier| tier.is_evicted = false).await
    }

    /// Gives the space of files back that were not read for longest, until fetched bytes take at
    /// most `max`; returns the bytes.
    ///
    /// # Errors
    /// When a file cannot be replaced.
    pub async fn reclaim(&self, max: u64) -> Result<u64, StorageError> {
        let (slots, folder) = (self.slots.clone(), self.registry.folder().to_owned());
        let reclaim = move || {
            slots
                .reclaim(max)
                .map_err(StorageError::io("evict files in", folder))
        };
        self.blocking.run(Cause::Manage, reclaim).await
    }

    /// What fetched bytes take here, of all storages.
    #[must_use]
    pub fn cached(&self) -> CachedBytes {
        self.slots.cached()
    }
}

fn not_there(id: StorageId) -> StorageError {
    StorageError::Invalid {
        what: "storage",
        problem: format!("{id} is not in the object store: upload it first"),
    }
}

fn parts_of(storage: &Storage) -> Result<TierParts, StorageError> {
    let file = storage.info();
    let storage_file = Bytes::from(storage.read_own_file()?);
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for entry in &file.files {
        let part = TierPart {
            name: entry.name.clone(),
            path: storage.folder.join(&entry.name),
            length: entry.length,
            checksum: Some(entry.checksum),
        };
        if entry.role == FileRole::Data && entry.length > SMALL_BYTES_MAX {
            large.push(part);
        } else {
            small.push(part);
        }
    }
    for name in derived_names(&storage.folder)? {
        let path = storage.path(&name);
        let about = std::fs::metadata(&path).map_err(StorageError::io("read", &path))?;
        let part = TierPart {
            name: name.to_string(),
            path,
            length: about.len(),
            checksum: None,
        };
        if part.length > SMALL_BYTES_MAX {
            large.push(part);
        } else {
            small.push(part);
        }
    }
    Ok(TierParts {
        storage_file,
        small,
        large,
        journal: storage.folder.join("upload.journal"),
    })
}
