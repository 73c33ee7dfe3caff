//! The destination of packets.

use storage_format::{AgentId, StorageId, StreamId};

/// The destination of packets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) storage: StorageId,
    pub(crate) agent: AgentId,
    pub(crate) stream: StreamId,
}
