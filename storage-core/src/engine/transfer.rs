//! Moving packets and storages: copies between storages, exports and imports.

use std::sync::Arc;

use super::{
    blocking::Blocking, ingest::Ingest, reading::Reading, registry::Registry, tasks::Tasks,
};
use crate::{
    Share, agents::Agents, catalog::Catalog, io_thread::IoThread, space::Space, tier::Slots,
    tree::BlockCache,
};

/// Copies of storages, exports and imports.
#[derive(Debug, Clone)]
pub struct Transfer {
    pub(super) registry: Arc<Registry>,
    pub(super) agents: Arc<Agents>,
    pub(super) reading: Reading,
    pub(super) ingest: Ingest,
    /// What all imports together may have of the bytes in flight.
    pub(super) import_share: Arc<Share>,
    pub(super) io_thread: IoThread,
    pub(super) catalog: Arc<Catalog>,
    pub(super) space: Arc<Space>,
    pub(super) block_cache: Arc<BlockCache>,
    pub(super) blocking: Blocking,
    pub(super) tasks: Arc<Tasks>,
    pub(super) slots: Slots,
}
