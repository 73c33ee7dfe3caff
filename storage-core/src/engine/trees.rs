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
use tokio::sync::watch;

use super::{blocking::Blocking, folders::remove_leftovers, registry::Registry, tasks::Tasks};
use crate::{
    Counters, Progress, StorageError,
    catalog::Catalog,
    clock::{now_ns, random_u64},
    io_thread::IoThread,
    progress::CancelledOnDrop,
    rebuilds::{Attempt, version_of},
    recovery::{Scan, load_parts, rebuild},
    restored_part::{Encoded, restored, written_again},
    storage::Storage,
    tree::{IndexPart, IndexTree, Sealed},
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
    counters: Arc<Counters>,
    tasks: Arc<Tasks>,
    blocking: Blocking,
    /// Storages whose tree was loaded for readers, oldest first.
    loaded: Mutex<VecDeque<StorageId>>,
}

impl TreeLoader {
    pub(super) fn new(
        registry: &Arc<Registry>,
        services: &Services,
        tasks: &Arc<Tasks>,
        blocking: &Blocking,
    ) -> Self {
        Self {
            registry: Arc::clone(registry),
            io_thread: services.io_thread.clone(),
            catalog: Arc::clone(&services.catalog),
            counters: Arc::clone(&services.counters),
            tasks: Arc::clone(tasks),
            blocking: blocking.clone(),
            loaded: Mutex::default(),
        }
    }

    /// Loads the tree of a storage unless it is in memory. An index of which a part turned out to
    /// be damaged is rebuilt meanwhile: what is left of it is used on.
    pub(super) async fn load(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<(), StorageError> {
        if storage.tree.read().is_some() {
            if Self::lacks_part(storage) {
                // Whoever misses something waits for it, and gets its error.
                let _ = self.begin_rebuild(storage).await;
            }
            return Ok(());
        }
        storage.check_readable()?;
        let _loading = storage.loading.lock().await;
        if storage.tree.read().is_some() {
            return Ok(());
        }
        let names = index_names(&storage.info());
        let (folder, id) = (storage.folder.clone(), storage.id);
        let is_listed = !names.is_empty();
        let loaded = self
            .blocking
            .run(Cause::Query, move || load_parts(&folder, id, &names))
            .await?;
        match loaded.filter(|_| is_listed) {
            // One that was rebuilt meanwhile is newer.
            Some(tree) => {
                let mut known = storage.tree.write();
                if known.is_none() {
                    *known = Some(tree);
                }
            }
            None => self.rebuild(storage).await?,
        }
        self.forget_oldest_tree(id);
        Ok(())
    }

    /// As [`Self::load`]; waits for an index that is being rebuilt. If that is impossible, what is
    /// left of it is used on.
    pub(super) async fn load_whole(
        self: &Arc<Self>,
        storage: &Arc<Storage>,
    ) -> Result<(), StorageError> {
        self.load(storage).await?;
        if Self::lacks_part(storage) {
            let _ = self.rebuild(storage).await;
        }
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
        self: &Arc<Self>,
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
        if Self::lacks_part(storage) {
            self.rebuild(storage).await?;
        }
        Ok(())
    }

    /// Rebuilds the index of a finalized storage, and waits for it.
    ///
    /// # Errors
    /// When that is impossible, or was shortly before.
    pub(super) async fn rebuild(
        self: &Arc<Self>,
        storage: &Arc<Storage>,
    ) -> Result<(), StorageError> {
        let mut ended = self.begin_rebuild(storage).await?;
        while ended.changed().await.is_ok() {}
        storage.rebuilds.outcome()?;
        // The engine stops, or the storage is being deleted.
        let has_tree = storage.tree.read().is_some();
        has_tree.then_some(()).ok_or(StorageError::Stopping)
    }

    /// Begins to rebuild the index of a finalized storage; the receiver is closed at the end.
    async fn begin_rebuild(
        self: &Arc<Self>,
        storage: &Arc<Storage>,
    ) -> Result<watch::Receiver<()>, StorageError> {
        let version = if storage.rebuilds.is_look_due() {
            Some(self.version(storage).await?)
        } else {
            None
        };
        match storage.rebuilds.begin(version) {
            Attempt::Refused(error) => Err(error),
            Attempt::Waits(ended) => Ok(ended),
            Attempt::Begins(running) => {
                let ended = running.subscribe();
                let (this, storage) = (Arc::clone(self), Arc::clone(storage));
                let scope = Scope::within(self.blocking.tracer(), Cause::Recovery);
                // Readers may go away, and the next ones need it as well.
                self.tasks.spawn(scope.around(async move {
                    this.attempt(&storage).await;
                    drop(running);
                }));
                Ok(ended)
            }
        }
    }

    async fn version(&self, storage: &Arc<Storage>) -> Result<u64, StorageError> {
        let (folder, names) = (storage.folder.clone(), names(storage));
        let version = move || Ok(version_of(&folder, &names));
        self.blocking.run(Cause::Recovery, version).await
    }

    /// Rebuilds the index of a finalized storage once.
    async fn attempt(&self, storage: &Arc<Storage>) {
        tracing::error!(storage = %storage.id, "an index part is damaged; rebuilding the index");
        self.counters.index_rebuilds.add(1);
        let progress = CancelledOnDrop::default();
        storage.watch(&progress.0);
        let version = self.version(storage).await.unwrap_or_default();
        let rebuilt = self.rebuild_index(storage, &progress.0).await;
        // What was interrupted says nothing.
        let result = match progress.0.check().and(rebuilt) {
            Ok(tree) => {
                *storage.tree.write() = Some(tree);
                storage.forget_damage_of_others();
                Ok(())
            }
            Err(error) => {
                self.counters.index_rebuild_failures.add(1);
                tracing::error!(%error, storage = %storage.id, "the index cannot be rebuilt");
                Err(error)
            }
        };
        storage.rebuilds.ended(result, version);
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
    async fn rebuild_index(
        &self,
        storage: &Arc<Storage>,
        progress: &Arc<Progress>,
    ) -> Result<IndexTree, StorageError> {
        let (folder, id) = (storage.folder.clone(), storage.id);
        let names = names(storage);
        // A packet with a damaged payload stays in the index: reading it finds the damage again,
        // and what is behind it is intact.
        let scan = Scan {
            progress: Arc::clone(progress),
            is_strict: false,
            ..Scan::alone()
        };
        let recovered = self
            .blocking
            .run(Cause::Recovery, move || rebuild(&folder, id, &names, &scan))
            .await?;
        progress.check()?;
        if let Some(damage) = recovered.damage {
            return Err(damage);
        }
        check_rebuilt(&storage.info(), &recovered.tree)?;
        let tree = match self.restore_parts(storage, recovered.tree).await? {
            Restored::AsListed(tree) => tree,
            Restored::Otherwise(tree) => self.write_index(storage, tree).await?,
        };
        let mut leftovers = recovered.leftovers;
        leftovers.retain(|path| tree.parts().iter().all(|part| part.path != *path));
        remove_leftovers(leftovers).await;
        Ok(tree)
    }

    /// Writes what of an index is only in memory, and lists its parts.
    async fn write_index(
        &self,
        storage: &Arc<Storage>,
        mut tree: IndexTree,
    ) -> Result<IndexTree, StorageError> {
        let mut written = None;
        if let Some(sealed) = tree.seal(now_ns()) {
            let mut lost = storage.info().files;
            lost.retain(|file| file.role == FileRole::Index && !tree.has_part(&file.name));
            let (folder, id) = (storage.folder.clone(), storage.id);
            let encode = move || Ok(encode_part(&sealed, lost, &folder, id));
            let (file, part) = self.blocking.run(Cause::Recovery, encode).await?;
            let (header, bytes, footer, bases) = part;
            let path = storage.folder.join(&file.name);
            self.write_part(storage, file.name.clone(), Bytes::from(bytes))
                .await?;
            tree.part_written(&Arc::new(IndexPart::written(path, header, footer, bases)));
            written = Some(file);
        }
        let change = |file: &mut StorageFile| {
            let is_written = |name: &str| written.as_ref().is_some_and(|file| file.name == name);
            file.files.retain(|file| {
                let is_kept = tree.has_part(&file.name) && !is_written(&file.name);
                file.role != FileRole::Index || is_kept
            });
            file.files.extend(written.clone());
            file.files.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(())
        };
        storage
            .change(&self.io_thread, &self.catalog, change)
            .await?;
        Ok(tree)
    }

    /// Restores the index parts that are damaged as they were written, from `tree`, which was
    /// rebuilt from the frames: the storage file lists them, and a seal proves them.
    async fn restore_parts(
        &self,
        storage: &Arc<Storage>,
        tree: IndexTree,
    ) -> Result<Restored, StorageError> {
        let (folder, id) = (storage.folder.clone(), storage.id);
        let mut listed = storage.info().files;
        listed.retain(|file| file.role == FileRole::Index);
        let restoring = move || {
            listed.retain(|file| !tree.has_part(&file.name));
            let restore = |file: &FileEntry| {
                let restored = restored(&folder.join(&file.name), file, id, &tree)?;
                Some((file.name.clone(), restored))
            };
            let all: Option<Vec<_>> = listed.iter().map(restore).collect();
            Ok((tree, all.filter(|parts| !parts.is_empty())))
        };
        let (tree, restored) = self.blocking.run(Cause::Recovery, restoring).await?;
        let Some(restored) = restored else {
            return Ok(Restored::Otherwise(tree));
        };
        for (name, bytes) in restored {
            if let Some(bytes) = bytes {
                self.write_part(storage, name, Bytes::from(bytes)).await?;
            }
        }
        let (folder, names) = (storage.folder.clone(), index_names(&storage.info()));
        let load = move || load_parts(&folder, id, &names);
        let loaded = self.blocking.run(Cause::Recovery, load).await?;
        Ok(loaded.map_or(Restored::Otherwise(tree), Restored::AsListed))
    }

    async fn write_part(
        &self,
        storage: &Storage,
        name: String,
        bytes: Bytes,
    ) -> Result<(), StorageError> {
        let (folder, path) = (storage.folder.clone(), storage.folder.join(&name));
        let published = self.io_thread.publish(folder, name.clone(), bytes).await;
        published.map_err(StorageError::io("write", &path))?;
        // It may have the name of one that was damaged.
        storage.checked.forget_damage(&name);
        storage.checked.forget();
        Ok(())
    }
}

/// The part with what was sealed, and its file: the one that is `lost`, if it is the same, or a new
/// one. Blocks the thread.
fn encode_part(
    sealed: &Sealed,
    lost: Vec<FileEntry>,
    folder: &Path,
    storage: StorageId,
) -> (FileEntry, Encoded) {
    if let Ok([lost]) = <[FileEntry; 1]>::try_from(lost)
        && let Some(part) = written_again(&folder.join(&lost.name), &lost, storage, sealed)
    {
        return (lost, part);
    }
    let (bytes, footer, bases) = sealed.encode();
    let file = FileEntry {
        name: FileName::Index(random_u64()).to_string(),
        role: FileRole::Index,
        length: bytes.len() as u64,
        checksum: storage_format::checksum::crc32c(&bytes),
    };
    (file, (sealed.header(), bytes, footer, bases))
}

/// The index of a storage whose parts were damaged.
enum Restored {
    /// In the parts that the storage file lists, which are as they were written.
    AsListed(IndexTree),
    /// In memory, as far as no intact part has it.
    Otherwise(IndexTree),
}

/// The index parts that a storage file lists.
fn index_names(file: &StorageFile) -> Vec<String> {
    let parts = file
        .files
        .iter()
        .filter(|file| file.role == FileRole::Index);
    parts.map(|file| file.name.clone()).collect()
}

/// The files that a storage lists.
fn names(storage: &Storage) -> Vec<String> {
    let files = storage.info().files.into_iter();
    files.map(|file| file.name).collect()
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
