//! A cache of the agents' compiled trace metadata.

use std::collections::HashMap;
use std::sync::Arc;

use ctf::Plan;
use parking_lot::RwLock;
use query_engine::AgentTrace;
use storage_core::{Engine, StorageError};
use storage_format::{AgentId, Kind};
use trace_kinds::StreamContext;

/// Agents whose compiled metadata is cached.
const AGENTS_MAX: usize = 1024;

/// The compiled metadata of agents. The engine reports which metadata an agent has now, so outdated
/// entries are not used.
#[derive(Default)]
pub(super) struct MetadataCache {
    by_agent: RwLock<HashMap<AgentId, CompiledMetadata>>,
}

/// What the packets of an agent are parsed with.
#[derive(Debug, Clone, Default)]
pub(super) struct CompiledMetadata {
    /// CRC32C of the metadata, if the agent has any.
    pub(super) checksum: Option<u32>,
    /// For reading events without their fields; `None` if the metadata is missing or invalid.
    pub(super) plan: Option<Arc<Plan>>,
    /// For decoding events.
    pub(super) context: Arc<StreamContext>,
}

impl CompiledMetadata {
    fn compile(metadata: Option<&[u8]>) -> Self {
        let trace = AgentTrace::new(metadata);
        let plan = trace.procedure.as_deref().map(Plan::nothing);
        Self {
            checksum: metadata.map(|_| trace.checksum),
            plan: plan.map(Arc::new),
            context: Arc::new(StreamContext {
                procedure: trace.procedure,
                ..StreamContext::default()
            }),
        }
    }
}

impl MetadataCache {
    /// What packets of this kind of the agent are parsed with.
    ///
    /// # Errors
    /// When there is no such agent, or its file cannot be read.
    pub(super) async fn of(
        &self,
        engine: &Engine,
        agent: &AgentId,
        kind: Kind,
    ) -> Result<CompiledMetadata, StorageError> {
        if kind != Kind::Ctf {
            return Ok(CompiledMetadata::default());
        }
        let present = engine.agents().get(agent)?.metadata_checksum;
        if let Some(trace) = self.by_agent.read().get(agent)
            && trace.checksum == present
        {
            return Ok(trace.clone());
        }
        let metadata = engine.agents().metadata(agent).await?;
        // Metadata can have many megabytes.
        let compile = move || CompiledMetadata::compile(metadata.as_deref());
        let compiled = tokio::task::spawn_blocking(compile).await;
        let trace = compiled.map_err(|_| StorageError::Stopping)?;
        let mut all = self.by_agent.write();
        if all.len() >= AGENTS_MAX {
            all.clear();
        }
        all.insert(agent.clone(), trace.clone());
        Ok(trace)
    }
}
