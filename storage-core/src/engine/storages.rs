//! Creating, listing, changing, finalizing and deleting storages.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use io_trace::{Cause, Scope};
use storage_format::{
    StorageId,
    paths::{FileRole, SUPERSEDED_FOLDER},
    storage_file::{StorageFile, StorageState, Totals},
};
use tokio::sync::oneshot;

use super::{
    IdempotencyKey, StorageInfo, blocking::Blocking, folders::DELETED_PREFIX, registry::Registry,
    tasks::Tasks, texts::check_texts,
};
use crate::{
    Progress, RecoveryStatus, StorageError, UnknownLabels,
    clock::{now_ns, random_10},
    io::{create_folder, remove_folder, rename},
    removals,
    seal_state::SealState,
    state::may_move,
    storage::{Storage, StorageStatus},
    storage_copy::publish_file,
    tier::forget_folder,
    tree::{BlockCache, IndexTree},
    writer::{FinalizeReply, Services, WriterMessage},
};

/// A storage to create.
#[derive(Debug, Clone, Default)]
pub struct NewStorage {
    /// Name for people.
    pub name: String,
    /// Description for people.
    pub description: String,
    /// Labels: key and value.
    pub labels: BTreeMap<String, String>,
    /// A second creation with the same key and request returns the first storage.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Whether it accepts packets at once; otherwise it is CREATED.
    pub is_open: bool,
    /// Its id, if another node has given it one; otherwise it gets a new one.
    pub id: Option<StorageId>,
    /// When another node created it, ns since the epoch; otherwise now.
    pub created: Option<i64>,
}

/// Whether a creation created a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// A new storage was created.
    New,
    /// A storage with this idempotency key exists.
    Before,
}

/// Changes to a storage; `None` leaves a value unchanged.
#[derive(Debug, Clone, Default)]
pub struct StoragePatch {
    /// Name for people.
    pub name: Option<String>,
    /// Description for people.
    pub description: Option<String>,
    /// All labels.
    pub labels: Option<BTreeMap<String, String>>,
}

/// The storages of an engine: creating, listing, changing and deleting them.
#[derive(Debug, Clone)]
pub struct Storages {
    pub(super) registry: Arc<Registry>,
    pub(super) services: Services,
    pub(super) blocking: Blocking,
    pub(super) tasks: Arc<Tasks>,
    pub(super) block_cache: Arc<BlockCache>,
}

impl Storages {
    /// The description of a storage.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn get(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        Ok(self.registry.known(id)?.info())
    }

    /// How writing to a storage goes.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn status(&self, id: StorageId) -> Result<StorageStatus, StorageError> {
        Ok(self.registry.find(id)?.status(&self.services.droppable))
    }

    /// Whether a storage has a seal that fits its files. Their bytes are not read.
    ///
    /// # Errors
    /// When there is none with this id, or its seal cannot be read now.
    pub async fn seal_state(&self, id: StorageId) -> Result<SealState, StorageError> {
        let storage = self.registry.find(id)?;
        if !storage.file.read().lists(FileRole::Seal) {
            return Ok(SealState::None);
        }
        let state = move || storage.seal.state(&storage.folder, &storage.info());
        self.blocking.run(Cause::Verify, state).await
    }

    /// How far the recovery of a storage is; `None` when it is recovered, or does not exist.
    #[must_use]
    pub fn recovery(&self, id: StorageId) -> Option<RecoveryStatus> {
        self.registry.known(id).ok()?.readiness.recovery()
    }

    /// Refuses a storage that is not recovered yet; one that does not exist is not refused.
    ///
    /// # Errors
    /// [`StorageError::Recovering`].
    pub fn check_recovered(&self, id: StorageId) -> Result<(), StorageError> {
        self.registry
            .known(id)
            .map_or(Ok(()), |storage| storage.check_ready())
    }

    /// Waits until a storage is recovered.
    ///
    /// # Errors
    /// When there is none with this id.
    pub async fn recovered(&self, id: StorageId) -> Result<(), StorageError> {
        self.registry.known(id)?.readiness.ended().await;
        Ok(())
    }

    /// Creates a storage in state CREATED or OPEN.
    ///
    /// # Errors
    /// When a value exceeds its limit, another request had the same idempotency key, the server has
    /// too many storages, or it cannot be written.
    pub async fn create(&self, new: NewStorage) -> Result<(StorageInfo, Created), StorageError> {
        check_texts(Some(&new.name), Some(&new.description), Some(&new.labels))?;
        let labels = self.services.labels.checked(new.labels)?;
        let new = NewStorage { labels, ..new };
        let _creating = self.registry.creating.lock().await;
        if let Some(key) = &new.idempotency_key {
            key.check()?;
            if let Some((storage, first)) = self.registry.find_created(key.name()) {
                if !key.matches(&first) {
                    return Err(StorageError::IdempotencyKeyReused(storage.id));
                }
                return Ok((storage.info(), Created::Before));
            }
        }
        if let Some(id) = new.id
            && self.registry.known(id).is_ok()
        {
            return Err(StorageError::StorageExists(id));
        }
        self.services.space.check()?;
        self.registry.check_count()?;
        let storage = self.make_storage(new).await?;
        Ok((storage.info(), Created::New))
    }

    async fn make_storage(&self, new: NewStorage) -> Result<Arc<Storage>, StorageError> {
        let created = new.created.unwrap_or_else(now_ns);
        let made = || StorageId::new(created.unsigned_abs() / 1_000_000, random_10());
        let id = new.id.unwrap_or_else(made);
        let folder = self.registry.folder().join(id.to_string());
        let Services {
            io_thread,
            catalog,
            config,
            ..
        } = &self.services;
        let file = StorageFile {
            id,
            name: new.name,
            description: new.description,
            state: if new.is_open {
                StorageState::Open
            } else {
                StorageState::Created
            },
            labels: new.labels,
            created,
            opened: new.is_open.then_some(created),
            finalized: None,
            server_version: config.server_version.clone(),
            idempotency_key: new.idempotency_key.as_ref().map(IdempotencyKey::text),
            failure: None,
            totals: Totals::default(),
            files: Vec::new(),
        };
        let make = {
            let folder = folder.clone();
            move || create_folder(&folder).map_err(StorageError::io("create", folder))
        };
        self.blocking.run(Cause::Manage, make).await?;
        crate::fault_point!(async "create.folder");
        let published = match publish_file(&folder, (&file, None), io_thread, catalog).await {
            Ok(_) => {
                crate::fault_point!(async "create.file");
                let synced = io_thread
                    .sync_folder(self.registry.folder().to_owned())
                    .await;
                synced.map_err(StorageError::io("sync", self.registry.folder()))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = published {
            catalog.forget(id);
            self.discard(id, folder).await;
            return Err(error);
        }
        crate::fault_point!(async "create.durable");
        let tree = Some(IndexTree::new(id));
        let storage = Arc::new(Storage::new(
            folder,
            file,
            tree,
            Arc::clone(&self.block_cache),
        ));
        if new.is_open {
            self.tasks.start_writer(&storage, &self.services);
        }
        self.registry
            .insert(Arc::clone(&storage), new.idempotency_key);
        Ok(storage)
    }

    /// Opens a storage for packets; does nothing if it is open.
    ///
    /// # Errors
    /// When there is no such storage, or it is finalized or failed.
    pub async fn open(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        let storage = self.registry.find(id)?;
        let mut was_open = false;
        let change = |file: &mut StorageFile| {
            match file.state {
                StorageState::Open | StorageState::Recording => was_open = true,
                from if may_move(from, StorageState::Open) && from == StorageState::Created => {
                    file.state = StorageState::Open;
                    file.opened = Some(now_ns());
                }
                _ => return Err(storage.wrong_state("opening", "CREATED")),
            }
            Ok(())
        };
        let Services {
            io_thread, catalog, ..
        } = &self.services;
        storage.change(io_thread, catalog, change).await?;
        if !was_open {
            crate::fault_point!(async "open.durable");
            self.tasks.start_writer(&storage, &self.services);
        }
        Ok(storage.info())
    }

    /// Makes a storage immutable: waits for packets in flight, completes every file, publishes.
    /// Waits for a finalization that runs already; does nothing when the storage is finalized.
    ///
    /// # Errors
    /// When there is no such storage, its state does not allow it, or a file cannot be written.
    pub async fn finalize(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        self.finalize_with(id, Arc::default()).await
    }

    /// As [`Self::finalize`]; cancelling `progress` opens the storage again, as long as it is not
    /// published.
    ///
    /// # Errors
    /// As [`Self::finalize`], and when it was cancelled.
    pub async fn finalize_with(
        &self,
        id: StorageId,
        progress: Arc<Progress>,
    ) -> Result<StorageInfo, StorageError> {
        let storage = self.registry.find(id)?;
        storage.watch(&progress);
        let turn = Arc::clone(&storage.finalizing).lock_owned().await;
        let mut was_created = false;
        let change = |file: &mut StorageFile| {
            if !may_move(file.state, StorageState::Finalizing) {
                return Err(storage.wrong_state("finalization", "CREATED, OPEN or RECORDING"));
            }
            was_created = file.state == StorageState::Created;
            file.state = StorageState::Finalizing;
            Ok(())
        };
        let Services {
            io_thread, catalog, ..
        } = &self.services;
        match storage.state() {
            StorageState::Finalized => return Ok(storage.info()),
            // The caller of that finalization went away before the writer had the request.
            StorageState::Finalizing => {}
            _ => drop(storage.change(io_thread, catalog, change).await?),
        }
        if was_created {
            self.tasks.start_writer(&storage, &self.services);
        }
        crate::fault_point!(async "finalize.marked");
        let writer = storage.writer.read().clone();
        let (to, done) = oneshot::channel();
        let reply = FinalizeReply {
            to,
            progress,
            _turn: turn,
        };
        if let Some(writer) = writer {
            // A writer that has ended drops the request and with it the reply.
            let _ = writer.send(WriterMessage::Finalize { reply }).await;
        } else {
            drop(reply);
        }
        match done.await {
            Ok(finalized) => finalized,
            Err(_) => Err(storage.lost_reply().await),
        }
    }

    /// Storages that were being finalized when the server ended; finalize them again.
    #[must_use]
    pub fn interrupted_finalizations(&self) -> Vec<StorageId> {
        let storages = self.registry.all();
        let is_interrupted = |storage: &&Arc<Storage>| storage.state() == StorageState::Finalizing;
        let mut ids: Vec<_> = storages
            .iter()
            .filter(is_interrupted)
            .map(|storage| storage.id)
            .collect();
        ids.sort();
        ids
    }

    /// Ends the running finalizations, because the server stops. Their storages remain FINALIZING,
    /// and the next start continues them.
    pub fn interrupt_finalizations(&self) {
        self.services.is_stopping.store(true, Ordering::Relaxed);
        for storage in self.registry.all() {
            if let Some(progress) = &*storage.arranging.lock() {
                progress.cancel();
            }
        }
    }

    /// Changes name, description or labels.
    ///
    /// # Errors
    /// When there is no such storage, a value exceeds its limit, or it cannot be written.
    pub async fn update(
        &self,
        id: StorageId,
        patch: StoragePatch,
    ) -> Result<StorageInfo, StorageError> {
        let StoragePatch {
            name,
            description,
            labels,
        } = patch;
        check_texts(name.as_deref(), description.as_deref(), labels.as_ref())?;
        let types = &self.services.labels;
        let labels = labels.map(|labels| types.checked(labels)).transpose()?;
        let storage = self.registry.find(id)?;
        let change = |file: &mut StorageFile| {
            file.name = name.unwrap_or_else(|| std::mem::take(&mut file.name));
            file.description = description.unwrap_or_else(|| std::mem::take(&mut file.description));
            file.labels = labels.unwrap_or_else(|| std::mem::take(&mut file.labels));
            Ok(())
        };
        let Services {
            io_thread, catalog, ..
        } = &self.services;
        storage.change(io_thread, catalog, change).await?;
        Ok(storage.info())
    }

    /// Deletes a storage, even while it is written. One whose labels are lost stays.
    ///
    /// # Errors
    /// When there is no such storage, it is held or its labels are lost, or its folder cannot be
    /// renamed.
    pub async fn delete(&self, id: StorageId) -> Result<(), StorageError> {
        self.delete_with(id, UnknownLabels::Refused).await
    }

    /// As [`Self::delete`]; `labels` says whether one whose labels are lost is deleted, too.
    ///
    /// # Errors
    /// As [`Self::delete`].
    pub async fn delete_with(
        &self,
        id: StorageId,
        labels: UnknownLabels,
    ) -> Result<(), StorageError> {
        let storage = loop {
            let storage = self.registry.known(id)?;
            match storage.mark_deleted(labels).await {
                Ok(()) => break storage,
                // A repair has put another in its place.
                Err(_) if storage.is_replaced() => {}
                Err(error) => return Err(error),
            }
        };
        self.registry.remove(&storage)?;
        crate::fault_point!(async "delete.begun");
        let root = self.registry.folder().to_owned();
        let to = root.join(format!("{DELETED_PREFIX}{id}"));
        self.withdraw(&storage, to.clone()).await?;
        crate::fault_point!(async "delete.renamed");
        let synced = self.services.io_thread.sync_folder(root.clone()).await;
        crate::fault_point!(async "delete.durable");
        let is_durable = synced.is_ok();
        let catalog = Arc::clone(&self.services.catalog);
        let removed = self.blocking.run(Cause::Manage, move || {
            catalog.forget(id);
            if !is_durable {
                // After a power failure the storage may exist again, with all its files.
                return Ok(());
            }
            remove_folder(&to).map_err(StorageError::io("remove", to))
        });
        if let Err(error) = removed.await {
            tracing::warn!(
                %error,
                "files of a deleted storage remain; the next start removes them"
            );
        }
        crate::fault_point!(async "delete.removed");
        self.registry.forget_key(id);
        synced.map_err(StorageError::io("sync", root))
    }

    /// Moves the folder of a storage that nobody finds any more; after an error it is there again.
    async fn withdraw(&self, storage: &Arc<Storage>, to: PathBuf) -> Result<(), StorageError> {
        storage.cancel_jobs();
        // A recovery ends before, or finds the storage deleted.
        let adopting = storage.readiness.adopting.lock().await;
        removals::done(&storage.folder).await;
        if let Err(error) = self.move_away(storage, to).await {
            // The storage still exists and is served again.
            storage.is_deleted.store(false, Ordering::SeqCst);
            self.registry.insert(Arc::clone(storage), None);
            return Err(error);
        }
        forget_folder(&storage.folder);
        // Nobody waits any more for a recovery, which may hang in the disk.
        storage.readiness.progress.cancel();
        storage.readiness.set_ready();
        drop(adopting);
        self.services.droppable.close(&storage.lane);
        self.services.droppable.forget(storage.id);
        Ok(())
    }

    /// Takes a storage out of use without deleting it, because another node has it instead: its
    /// folder is moved to the folder of superseded storages, and nothing reads it any more. Returns
    /// where it is.
    ///
    /// # Errors
    /// When there is no such storage, or its folder cannot be moved; then it is still there.
    pub async fn set_aside(&self, id: StorageId) -> Result<PathBuf, StorageError> {
        let root = self.services.config.data_dir.join(SUPERSEDED_FOLDER);
        let to = root.join(format!("{id}.{}", now_ns()));
        let make = root.clone();
        self.blocking
            .run(Cause::Manage, move || {
                std::fs::create_dir_all(&make).map_err(StorageError::io("create", make))
            })
            .await?;
        let storage = self.registry.known(id)?;
        storage.mark_set_aside().await?;
        self.registry.remove(&storage)?;
        self.withdraw(&storage, to.clone()).await?;
        let io_thread = &self.services.io_thread;
        let data = self.services.config.data_dir.clone();
        for folder in [data, root, self.registry.folder().to_owned()] {
            let synced = io_thread.sync_folder(folder.clone()).await;
            synced.map_err(StorageError::io("sync", folder))?;
        }
        let catalog = Arc::clone(&self.services.catalog);
        self.blocking
            .run(Cause::Manage, move || {
                catalog.forget(id);
                Ok(())
            })
            .await?;
        self.registry.forget_key(id);
        Ok(to)
    }

    /// How many of the copies that were set aside nobody has deleted; none if that cannot be read.
    pub async fn set_aside_copies(&self) -> u64 {
        let root = self.services.config.data_dir.join(SUPERSEDED_FOLDER);
        let count = move || Ok(std::fs::read_dir(root).map_or(0, |copies| copies.count() as u64));
        let counted = self.blocking.run(Cause::Manage, count).await;
        counted.unwrap_or_default()
    }

    /// Gives the folder of a storage another name. Its writer does so when nothing is in flight,
    /// and ends; after an error it continues.
    async fn move_away(&self, storage: &Storage, to: PathBuf) -> Result<(), StorageError> {
        let name = to.clone();
        let delete = |reply| WriterMessage::Delete { to: name, reply };
        if let Some(moved) = storage.ask_writer(delete).await {
            return moved;
        }
        // There is none, or it has ended and closed its files.
        crate::fault_point!(async "delete.writer_ended");
        let scope = Scope::within(&self.services.tracer, Cause::Manage);
        scope.around(storage.move_away(to)).await
    }

    /// Removes the folder of a storage whose creation failed.
    async fn discard(&self, id: StorageId, folder: PathBuf) {
        let to = self.registry.folder().join(format!("{DELETED_PREFIX}{id}"));
        let remove = self.blocking.run(Cause::Manage, move || {
            rename(&folder, &to).map_err(StorageError::io("move", folder))?;
            remove_folder(&to).map_err(StorageError::io("remove", to))
        });
        if let Err(error) = remove.await {
            tracing::warn!(
                %error, storage = %id,
                "files of a storage that could not be created remain"
            );
        }
    }

    /// Moves a storage from OPEN to RECORDING; opens it first if needed.
    ///
    /// # Errors
    /// When there is no such storage, or it is being recorded into, finalized or failed.
    pub async fn begin_recording(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        let storage = self.registry.find(id)?;
        if storage.state() == StorageState::Created {
            self.open(id).await?;
        }
        let change = |file: &mut StorageFile| match file.state {
            StorageState::Open if storage.is_between_writers() => Err(storage.not_open_now()),
            StorageState::Open => {
                file.state = StorageState::Recording;
                Ok(())
            }
            _ => Err(storage.wrong_state("a recording", "CREATED or OPEN")),
        };
        let Services {
            io_thread, catalog, ..
        } = &self.services;
        storage.change(io_thread, catalog, change).await?;
        Ok(storage.info())
    }

    /// Moves a storage from RECORDING back to OPEN; does nothing in any other state.
    ///
    /// # Errors
    /// When there is no such storage, or its storage file cannot be written.
    pub async fn end_recording(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        let storage = self.registry.find(id)?;
        if storage.state() == StorageState::Recording {
            let change = |file: &mut StorageFile| {
                if file.state == StorageState::Recording {
                    file.state = StorageState::Open;
                }
                Ok(())
            };
            let Services {
                io_thread, catalog, ..
            } = &self.services;
            storage.change(io_thread, catalog, change).await?;
        }
        Ok(storage.info())
    }
}
