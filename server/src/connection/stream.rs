//! A connection with the limits that hyper does not enforce.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::frames::{Flood, Frames, PREFACE};
use super::framing::{AmbiguityFlag, Framing};
use super::registry::Activity;
use super::transport::Transport;
use crate::range::SendQueue;

/// How long, and how many bytes, to read from a client that still sends after the response that
/// closes the connection. Closing at once would make the kernel send a reset, which can destroy the
/// response before the client has read it.
const LINGER: Duration = Duration::from_secs(10);
const LINGER_BYTES_MAX: usize = 2 << 30;
/// The same on HTTP/2: what the client could send before it knew, with its other frames.
const LINGER_BYTES_MAX_HTTP2: usize = 1 << 20;

/// How long a connection waits for its client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For the rest of a head, and for the first byte of the connection.
    pub(super) head: Duration,
    /// For the client to read anything of a response.
    pub(super) write_stall: Duration,
}

/// The version of HTTP that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    Http1,
    Http2,
}

/// The inspection of what the client sends.
enum Inspection {
    Http1(Framing, Arc<AmbiguityFlag>),
    Http2(Frames),
}

impl Inspection {
    fn awaits_head(&self) -> bool {
        match self {
            Self::Http1(framing, _) => framing.awaits_head(),
            Self::Http2(frames) => frames.awaits_head(),
        }
    }

    fn is_within_request(&self) -> bool {
        match self {
            Self::Http1(framing, _) => framing.is_within_request(),
            Self::Http2(frames) => frames.is_within_request(),
        }
    }

    fn linger_bytes_max(&self) -> usize {
        match self {
            Self::Http1(..) => LINGER_BYTES_MAX,
            Self::Http2(_) => LINGER_BYTES_MAX_HTTP2,
        }
    }

    fn observe(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Http1(framing, flag) => {
                framing.observe(bytes, flag);
                Ok(())
            }
            Self::Http2(frames) => frames
                .observe(bytes, std::time::Instant::now())
                .map_err(|Flood(what)| io::Error::other(format!("a flood of {what}"))),
        }
    }

    /// The first `count` bytes of `slices` were sent.
    fn sent(&mut self, slices: &[IoSlice<'_>], count: usize) {
        let Self::Http2(frames) = self else {
            return;
        };
        let mut left = count;
        for slice in slices {
            let sent = slice.get(..left.min(slice.len())).unwrap_or_default();
            frames.sent(sent);
            left -= sent.len();
        }
    }

    /// The number of responses of which something is not sent, on HTTP/2.
    fn unsent_responses(&self) -> usize {
        match self {
            Self::Http1(..) => 0,
            Self::Http2(frames) => frames.unsent_responses(),
        }
    }
}

/// A connection that inspects its framing, drops a client that sends its head too slowly or reads
/// nothing, and lingers when it is closed.
pub(super) struct GuardedStream {
    inner: Transport,
    inspection: Inspection,
    /// The first bytes, which showed what the client speaks, until they are read.
    first: Vec<u8>,
    files: Arc<SendQueue>,
    activity: Arc<Activity>,
    limits: Limits,
    stall: Timer,
    head: Timer,
    linger: Option<Linger>,
}

/// A time limit that is set again and again.
#[derive(Default)]
struct Timer {
    /// Reused: a connection creates it at most once.
    sleep: Option<Pin<Box<Sleep>>>,
    is_running: bool,
}

impl Timer {
    fn stop(&mut self) {
        self.is_running = false;
    }

    /// Ready when `limit` has passed since the timer was started; starts it if it does not run.
    fn poll(&mut self, limit: Duration, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_running {
            let deadline = Instant::now() + limit;
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(deadline),
                None => self.sleep = Some(Box::pin(sleep_until(deadline))),
            }
            self.is_running = true;
        }
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

struct Linger {
    scratch: Box<[u8]>,
    left: usize,
}

impl GuardedStream {
    pub(super) fn new(
        inner: Transport,
        flag: Arc<AmbiguityFlag>,
        files: Arc<SendQueue>,
        limits: Limits,
        activity: Arc<Activity>,
    ) -> Self {
        Self {
            inner,
            inspection: Inspection::Http1(Framing::default(), flag),
            first: Vec::new(),
            files,
            activity,
            limits,
            stall: Timer::default(),
            head: Timer::default(),
            linger: None,
        }
    }

    /// Whether the client has sent bytes that nobody has looked at.
    pub(super) fn has_unread(&self) -> bool {
        !self.first.is_empty() || self.inner.has_unread()
    }

    /// What the client speaks: reads its first bytes, as many as show whether they are the preface
    /// of HTTP/2.
    pub(super) async fn spoken(&mut self) -> io::Result<Spoken> {
        let spoken = poll_fn(|cx| self.poll_spoken(cx)).await?;
        if spoken == Spoken::Http2 {
            self.inspection = Inspection::Http2(Frames::new(std::time::Instant::now()));
        }
        Ok(spoken)
    }

    fn poll_spoken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Spoken>> {
        loop {
            if !PREFACE.starts_with(&self.first) {
                return Poll::Ready(Ok(Spoken::Http1));
            }
            if self.first.len() == PREFACE.len() {
                return Poll::Ready(Ok(Spoken::Http2));
            }
            let mut space = [0; PREFACE.len()];
            let mut buffer = ReadBuf::new(&mut space[self.first.len()..]);
            let bytes_max = buffer.remaining();
            let Poll::Ready(read) = self.inner.poll_read(cx, &mut buffer, bytes_max) else {
                return self.guard_head(cx).map_ok(|()| Spoken::Http1);
            };
            read?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(Spoken::Http1));
            }
            self.first.extend_from_slice(buffer.filled());
        }
    }

    fn guard_write<T>(
        &mut self,
        outcome: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.activity.touch();
            self.stall.stop();
            return outcome;
        }
        ready!(self.stall.poll(self.limits.write_stall, cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client stopped reading",
        )))
    }

    /// Limits the time for the client to take what TLS has buffered, at most 64 KiB. Without a
    /// buffer this is ready at once and says nothing about the client.
    fn guard_buffered(
        &mut self,
        outcome: Poll<io::Result<()>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match outcome {
            Poll::Ready(_) => {
                if self.inner.is_encrypted() {
                    self.stall.stop();
                }
                outcome
            }
            Poll::Pending => self.guard_write(outcome, cx),
        }
    }

    /// Limits the time for a head that has begun, whose rest has not arrived.
    fn guard_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.inspection.awaits_head() {
            return Poll::Pending;
        }
        ready!(self.head.poll(self.limits.head, cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client did not finish the head of its request",
        )))
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.stall.poll(LINGER, cx).is_ready() {
                return Poll::Ready(());
            }
            let Some(linger) = &mut self.linger else {
                return Poll::Ready(());
            };
            let mut buffer = ReadBuf::new(&mut linger.scratch);
            let read = ready!(self.inner.poll_drain(cx, &mut buffer));
            let taken = buffer.filled().len();
            linger.left = linger.left.saturating_sub(taken);
            if read.is_err() || taken == 0 || linger.left == 0 {
                return Poll::Ready(());
            }
        }
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        if this.first.is_empty() {
            let bytes_max = this.activity.read_bytes_max();
            let Poll::Ready(read) = this.inner.poll_read(cx, buffer, bytes_max) else {
                return this.guard_head(cx);
            };
            read?;
        } else {
            let count = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..count]);
            this.first.drain(..count);
        }
        let read = buffer.filled().get(before..).unwrap_or_default();
        this.inspection.observe(read)?;
        let unsent = this.inspection.unsent_responses();
        this.activity.set_unsent_responses(unsent);
        this.activity.received(this.inspection.is_within_request());
        if !this.inspection.awaits_head() {
            this.head.stop();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let outcome = this.inner.poll_send(cx, slices, &this.files);
        if let Poll::Ready(Ok(sent)) = outcome {
            this.inspection.sent(slices, sent);
            let unsent = this.inspection.unsent_responses();
            this.activity.set_unsent_responses(unsent);
        }
        this.guard_write(outcome, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = self.inner.poll_flush(cx);
        self.guard_buffered(outcome, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            let outcome = self.inner.poll_shutdown(cx);
            ready!(self.guard_buffered(outcome, cx))?;
            if !self.inspection.is_within_request() {
                return Poll::Ready(Ok(()));
            }
            self.stall.stop();
            self.activity.lingers();
            self.linger = Some(Linger {
                scratch: vec![0; 16 << 10].into(),
                left: self.inspection.linger_bytes_max(),
            });
        }
        ready!(self.poll_linger(cx));
        Poll::Ready(Ok(()))
    }
}
