//! Connections that speak HTTP/2, over TLS or without.
//!
//! hyper and h2 bound what a connection holds: streams, header fields, bytes that no request has
//! read. This adds the limits that HTTP/1 has: a connection without a request is closed after
//! `http.keep_alive_seconds`, and a response that its client does not take for
//! `http.write_stall_seconds` is ended. Only its stream is reset: behind a proxy, the others are of
//! other clients. A connection that takes no bytes at all is closed (`stream`).

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
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
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::registry::{Activity, Answering};
use super::stream::GuardedStream;
use crate::config::HttpConfig;
use crate::gate::{Flaw, Gate};
use crate::ingest::ConnectionShare;

/// How often a connection is examined.
const EXAMINED_EVERY: Duration = Duration::from_secs(1);
/// Time for what is in transit on a connection that is to be closed and has sent every response.
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
/// Bytes of a response that are handed over at once: those of one frame, as h2 makes them.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// Serves the requests of `stream` until its client leaves, a limit is exceeded, or `closing` and
/// the requests in flight have completed. All requests have `flaw`, if there is one.
pub(super) async fn serve(
    stream: GuardedStream,
    (gate, http): (&Arc<Gate>, &HttpConfig),
    (flaw, peer): (Option<Flaw>, IpAddr),
    activity: Arc<Activity>,
    closing: impl Future<Output = ()>,
) {
    let streams = Arc::new(Streams::default());
    let share = Arc::new(ConnectionShare::default());
    let service = service_fn(|mut request: hyper::Request<_>| {
        request.extensions_mut().insert(Arc::clone(&share));
        let stream = Stream::begin(&streams, &activity);
        let (gate, activity) = (Arc::clone(gate), Arc::clone(&activity));
        async move {
            stream.ended_by(END.try_with(Arc::clone).ok());
            let mut response = gate.pass(request, (flaw, peer)).await;
            // HTTP/2 has no such field; a request cannot leave the connection in doubt.
            response.headers_mut().remove(header::CONNECTION);
            if flaw.is_some() {
                activity.request_close();
            }
            Ok::<_, Infallible>(response.map(|inner| StreamBody::new(inner, stream)))
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
                streams.end_stalled(http.write_stall());
                // h2 may have the end of a response, which hyper is done with.
                let (wait, wait_max) = if activity.has_unsent_responses() {
                    (http.write_stall(), http.write_stall().max(http.header_read()))
                } else {
                    (CLOSING_WAIT, http.header_read())
                };
                match closing_since {
                    None if streams.is_idle(http.keep_alive()) => activity.request_close(),
                    // Only what the client has yet to send or to take is missing.
                    Some(since)
                        if since.elapsed() >= wait
                            && streams.is_idle(wait)
                            && activity.is_quiet(wait) =>
                    {
                        return;
                    }
                    // The client need not answer the end of the connection.
                    Some(since) if since.elapsed() > wait_max && streams.is_idle(wait_max) => {
                        return;
                    }
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

tokio::task_local! {
    /// Ends the task of the current request: h2 resets a stream that is dropped.
    static END: Arc<Notify>;
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
        let end = Arc::new(Notify::new());
        let ended = Arc::clone(&end);
        tasks.spawn(END.scope(end, async move {
            tokio::select! {
                biased;
                () = ended.notified() => {}
                () = request => {}
            }
        }));
    }
}

/// The requests of a connection whose responses are not complete.
#[derive(Debug)]
struct Streams(Mutex<OpenStreams>);

#[derive(Debug)]
struct OpenStreams {
    next: u64,
    open: HashMap<u64, OpenStream>,
    idle_since: Instant,
}

#[derive(Debug, Default)]
struct OpenStream {
    /// Since when bytes of its response wait for the client.
    waiting: Option<Instant>,
    end: Option<Arc<Notify>>,
}

impl Default for Streams {
    fn default() -> Self {
        Self(Mutex::new(OpenStreams {
            next: 0,
            open: HashMap::new(),
            idle_since: Instant::now(),
        }))
    }
}

impl Streams {
    /// Ends the responses of which the client has taken no bytes for this long.
    fn end_stalled(&self, limit: Duration) {
        for stream in self.0.lock().open.values_mut() {
            if stream.waiting.is_some_and(|since| since.elapsed() > limit) {
                tracing::debug!("the client does not take a response; its stream is reset");
                stream.waiting = None;
                if let Some(end) = &stream.end {
                    end.notify_one();
                }
            }
        }
    }

    /// Whether there has been no request yet.
    fn are_unused(&self) -> bool {
        self.0.lock().next == 0
    }

    /// Whether there has been no request for this long.
    fn is_idle(&self, limit: Duration) -> bool {
        let streams = self.0.lock();
        streams.open.is_empty() && streams.idle_since.elapsed() > limit
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
        open.open.insert(id, OpenStream::default());
        Self {
            streams: Arc::clone(streams),
            id,
            _answering: activity.answering(),
        }
    }

    fn ended_by(&self, end: Option<Arc<Notify>>) {
        if let Some(stream) = self.streams.0.lock().open.get_mut(&self.id) {
            stream.end = end;
        }
    }

    fn wait(&self, since: Option<Instant>) {
        if let Some(stream) = self.streams.0.lock().open.get_mut(&self.id) {
            stream.waiting = since;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        open.open.remove(&self.id);
        open.idle_since = Instant::now();
    }
}

/// The body of a response. hyper asks for the next bytes when the client has room for them, so
/// small pieces show that a slow client takes some.
struct StreamBody {
    inner: Body,
    /// Bytes that `inner` gave and hyper does not have yet.
    rest: Bytes,
    stream: Stream,
}

impl StreamBody {
    fn new(inner: Body, stream: Stream) -> Self {
        Self {
            inner,
            rest: Bytes::new(),
            stream,
        }
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = match http_body::Body::poll_frame(Pin::new(&mut self.inner), cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => return other,
            };
            match frame.into_data() {
                Ok(bytes) => self.rest = bytes,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = self.poll_piece(cx);
        let is_handed_over = matches!(polled, Poll::Ready(Some(Ok(_))));
        self.stream.wait(is_handed_over.then(Instant::now));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}
