//! Loads the index trees of finalized storages for readers, and rebuilds those that are damaged.

use std::{collections::VecDeque, path::Path, sync::Arc};

use bytes::Bytes;
use io_trace::{Cause, Scope};
use parking_lot::Mutex;
use storage_format::{
    FormatError, FormatErrorKind, StorageId,
    paths::{FileName, FileRole},
    storage_file::{FileEntry, StorageFile, StorageState, Totals},
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

    /// Loads the tree of a storage unless it is in memory. An index of which a part turned out to
    /// be damaged is rebuilt.
    pub(super) async fn load(&self, storage: &Arc<Storage>) -> Result<(), StorageError> {
        if storage.tree.read().is_some() && !Self::lacks_part(storage) {
            return Ok(());
        }
        storage.check_readable()?;
        let _loading = storage.loading.lock().await;
        if storage.tree.read().is_some() {
            if Self::lacks_part(storage) {
                self.replace_lost_parts(storage).await;
            }
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
            .run(Cause::Query, move || load_parts(&folder, id, &names))
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

    /// Whether a reader found a part of the index of a finalized storage damaged or gone. That of
    /// an open storage is rebuilt by the next start.
    pub(super) fn lacks_part(storage: &Storage) -> bool {
        let tree = storage.tree.read();
        let has_lost_part = tree.as_ref().is_some_and(IndexTree::has_lost_part);
        has_lost_part && storage.state() == StorageState::Finalized
    }

    /// Rebuilds the index of a finalized storage of which the part at `path` is damaged.
    pub(super) async fn replace_part(
        &self,
        storage: &Arc<Storage>,
        path: &Path,
    ) -> Result<(), StorageError> {
        self.load(storage).await?;
        if let Some(tree) = &*storage.tree.read() {
            let parts = tree.parts().iter();
            parts
                .filter(|part| part.path == path)
                .for_each(|part| part.note_loss());
        }
        self.load(storage).await
    }

    /// Rebuilds the index of a finalized storage. If that is impossible, what is left of it is used
    /// on, and the next reader that misses something tries again.
    async fn replace_lost_parts(&self, storage: &Arc<Storage>) {
        tracing::error!(storage = %storage.id, "an index part is damaged; rebuilding the index");
        let scope = Scope::within(self.blocking.tracer(), Cause::Recovery);
        match scope.around(self.rebuild_index(storage)).await {
            Ok(tree) => *storage.tree.write() = Some(tree),
            Err(error) => {
                tracing::error!(%error, storage = %storage.id, "the index cannot be rebuilt");
                if let Some(tree) = &*storage.tree.read() {
                    tree.parts().iter().for_each(|part| part.forget_loss());
                }
            }
        }
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
        check_rebuilt(&storage.info(), &tree)?;
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

/// Refuses an index that lacks packets of a finalized storage: nobody could find them again.
fn check_rebuilt(file: &StorageFile, tree: &IndexTree) -> Result<(), StorageError> {
    let data = file
        .files
        .iter()
        .filter(|entry| entry.role == FileRole::Data);
    let incomplete = data.filter_map(|entry| {
        let Ok(FileName::Data(id)) = entry.name.parse() else {
            return None;
        };
        let found = tree.files().get(&id).map_or(0, |tail| tail.length);
        (found != entry.length).then(|| (entry.name.clone(), found, entry.length))
    });
    let totals = |totals: &Totals| (totals.packets, totals.raw_bytes, totals.stored_bytes);
    let (found, needed) = (totals(&tree.totals()), totals(&file.totals));
    let lacks = (found != needed).then(|| {
        let name = FileName::Storage(file.id).to_string();
        (name, found.0, needed.0)
    });
    let Some((name, available, needed)) = incomplete.chain(lacks).next() else {
        return Ok(());
    };
    Err(StorageError::damaged(name)(FormatError {
        what: "what its index can be rebuilt from",
        offset: available.min(needed),
        kind: FormatErrorKind::Truncated { needed, available },
    }))
}
