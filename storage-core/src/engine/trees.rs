//! Loads the index trees of finalized storages for readers, and rebuilds those that are damaged.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use io_trace::{Cause, Scope};
use parking_lot::Mutex;
use storage_format::{
    StorageId,
    paths::{FileName, FileRole},
    storage_file::{FileEntry, StorageFile},
};

use super::{blocking::Blocking, folders::remove_leftovers, registry::Registry};
use crate::{
    StorageError,
    catalog::Catalog,
    clock::{now_ns, random_u64},
    io_thread::IoThread,
    recovery::{load_parts, rebuild},
    storage::Storage,
    tree::{IndexPart, IndexTree},
    writer::Services,
};

/// Finalized storages whose tree stays in memory for readers.
const LOADED_TREE_COUNT_MAX: usize = 256;

/// Loads trees, and drops the one that was loaded first when there are too many.
#[derive(Debug)]
pub(super) struct TreeLoader {
    registry: Arc<Registry>,
    io_thread: IoThread,
    catalog: Arc<Catalog>,
    blocking: Blocking,
    /// Storages whose tree was loaded for readers, oldest first.
    loaded: Mutex<VecDeque<StorageId>>,
}

impl TreeLoader {
    pub(super) fn new(registry: &Arc<Registry>, services: &Services, blocking: &Blocking) -> Self {
        Self {
            registry: Arc::clone(registry),
            io_thread: services.io_thread.clone(),
            catalog: Arc::clone(&services.catalog),
            blocking: blocking.clone(),
            loaded: Mutex::default(),
        }
    }

    /// Loads the tree of a storage unless it is in memory.
    pub(super) async fn load(&self, storage: &Arc<Storage>) -> Result<(), StorageError> {
        if storage.tree.read().is_some() {
            return Ok(());
        }
        storage.check_readable()?;
        let _loading = storage.loading.lock().await;
        if storage.tree.read().is_some() {
            return Ok(());
        }
        let file = storage.info();
        let parts = file
            .files
            .iter()
            .filter(|file| file.role == FileRole::Index);
        let names: Vec<_> = parts.map(|file| file.name.clone()).collect();
        let (folder, id) = (storage.folder.clone(), storage.id);
        let is_listed = !names.is_empty();
        let loaded = self
            .blocking
            .run(Cause::Query, move || Ok(load_parts(&folder, id, &names)))
            .await?;
        let tree = match loaded {
            Some(tree) if is_listed => tree,
            _ => {
                let scope = Scope::within(self.blocking.tracer(), Cause::Recovery);
                scope.around(self.rebuild_index(storage)).await?
            }
        };
        *storage.tree.write() = Some(tree);
        self.forget_oldest_tree(id);
        Ok(())
    }

    fn forget_oldest_tree(&self, newest: StorageId) {
        let oldest = {
            let mut loaded = self.loaded.lock();
            loaded.push_back(newest);
            (loaded.len() > LOADED_TREE_COUNT_MAX)
                .then(|| loaded.pop_front())
                .flatten()
        };
        if let Some(storage) = oldest.and_then(|id| self.registry.find(id).ok()) {
            *storage.tree.write() = None;
        }
    }

    /// Rebuilds the index of a finalized storage from its frames, and puts it into place.
    async fn rebuild_index(&self, storage: &Arc<Storage>) -> Result<IndexTree, StorageError> {
        let (folder, id) = (storage.folder.clone(), storage.id);
        let names: Vec<_> = storage
            .info()
            .files
            .into_iter()
            .map(|file| file.name)
            .collect();
        let recovered = self
            .blocking
            .run(Cause::Recovery, move || rebuild(&folder, id, &names))
            .await?;
        if let Some(damage) = recovered.damage {
            return Err(damage);
        }
        let mut tree = recovered.tree;
        let mut written = None;
        if let Some(sealed) = tree.seal(now_ns()) {
            let header = sealed.header();
            let (bytes, footer, bases) = self
                .blocking
                .run(Cause::Recovery, move || Ok(sealed.encode()))
                .await?;
            let bytes = Bytes::from(bytes);
            let name = FileName::Index(random_u64()).to_string();
            let path = storage.folder.join(&name);
            written = Some((name.clone(), bytes.clone()));
            let folder = storage.folder.clone();
            let published = self.io_thread.publish(folder, name, bytes).await;
            published.map_err(StorageError::io("write", &path))?;
            tree.part_written(&Arc::new(IndexPart::written(path, header, footer, bases)));
        }
        let names: Vec<_> = tree.parts().iter().map(|part| part.path.clone()).collect();
        let change = |file: &mut StorageFile| {
            let is_listed = |name: &str| names.iter().any(|path| path.ends_with(name));
            file.files
                .retain(|file| file.role != FileRole::Index || is_listed(&file.name));
            file.files.extend(written.map(|(name, bytes)| FileEntry {
                name,
                role: FileRole::Index,
                length: bytes.len() as u64,
                checksum: storage_format::checksum::crc32c(&bytes),
            }));
            file.files.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(())
        };
        storage
            .change(&self.io_thread, &self.catalog, change)
            .await?;
        remove_leftovers(recovered.leftovers).await;
        Ok(tree)
    }
}
