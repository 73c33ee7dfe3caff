//! Request bodies with a minimum rate.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until};

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

/// A body whose rate is monitored. No timer is created while bytes keep arriving.
pub(crate) struct RequestBody<B> {
    inner: B,
    /// Told when the end of the body has been read.
    is_read: Arc<AtomicBool>,
    pace: BodyPace,
    started: Instant,
    received: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> RequestBody<B> {
    pub(crate) fn new(inner: B, pace: BodyPace, is_read: Arc<AtomicBool>) -> Self {
        Self {
            inner,
            is_read,
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
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                this.timer = None;
                if frame.is_none() || this.inner.is_end_stream() {
                    this.is_read.store(true, Ordering::Relaxed);
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
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
