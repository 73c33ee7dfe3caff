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
    known_repairs::publish_repairs,
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
    /// When there is no such storage, it is not FAILED, its storage file is damaged, its damage is
    /// in data files of version 1 or arranged ones, it cannot be written, or it was cancelled.
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
        let mut report = survey.report();
        if survey.has_leaf_files() || survey.has_replaced_files() {
            report.packets = self.packets_of_intact(&storage, &file, &progress).await?;
        }
        if !is_confirmed {
            return Ok(report);
        }
        let survey = Arc::new(survey);
        if survey.is_damaged() {
            let cut = self.cut(&storage, &survey, &progress).await;
            if cut.is_err() {
                // Its bytes are free for whatever comes next.
                let _ = self.discard_copy(&storage.folder, &survey).await;
            }
            cut?;
        } else if survey.are_repairs_lost() {
            self.record(&storage.folder, &survey).await?;
        }
        self.reopen(&storage, &file, &progress).await?;
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

    /// The number of packets of a storage with data files that no repair reads: those of version 1,
    /// and arranged ones. They must be intact.
    async fn packets_of_intact(
        &self,
        storage: &Arc<Storage>,
        file: &StorageFile,
        progress: &Arc<Progress>,
    ) -> Result<u64, StorageError> {
        let recovered = self.recover(storage, file, progress).await?;
        match recovered.damage {
            Some(damage) => Err(StorageError::NotRepairable {
                storage: storage.id,
                damage: Box::new(damage),
            }),
            None => Ok(recovered.tree.totals().packets),
        }
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
            // One that a crash left takes the room that this repair needs.
            self.discard_copy(&folder, survey).await?;
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
        self.record(&folder, survey).await?;
        crate::fault_point!(async "repair.recorded");
        if packets > 0 && !names_first {
            self.name(&folder, survey).await?;
        }
        Ok(())
    }

    /// Removes the file that continues the log, as long as it has no name.
    async fn discard_copy(&self, folder: &Path, survey: &Arc<Survey>) -> Result<(), StorageError> {
        let (folder, survey) = (folder.to_owned(), Arc::clone(survey));
        let space = Arc::clone(&self.services.space);
        let discard = move || {
            survey.discard(&folder)?;
            space.look();
            Ok(())
        };
        self.blocking.run(Cause::Verify, discard).await
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
    async fn record(&self, folder: &Path, survey: &Survey) -> Result<(), StorageError> {
        let repairs = survey.repairs(now_ns());
        publish_repairs(folder, &repairs, &self.services.io_thread).await
    }

    /// Recovers the storage as a start does, and serves it as an open one.
    async fn reopen(
        &self,
        storage: &Arc<Storage>,
        file: &StorageFile,
        progress: &Arc<Progress>,
    ) -> Result<(), StorageError> {
        let Recovered {
            tree,
            damage,
            leftovers,
            arranged,
            repairs,
            has_void_repairs,
            ..
        } = self.recover(storage, file, progress).await?;
        if let Some(damage) = damage {
            return Err(damage);
        }
        let Services {
            io_thread, catalog, ..
        } = &self.services;
        // A change of labels, a deletion or an import in its place comes before, or finds what the
        // storage became.
        let _changing = storage.hold().await?;
        if !self.registry.has(storage) {
            return Err(StorageError::StorageNotFound(storage.id));
        }
        let file = self.file_of(storage).await?;
        if has_void_repairs {
            publish_repairs(&storage.folder, &repairs, io_thread).await?;
        }
        publish_file(&storage.folder, &file, io_thread, catalog).await?;
        crate::fault_point!(async "repair.published");
        let cache = Arc::clone(&self.block_cache);
        let open = Storage::new(storage.folder.clone(), file, Some(tree), cache);
        open.set_repairs(repairs);
        let open = Arc::new(open);
        // Whoever finds it finds its writer.
        self.tasks.start_writer(&open, &self.services);
        self.registry.replace(storage, open);
        storage.set_replaced();
        let unread = storage.remove_with_readers(leftovers);
        remove_leftovers(unread).await;
        remove_leftovers(arranged).await;
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
