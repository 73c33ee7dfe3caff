//! Block I/O that fails on request, for tests of the real implementations.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::io::Errno;

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
    is_forgetful: bool,
    /// Writes that no sync covers yet, by file.
    unsynced: BTreeMap<PathBuf, Vec<(u64, Vec<u8>)>>,
    /// Operations after the first failed sync, by file.
    after_failed_sync: BTreeMap<PathBuf, usize>,
}

/// Which operations fail, and what the disk forgets.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    state: Mutex<State>,
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

    /// Simulates a power failure: sectors of unsynced writes, chosen by `seed`, reach the disk, in
    /// copies of the files below `folder`.
    pub(crate) fn tear(&self, from: &Path, folder: &Path, mut seed: u64) {
        const SECTOR: usize = 512;
        for (path, writes) in &self.state.lock().unsynced {
            let Ok(relative) = path.strip_prefix(from) else {
                continue;
            };
            let Ok(file) = std::fs::OpenOptions::new()
                .write(true)
                .open(folder.join(relative))
            else {
                continue;
            };
            for (offset, bytes) in writes {
                for (at, sector) in bytes.chunks(SECTOR).enumerate() {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if seed >> 63 == 1 {
                        file.write_all_at(sector, offset + (at * SECTOR) as u64)
                            .unwrap();
                    }
                }
            }
        }
    }

    fn next(&self, operation: Operation) -> Option<Fault> {
        let mut state = self.state.lock();
        let count = state.counts.entry(operation).or_default();
        let at = *count;
        *count += 1;
        let faults = state.faults.iter();
        let mut hits = faults.filter(|(kind, nth, _)| *kind == operation && nth.contains(&at));
        hits.next().map(|(_, _, fault)| *fault)
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
        self.plan.check(Operation::Open)?;
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
        let range = match self.plan.next(Operation::Write) {
            Some(Fault::Fail(errno)) => return (Err(errno.into()), buffer),
            Some(Fault::Panic) => panic!("{PANIC_MESSAGE}"),
            Some(Fault::Short(bytes)) => range.start..range.end.min(range.start + bytes),
            None => range,
        };
        {
            let mut state = self.plan.state.lock();
            if state.is_forgetful {
                let bytes = buffer[range.clone()].to_vec();
                state
                    .unsynced
                    .entry(file.path.clone())
                    .or_default()
                    .push((offset, bytes));
                return (Ok(range.len()), buffer);
            }
        }
        self.inner
            .write_at(&file.inner, buffer, range, offset)
            .await
    }

    async fn sync_data(&self, file: &Self::File) -> io::Result<()> {
        if let Some(count) = self.plan.state.lock().after_failed_sync.get_mut(&file.path) {
            *count += 1;
        }
        // The sync does not cover writes that run at the same time.
        let covered = self
            .plan
            .state
            .lock()
            .unsynced
            .remove(&file.path)
            .unwrap_or_default();
        if let Err(error) = self.plan.check(Operation::Sync) {
            // As in a kernel: bytes that could not be synced are lost, and the next sync succeeds.
            self.plan
                .state
                .lock()
                .after_failed_sync
                .entry(file.path.clone())
                .or_insert(1);
            return Err(error);
        }
        if !covered.is_empty() {
            let on_disk = std::fs::OpenOptions::new().write(true).open(&file.path)?;
            for (offset, bytes) in covered {
                on_disk.write_all_at(&bytes, offset)?;
            }
        }
        self.inner.sync_data(&file.inner).await
    }

    async fn allocate(&self, file: &Self::File, offset: u64, length: u64) -> io::Result<()> {
        self.plan.check(Operation::Allocate)?;
        self.inner.allocate(&file.inner, offset, length).await
    }

    async fn set_length(&self, file: &Self::File, length: u64) -> io::Result<()> {
        self.plan.check(Operation::SetLength)?;
        self.inner.set_length(&file.inner, length).await
    }

    async fn close(&self, file: Self::File) -> io::Result<()> {
        self.inner.close(file.inner).await
    }

    async fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.plan.check(Operation::SyncFolder)?;
        self.inner.sync_folder(path).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plan.check(Operation::Rename)?;
        self.inner.rename(from, to).await
    }

    async fn remove(&self, path: &Path) -> io::Result<()> {
        self.plan.check(Operation::Remove)?;
        self.inner.remove(path).await
    }
}
