//! Errors of I/O traces.

use storage_core::StorageError;
use storage_format::{IdError, StorageId};

/// Why a trace was not started or stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IoTraceError {
    /// At most one trace runs at a time.
    #[error("a trace is already running and writes to storage {storage}")]
    Running {
        /// The storage of the running trace.
        storage: StorageId,
    },
    /// No trace is running.
    #[error("no trace is running")]
    Off,
    /// An invalid request.
    #[error("{problem}")]
    Invalid {
        /// What is invalid.
        problem: String,
    },
    /// The storage of the trace could not be created or finalized.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<IdError> for IoTraceError {
    fn from(error: IdError) -> Self {
        Self::Invalid {
            problem: error.to_string(),
        }
    }
}
