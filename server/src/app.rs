//! The server process, from start to shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use recording::Recorder;
use storage_core::{Engine, StorageError};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::access::{Access, Proxy, TokensError};
use crate::app_state::AppState;
use crate::audit::{Audit, AuditError};
use crate::background::Background;
use crate::config::{Config, HttpConfig, IngestConfig, OtlpListen};
use crate::connection::{Door, Stage, serve};
use crate::file_limit;
use crate::gate::Gate;
use crate::io_trace::EarlyTrace;
use crate::metrics::{Metrics, Port};
use crate::routes::{openapi_json, otlp_router, resume_finalizations, router};
use crate::seal_key::{self, SealKeyError};
use crate::service_manager::{ServiceManager, keep_informed};
use crate::tier::store::{StoreError, Tier, check_no_chains};
use crate::tls::{Tls, TlsError};

/// Why the server cannot run.
#[derive(Debug, Error)]
pub enum AppError {
    /// The address cannot be bound.
    #[error(
        "cannot listen on {address}: {source}; choose another with --listen or http.listen, or \
         with otlp.grpc_listen or otlp.http_listen for spans"
    )]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Signals cannot be received, or the runtime cannot start.
    #[error("cannot set up the process: {0}")]
    Process(#[from] io::Error),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Everybody could reach a server that serves everybody.
    #[error(
        "{address} can be reached by other machines, and there are no tokens; create one with \
         `traceholdd token create`, listen on 127.0.0.1, or accept every client with --insecure"
    )]
    NoTokens {
        /// The requested address.
        address: SocketAddr,
    },
    /// The key that signs seals cannot be used.
    #[error(transparent)]
    SealKey(#[from] SealKeyError),
    /// The object store cannot be used.
    #[error(transparent)]
    ObjectStore(#[from] StoreError),
    /// The tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The data folder cannot be used by this server.
    #[error(transparent)]
    DataFolder(#[from] migrations::MigrationError),
    /// The stored recordings cannot be resumed.
    #[error("cannot resume the recordings: {0}")]
    Recordings(#[from] recording::RecordingError),
    /// The engine refused to start or failed to shut down cleanly.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Where the server listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// For everything.
    pub http: SocketAddr,
    /// For spans over gRPC.
    pub otlp_grpc: Option<SocketAddr>,
    /// For spans over HTTP.
    pub otlp_http: Option<SocketAddr>,
}

/// How long the end of the process waits for cancelled reads.
const CANCELLED_READS_WAIT: Duration = Duration::from_secs(1);

/// Threads for reads that wait for the disk; more of them would only queue in the kernel.
const BLOCKING_THREADS_MAX: usize = 64;

/// Runs a server until a signal stops it. Calls `ready` with the bound addresses once the server
/// accepts requests; storages may still be recovering then.
///
/// On SIGTERM or SIGINT the server accepts no new connections, lets requests in flight finish
/// within `http.drain_seconds`, and commits everything. A second signal aborts the remaining
/// requests at once; acknowledged packets are durable in either case.
///
/// # Errors
/// When the server cannot start, or the last commit fails.
pub fn run(config: Config, ready: impl FnOnce(Addresses)) -> Result<(), AppError> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Ok(threads @ 1..) = usize::try_from(config.runtime.threads) {
        runtime.worker_threads(threads);
    }
    let runtime = runtime
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("serve")
        .build()?;
    let served = runtime.block_on(serve_until_stopped(config, ready));
    // What is left are reads that were cancelled; one that hangs in the disk must not hold the end.
    runtime.shutdown_timeout(CANCELLED_READS_WAIT);
    served
}

async fn serve_until_stopped(
    config: Config,
    ready: impl FnOnce(Addresses),
) -> Result<(), AppError> {
    let config = within_limits(config);
    let (stage, stage_seen) = watch::channel(Stage::Running);
    let signals = tokio::spawn(forward_signals(stage)?);
    // It means new certificates. Without [tls] there are none, and nothing to end for.
    let _hangup = signal(SignalKind::hangup())?;
    let tls = Tls::load(&config.tls)?;
    let engine = seal_key::engine_of(&config)?;
    let data_dir = engine.data_dir.clone();
    let migrated = tokio::task::spawn_blocking(move || migrations::migrate(&data_dir)).await;
    migrated.map_err(io::Error::other)??;
    let tracer = Arc::default();
    let early = EarlyTrace::start(&tracer, &config.io_trace);
    let early = early.map_err(|error| io::Error::other(error.to_string()))?;
    let data_dir = engine.data_dir.clone();
    let engine = Engine::start(engine, tracer).await?;
    // The only folder that the server can always write to: a root file system may be read-only.
    query_engine::spill_into(data_dir);
    let (access, audit) = admission(&config, &engine).await?;
    let is_closed = access.is_closed();
    let recorder = Recorder::start(&engine, config.recorder()).await?;
    let ports = Ports::open(&config)?;
    let addresses = ports.addresses()?;
    let address = addresses.http;
    let tier = open_tier(&config, address, &engine).await?;
    let http = config.http.clone();
    let metrics = Arc::new(Metrics::default());
    let app = AppState::new(
        (engine.clone(), recorder.clone(), access, audit),
        config,
        Arc::clone(&metrics),
        stage_seen.clone(),
        (openapi_json().into(), tier),
    );
    resume_io_trace(&app, early).await;
    app.event_files.count_bytes().await;
    let (gate, otlp_gate) = gates(&app, &metrics, &http);
    let (jobs, audit) = (Arc::clone(&app.jobs), Arc::clone(&app.audit));
    tracing::info!(%address, io = engine.io_name(), "accepting requests");
    warn_of_exposure(address, is_closed, tls.is_some());
    let background = Background::start(&app, stage_seen.clone());
    resume_finalizations(&app);
    let certificates = tls.clone().map(|tls| watch_certificates(&app, tls));
    ready(addresses);
    let informing = say_ready(&app, address, &stage_seen);
    let doors = ports.doors(&gate, &otlp_gate);
    serve(doors, metrics, (&http, tls), stage_seen).await;
    if let Some(certificates) = certificates {
        certificates.abort();
    }
    engine.storages().interrupt_finalizations();
    jobs.cancel_verifications();
    // The ports of OTLP change nothing in this sense.
    gate.finish_changes().await;
    jobs.end().await;
    audit.finish().await;
    tracing::info!("all requests have finished; committing");
    recorder.shutdown().await;
    app.io_trace.shutdown().await;
    background.end().await;
    app.stop_chains();
    engine.shutdown().await?;
    signals.abort();
    if let Some(informing) = informing {
        informing.abort();
    }
    tracing::info!("the server has shut down");
    Ok(())
}

/// The object store, if there is one, and what the data folder knows of it.
async fn open_tier(
    config: &Config,
    address: SocketAddr,
    engine: &Engine,
) -> Result<Option<Arc<Tier>>, AppError> {
    let tier = Tier::open(config, address)?;
    match &tier {
        Some(tier) => tier.learn(engine).await?,
        None => check_no_chains(engine).await?,
    }
    Ok(tier)
}

fn watch_certificates(app: &AppState, tls: Arc<Tls>) -> JoinHandle<()> {
    let certificates = tokio::spawn(keep_current(tls));
    app.background.watch("certificates", &certificates);
    certificates
}

async fn resume_io_trace(app: &AppState, early: Option<EarlyTrace>) {
    if let Err(error) = app.io_trace.resume(early).await {
        tracing::error!(%error, "cannot resume the I/O trace; the server runs without it");
    }
}

/// Tells the service manager, if there is one, that requests are accepted, and starts to keep it
/// informed.
fn say_ready(
    app: &Arc<AppState>,
    address: SocketAddr,
    stage: &watch::Receiver<Stage>,
) -> Option<JoinHandle<()>> {
    let manager = ServiceManager::of_environment()?;
    let status = format!("accepting requests on {address}");
    manager.ready(&status);
    let informed = keep_informed(manager, Arc::clone(app), status, stage.clone());
    Some(tokio::spawn(informed))
}

async fn keep_current(tls: Arc<Tls>) {
    if let Err(error) = tls.keep_current().await {
        tracing::error!(%error, "new certificates are not noticed any more; restart the server");
    }
}

/// The tokens and the audit log of the data folder. Without tokens the server must not be reached
/// from elsewhere.
async fn admission(config: &Config, engine: &Engine) -> Result<(Access, Audit), AppError> {
    let access = Access::load(engine.documents(), &config.access).await?;
    let http = config.http.listen;
    let otlp = [config.otlp.grpc_listen, config.otlp.http_listen];
    let otlp = otlp.map(|listen| listen.beside(http.ip()));
    let mut all = [Some(http)].into_iter().chain(otlp).flatten();
    let exposed = all.find(|address| !address.ip().to_canonical().is_loopback());
    if let Some(address) = exposed
        && !access.is_closed()
        && !config.http.insecure
    {
        return Err(AppError::NoTokens { address });
    }
    Ok((access, Audit::open(config.data_dir(), &config.audit)?))
}

/// The settings with no more connections than the limit of open files has room for.
fn within_limits(mut config: Config) -> Config {
    warn_of_large_packets(&config.ingest);
    let Some(limit) = file_limit::raise_limit() else {
        return config;
    };
    let room = file_limit::connections_within(limit, config.storage.open_files_max);
    let wanted = &mut config.http.connections_max;
    if *wanted > room {
        tracing::warn!(
            limit,
            wanted = *wanted,
            connections_max = room,
            "the limit of open files has no room for http.connections_max; raise it, or lower \
             storage.open_files_max"
        );
        *wanted = room;
    }
    config
}

/// Says in the log that a single packet can take most of the memory for packets.
fn warn_of_large_packets(ingest: &IngestConfig) {
    if ingest.packet_bytes_max > ingest.in_flight_bytes_max / 2 {
        tracing::warn!(
            packet_bytes_max = ingest.packet_bytes_max,
            in_flight_bytes_max = ingest.in_flight_bytes_max,
            "one packet can take more than half of the memory for packets, and all others wait \
             meanwhile: lower ingest.packet_bytes_max, or raise ingest.in_flight_bytes_max"
        );
    }
}

/// Says in the log who could do harm from other machines.
fn warn_of_exposure(address: SocketAddr, is_closed: bool, is_encrypted: bool) {
    if address.ip().to_canonical().is_loopback() {
        return;
    }
    if !is_closed {
        tracing::warn!(
            %address,
            "there are no tokens, so there is no authentication: everyone who reaches this address \
             can read and delete everything"
        );
    } else if !is_encrypted {
        tracing::warn!(
            %address,
            "tokens and traces cross the network in the clear: set [tls], or use a proxy that \
             encrypts"
        );
    }
}

/// What requests pass through: on the port for everything, and on those for spans.
fn gates(app: &Arc<AppState>, metrics: &Arc<Metrics>, http: &HttpConfig) -> (Arc<Gate>, Arc<Gate>) {
    let gate = |router| {
        let (metrics, tracer) = (Arc::clone(metrics), Arc::clone(app.engine.tracer()));
        let proxy = Proxy::new(&app.config.access);
        Arc::new(Gate::new(router, metrics, tracer, (http, proxy)))
    };
    (
        gate(router(Arc::clone(app))),
        gate(otlp_router(Arc::clone(app))),
    )
}

/// The listeners of a server.
struct Ports {
    http: TcpListener,
    otlp_grpc: Option<TcpListener>,
    otlp_http: Option<TcpListener>,
}

impl Ports {
    fn open(config: &Config) -> Result<Self, AppError> {
        let http = listen(config.http.listen)?;
        let address = http.local_addr()?;
        Ok(Self {
            http,
            otlp_grpc: listen_beside(address, config.otlp.grpc_listen)?,
            otlp_http: listen_beside(address, config.otlp.http_listen)?,
        })
    }

    fn addresses(&self) -> io::Result<Addresses> {
        let of = |listener: &Option<TcpListener>| {
            let address = listener.as_ref().map(TcpListener::local_addr);
            address.transpose()
        };
        Ok(Addresses {
            http: self.http.local_addr()?,
            otlp_grpc: of(&self.otlp_grpc)?,
            otlp_http: of(&self.otlp_http)?,
        })
    }

    fn doors(self, gate: &Arc<Gate>, otlp_gate: &Arc<Gate>) -> Vec<Door> {
        let door = |gate: &Arc<Gate>, listener, port| Door {
            listener,
            gate: Arc::clone(gate),
            port,
        };
        let otlp = [self.otlp_grpc, self.otlp_http].into_iter().flatten();
        otlp.map(|listener| door(otlp_gate, listener, Port::Otlp))
            .chain([door(gate, self.http, Port::Main)])
            .collect()
    }
}

/// Listens with a backlog for bursts of connections. SO_REUSEADDR allows a restart on a port with
/// closed connections; a port that another server uses is an error.
fn listen(address: SocketAddr) -> Result<TcpListener, AppError> {
    let failed = |source| AppError::Listen { address, source };
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
    }
    .map_err(failed)?;
    socket.set_reuseaddr(true).map_err(failed)?;
    socket.bind(address).map_err(failed)?;
    socket.listen(1024).map_err(failed)
}

/// Listens on a port of OTLP. Without one of its own, a server takes what is free: another program
/// that receives spans may have the port, and everything else works without it.
fn listen_beside(address: SocketAddr, wanted: OtlpListen) -> Result<Option<TcpListener>, AppError> {
    let Some(otlp) = wanted.beside(address.ip()) else {
        return Ok(None);
    };
    match (listen(otlp), wanted) {
        (Err(AppError::Listen { source, .. }), OtlpListen::Port(_))
            if source.kind() == io::ErrorKind::AddrInUse =>
        {
            tracing::warn!(
                address = %otlp,
                "another program listens on this port of OpenTelemetry; the server runs without \
                 it. Set otlp.grpc_listen or otlp.http_listen to another port, to off, or to an \
                 address that must be available"
            );
            Ok(None)
        }
        (listener, _) => listener.map(Some),
    }
}

/// Advances the stage with every termination signal.
fn forward_signals(stage: watch::Sender<Stage>) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        loop {
            tokio::select! {
                Some(()) = terminate.recv() => {}
                Some(()) = interrupt.recv() => {}
                else => return,
            }
            let next = match *stage.borrow() {
                Stage::Running => Stage::Draining,
                Stage::Draining | Stage::Now => Stage::Now,
            };
            tracing::info!(stage = ?next, "received a termination signal");
            stage.send_replace(next);
        }
    })
}
