//! Request bodies with a minimum rate.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The longest body that is read to its end although nobody wants it.
const UNWANTED_BYTES_MAX: u64 = 64 << 10;
/// How long the end of such a body is waited for.
const UNWANTED_WAIT: Duration = Duration::from_millis(200);

/// How slow a body may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyPace {
    /// Longest pause.
    pub(crate) idle: Duration,
    /// Minimum average rate, checked once `idle` has passed.
    pub(crate) bytes_per_second_min: u64,
}

/// A body that could not be read completely.
#[derive(Debug, Error)]
pub(crate) enum BodyError {
    /// The client was too slow.
    #[error("the body is too slow: nothing arrived within the limit after {received} bytes")]
    TooSlow {
        /// Bytes received.
        received: u64,
    },
    /// The connection was closed, or the framing of the body is invalid.
    #[error("the body ended after {received} bytes: {source}")]
    Broken {
        /// Bytes received.
        received: u64,
        /// The error of the connection.
        source: hyper::Error,
    },
}

/// What is left of a body when its reader has dropped it.
#[derive(Debug)]
pub(crate) struct RestOfBody<B> {
    is_read: AtomicBool,
    left: Mutex<Option<B>>,
}

impl<B> Default for RestOfBody<B> {
    fn default() -> Self {
        Self {
            is_read: AtomicBool::new(false),
            left: Mutex::new(None),
        }
    }
}

impl<B: Body + Unpin> RestOfBody<B> {
    /// Whether the end of the body has been read.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Reads the rest if it is short and there soon; whether it is read then.
    pub(crate) async fn read(&self) -> bool {
        if self.is_read() {
            return true;
        }
        let Some(mut body) = self.left.lock().take() else {
            return false;
        };
        let most = body.size_hint().upper();
        if most.is_none_or(|most| most > UNWANTED_BYTES_MAX) {
            return false;
        }
        let read = async {
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                if frame.is_err() {
                    return false;
                }
            }
            true
        };
        timeout(UNWANTED_WAIT, read).await.unwrap_or(false)
    }
}

/// A body whose rate is monitored. No timer is created while bytes keep arriving.
pub(crate) struct RequestBody<B> {
    /// There until it is dropped.
    inner: Option<B>,
    rest: Arc<RestOfBody<B>>,
    pace: BodyPace,
    started: Instant,
    received: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> RequestBody<B> {
    pub(crate) fn new(inner: B, pace: BodyPace, rest: Arc<RestOfBody<B>>) -> Self {
        Self {
            inner: Some(inner),
            rest,
            pace,
            started: Instant::now(),
            received: 0,
            timer: None,
        }
    }

    /// The time by which the next frame must arrive.
    fn deadline(&self) -> Instant {
        let earned = Duration::from_secs(self.received / self.pace.bytes_per_second_min.max(1));
        (Instant::now() + self.pace.idle).min(self.started + self.pace.idle + earned)
    }
}

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        *self.rest.left.lock() = self.inner.take();
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        match Pin::new(&mut *inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                this.timer = None;
                if frame.is_none() || inner.is_end_stream() {
                    this.rest.is_read.store(true, Ordering::Relaxed);
                }
                Poll::Ready(frame.map(|frame| match frame {
                    Ok(frame) => {
                        this.received += frame.data_ref().map_or(0, |data| data.len() as u64);
                        Ok(frame)
                    }
                    Err(source) => Err(BodyError::Broken {
                        received: this.received,
                        source,
                    }),
                }))
            }
            Poll::Pending => {
                let deadline = this.deadline();
                let timer = this
                    .timer
                    .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
                match timer.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(Some(Err(BodyError::TooSlow {
                        received: this.received,
                    }))),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner
            .as_ref()
            .map_or_else(SizeHint::default, Body::size_hint)
    }
}
