//! Scopes: why operations are done, and for which requests, stated once around them instead of in
//! every hook.
//!
//! A thread is in a scope while the scope is entered. A task enters its scope each time it is
//! polled ([`Scope::around`]); work on another thread takes [`current`] along and enters it there.

use std::{cell::Cell, future::poll_fn, ops::Deref, pin::pin, sync::Arc};

use crate::{Cause, Tracer};

/// The surroundings of operations. A pointer, because it is moved each time a task is polled.
#[derive(Debug, Clone)]
pub struct Scope(Arc<Surroundings>);

/// Why operations are done, and for which requests.
#[derive(Debug)]
pub struct Surroundings {
    /// The tracer, for hooks without a file.
    pub tracer: Arc<Tracer>,
    /// The cause.
    pub cause: Cause,
    /// The request they are done for; the first one if there are several.
    pub request: Option<Arc<str>>,
    /// How many requests they are done for.
    pub requests: u32,
}

impl Deref for Scope {
    type Target = Surroundings;

    fn deref(&self) -> &Surroundings {
        &self.0
    }
}

/// The requests that one operation serves.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    first: Option<Arc<str>>,
    /// The addresses of the ids: an id is allocated once per request. Consecutive duplicates are
    /// stored once; all others are removed before counting.
    places: Vec<usize>,
}

impl Requests {
    /// Adds the request with this id, unless it was added before.
    pub fn add(&mut self, request: &Arc<str>) {
        let place = Arc::as_ptr(request).cast::<u8>() as usize;
        if self.places.last() != Some(&place) {
            self.places.push(place);
        }
        self.first.get_or_insert_with(|| Arc::clone(request));
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// A scope for work on behalf of all of them.
    #[must_use]
    pub fn scope(mut self, tracer: &Arc<Tracer>, cause: Cause) -> Scope {
        self.places.sort_unstable();
        self.places.dedup();
        let requests = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        Scope::new(tracer, cause, self.first, requests)
    }
}

impl<'r> FromIterator<&'r Arc<str>> for Requests {
    fn from_iter<I: IntoIterator<Item = &'r Arc<str>>>(ids: I) -> Self {
        let mut requests = Self::default();
        ids.into_iter().for_each(|id| requests.add(id));
        requests
    }
}

thread_local! {
    static CURRENT: Cell<Option<Scope>> = const { Cell::new(None) };
}

/// Calls `look` with the scope that the thread is in.
fn look_at_current<T>(look: impl FnOnce(Option<&Scope>) -> T) -> T {
    CURRENT.with(|current| {
        let scope = current.take();
        let seen = look(scope.as_ref());
        current.set(scope);
        seen
    })
}

/// The scope that the thread is in.
#[must_use]
pub fn current() -> Option<Scope> {
    look_at_current(|scope| scope.cloned())
}

/// Calls `look` with the cause of what the thread does, and the requests it is done for.
pub(crate) fn reason<T>(look: impl FnOnce(Cause, Option<&Arc<str>>, u32) -> T) -> T {
    look_at_current(|scope| match scope {
        Some(scope) => look(scope.cause, scope.request.as_ref(), scope.requests),
        None => look(Cause::Unknown, None, 0),
    })
}

/// The request that the thread works for, while I/O is traced.
#[must_use]
pub fn current_request() -> Option<Arc<str>> {
    look_at_current(|scope| scope?.request.clone())
}

/// Restores the previous scope when it is dropped.
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
    /// A scope for `cause`, for `requests` requests of which `request` is the first.
    #[must_use]
    pub fn new(
        tracer: &Arc<Tracer>,
        cause: Cause,
        request: Option<Arc<str>>,
        requests: u32,
    ) -> Self {
        Self(Arc::new(Surroundings {
            tracer: Arc::clone(tracer),
            cause,
            request,
            requests,
        }))
    }

    /// A scope for `cause`, for the requests of the scope around it.
    #[must_use]
    pub fn within(tracer: &Arc<Tracer>, cause: Cause) -> Self {
        reason(|_, request, requests| Self::new(tracer, cause, request.cloned(), requests))
    }

    /// Enters the scope on this thread until the guard is dropped.
    #[must_use = "the scope ends with its guard"]
    pub fn enter(self) -> Guard {
        Guard {
            former: CURRENT.replace(Some(self)),
            _of_thread: std::marker::PhantomData,
        }
    }

    /// Enters the scope wherever the future is polled.
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

/// Restores both scopes, also when the future panics.
struct Restore<'s> {
    former: Option<Scope>,
    scope: &'s mut Option<Scope>,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        *self.scope = CURRENT.replace(self.former.take());
    }
}
