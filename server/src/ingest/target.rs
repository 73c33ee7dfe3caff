//! Where packets go.

use storage_format::{AgentId, StorageId, StreamId};

/// Where packets go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) storage: StorageId,
    pub(crate) agent: AgentId,
    pub(crate) stream: StreamId,
}
