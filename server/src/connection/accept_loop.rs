//! The accept loop: limits the number of connections and shuts them down.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::framing::AmbiguityFlag;
use super::stream::GuardedStream;
use crate::config::HttpConfig;
use crate::gate::Gate;
use crate::range::SendQueue;

/// Shortest and longest pause after the process ran out of file descriptors or memory.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

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

/// Serves connections until `stage` leaves `Running`, then shuts them down: each after its current
/// response, all of them after `http.drain_seconds` or at `Stage::Now`. This call owns the tasks of
/// all connections.
pub(crate) async fn serve(
    listener: TcpListener,
    gate: Arc<Gate>,
    http: &HttpConfig,
    mut stage: watch::Receiver<Stage>,
) {
    let permits = Arc::new(Semaphore::new(
        usize::try_from(http.connections_max)
            .unwrap_or(usize::MAX)
            .min(Semaphore::MAX_PERMITS),
    ));
    let builder = protocol(http);
    let mut connections = JoinSet::new();
    let mut backoff = BACKOFF_MIN;
    loop {
        let accepted = tokio::select! {
            biased;
            () = reached(&mut stage, Stage::Draining) => break,
            Some(_) = connections.join_next() => continue,
            accepted = next_connection(&listener, &permits) => accepted,
        };
        match accepted {
            Ok((stream, permit)) => {
                backoff = BACKOFF_MIN;
                let connection = connection(
                    stream,
                    builder.clone(),
                    Arc::clone(&gate),
                    http.write_stall(),
                    stage.clone(),
                );
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(error) if is_exhaustion(&error) => {
                gate.metrics().connections_refused();
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
    drop(listener);
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
        .header_read_timeout(http.header_read())
        .max_headers(usize::try_from(http.header_count_max).unwrap_or(usize::MAX))
        .max_header_size(header_bytes)
        .max_buf_size(header_bytes.max(READ_BUFFER_BYTES_MAX))
        .writev(true);
    builder
}

/// Largest read of hyper from a connection; it grows up to this for clients that send as much.
const READ_BUFFER_BYTES_MAX: usize = 256 << 10;

async fn next_connection(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits)
        .acquire_owned()
        .await
        .map_err(|_| io::ErrorKind::BrokenPipe)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
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

async fn connection(
    stream: TcpStream,
    builder: http1::Builder,
    gate: Arc<Gate>,
    write_stall: Duration,
    mut stage: watch::Receiver<Stage>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the client disconnected at once");
        return;
    }
    let _open = gate.metrics().connection_opened();
    let flag = Arc::new(AmbiguityFlag::default());
    let files = Arc::new(SendQueue::default());
    let (watched, sent) = (Arc::clone(&flag), Arc::clone(&files));
    let stream = GuardedStream::new(stream, watched, sent, write_stall);
    let requests = AtomicU64::new(0);
    let service = service_fn(|mut request: hyper::Request<_>| {
        request.extensions_mut().insert(Arc::clone(&files));
        let index = requests.fetch_add(1, Ordering::Relaxed);
        let ambiguous = flag.is_ambiguous(index);
        let gate = Arc::clone(&gate);
        async move { Ok::<_, std::convert::Infallible>(gate.pass(request, ambiguous).await) }
    });
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = reached(&mut stage, Stage::Draining) => {
            if requests.load(Ordering::Relaxed) == 0 {
                // No request was received, so there is no response to wait for.
                return;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "the connection ended with an error");
    }
}
