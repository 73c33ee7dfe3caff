//! Bodies of requests that are admitted only as long as their caller is.
//!
//! A body may arrive long after its head was admitted. A token that is revoked meanwhile, or the
//! first token of a server, ends it, so that nothing of it is acknowledged afterwards.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Error;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::admitted_end::Ended;
use super::caller::Caller;
use super::tokens::Tokens;

/// A body that fails once its caller is no longer admitted.
pub(super) struct AdmittedBody {
    inner: Body,
    caller: Caller,
    tokens: Arc<Tokens>,
    /// The change of the tokens up to which the caller is known to be admitted.
    change: u64,
}

impl AdmittedBody {
    /// `change` is [`Tokens::change_count`] before the caller was admitted.
    pub(super) fn new(inner: Body, caller: Caller, tokens: Arc<Tokens>, change: u64) -> Self {
        Self {
            inner,
            caller,
            tokens,
            change,
        }
    }

    fn check(&mut self) -> Result<(), Ended> {
        let change = self.tokens.change_count();
        let expires = match &self.caller {
            Caller::Token(token) => token.expires.is_some(),
            Caller::Anyone | Caller::User(_) => false,
        };
        if change != self.change || expires {
            self.tokens.still_admits(&self.caller)?;
            self.change = change;
        }
        Ok(())
    }
}

impl http_body::Body for AdmittedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match self.check() {
            Ok(()) => Poll::Ready(frame),
            Err(ended) => Poll::Ready(Some(Err(Error::new(ended)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
