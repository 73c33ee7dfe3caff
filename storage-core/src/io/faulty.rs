//! A disk that fails on request, for tests of the real implementations.

mod files;
mod names;
pub(crate) mod refusals;

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(in crate::io) use files::{
    create, exchange, remove, remove_folder, rename, set_length, sync, sync_folder, write,
};
use names::{NameChange, undo};

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::{Notify, OwnedRwLockReadGuard, RwLock};

use super::{BlockIo, OpenHow};

/// An operation of [`BlockIo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Open,
    Write,
    Sync,
    Allocate,
    SetLength,
    SyncFolder,
    Rename,
    Remove,
    /// A request to the dispatcher of the I/O thread.
    Dispatch,
    /// A push that reaches the writer.
    Submit,
    /// The recovery of a storage.
    Recover,
    /// The end of it, when the result is applied.
    Adopt,
}

/// What happens instead of success.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The operation fails and has no effect.
    Fail(Errno),
    /// A write accepts only this many bytes.
    Short(usize),
    /// The task that does it panics.
    Panic,
}

/// The message of a panic that a [`FaultPlan`] causes.
pub(crate) const PANIC_MESSAGE: &str = "a fault of the test";

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<Operation, usize>,
    faults: Vec<(Operation, Range<usize>, Fault)>,
    /// How often a fault was injected.
    hits: usize,
    /// Operations of any kind, and how many of them run before all others wait.
    operations: usize,
    halt_at: Option<usize>,
    is_forgetful: bool,
    /// Writes that no sync covers yet, by file.
    unsynced: BTreeMap<PathBuf, Vec<(u64, Vec<u8>)>>,
    /// Changes of names that no sync of their folder covers yet, in order.
    unsynced_names: Vec<NameChange>,
    /// Operations after the first failed sync, by file.
    after_failed_sync: BTreeMap<PathBuf, usize>,
}

/// Which operations fail, and what the disk forgets.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    state: Mutex<State>,
    /// Held for reading by each operation, and for writing while the disk must not change.
    disk: Arc<RwLock<()>>,
    halted: Notify,
    resumed: Notify,
}

impl PartialEq for FaultPlan {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl FaultPlan {
    /// Makes the operations `nth` of this kind (counted from 0) fail with `fault`.
    pub(crate) fn inject(&self, operation: Operation, nth: Range<usize>, fault: Fault) {
        let mut state = self.state.lock();
        state.counts.insert(operation, 0);
        state.faults.push((operation, nth, fault));
    }

    /// Stops all failures.
    pub(crate) fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// How often a fault was injected since the start.
    pub(crate) fn hits(&self) -> usize {
        self.state.lock().hits
    }

    /// Lets all operations after the next `count` ones wait until [`Self::resume`].
    pub(crate) fn halt_after(&self, count: usize) {
        let mut state = self.state.lock();
        state.operations = 0;
        state.halt_at = Some(count);
    }

    /// Waits until an operation waits because of [`Self::halt_after`].
    pub(crate) async fn halted(&self) {
        self.halted.notified().await;
    }

    pub(crate) fn resume(&self) {
        self.state.lock().halt_at = None;
        self.resumed.notify_waiters();
    }

    /// Waits for the operations in flight, and lets all others wait.
    pub(crate) async fn freeze(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.disk.write().await
    }

    /// Begins an operation.
    async fn enter(&self) -> OwnedRwLockReadGuard<()> {
        loop {
            let resumed = self.resumed.notified();
            tokio::pin!(resumed);
            // Registered before the check, so that no call of `resume` is missed.
            resumed.as_mut().enable();
            let is_halted = {
                let mut state = self.state.lock();
                let is_halted = state.halt_at.is_some_and(|at| state.operations >= at);
                state.operations += usize::from(!is_halted);
                is_halted
            };
            if !is_halted {
                return Arc::clone(&self.disk).read_owned().await;
            }
            self.halted.notify_one();
            resumed.await;
        }
    }

    /// Syncs of files after a failed sync of the same file.
    pub(crate) fn syncs_after_failed_sync(&self) -> usize {
        self.state
            .lock()
            .after_failed_sync
            .values()
            .map(|count| count - 1)
            .sum()
    }

    /// Lets writes reach the disk only with a sync from now on.
    pub(crate) fn forget_unsynced(&self) {
        self.state.lock().is_forgetful = true;
    }

    /// Simulates the end of the process: every write reaches the copies of the files in `to`.
    pub(crate) fn complete(&self, from: &Path, to: &Path) {
        self.write_unsynced(from, to, |_| true);
    }

    /// Simulates a power failure: sectors of unsynced writes, chosen by `seed`, reach the copies of
    /// the files in `to`, and so does a part of the changes of names.
    pub(crate) fn tear(&self, from: &Path, to: &Path, mut seed: u64) {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        self.write_unsynced(from, to, |_| next() & 1 == 1);
        let names = self.state.lock().unsynced_names.clone();
        // In the order of the changes, as most file systems do, or in any order.
        let kept = next() as usize % (names.len() + 1);
        let is_ordered = next() & 1 == 1;
        let place = |name: &Path| match name.strip_prefix(from) {
            Ok(relative) => to.join(relative),
            // Not a file of the copy; nothing has this name.
            Err(_) => to.join("elsewhere"),
        };
        let is_kept = |at: usize| {
            if is_ordered {
                at < kept
            } else {
                next() & 1 == 1
            }
        };
        undo(&names, is_kept, place);
    }

    fn write_unsynced(&self, from: &Path, to: &Path, mut is_written: impl FnMut(u64) -> bool) {
        const SECTOR: usize = 512;
        for (path, writes) in &self.state.lock().unsynced {
            let Ok(relative) = path.strip_prefix(from) else {
                continue;
            };
            let Ok(file) = std::fs::OpenOptions::new()
                .write(true)
                .open(to.join(relative))
            else {
                continue;
            };
            for (offset, bytes) in writes {
                for (at, sector) in bytes.chunks(SECTOR).enumerate() {
                    let offset = offset + (at * SECTOR) as u64;
                    if is_written(offset) {
                        file.write_all_at(sector, offset).unwrap();
                    }
                }
            }
        }
    }

    /// Notes a change of a name, before it is made.
    fn note(&self, change: impl FnOnce() -> NameChange) {
        let mut state = self.state.lock();
        if state.is_forgetful {
            state.unsynced_names.push(change());
        }
    }

    /// The file is removed, or written again from its start: its next sync is a first one.
    fn forget_bytes(&self, path: &Path) {
        let mut state = self.state.lock();
        state.unsynced.remove(path);
        state.after_failed_sync.remove(path);
    }

    /// Whether a write stays in memory until the next sync of the file.
    fn keeps(&self, path: &Path, offset: u64, bytes: &[u8]) -> bool {
        let mut state = self.state.lock();
        if state.is_forgetful {
            let writes = state.unsynced.entry(path.to_owned()).or_default();
            writes.push((offset, bytes.to_vec()));
        }
        state.is_forgetful
    }

    /// Cuts writes that stay in memory.
    fn cut_unsynced(&self, path: &Path, length: u64) {
        if let Some(writes) = self.state.lock().unsynced.get_mut(path) {
            writes.retain(|(offset, _)| *offset < length);
        }
    }

    /// Writes what stayed in memory, or loses it when the plan lets the sync fail.
    fn sync(&self, path: &Path) -> io::Result<()> {
        let covered = {
            let mut state = self.state.lock();
            if let Some(count) = state.after_failed_sync.get_mut(path) {
                *count += 1;
            }
            // The sync does not cover writes that run at the same time.
            state.unsynced.remove(path).unwrap_or_default()
        };
        if let Err(error) = self.check(Operation::Sync) {
            // As in a kernel: bytes that could not be synced are lost, and the next sync succeeds.
            let mut state = self.state.lock();
            state.after_failed_sync.entry(path.to_owned()).or_insert(1);
            return Err(error);
        }
        if !covered.is_empty() {
            let on_disk = std::fs::OpenOptions::new().write(true).open(path)?;
            for (offset, bytes) in covered {
                on_disk.write_all_at(&bytes, offset)?;
            }
        }
        Ok(())
    }

    /// The names in this folder are durable.
    fn names_synced(&self, folder: &Path) {
        let mut state = self.state.lock();
        (state.unsynced_names).retain(|change| change.path.parent() != Some(folder));
    }

    fn next(&self, operation: Operation) -> Option<Fault> {
        let mut state = self.state.lock();
        let count = state.counts.entry(operation).or_default();
        let at = *count;
        *count += 1;
        let faults = state.faults.iter();
        let mut hits = faults.filter(|(kind, nth, _)| *kind == operation && nth.contains(&at));
        let hit = hits.next().map(|(_, _, fault)| *fault);
        state.hits += usize::from(hit.is_some());
        hit
    }

    fn check(&self, operation: Operation) -> io::Result<()> {
        match self.next(operation) {
            Some(Fault::Fail(errno)) => Err(errno.into()),
            Some(Fault::Panic) => panic!("{PANIC_MESSAGE}"),
            _ => Ok(()),
        }
    }

    /// Panics when the plan says so.
    pub(crate) fn panic_at(&self, operation: Operation) {
        let _ = self.check(operation);
    }
}

/// An implementation whose operations go through a [`FaultPlan`].
pub(crate) struct FaultyIo<B> {
    inner: B,
    plan: Arc<FaultPlan>,
}

/// A file of a [`FaultyIo`].
pub(crate) struct FaultyFile<F> {
    inner: F,
    path: PathBuf,
}

impl<B> FaultyIo<B> {
    pub(crate) fn new(inner: B, plan: Arc<FaultPlan>) -> Self {
        Self { inner, plan }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: BlockIo> BlockIo for FaultyIo<B> {
    type File = FaultyFile<B::File>;
    type Buffer = B::Buffer;

    async fn buffer(&self) -> B::Buffer {
        self.inner.buffer().await
    }

    async fn open(&self, path: &Path, how: OpenHow) -> io::Result<Self::File> {
        let _disk = self.plan.enter().await;
        self.plan.check(Operation::Open)?;
        let is_new = match how {
            OpenHow::CreateData => !path.exists(),
            OpenHow::CreateSmall => true,
            OpenHow::OpenData => false,
        };
        if is_new {
            self.plan.forget_bytes(path);
            self.plan.note(|| NameChange::of(path));
        }
        let inner = self.inner.open(path, how).await?;
        Ok(FaultyFile {
            inner,
            path: path.to_owned(),
        })
    }

    async fn write_at(
        &self,
        file: &Self::File,
        buffer: B::Buffer,
        range: Range<usize>,
        offset: u64,
    ) -> (io::Result<usize>, B::Buffer) {
        let _disk = self.plan.enter().await;
        let range = match self.plan.next(Operation::Write) {
            Some(Fault::Fail(errno)) => {
                // As from a disk, the error arrives when other writes have begun.
                tokio::task::yield_now().await;
                return (Err(errno.into()), buffer);
            }
            Some(Fault::Panic) => panic!("{PANIC_MESSAGE}"),
            Some(Fault::Short(bytes)) => range.start..range.end.min(range.start + bytes),
            None => range,
        };
        if (self.plan).keeps(&file.path, offset, &buffer[range.clone()]) {
            return (Ok(range.len()), buffer);
        }
        self.inner
            .write_at(&file.inner, buffer, range, offset)
            .await
    }

    async fn sync_data(&self, file: &Self::File) -> io::Result<()> {
        let _disk = self.plan.enter().await;
        self.plan.sync(&file.path)?;
        self.inner.sync_data(&file.inner).await
    }

    fn link_count(&self, file: &Self::File) -> io::Result<u64> {
        self.inner.link_count(&file.inner)
    }

    async fn allocate(&self, file: &Self::File, offset: u64, length: u64) -> io::Result<()> {
        let _disk = self.plan.enter().await;
        self.plan.check(Operation::Allocate)?;
        self.inner.allocate(&file.inner, offset, length).await
    }

    async fn set_length(&self, file: &Self::File, length: u64) -> io::Result<()> {
        let _disk = self.plan.enter().await;
        self.plan.check(Operation::SetLength)?;
        self.plan.cut_unsynced(&file.path, length);
        self.inner.set_length(&file.inner, length).await
    }

    async fn close(&self, file: Self::File) -> io::Result<()> {
        self.inner.close(file.inner).await
    }

    async fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let _disk = self.plan.enter().await;
        self.plan.check(Operation::SyncFolder)?;
        self.plan.names_synced(path);
        self.inner.sync_folder(path).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _disk = self.plan.enter().await;
        self.plan.check(Operation::Rename)?;
        self.plan.note_rename(from, to);
        self.inner.rename(from, to).await
    }

    async fn remove(&self, path: &Path) -> io::Result<()> {
        let _disk = self.plan.enter().await;
        self.plan.check(Operation::Remove)?;
        if path.exists() {
            self.plan.note(|| NameChange::of(path));
            self.plan.forget_bytes(path);
        }
        self.inner.remove(path).await
    }
}
