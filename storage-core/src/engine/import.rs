//! Import: a storage from a ZIP archive, checked while it arrives, published by one rename.

mod staging;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use io_trace::{Cause, Scope};
use storage_format::{paths::FileName, storage_file::StorageFile};
use tokio::sync::oneshot;

use self::staging::Staging;
use super::{IdempotencyKey, StorageInfo, folders::STAGING_PREFIX, transfer::Transfer};
use crate::{
    Progress, StorageError,
    archive::{ArchiveSink, read_archive},
    clock::random_u64,
    io::{create_folder, exchange, remove_folder, rename, sync_folder},
    storage::Storage,
};

/// A storage that is complete on disk and not published yet.
pub(super) struct Staged {
    pub(super) folder: PathBuf,
    pub(super) file: StorageFile,
    pub(super) bytes: Vec<u8>,
}

impl Transfer {
    /// Imports the storage in the ZIP archive that `source` reads, and publishes it as it was
    /// exported: the same id, the same labels, FINALIZED. `length` is the length of the archive, if
    /// it is known. The import continues when the caller stops waiting; it ends when `source`
    /// fails.
    ///
    /// # Errors
    /// When the archive is damaged, hostile or not of a storage, the storage exists already,
    /// the disk is low, or a file cannot be written. Nothing remains of it then.
    pub async fn import(
        &self,
        source: impl Read + Send + 'static,
        length: Option<u64>,
        progress: Arc<Progress>,
    ) -> Result<StorageInfo, StorageError> {
        self.space.check()?;
        self.registry.check_count()?;
        progress.begin(length.unwrap_or(0));
        if let Some(length) = length {
            self.space.check_room(length)?;
        }
        let (reply, done) = oneshot::channel();
        let transfer = self.clone();
        self.tasks.spawn(async move {
            let imported = transfer.import_archive(source, progress).await;
            // The caller may have gone away; the storage is imported anyway.
            let _ = reply.send(imported);
        });
        done.await.map_err(|_| StorageError::Stopping)?
    }

    async fn import_archive(
        &self,
        source: impl Read + Send + 'static,
        progress: Arc<Progress>,
    ) -> Result<StorageInfo, StorageError> {
        let name = format!("{STAGING_PREFIX}{:016x}", random_u64());
        let folder = self.registry.folder().join(name);
        let staged = {
            let (transfer, folder) = (self.clone(), folder.clone());
            let scope = self.blocking.scope(Cause::Import);
            on_thread(scope, move || stage(&transfer, folder, source, progress)).await
        };
        let published = match staged {
            Ok(staged) => {
                crate::fault_point!(async "import.staged");
                self.publish_staged(staged).await
            }
            Err(error) => Err(error),
        };
        if published.is_err() {
            let remove = self.blocking.run(Cause::Import, move || {
                remove_folder(&folder).map_err(StorageError::io("remove", &folder))
            });
            // The folder may not exist; the next start removes what remains.
            let _ = remove.await;
        }
        published
    }

    pub(super) async fn publish_staged(&self, staged: Staged) -> Result<StorageInfo, StorageError> {
        let id = staged.file.id;
        let _creating = self.registry.creating.lock().await;
        let Ok(existing) = self.registry.known(id) else {
            self.registry.check_count()?;
            return self.publish_new(staged).await;
        };
        if !existing.is_unreadable() {
            return Err(StorageError::StorageExists(id));
        }
        self.replace_unreadable(&existing, staged).await
    }

    /// Publishes a storage in place of one with its id that cannot be read.
    async fn replace_unreadable(
        &self,
        replaced: &Arc<Storage>,
        staged: Staged,
    ) -> Result<StorageInfo, StorageError> {
        // A deletion or a repair that comes first wins.
        let _changing = replaced.hold().await?;
        self.registry.remove(replaced)?;
        let (folder, target) = (staged.folder.clone(), replaced.folder.clone());
        let exchanged = self
            .blocking
            .run(Cause::Import, move || exchange_durably(&folder, &target));
        if let Err(error) = exchanged.await {
            self.registry.insert(Arc::clone(replaced), None);
            return Err(error);
        }
        crate::fault_point!(async "import.exchanged");
        replaced.is_deleted.store(true, Ordering::SeqCst);
        replaced.cancel_jobs();
        let damaged = staged.folder.clone();
        let info = self.serve(staged, replaced.folder.clone()).await?;
        let removed = self.blocking.run(Cause::Import, move || {
            remove_folder(&damaged).map_err(StorageError::io("remove", damaged))
        });
        if let Err(error) = removed.await {
            tracing::warn!(
                %error,
                "files of a replaced storage remain; the next start removes them"
            );
        }
        Ok(info)
    }

    async fn publish_new(&self, staged: Staged) -> Result<StorageInfo, StorageError> {
        let id = staged.file.id;
        let folder = staged.folder.clone();
        let target = self.registry.folder().join(id.to_string());
        let moving = {
            let target = target.clone();
            // A folder of this name that is not a storage remains.
            move || match std::fs::symlink_metadata(&target) {
                Ok(_) => Err(StorageError::StorageExists(id)),
                Err(_) => rename(&folder, &target).map_err(StorageError::io("move", folder)),
            }
        };
        self.blocking.run(Cause::Import, moving).await?;
        crate::fault_point!(async "import.renamed");
        let root = self.registry.folder().to_owned();
        if let Err(error) = self.io_thread.sync_folder(root.clone()).await {
            // Under a temporary name it is not a storage while its files are removed. If this
            // fails as well, the next start finds a complete storage.
            let folder = staged.folder.clone();
            let back = move || rename(&target, &folder).map_err(StorageError::io("move", target));
            let _ = self.blocking.run(Cause::Import, back).await;
            return Err(StorageError::io("sync", root)(error));
        }
        crate::fault_point!(async "import.durable");
        self.serve(staged, target).await
    }

    /// Serves a storage whose folder has been renamed to `target`.
    async fn serve(&self, staged: Staged, target: PathBuf) -> Result<StorageInfo, StorageError> {
        let Staged { file, bytes, .. } = staged;
        let id = file.id;
        let catalog = Arc::clone(&self.catalog);
        let path = target.join(FileName::Storage(id).to_string());
        let key = file.idempotency_key.as_deref().map(IdempotencyKey::of_text);
        let storage = Storage::new(target, file, None, Arc::clone(&self.block_cache));
        let storage = Arc::new(storage);
        let (repaired, slots) = (Arc::clone(&storage), self.slots.clone());
        self.blocking
            .run(Cause::Import, move || {
                catalog.remember(id, &path, &bytes);
                repaired.load_repairs();
                repaired.load_tier(&slots);
                Ok(())
            })
            .await?;
        let info = storage.info();
        self.registry.insert(storage, key);
        Ok(info)
    }
}

/// Exchanges the names of two folders durably; neither is lost in a crash.
fn exchange_durably(one: &Path, other: &Path) -> Result<(), StorageError> {
    let rename = || exchange(one, other).map_err(StorageError::io("replace", other));
    rename()?;
    let synced = sync_folder(other.parent().unwrap_or(other));
    if synced.is_err() {
        rename()?;
    }
    synced
}

/// Writes every file of the archive to `folder`; blocks.
fn stage(
    transfer: &Transfer,
    folder: PathBuf,
    source: impl Read,
    progress: Arc<Progress>,
) -> Result<Staged, StorageError> {
    create_folder(&folder).map_err(StorageError::io("create", &folder))?;
    crate::fault_point!("import.folder");
    let mut staging = Staging::new(transfer, folder.clone(), &progress)?;
    let counted = CountedReader {
        source,
        progress: &progress,
    };
    read_archive(counted, &mut staging)?;
    let (file, bytes) = staging.finish()?;
    sync_folder(&folder)?;
    Ok(Staged {
        folder,
        file,
        bytes,
    })
}

/// Runs work that waits for the network on its own thread: the threads of the runtime are for work
/// that ends by itself.
async fn on_thread<T: Send + 'static>(
    scope: Option<Scope>,
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    let (reply, done) = oneshot::channel();
    let run = move || {
        let _inside = scope.map(Scope::enter);
        // Nobody waits once the server stops.
        let _ = reply.send(work());
    };
    let started = std::thread::Builder::new().name("import".into()).spawn(run);
    started.map_err(StorageError::io("start a thread for", "an import"))?;
    done.await.map_err(|_| StorageError::Stopping)?
}

/// Counts the bytes that are read.
struct CountedReader<'a, R> {
    source: R,
    progress: &'a Progress,
}

impl<R: Read> Read for CountedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.progress.add(count as u64);
        Ok(count)
    }
}

/// Reads an archive as an import does and writes nothing: for tests of the reader.
///
/// # Errors
/// When an import would refuse the archive.
pub fn check_archive(source: impl Read) -> Result<(), StorageError> {
    struct Discard;
    impl ArchiveSink for Discard {
        fn begin(&mut self, _: &str) -> Result<Option<u64>, StorageError> {
            Ok(None)
        }
        fn write(&mut self, _: &[u8]) -> Result<(), StorageError> {
            Ok(())
        }
        fn end(&mut self) -> Result<(), StorageError> {
            Ok(())
        }
    }
    read_archive(source, &mut Discard)
}
