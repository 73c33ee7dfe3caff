//! A TCP connection with the limits that hyper does not enforce.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::framing::{AmbiguityFlag, Framing};
use super::registry::Activity;
use crate::range::{SendQueue, is_stand_in};

/// How long, and how many bytes, to read from a client that still sends after the response that
/// closes the connection. Closing at once would make the kernel send a reset, which can destroy the
/// response before the client has read it.
const LINGER: Duration = Duration::from_secs(10);
const LINGER_BYTES_MAX: usize = 2 << 30;

/// How long a connection waits for its client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For the rest of a head, and for the first byte of the connection.
    pub(super) head: Duration,
    /// For the client to read anything of a response.
    pub(super) write_stall: Duration,
}

/// A connection that inspects its framing, drops a client that sends its head too slowly or reads
/// nothing, and lingers when it is closed.
pub(super) struct GuardedStream {
    inner: TcpStream,
    framing: Framing,
    flag: Arc<AmbiguityFlag>,
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
        inner: TcpStream,
        flag: Arc<AmbiguityFlag>,
        files: Arc<SendQueue>,
        limits: Limits,
        activity: Arc<Activity>,
    ) -> Self {
        Self {
            inner,
            framing: Framing::default(),
            flag,
            files,
            activity,
            limits,
            stall: Timer::default(),
            head: Timer::default(),
            linger: None,
        }
    }

    /// Sends the first of `slices`, or the leading ones of the same source: memory, or a file.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stand_in = slices.iter().position(|slice| is_stand_in(slice));
        match stand_in {
            None => return Pin::new(&mut self.inner).poll_write_vectored(cx, slices),
            Some(0) => {}
            // The head of a response waits for the file bytes that follow, so that they are
            // sent together.
            Some(count) => {
                return self.poll_call(cx, |this| {
                    let mut control = SendAncillaryBuffer::default();
                    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
                    Ok(sendmsg(&this.inner, &slices[..count], &mut control, flags)?)
                });
            }
        }
        self.poll_call(cx, |this| this.files.send(&this.inner, &slices[0]))
    }

    /// Retries a non-blocking call until the socket accepts it.
    fn poll_call(
        &mut self,
        cx: &mut Context<'_>,
        call: impl Fn(&Self) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.inner.poll_write_ready(cx))?;
            match self.inner.try_io(Interest::WRITABLE, || call(self)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return Poll::Ready(outcome),
            }
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

    /// Limits the time for a head that has begun, whose rest has not arrived.
    fn guard_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.framing.awaits_head() {
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
            let read = ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buffer));
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
        let Poll::Ready(read) = Pin::new(&mut this.inner).poll_read(cx, buffer) else {
            return this.guard_head(cx);
        };
        this.activity.touch();
        this.framing.observe(
            buffer.filled().get(before..).unwrap_or_default(),
            &this.flag,
        );
        if !this.framing.awaits_head() {
            this.head.stop();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = self.poll_send(cx, &[IoSlice::new(bytes)]);
        self.guard_write(outcome, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = self.poll_send(cx, slices);
        self.guard_write(outcome, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
            if !self.framing.is_within_request() {
                return Poll::Ready(Ok(()));
            }
            self.stall.stop();
            self.linger = Some(Linger {
                scratch: vec![0; 16 << 10].into(),
                left: LINGER_BYTES_MAX,
            });
        }
        ready!(self.poll_linger(cx));
        Poll::Ready(Ok(()))
    }
}
