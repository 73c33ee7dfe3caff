//! The state shared by all request handlers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use recording::Recorder;
use storage_core::{Engine, Replica, StorageError};
use storage_format::storage_file::StorageState;
use storage_format::{AgentId, StorageId, StreamId, StreamPosition};
use tokio::sync::watch;

use crate::access::Access;
use crate::audit::Audit;
use crate::change_feed::ChangeFeed;
use crate::chunk_indexes::{ChunkIndexes, IndexMaker};
use crate::clock;
use crate::config::Config;
use crate::connection::Stage;
use crate::derived_files::check_file;
use crate::event_files::EventTables;
use crate::ingest::{Pusher, TraceRequests};
use crate::io_trace::IoTracing;
use crate::jobs::Jobs;
use crate::metrics::Metrics;
use crate::open_files::OpenFiles;
use crate::provenance::{ProvenanceError, Provenances, ReportedProvenance};
use crate::query::{Queries, UnreadableData};
use crate::range::Buffers;
use crate::tier::chains::ChainReplica;
use crate::tier::store::Tier;
use crate::watched_tasks::WatchedTasks;

/// Shared by all requests; only the counters and the stage change.
pub(crate) struct AppState {
    pub(crate) engine: Engine,
    pub(crate) access: Arc<Access>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) config: Config,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) pusher: Pusher,
    pub(crate) recorder: Recorder,
    pub(crate) traces: TraceRequests,
    pub(crate) open_files: Arc<OpenFiles>,
    pub(crate) io_trace: IoTracing,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) changes: ChangeFeed,
    pub(crate) queries: Arc<Queries>,
    pub(crate) event_files: Arc<EventTables>,
    pub(crate) indexes: Arc<ChunkIndexes>,
    pub(crate) unreadable: Arc<UnreadableData>,
    pub(crate) provenances: Arc<Provenances>,
    pub(crate) background: WatchedTasks,
    /// The object store, if there is one.
    pub(crate) tier: Option<Arc<Tier>>,
    /// Whether retention trusts ages: not after a jump of the clock.
    pub(crate) ages_trusted: AtomicBool,
    /// When the process started, since 1970.
    pub(crate) started: Duration,
    /// The OpenAPI document as JSON.
    pub(crate) openapi: Bytes,
    stage: watch::Receiver<Stage>,
}

impl AppState {
    pub(crate) fn new(
        (engine, recorder, access, audit): (Engine, Recorder, Access, Audit),
        config: Config,
        metrics: Arc<Metrics>,
        stage: watch::Receiver<Stage>,
        (openapi, tier): (Bytes, Option<Arc<Tier>>),
    ) -> Arc<Self> {
        engine.derived_files().check_with(check_file);
        let provenances = Arc::default();
        if let Some(tier) = &tier {
            tier.serve(&engine, &provenances);
        }
        let indexes = Arc::new(ChunkIndexes::new(&config.query));
        let unreadable = Arc::new(UnreadableData::default());
        let jobs = Jobs::new(Arc::clone(&metrics));
        let queries = Arc::new(Queries::new(
            engine.clone(),
            Arc::clone(&metrics),
            (Arc::clone(&indexes), Arc::clone(&unreadable)),
            &config.query,
        ));
        let event_files = EventTables::new(
            engine.clone(),
            (Arc::clone(&queries), Arc::clone(&jobs)),
            Arc::clone(&metrics),
            (config.query.event_files_bytes_max, stage.clone()),
        );
        Arc::new(Self {
            buffers: Buffers::new(config.range.buffer_bytes_max, Arc::clone(&metrics)),
            pusher: Pusher::new(
                engine.clone(),
                Arc::clone(&metrics),
                config.ingest.clone(),
                config.bench.clone(),
            ),
            traces: TraceRequests::new(
                engine.clone(),
                recorder.clone(),
                Arc::clone(&metrics),
                (config.ingest.clone(), config.otlp.request_limits()),
            ),
            recorder,
            open_files: Arc::default(),
            io_trace: IoTracing::new(engine.clone(), config.io_trace.clone()),
            event_files,
            queries,
            jobs,
            indexes,
            unreadable,
            provenances,
            changes: ChangeFeed::default(),
            background: WatchedTasks::default(),
            tier,
            ages_trusted: AtomicBool::new(true),
            started: clock::since_epoch(),
            openapi,
            access: Arc::new(access),
            audit: Arc::new(audit),
            engine,
            config,
            metrics,
            stage,
        })
    }

    /// Waits until the packets of a stream before `next` are in the object store, if they are not
    /// acknowledged before: who asks for the next position takes them for acknowledged.
    pub(crate) async fn wait_chained(
        &self,
        id: StorageId,
        key: (AgentId, StreamId),
        next: StreamPosition,
    ) -> Result<(), StorageError> {
        let chains = self.tier.as_ref().and_then(|tier| tier.chains());
        let (Some(chains), Some(last)) = (chains, next.sequence.checked_sub(1)) else {
            return Ok(());
        };
        if self.engine.storages().get(id)?.state == StorageState::Finalized {
            return Ok(());
        }
        let last = StreamPosition::new(next.epoch, last);
        let found = self
            .engine
            .reading()
            .packet_at(id, key.clone(), last)
            .await?;
        let Some(packet) = found else {
            return Ok(());
        };
        let replica = ChainReplica(Arc::clone(chains));
        replica.wait(id, &key.0, &key.1, packet.entry.number).await
    }

    /// Waits until the object store has provenance that is stored here, if it is to survive this
    /// node as packets do.
    pub(crate) async fn chain_provenance(
        &self,
        id: StorageId,
        reported: &ReportedProvenance,
    ) -> Result<(), ProvenanceError> {
        let chains = self.tier.as_ref().and_then(|tier| tier.chains());
        let Some(chains) = chains else { return Ok(()) };
        if self.engine.storages().get(id)?.state == StorageState::Finalized {
            return Ok(());
        }
        let stream = (reported.agent.clone(), reported.stream.clone());
        Ok(chains.report(id, stream, reported.chained()?).await?)
    }

    /// Ends what appends to the object store: nobody waits for it any more.
    pub(crate) fn stop_chains(&self) {
        if let Some(chains) = self.tier.as_ref().and_then(|tier| tier.chains()) {
            chains.stop();
        }
    }

    /// What is needed to build the chunk indexes of this server's storages.
    pub(crate) fn index_maker(&self) -> IndexMaker {
        IndexMaker {
            engine: self.engine.clone(),
            metrics: Arc::clone(&self.metrics),
            indexes: Arc::clone(&self.indexes),
            unreadable: Arc::clone(&self.unreadable),
            open_files: Arc::clone(&self.open_files),
            provenances: Arc::clone(&self.provenances),
        }
    }

    /// Whether the server is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        *self.stage.borrow() > Stage::Running
    }

    /// Waits until the server is shutting down.
    pub(crate) async fn draining(&self) {
        // Without a sender, the server has shut down.
        let mut stage = self.stage.clone();
        drop(stage.wait_for(|stage| *stage > Stage::Running).await);
    }
}
