//! Bodies of requests that are admitted only as long as their caller is.
//!
//! A body may arrive long after its head was admitted. A token that is revoked meanwhile, or the
//! first token of a server, ends it, so that nothing of it is acknowledged afterwards.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Error;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::admitted_end::Ended;
use super::caller::Caller;
use super::tokens::Tokens;
use crate::clock::now_ns;

/// Resolves when it may be that a caller is not admitted any more.
type Doubt = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A body that fails once its caller is no longer admitted.
pub(super) struct AdmittedBody {
    inner: Body,
    caller: Caller,
    tokens: Arc<Tokens>,
    /// The change of the tokens up to which the caller is known to be admitted.
    change: u64,
    /// Set while nothing arrives: a body that is silent ends, too.
    doubt: Option<Doubt>,
}

impl AdmittedBody {
    /// `change` is [`Tokens::change_count`] before the caller was admitted.
    pub(super) fn new(inner: Body, caller: Caller, tokens: Arc<Tokens>, change: u64) -> Self {
        Self {
            inner,
            caller,
            tokens,
            change,
            doubt: None,
        }
    }

    /// Waits while the tokens are as they are, and until the token of the caller expires.
    fn doubt(&self) -> Doubt {
        let tokens = Arc::clone(&self.tokens);
        let (change, expires) = (self.change, self.caller.expires());
        Box::pin(async move {
            let expired = async {
                match expires {
                    None => pending().await,
                    Some(at) => tokio::time::sleep(until(at)).await,
                }
            };
            tokio::select! {
                () = tokens.changed_since(change) => {}
                () = expired => {}
            }
        })
    }

    fn check(&mut self) -> Result<(), Ended> {
        let change = self.tokens.change_count();
        if change != self.change || self.caller.expires().is_some() {
            self.tokens.still_admits(&self.caller)?;
            self.change = change;
        }
        Ok(())
    }
}

/// How long a timer waits for a moment of the wall clock; not less than the wall clock may lag.
fn until(at: i64) -> Duration {
    let left = at.saturating_sub(now_ns());
    Duration::from_nanos(u64::try_from(left).unwrap_or(0)) + Duration::from_millis(1)
}

impl http_body::Body for AdmittedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        loop {
            if let Err(ended) = self.check() {
                return Poll::Ready(Some(Err(Error::new(ended))));
            }
            if frame.is_ready() {
                self.doubt = None;
                return frame;
            }
            let mut doubt = self.doubt.take().unwrap_or_else(|| self.doubt());
            if doubt.as_mut().poll(cx).is_pending() {
                self.doubt = Some(doubt);
                return Poll::Pending;
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
