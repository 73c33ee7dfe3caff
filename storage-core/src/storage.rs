//! A storage of the engine: the state that its writer and its readers share.

use std::{
    io,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::RwLock;
use serde::Serialize;
use storage_format::{
    LeafId, StorageId,
    data_file::HEADER_BYTES,
    index_part::PacketEntry,
    paths::FileName,
    repair_file::RepairFile,
    storage_file::{StorageFile, StorageState},
    tier_file::TierFile,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    Progress, StorageError,
    catalog::Catalog,
    checked::CheckedFiles,
    clock::now_ns,
    damage::Damage,
    droppable::{Droppable, DroppedPackets, LaneSignal},
    io::drop_cached,
    io_thread::{IoThread, Tail},
    poison::Poison,
    read::read_whole,
    readiness::Readiness,
    rebuilds::Rebuilds,
    scan::{FrameScanner, ScanError},
    seal_state::KnownSeal,
    state::may_move,
    status::{WriteCounts, WriteStatus},
    storage_copy,
    tree::{BlockCache, IndexTree, ReadEntries},
    writer::WriterMessage,
};

/// A storage.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) id: StorageId,
    pub(crate) folder: PathBuf,
    pub(crate) file: RwLock<StorageFile>,
    /// `None` while the tree of a finalized storage is not loaded.
    pub(crate) tree: RwLock<Option<IndexTree>>,
    pub(crate) counts: WriteCounts,
    pub(crate) poison: Arc<Poison>,
    /// The inbox of the writer task, while there is one.
    pub(crate) writer: RwLock<Option<mpsc::Sender<WriterMessage>>>,
    /// Its droppable packets.
    pub(crate) lane: Arc<LaneSignal>,
    /// One change of the storage file at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Its storage file or its data could not be read at the start. Nothing is written to it.
    is_unreadable: AtomicBool,
    /// Whether it is recovered.
    pub(crate) readiness: Readiness,
    /// One finalization at a time; the writer holds it until it has replied.
    pub(crate) finalizing: Arc<tokio::sync::Mutex<()>>,
    /// The progress of a finalization, while one runs.
    pub(crate) arranging: parking_lot::Mutex<Option<Arc<Progress>>>,
    /// It is being deleted; requests that still use it get the error that it does not exist.
    pub(crate) is_deleted: AtomicBool,
    /// Set once its folder has another name, because it is deleted.
    pub(crate) is_moved: AtomicBool,
    /// Set once a repair has put another in its place.
    pub(crate) is_replaced: AtomicBool,
    /// Set while a repair has ended its writer.
    pub(crate) is_being_repaired: AtomicBool,
    /// One load of the tree at a time.
    pub(crate) loading: tokio::sync::Mutex<()>,
    /// Attempts to rebuild its index, once it is finalized.
    pub(crate) rebuilds: Rebuilds,
    pub(crate) cache: Arc<BlockCache>,
    /// Jobs on this storage; its deletion cancels them.
    jobs: parking_lot::Mutex<Vec<Weak<Progress>>>,
    /// Which blocks of its files were compared with their checksums, once it is finalized.
    pub(crate) checked: CheckedFiles,
    /// How its log was repaired, and what is missing since.
    pub(crate) repairs: RwLock<Arc<RepairFile>>,
    /// Why it is not known what is missing, although its log was repaired.
    pub(crate) unknown_repairs: RwLock<Option<String>>,
    /// Whether its storage file is lost, and nobody knows its labels.
    pub(crate) are_labels_lost: bool,
    /// Where it is in an object store, once it is there.
    pub(crate) tier: RwLock<Option<Arc<TierFile>>>,
    /// What is known about its seal.
    pub(crate) seal: KnownSeal,
    /// The damage at which recovery stopped: the tree lacks what is behind it.
    pub(crate) damage: OnceLock<StorageError>,
}

/// How writing to a storage keeps up.
#[derive(Debug, Clone, Serialize)]
pub struct StorageStatus {
    /// The storage.
    pub id: StorageId,
    /// Its state.
    pub state: StorageState,
    /// How writing keeps up with arrival.
    pub write_status: WriteStatus,
    /// Packets that arrived since the server started.
    pub arrived: u64,
    /// The durable packets of these.
    pub finished: u64,
    /// Duplicates.
    pub repeated: u64,
    /// Packets that were accepted and not written.
    pub failed_packets: u64,
    /// Droppable packets that were dropped.
    pub dropped_packets: u64,
    /// Bytes of these packets.
    pub dropped_bytes: u64,
    /// The streams of the dropped packets.
    pub dropped: Vec<DroppedPackets>,
    /// Droppable packets that wait for the writer.
    pub droppable_packets: u64,
    /// Bytes of these packets.
    pub droppable_bytes: u64,
    /// Packets in flight.
    pub queued_packets: u64,
    /// Bytes of these packets.
    pub queued_bytes: u64,
    /// All packets in the storage.
    pub written_packets: u64,
    /// Bytes of all packets as the agents sent them.
    pub written_bytes: u64,
    /// Bytes of all packets as stored.
    pub stored_bytes: u64,
    /// Events that producers lost, where packets give a number.
    pub lost: u64,
    /// Packets that are missing since the storage was repaired, at most.
    pub missing_packets: u64,
    /// Why it is not known which packets are missing: its repair file cannot be read.
    pub missing_unknown: Option<String>,
    /// Bytes made durable per second over the last 30 s.
    pub bytes_per_second: u64,
    /// Packets made durable per second over the last 30 s.
    pub packets_per_second: f64,
    /// Bytes that a running finalization has arranged.
    pub arranged_bytes: u64,
    /// Bytes that it has to arrange; 0 when it arranges nothing.
    pub arranging_bytes: u64,
    /// Damage that was found since the server started, while the files of the finalized storage
    /// were read; at most [`DAMAGE_SHOWN_MAX`] places.
    pub damage: Vec<Damage>,
    /// Number of all these places.
    pub damaged_places: u64,
    /// Why the storage is FAILED.
    pub failure: Option<String>,
}

/// Places of damage in the status of a storage.
const DAMAGE_SHOWN_MAX: usize = 100;

impl Storage {
    pub(crate) fn new(
        folder: PathBuf,
        file: StorageFile,
        tree: Option<IndexTree>,
        cache: Arc<BlockCache>,
    ) -> Self {
        Self {
            id: file.id,
            repairs: RwLock::new(Arc::new(RepairFile::new(file.id))),
            unknown_repairs: RwLock::default(),
            are_labels_lost: false,
            checked: CheckedFiles::default(),
            tier: RwLock::default(),
            seal: KnownSeal::default(),
            damage: OnceLock::new(),
            folder,
            file: RwLock::new(file),
            tree: RwLock::new(tree),
            counts: WriteCounts::default(),
            poison: Arc::default(),
            writer: RwLock::new(None),
            lane: Arc::default(),
            changing: tokio::sync::Mutex::default(),
            is_unreadable: AtomicBool::new(false),
            readiness: Readiness::default(),
            finalizing: Arc::default(),
            arranging: parking_lot::Mutex::default(),
            is_deleted: AtomicBool::new(false),
            is_moved: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
            is_being_repaired: AtomicBool::new(false),
            loading: tokio::sync::Mutex::default(),
            rebuilds: Rebuilds::default(),
            cache,
            jobs: parking_lot::Mutex::default(),
        }
    }

    /// A FAILED storage that cannot be read; `file` says why. If its storage file is lost, so are
    /// its labels.
    pub(crate) fn unreadable(
        folder: PathBuf,
        file: StorageFile,
        cache: Arc<BlockCache>,
        are_labels_lost: bool,
    ) -> Self {
        assert_eq!(file.state, StorageState::Failed);
        Self {
            is_unreadable: AtomicBool::new(true),
            are_labels_lost,
            ..Self::new(folder, file, None, cache)
        }
    }

    /// A storage whose data files are to be scanned; `bytes` is an estimate of what that reads.
    pub(crate) fn recovering(
        folder: PathBuf,
        file: StorageFile,
        cache: Arc<BlockCache>,
        bytes: u64,
    ) -> Self {
        Self {
            readiness: Readiness::recovering(bytes),
            ..Self::new(folder, file, None, cache)
        }
    }

    /// Takes the result of the recovery.
    pub(crate) fn recovered(&self, file: StorageFile, tree: IndexTree) {
        assert!(!self.readiness.is_ready(), "a storage is recovered once");
        assert_eq!(file.id, self.id, "a storage keeps its id");
        *self.tree.write() = Some(tree);
        *self.file.write() = file;
    }

    /// Makes a storage FAILED that cannot be read.
    pub(crate) fn set_unreadable(&self, reason: &str) {
        assert!(!self.readiness.is_ready(), "only a recovery finds this");
        let mut file = self.file.write();
        file.state = StorageState::Failed;
        file.failure = Some(reason.to_owned());
        self.is_unreadable.store(true, Ordering::Release);
    }

    /// Whether its storage file or its data could not be read at the start.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.is_unreadable.load(Ordering::Acquire)
    }

    /// Refuses what needs a storage that is recovered.
    pub(crate) fn check_ready(&self) -> Result<(), StorageError> {
        match self.readiness.recovery() {
            None => Ok(()),
            Some(recovery) => Err(StorageError::Recovering {
                storage: self.id,
                bytes_scanned: recovery.bytes_scanned,
                bytes_total: recovery.bytes_total,
            }),
        }
    }

    /// Refuses what needs a storage that can be read.
    pub(crate) fn check_readable(&self) -> Result<(), StorageError> {
        self.check_ready()?;
        if self.is_unreadable() {
            return Err(self.wrong_state("reading", "readable files"));
        }
        Ok(())
    }

    /// Refuses what needs the folder of a storage that was deleted, and what would change one that
    /// a repair has replaced: repeated, the request finds what it became.
    pub(crate) fn check_there(&self) -> Result<(), StorageError> {
        if self.is_moved.load(Ordering::Relaxed) {
            return Err(StorageError::StorageNotFound(self.id));
        }
        if self.is_replaced() {
            return Err(self.not_open_now());
        }
        Ok(())
    }

    /// Lets a deletion of this storage cancel the job of `progress`.
    pub(crate) fn watch(&self, progress: &Arc<Progress>) {
        let mut jobs = self.jobs.lock();
        jobs.retain(|job| job.strong_count() > 0);
        jobs.push(Arc::downgrade(progress));
    }

    /// Cancels all jobs on this storage.
    pub(crate) fn cancel_jobs(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock());
        jobs.iter()
            .filter_map(Weak::upgrade)
            .for_each(|job| job.cancel());
    }

    /// The content of the storage file; FAILED from the moment of a failure.
    fn current_file(&self) -> StorageFile {
        let mut file = self.file.read().clone();
        if file.state != StorageState::Finalized
            && let Some(reason) = self.poison.reason()
        {
            file.state = StorageState::Failed;
            file.failure.get_or_insert(reason);
        }
        file
    }

    /// The content of the storage file, with live totals while the storage is not finalized.
    pub(crate) fn info(&self) -> StorageFile {
        let mut file = self.current_file();
        if file.state != StorageState::Finalized
            && let Some(tree) = &*self.tree.read()
        {
            file.totals = tree.totals();
        }
        file
    }

    /// Asks the writer, and waits for its answer; `None` when there is no writer, or it has ended
    /// without an answer.
    pub(crate) async fn ask_writer<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> WriterMessage,
    ) -> Option<T> {
        let writer = self.writer.read().clone()?;
        let (reply, answer) = oneshot::channel();
        writer.send(request(reply)).await.ok()?;
        // A message that is sent while the receiver is dropped stays in the queue, with its reply,
        // as long as the queue has senders.
        drop(writer);
        answer.await.ok()
    }

    /// The state; FAILED from the moment of a failure, before the storage file says so.
    pub(crate) fn state(&self) -> StorageState {
        match self.file.read().state {
            StorageState::Finalized => StorageState::Finalized,
            _ if self.poison.is_set() => StorageState::Failed,
            state => state,
        }
    }

    /// The error of a request whose reply was lost: the storage failed or was deleted, or the
    /// server is stopping.
    /// A panic drops replies before its message is known, so this waits while the writer ends.
    pub(crate) async fn lost_reply(&self) -> StorageError {
        while self.is_ending_unexpectedly() {
            tokio::task::yield_now().await;
        }
        match self.poison.reason() {
            Some(reason) => StorageError::NotWritten {
                storage: self.id,
                reason,
            },
            None => self.unless_deleted(StorageError::Stopping),
        }
    }

    /// Whether a writer that dropped a reply has not recorded yet why.
    pub(crate) fn is_ending_unexpectedly(&self) -> bool {
        !self.poison.is_set() && self.writer.read().is_some()
    }

    /// The error for an action that the state does not allow.
    pub(crate) fn wrong_state(&self, action: &'static str, needed: &'static str) -> StorageError {
        let StorageFile { state, failure, .. } = self.info();
        match failure {
            Some(reason) if state == StorageState::Failed => StorageError::Failed {
                storage: self.id,
                reason,
            },
            _ => StorageError::WrongState {
                storage: self.id,
                state,
                action,
                needed,
            },
        }
    }

    pub(crate) fn path(&self, name: &FileName) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// Changes the storage file: on disk first, then in memory.
    ///
    /// When `change` returns an error, nothing is written.
    pub(crate) async fn change(
        &self,
        io_thread: &IoThread,
        catalog: &Arc<Catalog>,
        change: impl FnOnce(&mut StorageFile) -> Result<(), StorageError>,
    ) -> Result<StorageFile, StorageError> {
        self.check_readable()?;
        let _changing = self.changing.lock().await;
        self.check_there()?;
        let mut file = self.current_file();
        let before = file.state;
        change(&mut file)?;
        assert_eq!(file.id, self.id, "the id of a storage never changes");
        assert!(
            before == file.state || may_move(before, file.state),
            "a storage changes from {before} to {} by no defined transition",
            file.state
        );
        if crate::sabotaged!("copy-first") && file.state == StorageState::Finalized {
            let name = FileName::StorageCopy(self.id).to_string();
            let bytes = file.encode().unwrap_or_default().into();
            let _ = io_thread.publish(self.folder.clone(), name, bytes).await;
        }
        if file.state == StorageState::Finalized && before != StorageState::Finalized {
            storage_copy::remove(&self.folder, self.id, io_thread).await?;
            crate::fault_point!(async "change.uncopied");
        }
        let stored = self.file.read().clone();
        let published =
            storage_copy::publish_file(&self.folder, (&file, Some(&stored)), io_thread, catalog)
                .await;
        let bytes = published.map_err(|error| self.unless_deleted(error))?;
        crate::fault_point!(async "change.published");
        *self.file.write() = file.clone();
        if file.state == StorageState::Finalized {
            let name = FileName::StorageCopy(self.id).to_string();
            let copied = io_thread.publish(self.folder.clone(), name, bytes).await;
            if let Err(error) = copied {
                tracing::warn!(
                    %error, storage = %self.id,
                    "the second copy of the storage file is not written; the next change, \
                     verification or start writes it"
                );
            }
        }
        Ok(file)
    }

    /// The error of an operation on the storage, which may have been deleted meanwhile.
    pub(crate) fn unless_deleted(&self, error: StorageError) -> StorageError {
        if self.is_deleted.load(Ordering::SeqCst) {
            StorageError::StorageNotFound(self.id)
        } else {
            error
        }
    }

    /// The bytes of the storage file; blocks the thread. That of a finalized storage is checked,
    /// and restored if it is damaged.
    pub(crate) fn read_own_file(&self) -> Result<Vec<u8>, StorageError> {
        self.restore_own_file().map(|(bytes, _)| bytes)
    }

    /// As [`Self::read_own_file`]; also returns why it was restored.
    fn restore_own_file(&self) -> Result<(Vec<u8>, Option<StorageError>), StorageError> {
        let name = FileName::Storage(self.id);
        if self.state() != StorageState::Finalized {
            let path = self.path(&name);
            let bytes = read_whole(&path).map_err(StorageError::io("read", path))?;
            return Ok((bytes, None));
        }
        let read = || storage_copy::read(&self.folder, self.id, &name);
        if let Ok((_, bytes)) = read() {
            return Ok((bytes, None));
        }
        let _changing = self.changing.blocking_lock();
        if self.is_deleted.load(Ordering::SeqCst) {
            return Err(StorageError::StorageNotFound(self.id));
        }
        let error = match read() {
            Ok((_, bytes)) => return Ok((bytes, None)),
            Err(error) if error.is_loss() => error,
            Err(error) => return Err(error),
        };
        // Both copies have the bytes of what is in memory.
        let path = self.path(&name);
        let bytes = self.current_file().encode();
        let bytes = bytes.map_err(StorageError::damaged(path))?;
        storage_copy::mend(&self.folder, &name, &bytes, &error);
        Ok((bytes, Some(error)))
    }

    /// Reads the storage file and its second copy past the page cache, and restores those that are
    /// damaged, or of which the copy is not as the first; blocks the thread. Returns how they were
    /// damaged.
    pub(crate) fn check_copy(&self) -> Result<Vec<(FileName, StorageError)>, StorageError> {
        let name = FileName::StorageCopy(self.id);
        for file in [&FileName::Storage(self.id), &name] {
            // One that is gone is restored.
            let _ = drop_cached(&self.path(file));
        }
        let (own, own_damage) = self.restore_own_file()?;
        let own_damage = own_damage.map(|error| (FileName::Storage(self.id), error));
        let mut restored: Vec<_> = own_damage.into_iter().collect();
        let _changing = self.changing.blocking_lock();
        self.check_there()?;
        let copy = storage_copy::read(&self.folder, self.id, &name);
        let damage = match copy {
            Ok((_, bytes)) if bytes == own => return Ok(restored),
            Ok(_) => None,
            Err(error) if is_missing(&error) => None,
            Err(error) => Some(error),
        };
        // A change since then wrote both.
        let bytes = self.current_file().encode();
        let bytes = bytes.map_err(StorageError::damaged(self.path(&name)))?;
        match &damage {
            Some(error) => storage_copy::mend(&self.folder, &name, &bytes, error),
            None => storage_copy::replace(&self.folder, &name, &bytes)?,
        }
        restored.extend(damage.map(|error| (name, error)));
        Ok(restored)
    }

    /// Refuses writes from now on, and records in memory that the storage failed; the storage file
    /// may not be writable any more.
    pub(crate) fn mark_failed(&self, reason: &str) {
        self.poison.set(reason);
        let mut file = self.file.write();
        if file.state != StorageState::Finalized {
            file.state = StorageState::Failed;
            file.failure.get_or_insert_with(|| reason.to_owned());
        }
    }

    pub(crate) fn status(&self, droppable: &Droppable) -> StorageStatus {
        let dropped = droppable.dropped(self.id);
        let (droppable_packets, droppable_bytes) = droppable.waiting(self.id);
        let file = self.info();
        let window = self.counts.window(now_ns());
        let counts = &self.counts;
        let arranging = self.arranging.lock().clone().unwrap_or_default();
        let (damage, damaged_places) = self.checked.list_damage(DAMAGE_SHOWN_MAX);
        StorageStatus {
            id: self.id,
            state: file.state,
            write_status: WriteStatus::of(window.arrived, window.finished),
            arrived: counts.arrived.load(Ordering::Relaxed),
            finished: counts.finished.load(Ordering::Relaxed),
            repeated: counts.repeated.load(Ordering::Relaxed),
            failed_packets: counts.failed.load(Ordering::Relaxed),
            dropped_packets: dropped.iter().map(|stream| stream.packets).sum(),
            dropped_bytes: dropped.iter().map(|stream| stream.bytes).sum(),
            dropped,
            droppable_packets,
            droppable_bytes,
            queued_packets: counts.queued_packets.load(Ordering::Relaxed),
            queued_bytes: counts.queued_bytes.load(Ordering::Relaxed),
            written_packets: file.totals.packets,
            written_bytes: file.totals.raw_bytes,
            stored_bytes: file.totals.stored_bytes,
            lost: file.totals.lost,
            missing_packets: self.repairs().missing_packets(),
            missing_unknown: self.unknown_repairs.read().clone(),
            bytes_per_second: window.bytes / 30,
            packets_per_second: window.finished as f64 / 30.0,
            arranged_bytes: arranging.bytes_done.load(Ordering::Relaxed),
            arranging_bytes: arranging.bytes_total.load(Ordering::Relaxed),
            damage,
            damaged_places,
            failure: file.failure,
        }
    }
}

fn is_missing(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Reads index blocks and frames that are not in memory; blocks the thread.
pub(crate) struct StorageReader<'a>(pub(crate) &'a Storage);

impl ReadEntries for StorageReader<'_> {
    fn cache(&self) -> &BlockCache {
        &self.0.cache
    }

    fn frames(
        &self,
        leaf: LeafId,
        range: Range<u64>,
        visit: &mut dyn FnMut(&PacketEntry) -> bool,
    ) -> Result<(), StorageError> {
        let Some(reader) = self.0.leaf_reader(leaf, &range) else {
            return Ok(());
        };
        let path = self.0.folder.clone();
        let start = Tail {
            length: range.start.max(HEADER_BYTES as u64),
            checksum: 0,
        };
        let mut scanner = FrameScanner::of_leaf(reader, self.0.id, leaf, start, range.end);
        loop {
            match scanner.next(false) {
                Ok(Some(scanned)) if visit(&scanned.entry()) => {}
                Ok(_) => return Ok(()),
                Err(ScanError::Frame(error)) => return Err(StorageError::damaged(&path)(error)),
                Err(ScanError::Io(error)) => return Err(StorageError::io("read", &path)(error)),
            }
        }
    }
}
