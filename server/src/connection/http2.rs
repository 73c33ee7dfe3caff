//! Connections that speak HTTP/2, over TLS or without.
//!
//! hyper and h2 bound what a connection holds: streams, header fields, bytes that no request has
//! read. This adds the limits that HTTP/1 has: a connection without a request is closed after
//! `http.keep_alive_seconds`, and one whose client does not take a response for
//! `http.write_stall_seconds`, even if it sends frames meanwhile.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::header;
use http_body::{Frame, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::registry::{Activity, Answering};
use super::stream::GuardedStream;
use crate::config::HttpConfig;
use crate::gate::{Flaw, Gate};

/// How often a connection is examined.
const EXAMINED_EVERY: Duration = Duration::from_secs(1);
/// Time for what is in transit on a connection that is to be closed and has no request.
const CLOSING_WAIT: Duration = Duration::from_secs(1);
/// Time between pings of the server, and for the answer: a peer that is gone is noticed.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WAIT: Duration = Duration::from_secs(20);
/// Streams that a client ended before they were accepted, and that it broke, before its connection
/// is closed.
const PENDING_RESETS_MAX: usize = 20;
const BROKEN_STREAMS_MAX: usize = 64;
/// Bytes that a response may have in the memory of its stream.
const SEND_BYTES_MAX: usize = 256 << 10;

/// Serves the requests of `stream` until its client leaves, a limit is exceeded, or `closing` and
/// the requests in flight have completed. All requests have `flaw`, if there is one.
pub(super) async fn serve(
    stream: GuardedStream,
    (gate, http): (&Arc<Gate>, &HttpConfig),
    flaw: Option<Flaw>,
    activity: Arc<Activity>,
    closing: impl Future<Output = ()>,
) {
    let streams = Arc::new(Streams::default());
    let service = service_fn(|request: hyper::Request<_>| {
        let stream = Stream::begin(&streams, &activity);
        let (gate, activity) = (Arc::clone(gate), Arc::clone(&activity));
        async move {
            let mut response = gate.pass(request, flaw).await;
            // HTTP/2 has no such field; a request cannot leave the connection in doubt.
            response.headers_mut().remove(header::CONNECTION);
            if flaw.is_some() {
                activity.request_close();
            }
            Ok::<_, Infallible>(response.map(|inner| StreamBody { inner, stream }))
        }
    });
    let serving = builder(http).serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let mut closing = pin!(closing);
    let mut closing_since = None;
    let outcome = loop {
        tokio::select! {
            outcome = serving.as_mut() => break outcome,
            () = closing.as_mut(), if closing_since.is_none() => {
                if streams.are_unused() {
                    // No request was received, so there is no response to wait for.
                    return;
                }
                closing_since = Some(Instant::now());
                serving.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(EXAMINED_EVERY) => {
                if streams.is_stalled(http.write_stall()) {
                    tracing::debug!("the client does not take a response; closing its connection");
                    return;
                }
                match closing_since {
                    None if streams.is_idle(http.keep_alive()) => activity.request_close(),
                    // Only what the client has yet to send or to take is missing.
                    // The client need not answer the end of the connection.
                    Some(since) if since.elapsed() >= CLOSING_WAIT
                        && streams.is_idle(CLOSING_WAIT)
                        && activity.is_quiet(CLOSING_WAIT) => return,
                    Some(since) if since.elapsed() > http.header_read()
                        && streams.is_idle(http.header_read()) => return,
                    _ => {}
                }
            }
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "the connection ended with an error");
    }
}

fn builder(http: &HttpConfig) -> http2::Builder<Tasks> {
    let mut builder = http2::Builder::new(Tasks::default());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(http.streams_max)
        .max_header_list_size(http.header_bytes_max)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(BROKEN_STREAMS_MAX)
        .max_send_buf_size(SEND_BYTES_MAX)
        // A request that waits does not keep the others of its connection from arriving.
        .initial_stream_window_size(http.receive_window_bytes / 2)
        .initial_connection_window_size(http.receive_window_bytes)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WAIT);
    builder
}

/// The tasks of the requests of a connection; they end with it.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F> Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(request);
    }
}

/// The requests of a connection whose responses are not complete.
#[derive(Debug)]
struct Streams(Mutex<OpenStreams>);

#[derive(Debug)]
struct OpenStreams {
    next: u64,
    /// By stream: since when bytes of its response wait for the client.
    waiting: HashMap<u64, Option<Instant>>,
    idle_since: Instant,
}

impl Default for Streams {
    fn default() -> Self {
        Self(Mutex::new(OpenStreams {
            next: 0,
            waiting: HashMap::new(),
            idle_since: Instant::now(),
        }))
    }
}

impl Streams {
    /// Whether a client has not taken bytes of a response for this long.
    fn is_stalled(&self, limit: Duration) -> bool {
        let streams = self.0.lock();
        let mut waiting = streams.waiting.values().flatten();
        waiting.any(|since| since.elapsed() > limit)
    }

    /// Whether there has been no request yet.
    fn are_unused(&self) -> bool {
        self.0.lock().next == 0
    }

    /// Whether there has been no request for this long.
    fn is_idle(&self, limit: Duration) -> bool {
        let streams = self.0.lock();
        streams.waiting.is_empty() && streams.idle_since.elapsed() > limit
    }
}

/// One request until the end of its response.
struct Stream {
    streams: Arc<Streams>,
    id: u64,
    _answering: Answering,
}

impl Stream {
    fn begin(streams: &Arc<Streams>, activity: &Arc<Activity>) -> Self {
        let mut open = streams.0.lock();
        let id = open.next;
        open.next += 1;
        open.waiting.insert(id, None);
        Self {
            streams: Arc::clone(streams),
            id,
            _answering: activity.answering(),
        }
    }

    fn wait(&self, since: Option<Instant>) {
        self.streams.0.lock().waiting.insert(self.id, since);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        open.waiting.remove(&self.id);
        open.idle_since = Instant::now();
    }
}

/// The body of a response. hyper asks for the next bytes when the client has room for them.
struct StreamBody {
    inner: Body,
    stream: Stream,
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let is_handed_over = matches!(polled, Poll::Ready(Some(Ok(_))));
        self.stream.wait(is_handed_over.then(Instant::now));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
