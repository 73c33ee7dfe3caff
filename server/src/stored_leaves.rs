//! The leaves of storages, with their files.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use chunk_index::BundleContent;
use io_trace::Cause;
use query_engine::{AgentTrace, Fetch, Leaf, PacketTimes, StoredLeaf};
use storage_core::{Engine, LeafInfo, LeafPackets, StorageError, StorageLeaves};
use storage_format::data_file::LeafPath;
use storage_format::index_part::PacketEntry;
use storage_format::{AgentId, Kind, LeafId, StorageId};

use crate::leaf_sidecars::LeafSidecars;
use crate::stored_file::StoredFile;

/// The packets of a leaf according to the index tree.
struct StoredTimes(LeafPackets);

impl PacketTimes for StoredTimes {
    fn each(&self, from: u64, each: &mut dyn FnMut(&PacketEntry)) -> io::Result<()> {
        self.0.each(from, each).map_err(io::Error::other)
    }
}

/// The leaves of a storage, up to what is durable now, to be read for `cause`.
pub(crate) async fn stored_leaves(
    engine: &Engine,
    id: StorageId,
    cause: Cause,
) -> Result<Vec<StoredLeaf>, StorageError> {
    leaves_among(engine, id, cause, |_| true).await
}

/// Like [`stored_leaves`], for leaves whose paths are `wanted`.
pub(super) async fn leaves_among(
    engine: &Engine,
    id: StorageId,
    cause: Cause,
    wanted: impl Fn(&LeafPath) -> bool,
) -> Result<Vec<StoredLeaf>, StorageError> {
    // Before the leaves: an index does not cover more of a leaf than there is.
    let sidecars = LeafSidecars::open(engine, id, BundleContent::Indexes, cause).await?;
    leaves_with(engine, (id, cause), &sidecars, |_, path| wanted(path)).await
}

/// Like [`stored_leaves`], for leaves that are `wanted`, with sidecars that were found before.
pub(crate) async fn leaves_with(
    engine: &Engine,
    (id, cause): (StorageId, Cause),
    sidecars: &LeafSidecars,
    wanted: impl Fn(LeafId, &LeafPath) -> bool,
) -> Result<Vec<StoredLeaf>, StorageError> {
    let found = engine.reading().leaves_among(id, wanted).await?;
    let mut traces: HashMap<AgentId, Arc<AgentTrace>> = HashMap::new();
    let mut stored = Vec::with_capacity(found.leaves.len());
    for leaf in &found.leaves {
        let trace = match (leaf.path.kind, traces.get(&leaf.path.agent)) {
            (Kind::Ctf, Some(trace)) => Arc::clone(trace),
            (Kind::Ctf, None) => {
                let metadata = engine.reading().metadata(id, &leaf.path.agent).await?;
                let trace = compile(metadata).await?;
                traces.insert(leaf.path.agent.clone(), Arc::clone(&trace));
                trace
            }
            // Other kinds are decoded without metadata.
            _ => Arc::default(),
        };
        let sidecar = sidecars.find(leaf.leaf);
        stored.push(stored_leaf((engine, cause), &found, leaf, (sidecar, trace)));
    }
    sidecars.bundles().explain(&mut stored);
    Ok(stored)
}

/// The bytes of a chunk index, and their number.
type Sidecar = (Arc<dyn Fetch>, u64);

/// Metadata can have many megabytes.
async fn compile(metadata: Option<Vec<u8>>) -> Result<Arc<AgentTrace>, StorageError> {
    let compile = move || Arc::new(AgentTrace::new(metadata.as_deref()));
    tokio::task::spawn_blocking(compile)
        .await
        .map_err(|_| StorageError::Stopping)
}

fn stored_leaf(
    (engine, cause): (&Engine, Cause),
    found: &StorageLeaves,
    leaf: &LeafInfo,
    (sidecar, trace): (Option<Sidecar>, Arc<AgentTrace>),
) -> StoredLeaf {
    // Opened only while it is read: a query may use a large number of leaves.
    let data = StoredFile(engine.reading().leaf_bytes(leaf, cause));
    StoredLeaf {
        leaf: Leaf {
            storage: found.storage.id,
            storage_name: found.storage.name.clone(),
            leaf: leaf.leaf,
            path: leaf.path.clone(),
            first_number: leaf.first_number,
            length: leaf.length,
            checksum: found.is_finalized().then_some(leaf.checksum),
            cuts: found.cuts,
            runs: leaf.runs.clone(),
        },
        data: Arc::new(data),
        sidecar,
        trace,
        times: Some(Arc::new(StoredTimes(
            engine.reading().leaf_packets(found, leaf.leaf),
        ))),
    }
}
