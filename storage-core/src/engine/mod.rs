//! The engine: all storages and agents of one data folder.

mod cache;
mod copy;
mod export;
#[cfg(test)]
mod fault_tests;
mod import;
mod ingest;
mod labels;
mod leaf_packets;
mod leaves;
mod lifecycle;
mod listing;
mod reading;
mod recording;
mod ring;
mod start;

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    path::PathBuf,
    sync::Arc,
};

use io_trace::{Cause, Scope, Tracer, current};
use parking_lot::{Mutex, RwLock};
use storage_format::{AgentId, StorageId, agent_file::StreamSpec, storage_file::StorageFile};
use tokio::task::JoinSet;

pub use cache::CACHED_BYTES_MAX;
pub use copy::{CopiedFrom, CopiedPacket, CopyListener, CopyPush, CopyReport, CopySelection};
pub use export::Export;
pub use import::check_archive;
pub use ingest::PendingPush;
pub use labels::{LabelTypeInfo, StorageLabel};
pub use leaf_packets::LeafPackets;
pub use leaves::{LeafInfo, StorageLeaves};
pub use lifecycle::{Created, NewStorage, StoragePatch};
pub use listing::StorageFilter;
pub use reading::{FileInfo, PacketInfo, Page, ServedFile};

use crate::{
    Agent, AgentSpec, ByteBudget, Counters, StorageError,
    storage::{Storage, StorageStatus},
    traced::on_thread,
    tree::BlockCache,
    writer::Services,
};

/// What a storage is: the content of its storage file, with live totals.
pub type StorageInfo = StorageFile;

/// All storages and agents of one data folder. Cloning gives another handle to the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    services: Services,
    budget: ByteBudget,
    cache: Arc<BlockCache>,
    storages_folder: PathBuf,
    storages: RwLock<HashMap<StorageId, Arc<Storage>>>,
    by_idempotency_key: Mutex<HashMap<String, StorageId>>,
    /// Storages whose tree was loaded for readers, oldest first.
    loaded: Mutex<VecDeque<StorageId>>,
    /// One creation at a time, so that a repeated key finds the first one.
    creating: tokio::sync::Mutex<()>,
    tasks: Mutex<JoinSet<()>>,
    io_thread_join: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// Keeps other servers out of the data folder until the shutdown.
    lock: Mutex<Option<File>>,
}

impl Engine {
    fn services(&self) -> &Services {
        &self.inner.services
    }

    fn find(&self, id: StorageId) -> Result<Arc<Storage>, StorageError> {
        let storages = self.inner.storages.read();
        storages
            .get(&id)
            .cloned()
            .ok_or(StorageError::StorageNotFound(id))
    }

    /// What the engine counts.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.services().counters
    }

    /// The bytes that may be under way; take a permit before reading what will be pushed.
    #[must_use]
    pub fn budget(&self) -> &ByteBudget {
        &self.inner.budget
    }

    /// What records the I/O of this engine when it is started.
    #[must_use]
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.services().tracer
    }

    /// The scope for work that is done for `cause`, while I/O is traced. Who makes chunk indexes
    /// asks what queries ask, and it is no query.
    fn scope(&self, cause: Cause) -> Option<Scope> {
        let tracer = self.tracer();
        let scope = tracer.is_on().then(current)?;
        match scope {
            Some(around) if around.cause == Cause::Index => Some(around),
            _ => Some(Scope::within(tracer, cause)),
        }
    }

    /// Runs work that blocks, for `cause`.
    async fn blocking<T: Send + 'static>(
        &self,
        cause: Cause,
        work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        on_thread(self.scope(cause), work)
            .await
            .map_err(|_| StorageError::Stopping)?
    }

    /// Name of the implementation that writes: `io_uring` or `blocking`.
    #[must_use]
    pub fn io_name(&self) -> &'static str {
        self.services().io_thread.io_name
    }

    /// Whether ingest is stopped because the disk is low.
    #[must_use]
    pub fn is_disk_low(&self) -> bool {
        self.services().space.is_low()
    }

    /// Registers an agent, or changes what is known of it.
    ///
    /// # Errors
    /// When the description exceeds a limit or cannot be written.
    pub async fn register_agent(&self, spec: AgentSpec) -> Result<Arc<Agent>, StorageError> {
        self.services().agents.register(spec).await
    }

    /// The agent with this id.
    ///
    /// # Errors
    /// When there is none.
    pub fn agent(&self, id: &AgentId) -> Result<Arc<Agent>, StorageError> {
        self.services().agents.get(id)
    }

    /// All agents, sorted by id.
    #[must_use]
    pub fn agents(&self) -> Vec<Arc<Agent>> {
        self.services().agents.all()
    }

    /// Keeps the trace metadata of an agent as it was sent.
    ///
    /// # Errors
    /// When there is no such agent, or the metadata is too long or cannot be written.
    pub async fn set_agent_metadata(
        &self,
        id: &AgentId,
        metadata: bytes::Bytes,
    ) -> Result<(), StorageError> {
        self.services().agents.set_metadata(id, metadata).await
    }

    /// The trace metadata of an agent, when it sent any.
    ///
    /// # Errors
    /// When there is no such agent, or its file cannot be read.
    pub async fn agent_metadata(&self, id: &AgentId) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.services().agents.file(id).await?.metadata)
    }

    /// Declares a stream, or changes its leaf type and codec for packets to come.
    ///
    /// # Errors
    /// When there is no such agent, or the stream has another kind.
    pub async fn declare_stream(
        &self,
        agent: &AgentId,
        spec: StreamSpec,
    ) -> Result<StreamSpec, StorageError> {
        self.services().agents.declare(agent, spec).await
    }

    /// What is known of a storage.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn storage(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        Ok(self.find(id)?.info())
    }

    /// How writing into a storage goes.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn status(&self, id: StorageId) -> Result<StorageStatus, StorageError> {
        Ok(self.find(id)?.status(&self.services().droppable))
    }
}
