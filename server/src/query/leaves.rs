//! The leaves of storages with where their bytes are.

use std::collections::HashMap;
use std::sync::Arc;

use storage_core::{Engine, LeafInfo, StorageError, StorageLeaves};
use trace_format::{AgentId, Kind, StorageId};
use trace_read::{AgentTrace, ClosedFile, Fetch, LazyFile, Leaf, StoredLeaf};

/// The leaves of a storage, as much of them as is durable now.
pub(crate) async fn stored_leaves(
    engine: &Engine,
    id: StorageId,
) -> Result<Vec<StoredLeaf>, StorageError> {
    let found = engine.leaves(id).await?;
    let mut traces: HashMap<AgentId, Arc<AgentTrace>> = HashMap::new();
    let mut stored = Vec::with_capacity(found.leaves.len());
    for leaf in &found.leaves {
        let trace = match (leaf.path.kind, traces.get(&leaf.path.agent)) {
            (Kind::Ctf, Some(trace)) => Arc::clone(trace),
            (Kind::Ctf, None) => {
                let metadata = engine.storage_metadata(id, &leaf.path.agent).await?;
                let trace = compile(metadata).await?;
                traces.insert(leaf.path.agent.clone(), Arc::clone(&trace));
                trace
            }
            // What other kinds are decoded with does not depend on metadata.
            _ => Arc::default(),
        };
        stored.push(stored_leaf(&found, leaf, trace));
    }
    Ok(stored)
}

/// Metadata may have many megabytes.
async fn compile(metadata: Option<Vec<u8>>) -> Result<Arc<AgentTrace>, StorageError> {
    let compile = move || Arc::new(AgentTrace::new(metadata.as_deref()));
    tokio::task::spawn_blocking(compile)
        .await
        .map_err(|_| StorageError::Stopping)
}

fn stored_leaf(found: &StorageLeaves, leaf: &LeafInfo, trace: Arc<AgentTrace>) -> StoredLeaf {
    let sidecar = leaf.chunk_index.clone().map(|(path, length)| {
        let fetch: Arc<dyn Fetch> = Arc::new(LazyFile::new(path));
        (fetch, length)
    });
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
        data: Arc::new(ClosedFile(leaf.data.clone())),
        sidecar,
        trace,
    }
}
