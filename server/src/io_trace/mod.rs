//! Tracing of the server's own I/O: started, kept in a storage like any other trace, and stopped.
//!
//! The engine's tracer records; the gatherer drains it into packets of the kind `io-trace`, and the
//! collector pushes them, as agent `tracehold`, through the ordinary writer, or keeps them in a
//! ring beside the data files until the trace ends. What happens in the storage of the trace itself
//! is not recorded, so a trace never feeds itself.

mod collector;
mod gatherer;
mod status;
mod trace_storage;

use std::sync::Arc;

use io_trace::Settings;
use storage_core::{Engine, StorageError};
use storage_format::{IdError, StorageId};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinHandle;
use trace_kinds::io_trace::{Anchor, Begin, Encoded};

use self::collector::Collector;
use self::gatherer::Gatherer;
use self::trace_storage::{TraceStorage, take_up_rings};
use crate::clock;
use crate::config::IoTraceConfig;

pub(crate) use gatherer::EarlyTrace;
pub(crate) use status::{Mode, Reason, State, Status};

/// Name of the storage of a trace that asks for none.
pub(crate) const NAME: &str = "io-trace";

/// Fewest bytes a trace may have: that of a few packets.
const BYTES_MIN: u64 = 1 << 20;

/// What is wanted of a trace.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Name of the storage.
    pub(crate) name: String,
    /// What happens at the limit.
    pub(crate) mode: Mode,
    /// The limit; the configured one when it is not given.
    pub(crate) bytes_max: Option<u64>,
    /// What is recorded; the storage of the trace is filled in here.
    pub(crate) settings: Settings,
    /// Only these storages; all when it is empty.
    pub(crate) storages: Vec<StorageId>,
}

/// Why a trace was not started or stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IoTraceError {
    /// One at a time.
    #[error("a trace is running already, into storage {storage}")]
    Running {
        /// Its storage.
        storage: StorageId,
    },
    /// There is none.
    #[error("no trace is running")]
    Off,
    /// Something that cannot be done.
    #[error("{problem}")]
    Invalid {
        /// What is wrong.
        problem: String,
    },
    /// The storage of the trace could not be made or completed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<IdError> for IoTraceError {
    fn from(error: IdError) -> Self {
        Self::Invalid {
            problem: error.to_string(),
        }
    }
}

/// Starts and stops the trace of the server's own I/O; there is one at a time.
pub(crate) struct IoTracing {
    engine: Engine,
    config: IoTraceConfig,
    status: Arc<parking_lot::Mutex<Status>>,
    /// Held while a trace is started or stopped.
    running: Mutex<Option<Running>>,
}

struct Running {
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
        }
    }

    /// How it stands.
    pub(crate) fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Makes a storage for a trace and starts to record into it.
    ///
    /// # Errors
    /// When a trace is running, the wish makes no sense, or the storage cannot be made.
    pub(crate) async fn start(&self, wanted: Wanted) -> Result<Status, IoTraceError> {
        let mut running = self.running.lock().await;
        let status = self.status();
        if let (State::Running, Some(storage)) = (status.state, status.storage) {
            return Err(IoTraceError::Running { storage });
        }
        let bytes_max = bytes_max(&self.config, wanted.mode, wanted.bytes_max)?;
        wanted
            .settings
            .check()
            .map_err(|error| IoTraceError::Invalid {
                problem: error.to_string(),
            })?;
        for storage in &wanted.storages {
            self.engine.storages().get(*storage)?;
        }
        let made = TraceStorage::make(&self.engine, &wanted.name).await?;
        let storage = made.id();
        let mut settings = wanted.settings;
        settings.storages = wanted.storages.iter().map(|id| *id.as_bytes()).collect();
        settings.own_storage = Some(*storage.as_bytes());
        settings.thread_records_max = self.config.thread_records_max as usize;
        let tracer = self.engine.tracer();
        let begin = Begin {
            anchor: Anchor {
                clock: tracer.now(),
                wall: clock::now_ns(),
            },
            mode: wanted.mode.name().to_owned(),
            bytes_max,
            blocks_one_in: settings.blocks_one_in,
            one_in: settings.one_in,
            storages: wanted.storages.iter().map(ToString::to_string).collect(),
        };
        let packet_bytes = wanted.mode.packet_bytes(bytes_max);
        let gatherer = Gatherer::new(tracer, &begin, packet_bytes);
        tracer
            .start(settings)
            .map_err(|error| IoTraceError::Invalid {
                problem: error.to_string(),
            })?;
        *running = Some(self.collect(wanted.mode, &begin, made, (gatherer, Vec::new())));
        Ok(self.status())
    }

    /// Has what is gathered go into its storage from now on.
    fn collect(
        &self,
        mode: Mode,
        begin: &Begin,
        made: TraceStorage,
        gathered: (Gatherer, Vec<Encoded>),
    ) -> Running {
        let (storage, bytes_max) = (made.id(), begin.bytes_max);
        *self.status.lock() = Status {
            state: State::Running,
            storage: Some(storage),
            mode,
            bytes_max,
            started: Some(begin.anchor.wall),
            ..Status::default()
        };
        let collector = Collector::new(&self.engine, made, gathered, Arc::clone(&self.status));
        let (stop, stopped) = oneshot::channel();
        let collecting = tokio::spawn(collector.run(stopped));
        tracing::info!(%storage, mode = mode.name(), bytes_max, "tracing our own I/O");
        Running { stop, collecting }
    }

    /// Takes up what a killed server left of a ring, and a trace that was begun before there was a
    /// storage for it.
    ///
    /// # Errors
    /// When either cannot be written.
    pub(crate) async fn take_up(&self, early: Option<EarlyTrace>) -> Result<(), IoTraceError> {
        take_up_rings(&self.engine).await?;
        let Some((begin, mode, mut gatherer, packets)) = (match early {
            Some(early) => early.hand_over().await,
            None => None,
        }) else {
            return Ok(());
        };
        let mut running = self.running.lock().await;
        let made = match TraceStorage::make(&self.engine, NAME).await {
            Ok(made) => made,
            Err(error) => {
                self.engine.tracer().stop();
                return Err(error);
            }
        };
        gatherer.leave_out(*made.id().as_bytes());
        *running = Some(self.collect(mode, &begin, made, (gatherer, packets)));
        Ok(())
    }

    /// Stops recording, writes what is left, and finalizes the storage of the trace.
    ///
    /// # Errors
    /// When no trace is running.
    pub(crate) async fn stop(&self) -> Result<Status, IoTraceError> {
        self.end(Reason::Stopped).await
    }

    /// Ends a trace that is running when the server ends.
    pub(crate) async fn shutdown(&self) {
        match self.end(Reason::Shutdown).await {
            Ok(_) | Err(IoTraceError::Off) => {}
            Err(error) => tracing::warn!(%error, "the I/O trace did not end well"),
        }
    }

    async fn end(&self, reason: Reason) -> Result<Status, IoTraceError> {
        let mut running = self.running.lock().await;
        let was_running = self.status.lock().state == State::Running;
        let Some(Running { stop, collecting }) = running.take() else {
            return Err(IoTraceError::Off);
        };
        // A collector that ended by itself does not listen any more.
        let _ = stop.send(reason);
        if collecting.await.is_err() {
            self.engine.tracer().stop();
            let mut status = self.status.lock();
            status.state = State::Ended;
            status.error = Some("the collector of the trace failed".to_owned());
        }
        match was_running {
            true => Ok(self.status()),
            false => Err(IoTraceError::Off),
        }
    }
}

/// The limit of a trace: what is asked for, within what the configuration allows.
fn bytes_max(config: &IoTraceConfig, mode: Mode, wanted: Option<u64>) -> Result<u64, IoTraceError> {
    let largest = match mode {
        Mode::StopAtLimit => config.bytes_max,
        Mode::Ring => config.ring_bytes_max,
    };
    let bytes_max = wanted.unwrap_or(largest);
    if !(BYTES_MIN..=largest).contains(&bytes_max) {
        let problem = format!("bytes_max is {bytes_max}, not within {BYTES_MIN} and {largest}");
        return Err(IoTraceError::Invalid { problem });
    }
    Ok(bytes_max)
}
