//! Making, changing, finalizing and deleting storages.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use io_trace::{Cause, Operation};
use storage_format::{
    StorageId,
    limits::{
        LABEL_BYTES_MAX, STORAGE_DESCRIPTION_BYTES_MAX, STORAGE_LABEL_COUNT_MAX,
        STORAGE_NAME_BYTES_MAX,
    },
    storage_file::{StorageFile, StorageState, Totals},
};
use tokio::sync::oneshot;

use super::{Engine, StorageInfo, start::DELETED_PREFIX};
use crate::{
    StorageError,
    clock::{now_ns, random_10},
    state::may_move,
    storage::{Storage, publish_file},
    traced::operation,
    tree::IndexTree,
    writer::{Services, WriterMessage},
};

/// A storage that is to be made.
#[derive(Debug, Clone, Default)]
pub struct NewStorage {
    /// Name for people.
    pub name: String,
    /// Description for people.
    pub description: String,
    /// Labels: key and value.
    pub labels: BTreeMap<String, String>,
    /// A second creation with the same key gives the first storage again.
    pub idempotency_key: Option<String>,
}

/// Whether a creation made a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// A new storage was made.
    New,
    /// The idempotency key was known; this is the storage that was made then.
    Before,
}

/// What is to be changed of a storage; `None` stays.
#[derive(Debug, Clone, Default)]
pub struct StoragePatch {
    /// Name for people.
    pub name: Option<String>,
    /// Description for people.
    pub description: Option<String>,
    /// All labels.
    pub labels: Option<BTreeMap<String, String>>,
}

impl Engine {
    /// Makes a storage in state CREATED.
    ///
    /// # Errors
    /// When a value exceeds its limit, the server has too many storages, or it cannot be written.
    pub async fn create_storage(
        &self,
        new: NewStorage,
    ) -> Result<(StorageInfo, Created), StorageError> {
        check_texts(Some(&new.name), Some(&new.description), Some(&new.labels))?;
        let labels = self.services().labels.checked(new.labels)?;
        let new = NewStorage { labels, ..new };
        let _creating = self.inner.creating.lock().await;
        if let Some(key) = &new.idempotency_key {
            check_length("idempotency key", key, LABEL_BYTES_MAX)?;
            let known = self.inner.by_idempotency_key.lock().get(key).copied();
            if let Some(storage) = known.and_then(|id| self.find(id).ok()) {
                return Ok((storage.info(), Created::Before));
            }
        }
        self.services().space.check()?;
        self.check_storage_count()?;
        let storage = self.make_storage(new).await?;
        Ok((storage.info(), Created::New))
    }

    pub(super) fn check_storage_count(&self) -> Result<(), StorageError> {
        let max = self.services().config.storage_count_max;
        match self.inner.storages.read().len() >= max {
            true => Err(StorageError::LimitReached {
                what: "storages",
                max,
            }),
            false => Ok(()),
        }
    }

    async fn make_storage(&self, new: NewStorage) -> Result<Arc<Storage>, StorageError> {
        let created = now_ns();
        let id = StorageId::new(created.unsigned_abs() / 1_000_000, random_10());
        let folder = self.inner.storages_folder.join(id.to_string());
        let Services {
            io_thread,
            catalog,
            config,
            ..
        } = self.services();
        let file = StorageFile {
            id,
            name: new.name,
            description: new.description,
            state: StorageState::Created,
            labels: new.labels,
            created,
            opened: None,
            finalized: None,
            server_version: config.server_version.clone(),
            idempotency_key: new.idempotency_key.clone(),
            failure: None,
            totals: Totals::default(),
            files: Vec::new(),
        };
        let make = {
            let folder = folder.clone();
            move || std::fs::create_dir(&folder).map_err(StorageError::io("create", folder))
        };
        self.blocking(Cause::Manage, make).await?;
        let published = match publish_file(&folder, &file, io_thread, catalog).await {
            Ok(()) => {
                let synced = io_thread
                    .sync_folder(self.inner.storages_folder.clone())
                    .await;
                synced.map_err(StorageError::io("sync", &self.inner.storages_folder))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = published {
            catalog.forget(id);
            let remove = move || std::fs::remove_dir_all(&folder);
            // The next start removes what this leaves.
            let _ = tokio::task::spawn_blocking(remove).await;
            return Err(error);
        }
        let tree = Some(IndexTree::new(id));
        let storage = Arc::new(Storage::new(
            folder,
            file,
            tree,
            Arc::clone(&self.inner.cache),
        ));
        self.inner.storages.write().insert(id, Arc::clone(&storage));
        if let Some(key) = new.idempotency_key {
            self.inner.by_idempotency_key.lock().insert(key, id);
        }
        Ok(storage)
    }

    /// Opens a storage for packets; nothing to do when it is open.
    ///
    /// # Errors
    /// When there is no such storage, or it is finalized or failed.
    pub async fn open_storage(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        let storage = self.find(id)?;
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
        } = self.services();
        storage.change(io_thread, catalog, change).await?;
        if !was_open {
            self.start_writer(&storage);
        }
        Ok(storage.info())
    }

    /// Makes a storage immutable: waits for what is under way, completes every file, publishes.
    ///
    /// # Errors
    /// When there is no such storage, its state does not allow it, or a file cannot be written.
    pub async fn finalize_storage(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        let storage = self.find(id)?;
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
        } = self.services();
        storage.change(io_thread, catalog, change).await?;
        if was_created {
            self.start_writer(&storage);
        }
        let writer = storage
            .writer
            .read()
            .clone()
            .ok_or(StorageError::Stopping)?;
        let (reply, done) = oneshot::channel();
        let sent = writer.send(WriterMessage::Finalize { reply }).await;
        sent.map_err(|_| StorageError::Stopping)?;
        done.await.map_err(|_| StorageError::Stopping)?
    }

    /// Changes name, description or labels.
    ///
    /// # Errors
    /// When there is no such storage, a value exceeds its limit, or it cannot be written.
    pub async fn update_storage(
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
        let types = &self.services().labels;
        let labels = labels.map(|labels| types.checked(labels)).transpose()?;
        let storage = self.find(id)?;
        let change = |file: &mut StorageFile| {
            file.name = name.unwrap_or_else(|| std::mem::take(&mut file.name));
            file.description = description.unwrap_or_else(|| std::mem::take(&mut file.description));
            file.labels = labels.unwrap_or_else(|| std::mem::take(&mut file.labels));
            Ok(())
        };
        let Services {
            io_thread, catalog, ..
        } = self.services();
        storage.change(io_thread, catalog, change).await?;
        Ok(storage.info())
    }

    /// Deletes a storage, also one that is being written.
    ///
    /// # Errors
    /// When there is no such storage, or its folder cannot be moved away.
    pub async fn delete_storage(&self, id: StorageId) -> Result<(), StorageError> {
        let storage = {
            let mut storages = self.inner.storages.write();
            storages
                .remove(&id)
                .ok_or(StorageError::StorageNotFound(id))?
        };
        storage.is_deleted.store(true, Ordering::Relaxed);
        storage.cancel_jobs();
        let writer = storage.writer.read().clone();
        let (reply, done) = oneshot::channel();
        if let Some(writer) = writer
            && writer.send(WriterMessage::Delete { reply }).await.is_ok()
        {
            // A writer that ended meanwhile has let go as well.
            let _ = done.await;
        }
        self.services().droppable.close(&storage.lane);
        self.services().droppable.clear(id, true);
        let (from, root) = (storage.folder.clone(), self.inner.storages_folder.clone());
        let to = root.join(format!("{DELETED_PREFIX}{id}"));
        let moved = {
            let (from, to) = (from.clone(), to.clone());
            self.blocking(Cause::Manage, move || {
                operation(Operation::Rename, &to, || std::fs::rename(&from, &to))
                    .map_err(StorageError::io("move", from))
            })
        };
        if let Err(error) = moved.await {
            // It is still there, and the next start serves it again.
            storage.is_deleted.store(false, Ordering::Relaxed);
            self.inner.storages.write().insert(id, storage);
            return Err(error);
        }
        let synced = self.services().io_thread.sync_folder(root.clone()).await;
        let catalog = Arc::clone(&self.services().catalog);
        let removed = self.blocking(Cause::Manage, move || {
            catalog.forget(id);
            operation(Operation::Unlink, &to, || std::fs::remove_dir_all(&to))
                .map_err(StorageError::io("remove", to))
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "the next start removes the rest of a deleted storage");
        }
        self.inner
            .by_idempotency_key
            .lock()
            .retain(|_, storage| *storage != id);
        synced.map_err(StorageError::io("sync", root))
    }
}

fn check_length(what: &'static str, text: &str, max: usize) -> Result<(), StorageError> {
    if text.len() > max {
        let problem = format!("has {} bytes, the limit is {max}", text.len());
        return Err(StorageError::Invalid { what, problem });
    }
    if text
        .chars()
        .any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        let problem = "has control characters".to_owned();
        return Err(StorageError::Invalid { what, problem });
    }
    Ok(())
}

pub(super) fn check_texts(
    name: Option<&str>,
    description: Option<&str>,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<(), StorageError> {
    if let Some(name) = name {
        check_length("name", name, STORAGE_NAME_BYTES_MAX)?;
        if name.trim().is_empty() {
            let problem = "is empty".to_owned();
            return Err(StorageError::Invalid {
                what: "name",
                problem,
            });
        }
    }
    check_length(
        "description",
        description.unwrap_or(""),
        STORAGE_DESCRIPTION_BYTES_MAX,
    )?;
    let Some(labels) = labels else { return Ok(()) };
    if labels.len() > STORAGE_LABEL_COUNT_MAX {
        let problem = format!(
            "are {}, the limit is {STORAGE_LABEL_COUNT_MAX}",
            labels.len()
        );
        return Err(StorageError::Invalid {
            what: "labels",
            problem,
        });
    }
    let names = labels.keys().map(String::as_str);
    check_label_texts(names.chain(labels.values().flat_map(|text| crate::labels::values(text))))
}

/// Whether names and single values of labels can be kept.
pub(super) fn check_label_texts<'a>(
    mut texts: impl Iterator<Item = &'a str>,
) -> Result<(), StorageError> {
    texts.try_for_each(|text| check_length("label", text, LABEL_BYTES_MAX))
}
