//! Chunk indexes next to data files: extended while a storage is written, completed after it is
//! finalized.
//!
//! An index is derived. It is built here from durable bytes, published atomically, and rebuilt when
//! it is missing or does not match its data file. Nothing is lost when the server stops in between;
//! the next start continues.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use io_trace::{Cause, Scope};
use parking_lot::Mutex;
use query_engine::{IndexedLeaf, LeafIndexOptions, ReadError, StorageSet};
use serde::Serialize;
use storage_core::{Engine, StorageError, StorageFilter};
use storage_format::paths::FileName;
use storage_format::storage_file::StorageState;
use storage_format::{LeafId, StorageId};
use tokio::sync::{Notify, watch};
use utoipa::ToSchema;

use crate::config::QueryConfig;
use crate::connection::Stage;
use crate::metrics::Metrics;
use crate::open_files::OpenFiles;
use crate::query::UnreadableData;
use crate::stored_leaves::stored_leaves;

/// Interval between scans for storages without complete indexes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Whether a finalized storage has its chunk indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IndexState {
    /// It has all of them.
    Complete,
    /// They are being made, or wait for their turn.
    InProgress,
    /// One could not be made; the server tries again.
    Failed,
}

/// Tracks which storages have complete indexes.
pub(crate) struct ChunkIndexes {
    known: Mutex<Known>,
    wake: Notify,
    options: LeafIndexOptions,
    growth_bytes_min: u64,
}

/// What is known of the indexes of storages.
#[derive(Debug, Default)]
struct Known {
    /// Finalized storages whose indexes are complete, or of which one could not be made.
    settled: HashMap<StorageId, IndexState>,
    /// Storages that are next.
    wanted: BTreeSet<StorageId>,
    /// Storages with an index that was found to be damaged.
    damaged: HashSet<StorageId>,
}

impl Known {
    fn is_complete(&self, id: StorageId) -> bool {
        self.settled.get(&id) == Some(&IndexState::Complete)
    }

    fn want(&mut self, id: StorageId) {
        if self.is_complete(id) {
            self.settled.remove(&id);
        }
        self.wanted.insert(id);
    }

    /// The indexes were looked at, and are complete unless one is missed meanwhile.
    fn completed(&mut self, id: StorageId) {
        if self.wanted.contains(&id) {
            self.settled.remove(&id);
        } else {
            self.settled.insert(id, IndexState::Complete);
        }
    }

    /// Forgets what was deleted.
    fn keep(&mut self, present: &HashSet<StorageId>) {
        self.settled.retain(|id, _| present.contains(id));
    }

    fn forget(&mut self, id: StorageId) {
        self.settled.remove(&id);
        self.wanted.remove(&id);
        self.damaged.remove(&id);
    }
}

/// What is needed to build indexes.
#[derive(Clone)]
pub(crate) struct IndexMaker {
    pub(crate) engine: Engine,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) indexes: Arc<ChunkIndexes>,
    pub(crate) unreadable: Arc<UnreadableData>,
    pub(crate) open_files: Arc<OpenFiles>,
}

/// Why the indexes of a storage are incomplete.
#[derive(Debug, thiserror::Error)]
enum IndexError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Sidecar(#[from] chunk_index::SidecarError),
    #[error("the server is shutting down")]
    Stopping,
}

impl ChunkIndexes {
    pub(crate) fn new(config: &QueryConfig) -> Self {
        Self {
            known: Mutex::default(),
            wake: Notify::new(),
            options: LeafIndexOptions {
                chunk_bytes: config.chunk_bytes,
                fields: config.index_fields.clone(),
            },
            growth_bytes_min: config.index_growth_bytes_min,
        }
    }

    /// Rebuilds the indexes of a storage because part of one is damaged.
    pub(crate) fn rebuild(&self, id: StorageId) {
        self.known.lock().damaged.insert(id);
        self.check(id);
    }

    /// Checks the indexes of a storage soon: it was finalized, or an index is missing.
    pub(crate) fn check(&self, id: StorageId) {
        self.known.lock().want(id);
        self.wake.notify_one();
    }

    /// Whether a finalized storage has its indexes.
    pub(crate) fn state_of(&self, id: StorageId) -> IndexState {
        let known = self.known.lock();
        let settled = known.settled.get(&id).copied();
        settled.unwrap_or(IndexState::InProgress)
    }
}

/// Maintains the indexes of all storages until the server stops.
pub(crate) async fn maintain(maker: IndexMaker, mut stage: watch::Receiver<Stage>) {
    let ending = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&ending);
    let watching = async move {
        // An error means that the sender is gone; the server is stopping then, too.
        let _ = stage.wait_for(|stage| *stage > Stage::Running).await;
        stopping.store(true, Ordering::Relaxed);
    };
    tokio::pin!(watching);
    loop {
        tokio::select! {
            () = &mut watching => return,
            () = check_all(&maker, &ending) => {}
        }
        tokio::select! {
            () = &mut watching => return,
            () = maker.indexes.wake.notified() => {}
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}

async fn check_all(maker: &IndexMaker, ending: &Arc<AtomicBool>) {
    let all = maker.engine.storages().list(&StorageFilter::default());
    let present: HashSet<StorageId> = all.iter().map(|storage| storage.id).collect();
    // Only this task settles storages, so that none was added since the list was made.
    maker.indexes.known.lock().keep(&present);
    for storage in all {
        // Somebody may wait for those that were just finalized.
        loop {
            let Some(next) = maker.indexes.known.lock().wanted.pop_first() else {
                break;
            };
            if check_storage(maker, next, ending).await.is_break() {
                return;
            }
        }
        if check_storage(maker, storage.id, ending).await.is_break() {
            return;
        }
    }
}

/// Brings the indexes of a storage up to date; breaks when the server stops.
async fn check_storage(
    maker: &IndexMaker,
    id: StorageId,
    ending: &Arc<AtomicBool>,
) -> ControlFlow<()> {
    let known = &maker.indexes.known;
    let is_final = match maker.engine.storages().get(id).map(|storage| storage.state) {
        Ok(StorageState::Finalized) => true,
        Ok(StorageState::Open | StorageState::Recording) => false,
        Ok(_) => return ControlFlow::Continue(()),
        Err(_) => {
            known.lock().forget(id);
            return ControlFlow::Continue(());
        }
    };
    if is_final && known.lock().is_complete(id) {
        return ControlFlow::Continue(());
    }
    let tracer = maker.engine.tracer();
    let work = complete_storage(maker, id, is_final, ending);
    let completed = if tracer.is_on() {
        Scope::within(tracer, Cause::Index).around(work).await
    } else {
        work.await
    };
    match completed {
        Ok(()) if is_final => known.lock().completed(id),
        Ok(()) => {}
        Err(IndexError::Stopping) => return ControlFlow::Break(()),
        // Deleted in the meantime, or not recovered yet.
        Err(IndexError::Storage(StorageError::StorageNotFound(_))) => {
            known.lock().forget(id);
        }
        Err(IndexError::Storage(StorageError::Recovering { .. })) => {}
        Err(error) => {
            tracing::warn!(
                storage = %id,
                %error,
                "cannot complete the chunk indexes of a storage; queries read the data \
                 instead; the server will retry"
            );
            maker.metrics.queries.index_failures.inc();
            if is_final {
                known.lock().settled.insert(id, IndexState::Failed);
            }
        }
    }
    ControlFlow::Continue(())
}

/// Updates the indexes of one storage, leaf by leaf.
async fn complete_storage(
    maker: &IndexMaker,
    id: StorageId,
    is_final: bool,
    ending: &Arc<AtomicBool>,
) -> Result<(), IndexError> {
    let mut leaves = stored_leaves(&maker.engine, id, Cause::Index).await?;
    if maker.indexes.known.lock().damaged.remove(&id) {
        leaves.iter_mut().for_each(|leaf| leaf.sidecar = None);
    }
    let growth_bytes_min = maker.indexes.growth_bytes_min;
    let opened = blocking(move || Ok(StorageSet::open(leaves, None)?)).await?;
    let set = Arc::new(opened);
    let grown = |length: u64, uncovered: u64| {
        if is_final {
            uncovered > 0
        } else {
            // Every update rewrites the complete index, so an update waits until the data has grown
            // by a fraction of what is indexed.
            uncovered >= growth_bytes_min.max((length - uncovered) / 4)
        }
    };
    let wanted: Vec<(usize, LeafId)> = set
        .leaves()
        .enumerate()
        .filter(|(_, (leaf, uncovered))| grown(leaf.length, *uncovered))
        .map(|(index, (leaf, _))| (index, leaf.leaf))
        .collect();
    for (position, leaf) in wanted {
        index_leaf(maker, &set, id, (position, leaf), ending).await?;
    }
    Ok(())
}

async fn index_leaf(
    maker: &IndexMaker,
    set: &Arc<StorageSet>,
    id: StorageId,
    (position, leaf): (usize, LeafId),
    ending: &Arc<AtomicBool>,
) -> Result<(), IndexError> {
    let (set, indexing, ending) = (Arc::clone(set), maker.clone(), Arc::clone(ending));
    let indexed = blocking(move || {
        let is_running = || !ending.load(Ordering::Relaxed);
        let indexed = set.index(position, &indexing.indexes.options, &is_running);
        let Some(IndexedLeaf {
            index,
            read_bytes,
            skipped,
            ..
        }) = indexed?
        else {
            return Ok(None);
        };
        indexing.unreadable.found(skipped.as_slice());
        indexing.metrics.queries.indexed_bytes.inc_by(read_bytes);
        Ok(Some(Bytes::from(index.encode()?)))
    });
    let Some(bytes) = indexed.await? else {
        return Ok(());
    };
    let name = FileName::ChunkIndex(leaf);
    maker
        .engine
        .derived_files()
        .publish(id, name, bytes)
        .await?;
    // A reader may have cached the previous file.
    maker.open_files.close(id);
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, IndexError> + Send + 'static,
) -> Result<T, IndexError> {
    let done = tokio::task::spawn_blocking(work).await;
    match done.map_err(|_| IndexError::Stopping)? {
        Err(IndexError::Read(ReadError::Cancelled)) => Err(IndexError::Stopping),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_complete_until_an_index_is_missed() {
        let id = StorageId::from_bytes([1; 16]);
        let indexes = ChunkIndexes::new(&QueryConfig::default());
        assert_eq!(indexes.state_of(id), IndexState::InProgress);
        indexes.known.lock().completed(id);
        assert_eq!(indexes.state_of(id), IndexState::Complete);
        indexes.rebuild(id);
        assert_eq!(indexes.state_of(id), IndexState::InProgress);
        // It was missed while the indexes were looked at.
        indexes.known.lock().completed(id);
        assert_eq!(indexes.state_of(id), IndexState::InProgress);
        assert_eq!(indexes.known.lock().wanted.pop_first(), Some(id));
        let failed = IndexState::Failed;
        indexes.known.lock().settled.insert(id, failed);
        indexes.check(id);
        assert_eq!(indexes.state_of(id), failed);
        let mut known = indexes.known.lock();
        known.forget(id);
        let left = known.settled.len() + known.wanted.len() + known.damaged.len();
        assert_eq!(left, 0);
    }
}
