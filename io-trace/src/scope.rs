//! Why operations are done, and for whom: said once around them, not at every hook.
//!
//! A scope belongs to the thread for as long as it is entered. A task enters its scope each time
//! it is polled ([`Scoped`]); work on another thread takes [`current`] along and enters it there.

use std::{
    cell::RefCell,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{Cause, Tracer};

/// What surrounds operations.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Where hooks without a file of their own find the tracer.
    pub tracer: Arc<Tracer>,
    /// Why they are done.
    pub cause: Cause,
    /// The request they are done for.
    pub request: Option<Arc<str>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// The scope that the thread is in.
#[must_use]
pub fn current() -> Option<Scope> {
    CURRENT.with_borrow(Clone::clone)
}

pub(crate) fn cause_and_request() -> (Cause, Option<Arc<str>>) {
    CURRENT.with_borrow(|scope| match scope {
        Some(scope) => (scope.cause, scope.request.clone()),
        None => (Cause::Unknown, None),
    })
}

/// Puts the former scope back when it is dropped.
#[derive(Debug)]
pub struct Guard {
    former: Option<Scope>,
    // A guard ends on the thread where it began.
    _of_thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        CURRENT.set(self.former.take());
    }
}

impl Scope {
    /// A scope for `cause`, for the request of the scope around it.
    #[must_use]
    pub fn within(tracer: &Arc<Tracer>, cause: Cause) -> Self {
        let request = CURRENT.with_borrow(|scope| scope.as_ref()?.request.clone());
        Self {
            tracer: Arc::clone(tracer),
            cause,
            request,
        }
    }

    /// Surrounds what this thread does until the guard is dropped.
    #[must_use = "the scope ends with its guard"]
    pub fn enter(self) -> Guard {
        Guard {
            former: CURRENT.replace(Some(self)),
            _of_thread: std::marker::PhantomData,
        }
    }

    /// Surrounds what a future does.
    pub fn around<F: Future>(self, future: F) -> Scoped<F> {
        Scoped {
            scope: Some(self),
            future: Box::pin(future),
        }
    }
}

/// A future inside a scope.
#[derive(Debug)]
pub struct Scoped<F> {
    /// Taken while the future is polled.
    scope: Option<Scope>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let former = CURRENT.replace(this.scope.take());
        let restore = Restore {
            former,
            scope: &mut this.scope,
        };
        let polled = this.future.as_mut().poll(context);
        drop(restore);
        polled
    }
}

/// Puts both scopes back, also when the future panics.
struct Restore<'s> {
    former: Option<Scope>,
    scope: &'s mut Option<Scope>,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        *self.scope = CURRENT.replace(self.former.take());
    }
}
