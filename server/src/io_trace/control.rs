//! Starting and stopping I/O traces.

use std::sync::Arc;

use storage_core::Engine;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinHandle;
use trace_kinds::io_trace::{Anchor, Begin, Encoded};

use super::collector::Collector;
use super::drain::{Drainer, EarlyTrace};
use super::error::IoTraceError;
use super::request::{NAME, TraceRequest, bytes_max};
use super::status::{Mode, Reason, State, Status};
use super::trace_storage::{TraceStorage, recover_rings};
use crate::clock;
use crate::config::IoTraceConfig;

/// Starts and stops the trace of the server's I/O; at most one trace runs.
pub(crate) struct IoTracing {
    engine: Engine,
    config: IoTraceConfig,
    status: Arc<parking_lot::Mutex<Status>>,
    /// Locked while a trace is started or stopped.
    running: Mutex<Option<RunningTrace>>,
    /// Moves the rings of a killed server.
    recovering: parking_lot::Mutex<Option<JoinHandle<()>>>,
}

struct RunningTrace {
    stop: oneshot::Sender<Reason>,
    collecting: JoinHandle<()>,
}

impl IoTracing {
    pub(crate) fn new(engine: Engine, config: IoTraceConfig) -> Self {
        Self {
            engine,
            config,
            status: Arc::default(),
            running: Mutex::default(),
            recovering: parking_lot::Mutex::default(),
        }
    }

    /// The status of the current or last trace.
    pub(crate) fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Creates a storage for a trace and starts recording into it.
    ///
    /// # Errors
    /// When a trace is running, the request is invalid, or the storage cannot be created.
    pub(crate) async fn start(&self, request: TraceRequest) -> Result<Status, IoTraceError> {
        let mut running = self.running.lock().await;
        let status = self.status();
        if let (State::Running, Some(storage)) = (status.state, status.storage) {
            return Err(IoTraceError::Running { storage });
        }
        let bytes_max = bytes_max(&self.config, request.mode, request.bytes_max)?;
        request
            .settings
            .check()
            .map_err(|error| IoTraceError::Invalid {
                problem: error.to_string(),
            })?;
        for storage in &request.storages {
            self.engine.storages().get(*storage)?;
        }
        let trace_storage = TraceStorage::create(&self.engine, &request.name).await?;
        let storage = trace_storage.id();
        let mut settings = request.settings;
        settings.storages = request.storages.iter().map(|id| *id.as_bytes()).collect();
        settings.own_storage = Some(*storage.as_bytes());
        settings.thread_records_max = self.config.thread_records_max as usize;
        let tracer = self.engine.tracer();
        let begin = Begin {
            anchor: Anchor {
                clock: tracer.now(),
                wall: clock::now_ns(),
            },
            mode: request.mode.name().to_owned(),
            bytes_max,
            blocks_one_in: settings.blocks_one_in,
            one_in: settings.one_in,
            storages: request.storages.iter().map(ToString::to_string).collect(),
        };
        let packet_bytes = request.mode.packet_bytes(bytes_max);
        let drainer = Drainer::new(tracer, &begin, packet_bytes);
        tracer
            .start(settings)
            .map_err(|error| IoTraceError::Invalid {
                problem: error.to_string(),
            })?;
        *running = Some(self.collect(request.mode, &begin, trace_storage, (drainer, Vec::new())));
        Ok(self.status())
    }

    /// Starts the task that moves recorded operations into the storage.
    fn collect(
        &self,
        mode: Mode,
        begin: &Begin,
        trace_storage: TraceStorage,
        drained: (Drainer, Vec<Encoded>),
    ) -> RunningTrace {
        let (storage, bytes_max) = (trace_storage.id(), begin.bytes_max);
        *self.status.lock() = Status {
            state: State::Running,
            storage: Some(storage),
            mode,
            bytes_max,
            started: Some(begin.anchor.wall),
            ..Status::default()
        };
        let collector = Collector::new(
            &self.engine,
            trace_storage,
            drained,
            Arc::clone(&self.status),
        );
        let (stop, stopped) = oneshot::channel();
        let collecting = tokio::spawn(collector.run(stopped));
        tracing::info!(%storage, mode = mode.name(), bytes_max, "started an I/O trace");
        RunningTrace { stop, collecting }
    }

    /// Begins to recover the rings of a killed server, and creates the storage of a trace that
    /// started before there was an engine.
    ///
    /// # Errors
    /// When either cannot be written.
    pub(crate) async fn resume(&self, early: Option<EarlyTrace>) -> Result<(), IoTraceError> {
        // They are listed before a new trace creates its own.
        let rings = self.engine.rings().all().await?;
        let recovering = recover_rings(self.engine.clone(), rings);
        *self.recovering.lock() = Some(tokio::spawn(recovering));
        let Some((begin, mode, mut drainer, packets)) = (match early {
            Some(early) => early.stop().await,
            None => None,
        }) else {
            return Ok(());
        };
        let mut running = self.running.lock().await;
        let trace_storage = match TraceStorage::create(&self.engine, NAME).await {
            Ok(trace_storage) => trace_storage,
            Err(error) => {
                self.engine.tracer().stop();
                return Err(error);
            }
        };
        drainer.skip_storage(*trace_storage.id().as_bytes());
        *running = Some(self.collect(mode, &begin, trace_storage, (drainer, packets)));
        Ok(())
    }

    /// Whether rings of a killed server are still moved into their storages.
    pub(crate) fn is_recovering(&self) -> bool {
        let recovering = self.recovering.lock();
        recovering.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Stops recording, writes what remains, and finalizes the storage of the trace.
    ///
    /// # Errors
    /// When no trace is running.
    pub(crate) async fn stop(&self) -> Result<Status, IoTraceError> {
        self.end(Reason::Stopped).await
    }

    /// Ends a running trace at shutdown. Rings that are not recovered yet are retained.
    pub(crate) async fn shutdown(&self) {
        let recovering = self.recovering.lock().take();
        if let Some(recovering) = recovering {
            recovering.abort();
            // It was aborted, or has ended.
            let _ = recovering.await;
        }
        match self.end(Reason::Shutdown).await {
            Ok(_) | Err(IoTraceError::Off) => {}
            Err(error) => {
                tracing::warn!(%error, "the I/O trace could not be completed at shutdown")
            }
        }
    }

    async fn end(&self, reason: Reason) -> Result<Status, IoTraceError> {
        let mut running = self.running.lock().await;
        let was_running = self.status.lock().state == State::Running;
        let Some(RunningTrace { stop, collecting }) = running.take() else {
            return Err(IoTraceError::Off);
        };
        // A collector that ended by itself no longer listens.
        let _ = stop.send(reason);
        if collecting.await.is_err() {
            self.engine.tracer().stop();
            let mut status = self.status.lock();
            status.state = State::Ended;
            status.error = Some("the task that writes the trace failed".to_owned());
        }
        if was_running {
            Ok(self.status())
        } else {
            Err(IoTraceError::Off)
        }
    }
}
