//! The leaves of storages, with their files.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use io_trace::Cause;
use query_engine::{AgentTrace, Fetch, Leaf, PacketTimes, Part, StoredLeaf, TracedFile};
use storage_core::{Engine, LeafFile, LeafInfo, LeafPackets, StorageError, StorageLeaves};
use storage_format::data_file::LeafPath;
use storage_format::index_part::PacketEntry;
use storage_format::{AgentId, Kind, StorageId};

/// A file of a leaf for readers of events; every read is recorded in the I/O trace.
struct StoredFile(LeafFile);

impl Fetch for StoredFile {
    fn place(&self) -> String {
        self.0.place()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let parts = self.0.read(ranges)?;
        Ok(parts.into_iter().map(|(bytes, _)| bytes).collect())
    }

    fn fetch_parts(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Part>> {
        let parts = self.0.read(ranges)?.into_iter();
        let part = |(bytes, was_cached)| Part { bytes, was_cached };
        Ok(parts.map(part).collect())
    }

    fn traced(&self) -> Option<TracedFile> {
        let (tag, scope) = self.0.traced()?;
        Some(TracedFile { tag, scope })
    }
}

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
    let mut found = engine.reading().leaves(id).await?;
    found.leaves.retain(|leaf| wanted(&leaf.path));
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
        stored.push(stored_leaf((engine, cause), &found, leaf, trace));
    }
    Ok(stored)
}

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
    trace: Arc<AgentTrace>,
) -> StoredLeaf {
    let sidecar = leaf.chunk_index.clone().map(|(path, length)| {
        let file = engine.reading().derived_file(path, cause);
        let fetch: Arc<dyn Fetch> = Arc::new(StoredFile(file));
        (fetch, length)
    });
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
