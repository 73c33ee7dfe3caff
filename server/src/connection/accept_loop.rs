//! The accept loop: limits the number of connections and shuts them down.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{self, JoinError, JoinSet};

use super::framing::AmbiguityFlag;
use super::http2;
use super::readers::{READ_BYTES_MAX, Readers};
use super::registry::{Activity, Admission, InUse, Registry};
use super::stream::{GuardedStream, Limits, Spoken};
use super::transport::Transport;
use crate::config::HttpConfig;
use crate::gate::{Flaw, Gate};
use crate::ingest::ConnectionShare;
use crate::metrics::{Metrics, Port};
use crate::range::SendQueue;
use crate::tls::Tls;

/// Shortest and longest pause after the process ran out of file descriptors or memory.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How long a client of the reserve may take to send the head of a request: its places are for
/// those that ask for health, not for those that begin a head and stop.
const RESERVE_HEAD: Duration = Duration::from_secs(1);

/// Pause before the next search for an idle connection when no further one can be opened.
const FULL_PAUSE: Duration = Duration::from_millis(20);
/// The shortage of connections is logged at most this often.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

/// How far the shutdown of the server has progressed; it only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Serving requests.
    Running,
    /// No new connections; requests in flight finish.
    Draining,
    /// Requests still in flight are aborted.
    Now,
}

/// A port, and what its requests pass through.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) gate: Arc<Gate>,
    pub(crate) port: Port,
}

/// Accepts the next connection of any door, beginning with the one at `turn`.
async fn accept(doors: &[Door], turn: usize) -> io::Result<(TcpStream, SocketAddr, &Door)> {
    poll_fn(|cx| {
        for at in 0..doors.len() {
            let Some(door) = doors.get((turn + at) % doors.len()) else {
                continue;
            };
            if let Poll::Ready(accepted) = door.listener.poll_accept(cx) {
                return Poll::Ready(accepted.map(|(stream, peer)| (stream, peer, door)));
            }
        }
        Poll::Pending
    })
    .await
}

/// Serves connections until `stage` leaves `Running`, then shuts them down: each after its current
/// response, all of them after `http.drain_seconds` or at `Stage::Now`. This call owns the tasks of
/// all connections.
pub(crate) async fn serve(
    doors: Vec<Door>,
    metrics: Arc<Metrics>,
    (http, tls): (&HttpConfig, Option<Arc<Tls>>),
    mut stage: watch::Receiver<Stage>,
) {
    let mut open = OpenConnections::new(metrics, (http, tls), stage.clone());
    let mut backoff = BACKOFF_MIN;
    for turn in (0..doors.len()).cycle() {
        let accepted = tokio::select! {
            biased;
            () = reached(&mut stage, Stage::Draining) => break,
            Some(ended) = open.tasks.join_next_with_id() => {
                open.ended(ended);
                continue;
            }
            accepted = accept(&doors, turn) => accepted,
        };
        match accepted {
            Ok((stream, peer, door)) => {
                backoff = BACKOFF_MIN;
                tokio::select! {
                    () = reached(&mut stage, Stage::Draining) => break,
                    () = open.add(stream, peer.ip().to_canonical(), door) => {}
                }
            }
            Err(error) if is_exhaustion(&error) => {
                open.metrics.connections.refused();
                open.close_idle();
                tracing::warn!(
                    %error,
                    "cannot accept a connection: out of file descriptors or memory; retrying; \
                     raise the limit of open files or lower http.connections_max"
                );
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
            // The client disconnected before it was accepted.
            Err(error) => tracing::debug!(%error, "a client disconnected before it was accepted"),
        }
    }
    drop(doors);
    let mut connections = open.tasks;
    let ended = async { while connections.join_next().await.is_some() {} };
    tokio::select! {
        () = ended => {}
        () = tokio::time::sleep(http.drain()) => {
            tracing::warn!("aborting requests that did not finish within http.drain_seconds");
        }
        () = reached(&mut stage, Stage::Now) => {}
    }
    connections.shutdown().await;
}

/// What serves a connection; the same for all of them.
#[derive(Clone)]
struct Doorway {
    builder: http1::Builder,
    http: Arc<HttpConfig>,
    limits: Limits,
    tls: Option<Arc<Tls>>,
}

impl Doorway {
    fn limits_with(&self, flaw: Option<Flaw>) -> Limits {
        let head = match flaw {
            Some(Flaw::NoConnection) => self.limits.head.min(RESERVE_HEAD),
            _ => self.limits.head,
        };
        Limits {
            head,
            ..self.limits
        }
    }
}

/// The tasks of the open connections.
struct OpenConnections {
    metrics: Arc<Metrics>,
    doorway: Doorway,
    stage: watch::Receiver<Stage>,
    tasks: JoinSet<()>,
    registry: Registry<task::Id>,
    readers: Readers,
    warned: Option<Instant>,
}

impl OpenConnections {
    fn new(
        metrics: Arc<Metrics>,
        (http, tls): (&HttpConfig, Option<Arc<Tls>>),
        stage: watch::Receiver<Stage>,
    ) -> Self {
        let count = |setting: u32| usize::try_from(setting).unwrap_or(usize::MAX);
        Self {
            metrics,
            doorway: Doorway {
                builder: protocol(http),
                http: Arc::new(http.clone()),
                limits: Limits {
                    head: http.header_read(),
                    write_stall: http.write_stall(),
                },
                tls,
            },
            stage,
            tasks: JoinSet::new(),
            registry: Registry::new(
                count(http.connections_max),
                count(http.connections_per_peer_max),
            ),
            readers: Readers::default(),
            warned: None,
        }
    }

    /// Serves a new connection once there is room for it.
    async fn add(&mut self, stream: TcpStream, peer: IpAddr, door: &Door) {
        let admission = loop {
            let (admission, has_closed) = self.registry.admit(peer);
            if has_closed {
                self.metrics.connections.idle_closed();
            }
            if admission != Admission::Any {
                self.warn_of_shortage();
            }
            if admission != Admission::Full {
                break admission;
            }
            tokio::select! {
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                () = tokio::time::sleep(FULL_PAUSE) => {}
            }
        };
        let gauges = self.metrics.connections.states(door.port);
        let activity = Arc::new(Activity::new(gauges, self.readers.clone()));
        let connection = connection(
            stream,
            (self.doorway.clone(), Arc::clone(&door.gate)),
            (
                (admission == Admission::HealthOnly).then_some(Flaw::NoConnection),
                peer,
            ),
            Arc::clone(&activity),
            self.stage.clone(),
        );
        let of_task = Arc::clone(&activity);
        let task = async move {
            tokio::select! {
                () = connection => {}
                () = of_task.dropping() => {}
            }
        };
        let id = self.tasks.spawn(task).id();
        self.registry.opened(id, peer, activity);
    }

    /// Closes the connection that is idle longest, whose descriptor another one needs.
    fn close_idle(&mut self) {
        if self.registry.close_idle() {
            self.metrics.connections.idle_closed();
        }
    }

    fn ended(&mut self, ended: Result<(task::Id, ()), JoinError>) {
        self.registry.ended(match ended {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        });
    }

    fn warn_of_shortage(&mut self) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARNING_PAUSE) {
            self.warned = Some(Instant::now());
            tracing::warn!(
                "all connections are in use: requests on new ones get 503, except for health and \
                 metrics; raise http.connections_max or http.connections_per_peer_max"
            );
        }
    }
}

/// Completes when the shutdown reaches `wanted`. If the sender is gone, the server is stopping,
/// too.
async fn reached(stage: &mut watch::Receiver<Stage>, wanted: Stage) {
    drop(stage.wait_for(|stage| *stage >= wanted).await);
}

fn protocol(http: &HttpConfig) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let header_bytes = usize::try_from(http.header_bytes_max).unwrap_or(usize::MAX);
    builder
        .timer(TokioTimer::new())
        // From the end of a response to the next complete head. `GuardedStream` limits the time
        // for a head that has begun.
        .header_read_timeout(http.keep_alive().max(http.header_read()))
        .max_headers(usize::try_from(http.header_count_max).unwrap_or(usize::MAX))
        .max_header_size(header_bytes)
        .max_buf_size(header_bytes.max(READ_BYTES_MAX))
        .writev(true);
    builder
}

/// Out of descriptors or kernel memory: a retry helps after a pause, not at once.
fn is_exhaustion(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

/// Serves one connection. All its requests have `flaw`, if there is one.
async fn connection(
    stream: TcpStream,
    (doorway, gate): (Doorway, Arc<Gate>),
    (flaw, peer): (Option<Flaw>, IpAddr),
    activity: Arc<Activity>,
    mut stage: watch::Receiver<Stage>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the client disconnected at once");
        return;
    }
    let connections = &gate.metrics().connections;
    let _open = connections.opened();
    let transport = match &doorway.tls {
        None => Transport::Plain(stream),
        Some(tls) => {
            let handshake = tokio::time::timeout(doorway.limits.head, tls.accept(stream));
            let shaken = tokio::select! {
                shaken = handshake => match shaken {
                    Ok(shaken) => shaken,
                    Err(_) => Err(io::ErrorKind::TimedOut.into()),
                },
                () = to_be_closed(&mut stage, &activity) => return,
            };
            match shaken {
                Ok(stream) => Transport::Tls(Box::new(stream)),
                Err(error) => {
                    connections.handshake_failed();
                    tracing::debug!(%error, "the TLS handshake failed");
                    return;
                }
            }
        }
    };
    let flag = Arc::new(AmbiguityFlag::default());
    let files = Arc::new(SendQueue::default());
    // The kernel sends file bytes as they are.
    let queue = (!transport.is_encrypted()).then(|| Arc::clone(&files));
    let (watched, limits) = (Arc::clone(&flag), doorway.limits_with(flaw));
    let mut stream = GuardedStream::new(transport, watched, files, limits, Arc::clone(&activity));
    let spoken = tokio::select! {
        spoken = stream.spoken() => spoken,
        () = to_be_closed(&mut stage, &activity) => {
            // Without a request there is no response to wait for.
            if !stream.has_unread() {
                return;
            }
            // A client that asks for health while thousands of others connect gets its answer.
            activity.request_close();
            stream.spoken().await
        }
    };
    let closing = to_be_closed(&mut stage, &activity);
    match spoken {
        Ok(Spoken::Http1) => {
            let service = Http1Service {
                gate,
                flaw,
                peer,
                flag,
                queue,
                activity: Arc::clone(&activity),
            };
            serve_http1(stream, doorway.builder, service, closing).await;
        }
        Ok(Spoken::Http2) => {
            let with = (&gate, &*doorway.http);
            http2::serve(stream, with, (flaw, peer), Arc::clone(&activity), closing).await;
        }
        Err(error) => tracing::debug!(%error, "the connection ended before its first request"),
    }
}

/// What the requests of a connection that speaks HTTP/1 are answered with.
struct Http1Service {
    gate: Arc<Gate>,
    flaw: Option<Flaw>,
    peer: IpAddr,
    flag: Arc<AmbiguityFlag>,
    /// File bytes that the kernel sends.
    queue: Option<Arc<SendQueue>>,
    activity: Arc<Activity>,
}

/// Serves the requests of `stream` until its client leaves, or `closing` and the current request
/// has been answered.
async fn serve_http1(
    stream: GuardedStream,
    builder: http1::Builder,
    with: Http1Service,
    closing: impl Future<Output = ()>,
) {
    let requests = AtomicU64::new(0);
    let share = Arc::new(ConnectionShare::default());
    let service = service_fn(|mut request: hyper::Request<_>| {
        request.extensions_mut().insert(Arc::clone(&share));
        request.extensions_mut().insert(InUse::new(&with.activity));
        if let Some(queue) = &with.queue {
            request.extensions_mut().insert(Arc::clone(queue));
        }
        let index = requests.fetch_add(1, Ordering::Relaxed);
        let flaw = with.flag.is_ambiguous(index).then_some(Flaw::Ambiguous);
        let flaw = flaw.or(with.flaw);
        let peer = with.peer;
        let gate = Arc::clone(&with.gate);
        let activity = Arc::clone(&with.activity);
        async move {
            let _answering = activity.answering();
            Ok::<_, std::convert::Infallible>(gate.pass(request, (flaw, peer)).await)
        }
    });
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(serving);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = closing => {
            // What was received may not have been looked at.
            let looked = poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx))).await;
            match looked {
                Poll::Ready(outcome) => outcome,
                // Without a request there is no response to wait for.
                Poll::Pending if requests.load(Ordering::Relaxed) == 0 => return,
                Poll::Pending => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "the connection ended with an error");
    }
}

/// Completes when the connection is to be closed after its current response.
async fn to_be_closed(stage: &mut watch::Receiver<Stage>, activity: &Activity) {
    tokio::select! {
        () = reached(stage, Stage::Draining) => {}
        () = activity.closing() => {}
    }
}
