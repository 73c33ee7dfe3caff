//! What every part of making indexes needs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_trace::Cause;
use query_engine::{IndexedLeaf, ReadError, StorageSet, StoredLeaf};
use storage_core::{Engine, LeafKey, StorageError};
use storage_format::{AgentId, Kind, LeafId, StorageId, StreamId};

use super::state::ChunkIndexes;
use crate::leaf_sidecars::LeafSidecars;
use crate::metrics::Metrics;
use crate::open_files::OpenFiles;
use crate::provenance::{ProvenanceError, Provenances};
use crate::query::UnreadableData;
use crate::stored_leaves::leaves_with;

/// What is needed to build indexes.
#[derive(Clone)]
pub(crate) struct IndexMaker {
    pub(crate) engine: Engine,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) indexes: Arc<ChunkIndexes>,
    pub(crate) unreadable: Arc<UnreadableData>,
    pub(crate) open_files: Arc<OpenFiles>,
    pub(crate) provenances: Arc<Provenances>,
}

/// A chunk index.
pub(super) struct MadeIndex {
    /// The encoded index.
    pub(super) bytes: Vec<u8>,
    /// The events in it.
    pub(super) events: u64,
}

/// Why the indexes of a storage are incomplete.
#[derive(Debug, thiserror::Error)]
pub(super) enum IndexError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Sidecar(#[from] chunk_index::SidecarError),
    #[error(transparent)]
    Provenance(#[from] ProvenanceError),
    #[error("the server is shutting down")]
    Stopping,
}

/// Whether the server is shutting down.
pub(super) type Ending = Arc<AtomicBool>;

impl IndexMaker {
    /// The index of the leaf at a position of a set; `None` for kinds without events.
    /// Blocks the thread.
    pub(super) fn index(
        &self,
        set: &StorageSet,
        position: usize,
        ending: &Ending,
    ) -> Result<Option<MadeIndex>, IndexError> {
        let is_running = || !ending.load(Ordering::Relaxed);
        let indexed = set.index(position, &self.indexes.options, &is_running);
        let indexed = match indexed {
            Err(ReadError::Cancelled) => return Err(IndexError::Stopping),
            indexed => indexed?,
        };
        let Some(IndexedLeaf {
            index,
            read_bytes,
            skipped,
            is_damaged,
            ..
        }) = indexed
        else {
            return Ok(None);
        };
        self.unreadable.found(skipped.as_slice());
        self.metrics.queries.indexed_bytes.inc_by(read_bytes);
        let events = index.chunks().iter().map(|chunk| chunk.events);
        let events = events.fold(0, u64::saturating_add);
        let bytes = index.encode()?;
        if let Some((leaf, _)) = set.leaves().nth(position) {
            let mut known = self.indexes.known.lock();
            known.made(leaf.storage, leaf.leaf, is_damaged);
        }
        Ok(Some(MadeIndex { bytes, events }))
    }
}

/// Runs work that blocks on a thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, IndexError> + Send + 'static,
) -> Result<T, IndexError> {
    let done = tokio::task::spawn_blocking(work).await;
    match done.map_err(|_| IndexError::Stopping)? {
        Err(IndexError::Read(ReadError::Cancelled)) => Err(IndexError::Stopping),
        other => other,
    }
}

/// The leaves without which others of their stream are not decoded: the first one of a DFTracer
/// stream, whose packets declare the unit of times, and all of a Chrome stream, in which slices end
/// that begin in others.
#[derive(Debug, Default)]
pub(super) struct StreamLeaves(HashMap<(AgentId, StreamId), Vec<LeafId>>);

impl StreamLeaves {
    pub(super) fn of(keys: &[LeafKey]) -> Self {
        let mut sorted: Vec<&LeafKey> = keys.iter().filter(|key| is_shared(key)).collect();
        sorted.sort_by_key(|key| key.first_number);
        let mut of_streams: HashMap<(AgentId, StreamId), Vec<LeafId>> = HashMap::new();
        for key in sorted {
            let leaves = of_streams.entry(stream_of(key)).or_default();
            if leaves.is_empty() || key.path.kind == Kind::Chrome {
                leaves.push(key.leaf);
            }
        }
        Self(of_streams)
    }
}

fn is_shared(key: &LeafKey) -> bool {
    matches!(key.path.kind, Kind::Dft | Kind::Chrome)
}

fn stream_of(key: &LeafKey) -> (AgentId, StreamId) {
    (key.path.agent.clone(), key.path.stream.clone())
}

/// Some leaves of a storage, and those without which they are not decoded.
pub(super) async fn leaves_of(
    engine: &Engine,
    id: StorageId,
    sidecars: &LeafSidecars,
    streams: &StreamLeaves,
    keys: &[LeafKey],
) -> Result<Vec<StoredLeaf>, StorageError> {
    let mut wanted: HashSet<LeafId> = keys.iter().map(|key| key.leaf).collect();
    for key in keys.iter().filter(|key| is_shared(key)) {
        wanted.extend(streams.0.get(&stream_of(key)).into_iter().flatten());
    }
    let is_wanted = |leaf, _: &_| wanted.contains(&leaf);
    leaves_with(engine, (id, Cause::Index), sidecars, is_wanted).await
}
