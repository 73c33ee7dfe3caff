//! Repairs failed storages.

use std::{path::Path, sync::Arc};

use io_trace::Cause;
use storage_format::{
    StorageId,
    paths::FileName,
    storage_file::{StorageFile, StorageState},
};
use tokio::sync::oneshot;

use super::{Storages, folders::remove_leftovers};
use crate::{
    Progress, RepairReport, StorageError,
    clock::now_ns,
    io::{rename, sync_folder},
    io_thread::IoThreadRequest,
    read::read_whole,
    recovery::{Recovered, Scan, recover},
    repair::{Survey, survey},
    storage::{Storage, publish_file},
    writer::{Services, WriterMessage},
};

impl Storages {
    /// How many packets are missing at most since a storage was repaired.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn missing_packets(&self, id: StorageId) -> Result<u64, StorageError> {
        Ok(self.registry.known(id)?.repairs().missing_packets())
    }

    /// Why a storage may contain more than what can be found in it, if this is so: its log is
    /// damaged, and what is behind the damage is not known until it is repaired.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn damage(&self, id: StorageId) -> Result<Option<String>, StorageError> {
        let storage = self.registry.known(id)?;
        Ok(storage.damage().map(ToString::to_string))
    }

    /// Reads all of a failed storage past the page cache, and says what is whole and what is
    /// missing. Once it `is_confirmed`, the storage is open again, without what is missing;
    /// otherwise nothing changes.
    ///
    /// A repair that ends early leaves the storage FAILED; it can be repeated.
    ///
    /// # Errors
    /// When there is no such storage, it is not FAILED, its storage file is damaged, it cannot be
    /// written, or the work was cancelled.
    pub async fn repair(
        &self,
        id: StorageId,
        is_confirmed: bool,
        progress: Arc<Progress>,
    ) -> Result<RepairReport, StorageError> {
        let storage = self.registry.find(id)?;
        storage.watch(&progress);
        // One repair at a time.
        let _turn = Arc::clone(&storage.finalizing).lock_owned().await;
        let storage = match self.registry.find(id)? {
            now if now.state() == StorageState::Failed => now,
            now => return Err(now.wrong_state("a repair", "FAILED")),
        };
        let mut file = self.file_of(&storage).await?;
        if is_confirmed {
            self.end_writer(&storage).await;
            // It may have named an arranged file meanwhile.
            file = self.file_of(&storage).await?;
        }
        let named: Vec<_> = file.files.iter().map(|file| file.name.clone()).collect();
        let survey = self.survey(&storage, &named, &progress).await?;
        if survey.has_replaced_files() {
            // Damage in such a storage cannot be repaired.
            let recovered = self.recover(&storage, &file, &progress).await?;
            recovered.damage.map_or(Ok(()), Err)?;
        }
        let report = survey.report();
        if !is_confirmed {
            return Ok(report);
        }
        let survey = Arc::new(survey);
        if survey.is_damaged() {
            self.cut(&storage, &survey, &progress).await?;
        }
        self.reopen(&storage, file, &progress).await?;
        tracing::warn!(
            storage = %id, packets = report.packets, missing = report.missing_packets,
            "the storage was repaired and is open; missing packets are recorded"
        );
        Ok(RepairReport {
            is_repaired: true,
            ..report
        })
    }

    /// The storage file, which must be intact on the disk.
    async fn file_of(&self, storage: &Arc<Storage>) -> Result<StorageFile, StorageError> {
        let path = storage.path(&FileName::Storage(storage.id));
        let id = storage.id;
        let read = move || {
            let bytes = read_whole(&path).map_err(StorageError::io("read", &path))?;
            let file = StorageFile::decode(&bytes).and_then(|file| {
                file.check_id(id)?;
                Ok(file)
            });
            file.map_err(StorageError::damaged(path))
        };
        let mut file = self.blocking.run(Cause::Verify, read).await?;
        file.state = StorageState::Open;
        file.failure = None;
        Ok(file)
    }

    async fn survey(
        &self,
        storage: &Arc<Storage>,
        named: &[String],
        progress: &Arc<Progress>,
    ) -> Result<Survey, StorageError> {
        let (folder, id, named) = (storage.folder.clone(), storage.id, named.to_vec());
        let progress = Arc::clone(progress);
        self.blocking
            .run(Cause::Verify, move || {
                survey(&folder, id, &named, &progress)
            })
            .await
    }

    /// Ends the writer of a storage that failed while it was written, and closes its log.
    async fn end_writer(&self, storage: &Storage) {
        let writer = storage.writer.read().clone();
        let (reply, done) = oneshot::channel();
        if let Some(writer) = writer
            && writer.send(WriterMessage::Stop { reply }).await.is_ok()
        {
            // One that ended meanwhile drops the reply.
            let _ = done.await;
        }
        let (reply, done) = oneshot::channel();
        let forget = IoThreadRequest::Forget {
            storage: storage.id,
            reply,
        };
        if self.services.io_thread.send(forget).await.is_ok() {
            // An I/O thread that has ended has closed the file as well.
            let _ = done.await;
        }
    }

    /// Cuts the log at the damage, and continues it with what is whole behind it. It takes effect
    /// with the last step.
    async fn cut(
        &self,
        storage: &Arc<Storage>,
        survey: &Arc<Survey>,
        progress: &Arc<Progress>,
    ) -> Result<(), StorageError> {
        let (bytes, packets) = survey.copied();
        let folder = storage.folder.clone();
        if packets > 0 {
            self.services.space.check_room(bytes)?;
            let (survey, progress) = (Arc::clone(survey), Arc::clone(progress));
            let folder = folder.clone();
            let copy = move || survey.copy(&folder, &progress);
            self.blocking.run(Cause::Verify, copy).await?;
            crate::fault_point!(async "repair.copied");
        }
        // From here on it is too late to cancel.
        progress.check()?;
        let names_first = crate::sabotaged!("repair-names-first");
        if packets > 0 && names_first {
            self.name(&folder, survey).await?;
        }
        self.record(storage, &folder, survey).await?;
        crate::fault_point!(async "repair.recorded");
        if packets > 0 && !names_first {
            self.name(&folder, survey).await?;
        }
        Ok(())
    }

    /// Gives the file that continues the log its name.
    async fn name(&self, folder: &Path, survey: &Survey) -> Result<(), StorageError> {
        let (staged, path) = survey.next_file(folder);
        let folder = folder.to_owned();
        let rename = move || {
            rename(&staged, &path).map_err(StorageError::io("rename", &path))?;
            sync_folder(&folder)
        };
        self.blocking.run(Cause::Verify, rename).await?;
        crate::fault_point!(async "repair.named");
        Ok(())
    }

    /// Writes the repair file.
    async fn record(
        &self,
        storage: &Storage,
        folder: &Path,
        survey: &Survey,
    ) -> Result<(), StorageError> {
        let name = FileName::Repairs(storage.id).to_string();
        let path = folder.join(&name);
        let bytes = survey.repairs(now_ns()).encode();
        let bytes = bytes.map_err(StorageError::damaged(&path))?;
        let published = self
            .services
            .io_thread
            .publish(folder.to_owned(), name, bytes.into())
            .await;
        published.map_err(StorageError::io("write", path))
    }

    /// Recovers the storage as a start does, and serves it as an open one.
    async fn reopen(
        &self,
        storage: &Arc<Storage>,
        file: StorageFile,
        progress: &Arc<Progress>,
    ) -> Result<(), StorageError> {
        let Recovered {
            tree,
            damage,
            leftovers,
            arranged,
            repairs,
            ..
        } = self.recover(storage, &file, progress).await?;
        if let Some(damage) = damage {
            return Err(damage);
        }
        let Services {
            io_thread, catalog, ..
        } = &self.services;
        publish_file(&storage.folder, &file, io_thread, catalog).await?;
        crate::fault_point!(async "repair.published");
        let cache = Arc::clone(&self.block_cache);
        let open = Storage::new(storage.folder.clone(), file, Some(tree), cache);
        open.set_repairs(repairs);
        let open = Arc::new(open);
        if !self.registry.replace(storage, Arc::clone(&open)) {
            return Err(StorageError::StorageNotFound(storage.id));
        }
        remove_leftovers(leftovers).await;
        remove_leftovers(arranged).await;
        self.tasks.start_writer(&open, &self.services);
        Ok(())
    }

    async fn recover(
        &self,
        storage: &Arc<Storage>,
        file: &StorageFile,
        progress: &Arc<Progress>,
    ) -> Result<Recovered, StorageError> {
        let scan = Scan {
            progress: Arc::clone(progress),
            ..Scan::alone()
        };
        let (folder, id) = (storage.folder.clone(), storage.id);
        let named: Vec<_> = file.files.iter().map(|file| file.name.clone()).collect();
        let torn_bytes_max = self.services.config.in_flight_bytes_max;
        self.blocking
            .run(Cause::Recovery, move || {
                recover(&folder, id, &named, torn_bytes_max, &scan)
            })
            .await
    }
}
