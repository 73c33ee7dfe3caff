//! What packets of agents need to be decoded, kept ready.

use std::collections::HashMap;
use std::sync::Arc;

use ctf::Procedure;
use parking_lot::RwLock;
use storage_core::{Engine, StorageError};
use trace_events::StreamContext;
use trace_format::{AgentId, Kind};

/// Agents whose metadata is kept ready.
const AGENTS_MAX: usize = 1024;
/// What packets of agents need to be decoded.
#[derive(Default)]
pub(super) struct Contexts {
    by_agent: RwLock<HashMap<AgentId, Arc<StreamContext>>>,
}

impl Contexts {
    /// What packets of this kind of the agent need.
    pub(super) async fn of(
        &self,
        engine: &Engine,
        agent: &AgentId,
        kind: Kind,
    ) -> Result<Arc<StreamContext>, StorageError> {
        if kind != Kind::Ctf {
            return Ok(Arc::default());
        }
        if let Some(context) = self.by_agent.read().get(agent) {
            return Ok(Arc::clone(context));
        }
        let metadata = engine.agent_metadata(agent).await?;
        let procedure = metadata.and_then(|metadata| {
            let trace = ctf::parse_metadata(&metadata).ok()?;
            Procedure::new(trace).ok()
        });
        let context = Arc::new(StreamContext {
            procedure: procedure.map(Arc::new),
            ..StreamContext::default()
        });
        let mut all = self.by_agent.write();
        if all.len() >= AGENTS_MAX {
            all.clear();
        }
        all.insert(agent.clone(), Arc::clone(&context));
        Ok(context)
    }

    /// The trace metadata of an agent changed.
    pub(super) fn forget(&self, agent: &AgentId) {
        self.by_agent.write().remove(agent);
    }
}
