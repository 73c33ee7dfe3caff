//! Chunk indexes beside data files: extended while a storage is written, completed once it is
//! finalized.
//!
//! An index is derived: it is made here from what is durable, put into place whole, and made again
//! when it is missing or does not belong to its file. So nothing is lost when the server ends in
//! the middle; the next start goes on.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use io_trace::{Cause, Scope};
use parking_lot::Mutex;
use query_engine::{IndexedLeaf, LeafIndexOptions, ReadError, StorageSet};
use storage_core::{Engine, StorageError, StorageFilter};
use storage_format::paths::FileName;
use storage_format::storage_file::StorageState;
use storage_format::{LeafId, StorageId};
use tokio::sync::{Notify, watch};

use crate::config::QueryConfig;
use crate::connection::Stage;
use crate::metrics::Metrics;
use crate::open_files::OpenFiles;
use crate::stored_leaves::stored_leaves;

/// Between two looks at storages that nobody told of.
const PAUSE: Duration = Duration::from_secs(5);

/// Which storages have all their indexes.
pub(crate) struct ChunkIndexes {
    /// Finalized storages that need no further look.
    complete: Mutex<HashSet<StorageId>>,
    /// Storages of which an index was found to be damaged.
    damaged: Mutex<HashSet<StorageId>>,
    wake: Notify,
    options: LeafIndexOptions,
    growth_bytes_min: u64,
}

/// What it takes to make the indexes of storages.
#[derive(Clone)]
pub(crate) struct IndexMaker {
    pub(crate) engine: Engine,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) indexes: Arc<ChunkIndexes>,
    pub(crate) open_files: Arc<OpenFiles>,
}

/// Why the indexes of a storage are not complete.
#[derive(Debug, thiserror::Error)]
enum IndexError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Sidecar(#[from] chunk_index::SidecarError),
    #[error("the server is ending")]
    Ending,
}

impl ChunkIndexes {
    pub(crate) fn new(config: &QueryConfig) -> Self {
        Self {
            complete: Mutex::default(),
            damaged: Mutex::default(),
            wake: Notify::new(),
            options: LeafIndexOptions {
                chunk_bytes: config.chunk_bytes,
                fields: config.index_fields.clone(),
            },
            growth_bytes_min: config.index_growth_bytes_min,
        }
    }

    /// A part of an index is damaged: have the indexes of the storage made anew.
    pub(crate) fn make_anew(&self, id: StorageId) {
        self.damaged.lock().insert(id);
        self.look_at(id);
    }

    /// A storage was finalized, or something is amiss with its indexes: look at it soon.
    pub(crate) fn look_at(&self, id: StorageId) {
        self.complete.lock().remove(&id);
        self.wake.notify_one();
    }
}

/// Keeps the indexes of all storages until the server ends.
pub(crate) async fn keep(maker: IndexMaker, mut stage: watch::Receiver<Stage>) {
    let ending = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ending);
    let watching = async move {
        // An error says that the sender is gone, which is the end as well.
        let _ = stage.wait_for(|stage| *stage > Stage::Running).await;
        told.store(true, Ordering::Relaxed);
    };
    tokio::pin!(watching);
    loop {
        tokio::select! {
            () = &mut watching => return,
            () = look_at_all(&maker, &ending) => {}
        }
        tokio::select! {
            () = &mut watching => return,
            () = maker.indexes.wake.notified() => {}
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

async fn look_at_all(maker: &IndexMaker, ending: &Arc<AtomicBool>) {
    for storage in maker.engine.storages().list(&StorageFilter::default()) {
        let id = storage.id;
        let is_final = match storage.state {
            StorageState::Finalized => true,
            StorageState::Open | StorageState::Recording => false,
            _ => continue,
        };
        if is_final && maker.indexes.complete.lock().contains(&id) {
            continue;
        }
        let tracer = maker.engine.tracer();
        let complete = complete_storage(maker, id, is_final, ending);
        let completed = if tracer.is_on() {
            Scope::within(tracer, Cause::Index).around(complete).await
        } else {
            complete.await
        };
        match completed {
            Ok(()) if is_final => {
                maker.indexes.complete.lock().insert(id);
            }
            Ok(()) => {}
            Err(IndexError::Ending) => return,
            // Deleted meanwhile.
            Err(IndexError::Storage(StorageError::StorageNotFound(_))) => {}
            Err(error) => {
                tracing::warn!(storage = %id, %error, "chunk indexes are not complete");
                maker.metrics.queries.index_failures.inc();
            }
        }
    }
}

/// Brings the indexes of one storage up to date, leaf by leaf.
async fn complete_storage(
    maker: &IndexMaker,
    id: StorageId,
    is_final: bool,
    ending: &Arc<AtomicBool>,
) -> Result<(), IndexError> {
    let mut leaves = stored_leaves(&maker.engine, id, Cause::Index).await?;
    if maker.indexes.damaged.lock().remove(&id) {
        leaves.iter_mut().for_each(|leaf| leaf.sidecar = None);
    }
    let growth_bytes_min = maker.indexes.growth_bytes_min;
    let opened = blocking(move || Ok(StorageSet::open(leaves, None)?)).await?;
    let set = Arc::new(opened);
    let grown = |length: u64, uncovered: u64| {
        if is_final {
            uncovered > 0
        } else {
            // The index is written whole, so it grows by a share of what it has.
            uncovered >= growth_bytes_min.max((length - uncovered) / 4)
        }
    };
    let wanted: Vec<(usize, LeafId)> = set
        .leaves()
        .enumerate()
        .filter(|(_, (leaf, uncovered))| grown(leaf.length, *uncovered))
        .map(|(place, (leaf, _))| (place, leaf.leaf))
        .collect();
    for (place, leaf) in wanted {
        index_leaf(maker, &set, id, (place, leaf), ending).await?;
    }
    Ok(())
}

async fn index_leaf(
    maker: &IndexMaker,
    set: &Arc<StorageSet>,
    id: StorageId,
    (place, leaf): (usize, LeafId),
    ending: &Arc<AtomicBool>,
) -> Result<(), IndexError> {
    let (set, indexing, ending) = (Arc::clone(set), maker.clone(), Arc::clone(ending));
    let indexed = blocking(move || {
        let goes_on = || !ending.load(Ordering::Relaxed);
        let indexed = set.index(place, &indexing.indexes.options, &goes_on);
        let Some(IndexedLeaf {
            index, read_bytes, ..
        }) = indexed?
        else {
            return Ok(None);
        };
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
    // A reader may hold the one that was there before.
    maker.open_files.forget(id);
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, IndexError> + Send + 'static,
) -> Result<T, IndexError> {
    let done = tokio::task::spawn_blocking(work).await;
    match done.map_err(|_| IndexError::Ending)? {
        Err(IndexError::Read(ReadError::Cancelled)) => Err(IndexError::Ending),
        other => other,
    }
}
