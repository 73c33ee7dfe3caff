//! Why an I/O trace is refused.

use storage_core::StorageError;
use storage_format::{IdError, StorageId};

/// Why a trace was not started or stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IoTraceError {
    /// One at a time.
    #[error("a trace is running already, into storage {storage}")]
    Running {
        /// Its storage.
        storage: StorageId,
    },
    /// There is none.
    #[error("no trace is running")]
    Off,
    /// Something that cannot be done.
    #[error("{problem}")]
    Invalid {
        /// What is wrong.
        problem: String,
    },
    /// The storage of the trace could not be made or completed.
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
