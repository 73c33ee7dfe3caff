//! The engine: all storages and agents of one data folder.
//!
//! [`Engine`] owns one handle a subject; each handle owns what it needs.
//!
//! | handle | subject |
//! | --- | --- |
//! | [`Storages`] | creating, listing, changing and deleting storages |
//! | [`Agents`](crate::Agents) | agents, their streams and trace metadata |
//! | [`Ingest`] | pushing packets |
//! | [`Reading`] | packets, leaves and files of storages |
//! | [`DerivedFiles`] | chunk indexes and provenance next to data files |
//! | [`Labels`] | labels and their types |
//! | [`Transfer`] | copies, exports and imports |
//! | [`Rings`] | rings of I/O trace storages |
//! | [`QueryCache`] | cached results of aggregated queries |
//! | [`Quotas`] | what agents have stored, and what they may |
//! | [`Tiering`] | storages in an object store |
//! | [`Documents`] | small named files that other crates own |

mod between_writers;
mod blocking;
mod checksums;
mod copy;
mod derived;
mod discovery;
mod disk_probe;
mod documents;
mod event_files;
mod export;
mod failures;
#[cfg(test)]
mod fault_tests;
mod file_info;
mod folder_lock;
mod folders;
mod idempotency;
mod import;
mod ingest;
mod label_values;
mod labels;
mod leaf_packets;
mod leaves;
mod listing;
mod query_cache;
mod quotas;
mod reading;
mod recovering;
mod registry;
mod repairing;
mod rings;
mod scrub;
mod scrub_position;
mod start;
mod storages;
mod tasks;
mod texts;
mod tiering;
mod transfer;
mod trees;
mod usage;

use std::{fs::File, sync::Arc};

use io_trace::Tracer;
use parking_lot::Mutex;
use storage_format::{
    AgentId, StreamId,
    storage_file::{StorageFile, StorageState},
};

pub use copy::{
    CopiedFrom, CopiedPacket, CopyListener, CopyPush, CopyReport, CopySelection, Declaring,
};
pub use derived::{
    DerivedCheck, DerivedFault, DerivedFiles, DerivedInfo, DerivedSink, ReadDerived,
};
pub use documents::{Documents, change_document};
pub use event_files::{EventFile, EventFileInfo, EventFiles, EventSink};
pub use export::Export;
pub use failures::{Failures, StorageCounts};
pub use file_info::FileInfo;
pub use idempotency::IdempotencyKey;
pub use import::check_archive;
pub use ingest::{Ingest, PendingPush};
pub use labels::{LabelTypeInfo, Labels, StorageLabel};
pub use leaf_packets::LeafPackets;
pub use leaves::{LeafInfo, LeafKey, StorageLeaves};
pub use listing::{ListOrder, StorageFilter};
pub use query_cache::{CACHED_BYTES_MAX, QueryCache};
pub use quotas::{AgentUsage, Quotas};
pub use reading::{PacketInfo, Page, Reading, ServedBytes, ServedFile};
pub use rings::{LeftRing, Rings};
pub use storages::{Created, NewStorage, StoragePatch, Storages};
pub use texts::check_label_filter;
pub use tiering::{Adoption, TierInfo, TierPart, TierParts, Tiering};
pub use transfer::Transfer;

use self::{disk_probe::DiskProbe, recovering::Recoveries, tasks::Tasks};
use crate::{
    Agents, ByteBudget, Counters, Replica, StorageError, StreamActivity, writer::Services,
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
    tasks: Arc<Tasks>,
    recoveries: Arc<Recoveries>,
    storages: Storages,
    ingest: Ingest,
    reading: Reading,
    derived_files: DerivedFiles,
    event_files: EventFiles,
    labels: Labels,
    transfer: Transfer,
    rings: Rings,
    query_cache: QueryCache,
    tiering: Tiering,
    documents: Documents,
    disk_probe: Arc<DiskProbe>,
    quotas: Quotas,
    io_thread_join: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// Keeps other servers out of the data folder until the shutdown.
    lock: Mutex<Option<File>>,
}

impl Engine {
    /// The storages.
    #[must_use]
    pub fn storages(&self) -> &Storages {
        &self.inner.storages
    }

    /// The agents.
    #[must_use]
    pub fn agents(&self) -> &Agents {
        &self.inner.services.agents
    }

    /// Pushing packets.
    #[must_use]
    pub fn ingest(&self) -> &Ingest {
        &self.inner.ingest
    }

    /// Reading packets, leaves and files.
    #[must_use]
    pub fn reading(&self) -> &Reading {
        &self.inner.reading
    }

    /// The derived files next to data files.
    #[must_use]
    pub fn derived_files(&self) -> &DerivedFiles {
        &self.inner.derived_files
    }

    /// Events of finalized storages as files of other programs.
    #[must_use]
    pub fn event_files(&self) -> &EventFiles {
        &self.inner.event_files
    }

    /// Labels and their types.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.inner.labels
    }

    /// Copies, exports and imports.
    #[must_use]
    pub fn transfer(&self) -> &Transfer {
        &self.inner.transfer
    }

    /// The rings of storages.
    #[must_use]
    pub fn rings(&self) -> &Rings {
        &self.inner.rings
    }

    /// Cached results of aggregated queries.
    #[must_use]
    pub fn query_cache(&self) -> &QueryCache {
        &self.inner.query_cache
    }

    /// Storages in an object store.
    #[must_use]
    pub fn tiering(&self) -> &Tiering {
        &self.inner.tiering
    }

    /// Gives all storages a second place for their packets, before any is pushed. The first stays.
    pub fn set_replica(&self, replica: Arc<dyn Replica>) {
        self.inner.services.replica.set(replica);
    }

    /// What agents have stored, and what they may store.
    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.inner.quotas
    }

    /// Deletes an agent with its streams and trace metadata. In finalized storages it keeps its
    /// name, its attributes and its metadata: they have a file of each of their agents.
    ///
    /// # Errors
    /// When there is no such agent, or a storage that is not finalized has packets of it: they are
    /// decoded with the metadata of the agent, which finalization has yet to copy.
    pub async fn delete_agent(&self, id: &AgentId) -> Result<(), StorageError> {
        let storages = Arc::clone(&self.inner.storages.registry);
        let agent = id.clone();
        let check = move || {
            for storage in storages.all() {
                if storage.state() == StorageState::Finalized {
                    continue;
                }
                storage.check_ready()?;
                let tree = storage.tree.read();
                // Of a storage without a tree only a new one is known to have no packets.
                let is_in_use = match &*tree {
                    Some(tree) => tree.has_agent(&agent),
                    None => storage.state() != StorageState::Created,
                };
                if is_in_use {
                    return Err(StorageError::AgentInUse {
                        agent: agent.clone(),
                        storage: storage.id,
                    });
                }
            }
            Ok(())
        };
        self.inner.services.agents.remove(id, check).await?;
        self.inner.services.stream_counts.forget(id);
        self.inner.quotas.change(id, None).await
    }

    /// What arrives in a stream, and what is lost of it; `None` if it was silent since the server
    /// started, or if too many streams are counted.
    #[must_use]
    pub fn stream_activity(&self, agent: &AgentId, stream: &StreamId) -> Option<StreamActivity> {
        let services = &self.inner.services;
        let counted = services.stream_counts.activity(agent, stream);
        let (packets, bytes) = services.droppable.dropped_of(agent, stream);
        let activity = counted.or((packets > 0).then(StreamActivity::default))?;
        Some(StreamActivity {
            dropped_packets: packets,
            dropped_bytes: bytes,
            ..activity
        })
    }

    /// Counts a refused push of a stream; `is_gap`: because packets before it are missing.
    pub fn count_refused(&self, agent: &AgentId, stream: &StreamId, is_gap: bool) {
        let services = &self.inner.services;
        // Anybody can name streams that nobody has declared.
        if services.agents.stream(agent, stream).is_ok() {
            services.stream_counts.refused(agent, stream, is_gap);
        }
    }

    /// Small named files that other crates own.
    #[must_use]
    pub fn documents(&self) -> &Documents {
        &self.inner.documents
    }

    /// The counters of the engine.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.inner.services.counters
    }

    /// The bytes that may be in flight; acquire a permit before reading what will be pushed.
    #[must_use]
    pub fn budget(&self) -> &ByteBudget {
        &self.inner.ingest.budget
    }

    /// The tracer that records the I/O of this engine while it is on.
    #[must_use]
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.inner.services.tracer
    }

    /// Name of the implementation that writes: `io_uring` or `blocking`.
    #[must_use]
    pub fn io_name(&self) -> &'static str {
        self.inner.services.io_thread.io_name
    }

    /// Refuses while ingest is stopped because the disk is low.
    ///
    /// # Errors
    /// While it is.
    pub fn check_disk(&self) -> Result<(), crate::StorageError> {
        self.inner.services.space.check()
    }

    /// Whether ingest is stopped because the disk is low.
    #[must_use]
    pub fn is_disk_low(&self) -> bool {
        self.inner.services.space.is_low()
    }

    /// Why the disk of the data folder does not work, if a write that is tried now and then fails
    /// or does not complete.
    #[must_use]
    pub fn disk_failure(&self) -> Option<String> {
        self.inner.disk_probe.failure()
    }
}
