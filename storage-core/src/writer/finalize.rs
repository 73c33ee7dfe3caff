//! Finalization: makes a storage immutable.
//!
//! The order matters: every data file is truncated to its frames and synced, then the index part,
//! then the agent files are written, and only then the storage file is renamed into place, which
//! publishes all of them. A crash before that leaves a storage that is FINALIZING; the next start
//! continues, and uses or replaces the files that were written.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use storage_format::{
    AgentId, Codec, DataFileId, FormatError, FormatErrorKind, Kind, LeafType, StorageId,
    agent_file::{AgentFile, StreamSpec},
    checksum::crc32c,
    checksum_file::ChecksumFile,
    paths::{FileName, FileRole},
    storage_file::{FileEntry, StorageFile, StorageState, Totals},
};

use super::{Services, Writer};
use crate::{
    Progress, StorageError,
    arranging::{Arranged, Limits, Maps, Plan, remove_arranged},
    checksums::{note_missing, publish_checksums, sum_files},
    clock::now_ns,
    io_thread::{IoThreadError, Tail},
    progress::Pace,
    storage::Storage,
    tree::IndexTree,
};

/// How soon a finalization that waits for the replica notices that it is cancelled.
const CANCELLED_WITHIN: Duration = Duration::from_millis(50);
/// The attribute of an agent of which only the packets are known, and its value.
const UNKNOWN: &str = "unknown";
const WHY_UNKNOWN: &str = "it was deleted before the storage was finalized";

impl Writer {
    /// Completes every file and publishes the storage as FINALIZED; no packet is in flight.
    ///
    /// When a step fails because the disk is full, bytes that were written are damaged, or the work
    /// is cancelled, the storage is OPEN again. When the server stops, it remains FINALIZING, and
    /// the next start continues.
    pub(super) async fn finalize(
        &mut self,
        progress: &Arc<Progress>,
    ) -> Result<StorageFile, StorageError> {
        *self.storage.arranging.lock() = Some(Arc::clone(progress));
        // A stop that came before cancelled nothing.
        if self.services.is_stopping.load(Ordering::Relaxed) {
            progress.cancel();
        }
        let finalized = self.complete_files(progress).await;
        *self.storage.arranging.lock() = None;
        match finalized {
            Ok((file, arranged)) => {
                if let Some(arranged) = arranged {
                    crate::fault_point!(async "finalize.published");
                    self.replace_files(arranged);
                    crate::fault_point!(async "finalize.replaced");
                }
                self.forget_files().await;
                Ok(file)
            }
            Err(StorageError::Cancelled) if self.services.is_stopping.load(Ordering::Relaxed) => {
                tracing::info!(
                    storage = %self.storage.id,
                    "the finalization is interrupted; the next start continues it"
                );
                Err(StorageError::Stopping)
            }
            Err(error) => {
                // Otherwise the storage file that names the new files may be on the disk, although
                // its publication failed; the next start knows.
                if self.reopen(&error).await {
                    self.remove_arranged().await;
                }
                let error = if error.is_damage() {
                    StorageError::DamagedWhileOpen {
                        storage: self.storage.id,
                        damage: Box::new(error),
                    }
                } else {
                    error
                };
                // Who set the storage aside has said why.
                if matches!(error, StorageError::Superseded { .. }) {
                    return Err(error);
                }
                // A deletion cancels its jobs.
                Err(self.storage.unless_deleted(error))
            }
        }
    }

    async fn complete_files(
        &mut self,
        progress: &Arc<Progress>,
    ) -> Result<(StorageFile, Option<Arranged>), StorageError> {
        let next_file = self.finish_data_files().await?;
        crate::fault_point!(async "finalize.files_ended");
        let arranged = if self.has_replaced_files() {
            self.flush_now().await?;
            self.arrange_rest(progress).await?;
            None
        } else {
            self.arrange(next_file, progress).await?
        };
        let mut files = self.data_files()?;
        let (totals, checksums) = match &arranged {
            Some(arranged) => {
                files = arranged.files.clone();
                (arranged.tree.totals(), Some(arranged.checksums.clone()))
            }
            None => {
                let checksums = read_checksums(&self.storage, &self.services, &files).await?;
                self.flush_now().await?;
                files.extend(self.index_files().await?);
                match &*self.storage.tree.read() {
                    Some(tree) => {
                        assert_eq!(
                            tree.live_packets(),
                            0,
                            "index parts contain every packet before a storage is published"
                        );
                        (tree.totals(), checksums)
                    }
                    None => return Err(StorageError::Stopping),
                }
            }
        };
        crate::fault_point!(async "finalize.indexed");
        if let Some(checksums) = &checksums {
            let Storage { folder, .. } = &*self.storage;
            files.push(publish_checksums(folder, checksums, &self.services.io_thread).await?);
        }
        files.extend(self.write_agent_files().await?);
        files.extend(self.write_repair_file().await?);
        crate::fault_point!(async "finalize.agents_written");
        let finalized = now_ns();
        let tree = arranged.as_ref().map(|arranged| &arranged.tree);
        let seal = self.write_seal(&files, tree, finalized, progress).await?;
        files.extend(seal);
        close_replica(&self.services, self.storage.id, progress).await?;
        // From here on it is too late to cancel.
        progress.check()?;
        let published = self.publish(files, totals, finalized).await?;
        if checksums.is_none() {
            self.services.missing_checksums.add(self.storage.id);
        }
        Ok((published, arranged))
    }

    /// Publishes the storage as FINALIZED with these files.
    async fn publish(
        &mut self,
        mut files: Vec<FileEntry>,
        totals: Totals,
        finalized: i64,
    ) -> Result<StorageFile, StorageError> {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(
            files.is_sorted_by(|a, b| a.name < b.name),
            "a storage file lists a file once"
        );
        let server_version = self.services.config.server_version.clone();
        let storage = Arc::clone(&self.storage);
        let publish = |file: &mut StorageFile| {
            if file.state != StorageState::Finalizing {
                // It failed meanwhile.
                return Err(storage.wrong_state("finalization", "FINALIZING"));
            }
            file.state = StorageState::Finalized;
            file.finalized = Some(finalized);
            file.server_version = server_version;
            file.totals = totals;
            file.files = files;
            Ok(())
        };
        self.storage
            .change(&self.services.io_thread, &self.services.catalog, publish)
            .await
    }

    /// Arranges the storage; `None` when that does not pay, or cannot be done: then it is published
    /// as it is.
    ///
    /// # Errors
    /// When it is cancelled, or bytes are damaged.
    async fn arrange(
        &mut self,
        next_file: u64,
        progress: &Arc<Progress>,
    ) -> Result<Option<Arranged>, StorageError> {
        let storage = Arc::clone(&self.storage);
        let config = &self.services.config;
        let limits = Limits {
            data_file_bytes: config.data_file_bytes_max,
            part_packets: config.tree_packet_count_max,
        };
        let plan = match &*self.storage.tree.read() {
            Some(tree) => {
                let maps: Maps = Box::new(move |leaf, range| storage.leaf_map(leaf, range));
                Plan::new(&self.storage.folder, tree, maps, next_file, limits)
            }
            None => None,
        };
        let Some(plan) = plan else {
            return Ok(None);
        };
        progress.begin(plan.bytes());
        let pace = Pace::new(progress, config.arranging_bytes_per_second_max);
        let result = match self.services.space.check_room(plan.bytes()) {
            Ok(()) => {
                let work = crate::traced::on_thread(io_trace::current(), move || plan.run(pace));
                work.await.unwrap_or(Err(StorageError::Stopping))
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(arranged) => Ok(Some(arranged)),
            Err(StorageError::Cancelled) => Err(StorageError::Cancelled),
            Err(error) if error.is_damage() => Err(error),
            Err(error) => {
                tracing::warn!(
                    %error, storage = %self.storage.id,
                    "the packets of the storage are not arranged by stream; it is finalized as it was written"
                );
                self.remove_arranged().await;
                Ok(None)
            }
        }
    }

    /// Removes arranged files that no storage file names.
    async fn remove_arranged(&mut self) {
        let (folder, id) = (self.storage.folder.clone(), self.storage.id);
        let remove = move || remove_arranged(&folder, id);
        // What remains after a panic is removed by the next start.
        let _ = crate::traced::on_thread(io_trace::current(), remove).await;
    }

    /// Makes arranged files, which are published, those of the storage. The files before are
    /// removed when their last reader has ended.
    fn replace_files(&self, arranged: Arranged) {
        let before = self.storage.tree.write().replace(arranged.tree);
        if let Some(before) = before {
            let data = before.files().keys();
            let data = data.map(|&file| self.storage.path(&FileName::Data(file)));
            before.pin().replace(data.collect());
            before.parts().iter().for_each(|part| part.replace());
        }
    }

    /// Whether files of the storage were arranged while it was open.
    fn has_replaced_files(&self) -> bool {
        let tree = self.storage.tree.read();
        tree.as_ref().is_some_and(IndexTree::has_replaced_files)
    }

    /// Truncates and syncs every data file; returns the id that a next one would have.
    async fn finish_data_files(&mut self) -> Result<u64, StorageError> {
        let finished = self.services.io_thread.finish(Arc::clone(&self.log)).await;
        match finished {
            Ok(next_file) => Ok(next_file),
            Err(error) => Err(self.finish_refused(error).await),
        }
    }

    /// Length and checksum of every data file.
    fn data_files(&self) -> Result<Vec<FileEntry>, StorageError> {
        let files = match &*self.storage.tree.read() {
            Some(tree) => tree.files().clone(),
            None => return Err(StorageError::Stopping),
        };
        let entry = |(file, tail): (DataFileId, Tail)| FileEntry {
            name: FileName::Data(file).to_string(),
            role: FileRole::Data,
            length: tail.length,
            checksum: tail.checksum,
        };
        Ok(files.into_iter().map(entry).collect())
    }

    async fn finish_refused(&mut self, error: IoThreadError) -> StorageError {
        if let IoThreadError::Poisoned(reason) = &error {
            self.fail_storage(reason).await;
        }
        super::complete::refusal(&error, self.storage.id)
    }

    /// Length and checksum of every index part.
    async fn index_files(&mut self) -> Result<Vec<FileEntry>, StorageError> {
        let paths: Vec<_> = match &*self.storage.tree.read() {
            Some(tree) => tree.parts().iter().map(|part| part.path.clone()).collect(),
            None => return Err(StorageError::Stopping),
        };
        let sum = move || {
            let entries = paths.into_iter().map(|path| {
                let summed = crate::read::checksum_of(&path);
                let (length, checksum) = summed.map_err(StorageError::io("read", &path))?;
                let name = path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                Ok(FileEntry {
                    name,
                    role: FileRole::Index,
                    length,
                    checksum,
                })
            });
            entries.collect()
        };
        crate::traced::on_thread(io_trace::current(), sum)
            .await
            .map_err(|_| StorageError::Stopping)?
    }

    /// Writes the file of every agent that has packets in the storage.
    async fn write_agent_files(&mut self) -> Result<Vec<FileEntry>, StorageError> {
        let agents: BTreeSet<AgentId> = match &*self.storage.tree.read() {
            Some(tree) => tree.leaves().map(|leaf| leaf.path.agent.clone()).collect(),
            None => return Err(StorageError::Stopping),
        };
        let mut files = Vec::with_capacity(agents.len());
        for id in agents {
            let name = FileName::Agent(id.clone()).to_string();
            let path = self.storage.folder.join(&name);
            let found = match self.services.agents.file_or_deleted(&id).await {
                Err(error) if error.is_loss() => return Err(self.agent_lost(id, error)),
                found => found?,
            };
            if found.is_none() && self.needs_metadata(&id) {
                let why = "it is gone, and the server started without it";
                return Err(self.agent_lost(id, why));
            }
            let agent = found.unwrap_or_else(|| self.known_from_packets(&id));
            let bytes = bytes::Bytes::from(agent.encode().map_err(StorageError::damaged(&path))?);
            files.push(FileEntry {
                name: name.clone(),
                role: FileRole::Agent,
                length: bytes.len() as u64,
                checksum: crc32c(&bytes),
            });
            let folder = self.storage.folder.clone();
            let published = self.services.io_thread.publish(folder, name, bytes).await;
            published.map_err(StorageError::io("write", &path))?;
        }
        Ok(files)
    }

    fn agent_lost(&self, agent: AgentId, why: impl ToString) -> StorageError {
        let (storage, why) = (self.storage.id, why.to_string());
        StorageError::AgentLost {
            storage,
            agent,
            why,
        }
    }

    /// Whether packets of an agent cannot be decoded without its trace metadata. If its file was
    /// lost while the server was stopped, it sends them when it registers again.
    fn needs_metadata(&self, id: &AgentId) -> bool {
        let tree = self.storage.tree.read();
        let mut leaves = tree.iter().flat_map(|tree| tree.leaves());
        leaves.any(|leaf| leaf.path.agent == *id && leaf.path.kind == Kind::Ctf)
    }

    /// What the packets of an agent say about it that was deleted while the last of them came, or
    /// whose file was lost.
    fn known_from_packets(&self, id: &AgentId) -> AgentFile {
        tracing::error!(
            storage = %self.storage.id, agent = %id,
            "an agent with packets in the storage was deleted before the finalization, or its file \
             was lost: its name is not known"
        );
        let mut streams = BTreeMap::new();
        if let Some(tree) = &*self.storage.tree.read() {
            for leaf in tree.leaves().filter(|leaf| leaf.path.agent == *id) {
                let path = &leaf.path;
                streams.insert(
                    path.stream.clone(),
                    StreamSpec {
                        id: path.stream.clone(),
                        kind: path.kind,
                        leaf_type: LeafType::Array,
                        codec: Codec::Zstd,
                    },
                );
            }
        }
        AgentFile {
            id: id.clone(),
            name: id.to_string(),
            host: String::new(),
            attributes: BTreeMap::from([(UNKNOWN.to_owned(), WHY_UNKNOWN.to_owned())]),
            streams: streams.into_values().collect(),
            metadata: None,
        }
    }

    /// Writes the repair file of a storage that was repaired.
    async fn write_repair_file(&mut self) -> Result<Option<FileEntry>, StorageError> {
        let repairs = self.storage.repairs();
        if repairs.repairs.is_empty() {
            return Ok(None);
        }
        let Storage { folder, id, .. } = &*self.storage;
        let name = FileName::Repairs(*id).to_string();
        let path = folder.join(&name);
        let bytes = repairs.encode().map_err(StorageError::damaged(&path))?;
        let bytes = bytes::Bytes::from(bytes);
        let entry = FileEntry {
            name: name.clone(),
            role: FileRole::Repairs,
            length: bytes.len() as u64,
            checksum: crc32c(&bytes),
        };
        let published = self
            .services
            .io_thread
            .publish(folder.clone(), name, bytes)
            .await;
        published.map_err(StorageError::io("write", &path))?;
        Ok(Some(entry))
    }

    /// Opens the storage again; whether its storage file says so durably.
    async fn reopen(&mut self, reason: &StorageError) -> bool {
        if self.storage.poison.is_set() {
            return false;
        }
        let open = |file: &mut StorageFile| {
            if file.state == StorageState::Finalizing {
                file.state = StorageState::Open;
            }
            Ok(())
        };
        let Self {
            storage, services, ..
        } = self;
        let opened = storage.change(&services.io_thread, &services.catalog, open);
        if let Err(error) = opened.await {
            if matches!(error, StorageError::StorageNotFound(_)) {
                tracing::info!(storage = %storage.id, "the storage was deleted while it was finalized");
                return false;
            }
            if matches!(
                error,
                StorageError::DiskFull { .. } | StorageError::Exhausted { .. }
            ) {
                // The storage file may be published already, so packets must not be accepted.
                tracing::warn!(
                    storage = %storage.id, %error,
                    "the storage remains FINALIZING; finalize it again"
                );
                return false;
            }
            let reason = format!("finalization stopped halfway: {reason}; then: {error}");
            self.fail_storage(&reason).await;
            return false;
        }
        tracing::warn!(
            storage = %storage.id, %reason,
            "finalization ended before its time; the storage is open again"
        );
        true
    }
}

/// Reads the data files of a small storage, or one of which damage is known, for their checksums;
/// `None` if it is done later.
///
/// # Errors
/// When bytes are damaged.
async fn read_checksums(
    storage: &Storage,
    services: &Services,
    files: &[FileEntry],
) -> Result<Option<ChecksumFile>, StorageError> {
    let (id, folder) = (storage.id, storage.folder.clone());
    let bytes: u64 = files.iter().map(|file| file.length).sum();
    let is_large = bytes > services.config.checksums_at_once_bytes_max;
    // A seal is of all files, and reads them anyway.
    let is_sealed = services.config.seal.is_some();
    let is_later = is_large && !is_sealed && !storage.checked.are_damaged();
    let files = files.to_vec();
    let read = move || {
        if is_later {
            check_lengths(&folder, &files)?;
            note_missing(&folder, id);
            return Ok(None);
        }
        let mut pace = Pace::new(&Arc::default(), 0);
        sum_files(&folder, id, &files, &mut pace).map(Some)
    };
    let read = crate::traced::on_thread(io_trace::current(), read).await;
    match read.unwrap_or(Err(StorageError::Stopping)) {
        Ok(checksums) => Ok(checksums),
        Err(error) if error.is_damage() => Err(error),
        Err(error) => {
            tracing::error!(
                %error, storage = %id,
                "a data file cannot be read now for its checksums; verify the storage"
            );
            Ok(None)
        }
    }
}

/// Fails if a data file is gone, or shorter than what was written to it: its bytes are read later.
fn check_lengths(folder: &Path, files: &[FileEntry]) -> Result<(), StorageError> {
    for file in files {
        let path = folder.join(&file.name);
        let found = std::fs::metadata(&path).map_err(StorageError::io("read", &path))?;
        if !found.is_file() || found.len() < file.length {
            let kind = FormatErrorKind::Truncated {
                needed: file.length,
                available: found.len(),
            };
            let (what, offset) = ("data file", found.len());
            return Err(StorageError::damaged(path)(FormatError {
                what,
                offset,
                kind,
            }));
        }
    }
    Ok(())
}

/// Waits until the replica has all packets, and takes no more: another node may have the storage
/// instead, and then it is not finalized here.
async fn close_replica(
    services: &Services,
    id: StorageId,
    progress: &Progress,
) -> Result<(), StorageError> {
    let Some(replica) = services.replica.get() else {
        return Ok(());
    };
    let mut closed = replica.close(id);
    loop {
        match tokio::time::timeout(CANCELLED_WITHIN, &mut closed).await {
            Ok(closed) => return closed,
            Err(_) => progress.check()?,
        }
    }
}
