//! The storages of the data folder, by id.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use storage_format::StorageId;

use super::idempotency::IdempotencyKey;
use crate::{StorageError, storage::Storage};

/// The storages that are served.
#[derive(Debug)]
pub(super) struct Registry {
    folder: PathBuf,
    count_max: usize,
    /// By id, which is the order of creation.
    storages: RwLock<BTreeMap<StorageId, Arc<Storage>>>,
    by_idempotency_key: Mutex<HashMap<String, (StorageId, IdempotencyKey)>>,
    /// One creation at a time, so that a repeated key finds the first storage.
    pub(super) creating: tokio::sync::Mutex<()>,
}

impl Registry {
    /// An empty registry of the storages in `folder`.
    pub(super) fn new(folder: PathBuf, count_max: usize) -> Self {
        Self {
            folder,
            count_max,
            storages: RwLock::default(),
            by_idempotency_key: Mutex::default(),
            creating: tokio::sync::Mutex::default(),
        }
    }

    /// The folder that contains the folders of all storages.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A storage that is recovered.
    pub(super) fn find(&self, id: StorageId) -> Result<Arc<Storage>, StorageError> {
        let storage = self.known(id)?;
        storage.check_ready()?;
        Ok(storage)
    }

    /// A storage, recovered or not.
    pub(super) fn known(&self, id: StorageId) -> Result<Arc<Storage>, StorageError> {
        let storages = self.storages.read();
        storages
            .get(&id)
            .cloned()
            .ok_or(StorageError::StorageNotFound(id))
    }

    /// The storage that was created with this idempotency key, and the key of that request.
    pub(super) fn find_created(&self, key: &str) -> Option<(Arc<Storage>, IdempotencyKey)> {
        let (id, first) = self.by_idempotency_key.lock().get(key).cloned()?;
        Some((self.known(id).ok()?, first))
    }

    /// Up to `count` storages after `after`, from the oldest to the newest or the other way round.
    pub(super) fn after(
        &self,
        after: Option<StorageId>,
        is_newest_first: bool,
        count: usize,
    ) -> Vec<Arc<Storage>> {
        let end = after.map_or(Bound::Unbounded, Bound::Excluded);
        let storages = self.storages.read();
        if is_newest_first {
            let range = storages.range((Bound::Unbounded, end)).rev();
            range
                .take(count)
                .map(|(_, storage)| Arc::clone(storage))
                .collect()
        } else {
            let range = storages.range((end, Bound::Unbounded));
            range
                .take(count)
                .map(|(_, storage)| Arc::clone(storage))
                .collect()
        }
    }

    /// All storages, by id.
    pub(super) fn all(&self) -> Vec<Arc<Storage>> {
        self.storages.read().values().cloned().collect()
    }

    /// Refuses one more storage when there are as many as there may be.
    pub(super) fn check_count(&self) -> Result<(), StorageError> {
        if self.storages.read().len() >= self.count_max {
            return Err(StorageError::LimitReached {
                what: "storages",
                max: self.count_max,
            });
        }
        Ok(())
    }

    /// Adds a storage; the idempotency key still refers to the storage that had it first.
    pub(super) fn insert(&self, storage: Arc<Storage>, idempotency_key: Option<IdempotencyKey>) {
        let id = storage.id;
        let previous = self.storages.write().insert(id, storage);
        assert!(previous.is_none(), "an id names one storage");
        if let Some(key) = idempotency_key {
            let mut known = self.by_idempotency_key.lock();
            known.entry(key.name().to_owned()).or_insert((id, key));
        }
    }

    /// Whether requests find this storage under its id.
    pub(super) fn has(&self, storage: &Arc<Storage>) -> bool {
        let known = self.known(storage.id);
        known.is_ok_and(|known| Arc::ptr_eq(&known, storage))
    }

    /// Replaces a storage, which is there, by what it became.
    pub(super) fn replace(&self, before: &Arc<Storage>, storage: Arc<Storage>) {
        let previous = self.storages.write().insert(before.id, storage);
        let is_before = previous.is_some_and(|previous| Arc::ptr_eq(&previous, before));
        assert!(
            is_before,
            "a storage that is held is neither deleted nor replaced"
        );
    }

    /// Removes a storage, so that no request finds it any more.
    pub(super) fn remove(&self, storage: &Arc<Storage>) -> Result<(), StorageError> {
        let mut storages = self.storages.write();
        match storages.get(&storage.id) {
            Some(known) if Arc::ptr_eq(known, storage) => {
                storages.remove(&storage.id);
                Ok(())
            }
            _ => Err(StorageError::StorageNotFound(storage.id)),
        }
    }

    /// Forgets the idempotency key of a storage that is deleted.
    pub(super) fn forget_key(&self, id: StorageId) {
        self.by_idempotency_key
            .lock()
            .retain(|_, (storage, _)| *storage != id);
    }
}
