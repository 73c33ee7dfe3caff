//! Repairs storages that failed, and open ones with damage.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use io_trace::Cause;
use storage_format::{
    FormatError, FormatErrorKind, StorageId,
    paths::{FileName, UNPUBLISHED_ENDING},
    storage_file::{StorageFile, StorageState},
};

use super::{Storages, between_writers, derived::is_derived, folders::remove_leftovers};
use crate::{
    Progress, RepairReport, StorageError, VerifyReport,
    clock::now_ns,
    io::{rename, sync_folder},
    known_repairs::publish_repairs,
    read::read_whole,
    recovery::{Recovered, Scan, in_use, recover},
    repair::{Survey, survey, survey_indexed},
    storage::Storage,
    storage_copy::publish_file,
    verify::verify,
    writer::{Services, WriterMessage},
};

/// The names of the data files that a storage file of an open storage names.
fn names(file: &StorageFile) -> Vec<String> {
    file.files.iter().map(|file| file.name.clone()).collect()
}

/// The storage file, with the state of one that is written.
fn opened(mut file: StorageFile) -> StorageFile {
    file.state = StorageState::Open;
    file.failure = None;
    file
}

/// The report of a storage in which a verification found no damage.
fn report_of_intact(verified: &VerifyReport) -> RepairReport {
    RepairReport {
        files: verified.files,
        packets: verified.packets,
        bytes: verified.bytes,
        copied_packets: 0,
        copied_bytes: 0,
        missing_packets: verified.missing_packets,
        missing: verified.missing.clone(),
        is_needed: false,
        is_repaired: false,
    }
}

/// Whether it is the temporary file of a derived file, whose publication goes on during a repair.
fn is_derived_in_making(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(UNPUBLISHED_ENDING);
    let name = name.and_then(|name| name.parse().ok());
    name.is_some_and(|name: FileName| is_derived(name.role()))
}

impl Storages {
    /// How many packets are missing at most since a storage was repaired.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn missing_packets(&self, id: StorageId) -> Result<u64, StorageError> {
        Ok(self.registry.known(id)?.repairs().missing_packets())
    }

    /// Why a storage may contain, or have contained, more than what can be found in it and is known
    /// to be missing, if this is so: its log is damaged, and what is behind the damage is not known
    /// until it is repaired, or its repair file cannot be read.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn unknown(&self, id: StorageId) -> Result<Option<String>, StorageError> {
        Ok(self.registry.known(id)?.unknown())
    }

    /// Reads all of a storage past the page cache, and says what is whole and what is missing. Once
    /// it `is_confirmed`, the storage is open again, without what is missing; otherwise nothing
    /// changes. Nothing changes either if an open storage is whole.
    ///
    /// A repair that ends early leaves a FAILED storage FAILED, and an open one open, if it can be
    /// opened again; it can be repeated.
    ///
    /// # Errors
    /// When there is no such storage, it is neither OPEN nor FAILED, its storage file is damaged,
    /// its damage is in data files of version 1 or in arranged ones of which the index is lost, it
    /// cannot be written, or it was cancelled.
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
        let storage = self.registry.find(id)?;
        let repaired = match storage.state() {
            StorageState::Failed => {
                Box::pin(self.repair_failed(&storage, is_confirmed, &progress)).await
            }
            StorageState::Open => {
                Box::pin(self.repair_open(&storage, is_confirmed, &progress)).await
            }
            _ => return Err(storage.wrong_state("a repair", "OPEN or FAILED")),
        };
        let repaired = repaired.map_err(|error| storage.unless_deleted(error))?;
        if repaired.is_repaired {
            tracing::warn!(
                storage = %id, packets = repaired.packets, missing = repaired.missing_packets,
                "the storage was repaired and is open; missing packets are recorded"
            );
        }
        Ok(repaired)
    }

    async fn repair_failed(
        &self,
        storage: &Arc<Storage>,
        is_confirmed: bool,
        progress: &Arc<Progress>,
    ) -> Result<RepairReport, StorageError> {
        let mut file = self.file_of(storage).await?;
        if is_confirmed {
            crate::fault_point!(async "repair.begun");
            self.end_writer(storage).await;
            // It may have named an arranged file meanwhile.
            file = self.file_of(storage).await?;
        }
        let survey = self.survey(storage, &file, progress).await?;
        let report = RepairReport {
            is_needed: true,
            ..survey.report()
        };
        if !is_confirmed {
            return Ok(report);
        }
        self.cut(storage, &Arc::new(survey), progress).await?;
        self.reopen(storage, &file, progress).await?;
        Ok(RepairReport {
            is_repaired: true,
            ..report
        })
    }

    /// Repairs a storage that is written: it is read first, and its writer ends only when there is
    /// something to repair.
    async fn repair_open(
        &self,
        storage: &Arc<Storage>,
        is_confirmed: bool,
        progress: &Arc<Progress>,
    ) -> Result<RepairReport, StorageError> {
        let has_leaf_files = match &*storage.tree.read() {
            Some(tree) => tree.files().keys().any(|file| !file.is_numbered()),
            None => false,
        };
        if has_leaf_files {
            return self.verify_leaf_files(storage, progress).await;
        }
        let plan = self.survey_indexed(storage, progress).await?;
        if !is_confirmed || !plan.is_damaged() {
            return Ok(plan.report());
        }
        drop(plan);
        let between = between_writers::begin(storage).await?;
        self.pause_writer(storage).await?;
        if storage.state() == StorageState::Failed {
            drop(between);
            return Box::pin(self.repair_failed(storage, is_confirmed, progress)).await;
        }
        let cut = self.cut_open(storage, progress).await;
        // It is opened again, whatever became of the repair.
        let opening = Arc::default();
        let opened = match self.file_of(storage).await {
            Ok(file) => self.reopen(storage, &file, &opening).await,
            Err(error) => Err(error),
        };
        if let Err(error) = opened {
            self.fail(storage, &error).await;
            return Err(cut.err().unwrap_or(error));
        }
        Ok(RepairReport {
            is_repaired: true,
            ..cut?
        })
    }

    /// Reads an open storage with data files of version 1, which are not repaired.
    async fn verify_leaf_files(
        &self,
        storage: &Arc<Storage>,
        progress: &Arc<Progress>,
    ) -> Result<RepairReport, StorageError> {
        let (own, watched) = (Arc::clone(storage), Arc::clone(progress));
        let read = move || verify(&own, &watched, None);
        let verified = self.blocking.run(Cause::Verify, read).await?;
        progress.check()?;
        let Some(damage) = verified.damage.first() else {
            return Ok(report_of_intact(&verified));
        };
        let path = storage.folder.join(&damage.file);
        Err(StorageError::NotRepairable {
            storage: storage.id,
            damage: Box::new(StorageError::damaged(path)(FormatError {
                what: "data file",
                offset: damage.offset,
                kind: FormatErrorKind::Field { name: "bytes" },
            })),
        })
    }

    /// Cuts the log of a storage whose writer has ended.
    async fn cut_open(
        &self,
        storage: &Arc<Storage>,
        progress: &Arc<Progress>,
    ) -> Result<RepairReport, StorageError> {
        let survey = self.survey_indexed(storage, progress).await?;
        let report = survey.report();
        self.cut(storage, &Arc::new(survey), progress).await?;
        Ok(report)
    }

    /// Makes a storage FAILED that is not damaged further, and has no writer any more.
    async fn fail(&self, storage: &Storage, error: &StorageError) {
        if storage.is_deleted.load(Ordering::SeqCst) {
            return;
        }
        let reason = format!("it cannot be opened again after its repair: {error}");
        tracing::error!(storage = %storage.id, reason, "the storage is FAILED; repair it again");
        storage.mark_failed(&reason);
        let Services {
            io_thread, catalog, ..
        } = &self.services;
        let fail = |file: &mut StorageFile| {
            file.state = StorageState::Failed;
            file.failure.get_or_insert_with(|| reason.clone());
            Ok(())
        };
        if let Err(error) = storage.change(io_thread, catalog, fail).await {
            tracing::error!(
                %error,
                "the storage file cannot be updated; the failure is known until the restart only"
            );
        }
    }

    /// The storage file of an open storage with the content of that on the disk, which must be
    /// intact.
    async fn file_of(&self, storage: &Arc<Storage>) -> Result<StorageFile, StorageError> {
        self.stored_file(storage).await.map(opened)
    }

    /// The storage file, which must be intact on the disk.
    async fn stored_file(&self, storage: &Arc<Storage>) -> Result<StorageFile, StorageError> {
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
        self.blocking.run(Cause::Verify, read).await
    }

    /// Reads a FAILED storage. If not all of its data files can be read as a log, the recovery must
    /// find no damage, and its index says where the rest is.
    async fn survey(
        &self,
        storage: &Arc<Storage>,
        file: &StorageFile,
        progress: &Arc<Progress>,
    ) -> Result<Survey, StorageError> {
        let (folder, id, named) = (storage.folder.clone(), storage.id, names(file));
        let watched = Arc::clone(progress);
        let read = move || survey(&folder, id, &named, &watched);
        let found = self.blocking.run(Cause::Verify, read).await?;
        if !found.is_unread() {
            return Ok(found);
        }
        let recovered = self.recover(storage, file, progress).await?;
        if let Some(damage) = recovered.damage {
            return Err(StorageError::NotRepairable {
                storage: storage.id,
                damage: Box::new(damage),
            });
        }
        if found.has_leaf_files() {
            return Ok(found.of_intact(recovered.tree.totals().packets));
        }
        self.survey_indexed(storage, progress).await
    }

    /// Reads a storage whose index is complete.
    async fn survey_indexed(
        &self,
        storage: &Arc<Storage>,
        progress: &Arc<Progress>,
    ) -> Result<Survey, StorageError> {
        let (own, watched) = (Arc::clone(storage), Arc::clone(progress));
        let read = move || survey_indexed(&own, &watched);
        self.blocking.run(Cause::Verify, read).await
    }

    /// Ends the writer of an open storage, and closes its log. The index must be durable before:
    /// without it the next recovery reads the log again, finds the damage, and the storage fails.
    /// The writer continues if the index cannot be written.
    async fn pause_writer(&self, storage: &Storage) -> Result<(), StorageError> {
        let pause = |reply| WriterMessage::Pause { reply };
        if let Some(saved) = storage.ask_writer(pause).await {
            saved?;
        }
        self.close_log(storage).await;
        Ok(())
    }

    /// Ends the writer of a storage, if it has one, and closes its log.
    async fn end_writer(&self, storage: &Storage) {
        // There is none afterwards, whatever the answer.
        let _ = storage
            .ask_writer(|reply| WriterMessage::Stop { reply })
            .await;
        self.close_log(storage).await;
    }

    async fn close_log(&self, storage: &Storage) {
        self.services.io_thread.forget(storage.id).await;
    }

    /// Cuts the log at the damage, if there is any, and continues it with what is whole behind it.
    async fn cut(
        &self,
        storage: &Arc<Storage>,
        survey: &Arc<Survey>,
        progress: &Arc<Progress>,
    ) -> Result<(), StorageError> {
        if !survey.is_damaged() {
            if survey.are_repairs_lost() {
                let _changing = storage.hold().await?;
                self.record(&storage.folder, survey).await?;
            }
            return Ok(());
        }
        let cut = self.cut_damaged(storage, survey, progress).await;
        if cut.is_err() {
            // Its bytes are free for whatever comes next.
            let _ = self.discard_copy(&storage.folder, survey).await;
        }
        cut
    }

    /// It takes effect with the last step.
    async fn cut_damaged(
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
        // These steps write by path: the folder must not become that of an import in the place of
        // a storage that is deleted meanwhile.
        let _changing = storage.hold().await?;
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
            if crate::sabotaged!("skip-repair-sync") {
                return Ok(());
            }
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
        let stored = self.stored_file(storage).await?;
        let mut file = opened(stored.clone());
        let in_use = in_use(&names(&file), &repairs);
        file.files.retain(|listed| in_use.contains(&listed.name));
        if has_void_repairs {
            publish_repairs(&storage.folder, &repairs, io_thread).await?;
        }
        // After a refusal nothing may be written: there may be no room for it.
        if file != stored {
            publish_file(&storage.folder, (&file, Some(&stored)), io_thread, catalog).await?;
        }
        crate::fault_point!(async "repair.published");
        let cache = Arc::clone(&self.block_cache);
        let open = Storage::new(storage.folder.clone(), file, Some(tree), cache);
        open.set_repairs(repairs);
        let open = Arc::new(open);
        // Before anything is written under these names again. Derived files are made meanwhile.
        let is_unused = |path: &PathBuf| !is_derived_in_making(path);
        let leftovers = leftovers.into_iter().filter(is_unused).collect();
        remove_leftovers(storage.remove_with_readers(leftovers)).await;
        remove_leftovers(arranged).await;
        // What the old writer had may be lost: the new one judges packets by what is durable.
        self.services.droppable.end(storage.id);
        // Whoever finds it finds its writer.
        self.tasks.start_writer(&open, &self.services);
        self.registry.replace(storage, open);
        storage.set_replaced();
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
        let named = names(file);
        let torn_bytes_max = self.services.config.in_flight_bytes_max;
        self.blocking
            .run(Cause::Recovery, move || {
                recover(&folder, id, &named, torn_bytes_max, &scan)
            })
            .await
    }
}
