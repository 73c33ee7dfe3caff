//! Work that blocks a thread, attributed to its cause in the I/O trace.

use std::sync::Arc;

use io_trace::{Cause, Scope, Tracer, current};

use crate::{StorageError, traced::on_thread};

/// Runs blocking work on the threads of the runtime.
#[derive(Debug, Clone)]
pub(super) struct Blocking {
    tracer: Arc<Tracer>,
}

impl Blocking {
    pub(super) fn new(tracer: &Arc<Tracer>) -> Self {
        Self {
            tracer: Arc::clone(tracer),
        }
    }

    pub(super) fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    /// The scope of work that is done for `cause`, while I/O is traced. Building a chunk index
    /// reads what queries read and is not a query: its scope stays.
    pub(super) fn scope(&self, cause: Cause) -> Option<Scope> {
        let scope = self.tracer.is_on().then(current)?;
        match scope {
            Some(around) if around.cause == Cause::Index => Some(around),
            _ => Some(Scope::within(&self.tracer, cause)),
        }
    }

    /// Runs work that blocks, for `cause`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        cause: Cause,
        work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        on_thread(self.scope(cause), work)
            .await
            .map_err(|_| StorageError::Stopping)?
    }
}
