//! Why operations are done, and for whom: said once around them, not at every hook.
//!
//! A scope belongs to the thread for as long as it is entered. A task enters its scope each time
//! it is polled ([`Scope::around`]); work on another thread takes [`current`] along and enters it
//! there.

use std::{cell::RefCell, future::poll_fn, pin::pin, sync::Arc};

use crate::{Cause, Tracer};

/// What surrounds operations.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Where hooks without a file of their own find the tracer.
    pub tracer: Arc<Tracer>,
    /// Why they are done.
    pub cause: Cause,
    /// The request they are done for; the first one, when there are several.
    pub request: Option<Arc<str>>,
    /// How many requests they are done for.
    pub requests: u32,
}

/// The requests that one operation serves.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    first: Option<Arc<str>>,
    /// Where their ids lie in memory, sorted: an id is made once for a request.
    places: Vec<usize>,
}

impl Requests {
    /// Adds the request with this id, unless it is among them.
    pub fn add(&mut self, request: &Arc<str>) {
        let place = Arc::as_ptr(request).cast::<u8>() as usize;
        if let Err(at) = self.places.binary_search(&place) {
            self.places.insert(at, place);
        }
        self.first.get_or_insert_with(|| Arc::clone(request));
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// A scope for what is done for all of them.
    #[must_use]
    pub fn scope(self, tracer: &Arc<Tracer>, cause: Cause) -> Scope {
        Scope {
            tracer: Arc::clone(tracer),
            cause,
            request: self.first,
            requests: u32::try_from(self.places.len()).unwrap_or(u32::MAX),
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// The scope that the thread is in.
#[must_use]
pub fn current() -> Option<Scope> {
    CURRENT.with_borrow(Clone::clone)
}

/// Why the thread does what it does, and for whom.
pub(crate) fn why() -> (Cause, Option<Arc<str>>, u32) {
    CURRENT.with_borrow(|scope| match scope {
        Some(scope) => (scope.cause, scope.request.clone(), scope.requests),
        None => (Cause::Unknown, None, 0),
    })
}

/// The request that the thread works for, while I/O is traced.
#[must_use]
pub fn current_request() -> Option<Arc<str>> {
    CURRENT.with_borrow(|scope| scope.as_ref()?.request.clone())
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
    /// A scope for `cause`, for the requests of the scope around it.
    #[must_use]
    pub fn within(tracer: &Arc<Tracer>, cause: Cause) -> Self {
        let (_, request, requests) = why();
        Self {
            tracer: Arc::clone(tracer),
            cause,
            request,
            requests,
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

    /// Surrounds what a future does, wherever it is polled.
    pub async fn around<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut scope = Some(self);
        poll_fn(|context| {
            let former = CURRENT.replace(scope.take());
            let _restore = Restore {
                former,
                scope: &mut scope,
            };
            future.as_mut().poll(context)
        })
        .await
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
