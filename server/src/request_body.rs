//! Request bodies that may not dawdle.

use std::pin::Pin;
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
    /// Slowest rate over the body's life, once `idle` has passed.
    pub(crate) bytes_per_second_min: u64,
}

/// A body that could not be read to its end.
#[derive(Debug, Error)]
pub(crate) enum BodyError {
    /// The client was too slow.
    #[error("the body came too slowly: after {received} bytes nothing more within the limit")]
    TooSlow {
        /// Bytes that had arrived.
        received: u64,
    },
    /// The connection broke, or the framing of the body is wrong.
    #[error("the body broke off after {received} bytes: {source}")]
    Broken {
        /// Bytes that had arrived.
        received: u64,
        /// What the connection said.
        source: hyper::Error,
    },
}

/// A body with its pace watched. No timer is made while bytes keep coming.
pub(crate) struct RequestBody<B> {
    inner: B,
    pace: BodyPace,
    started: Instant,
    received: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> RequestBody<B> {
    pub(crate) fn new(inner: B, pace: BodyPace) -> Self {
        Self {
            inner,
            pace,
            started: Instant::now(),
            received: 0,
            timer: None,
        }
    }

    /// The next frame must be here by then.
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
