//! Errors of chains and recordings.

use storage_core::StorageError;
use uuid::Uuid;

/// An invalid setting of a chain or a recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct ConfigError {
    /// Which setting.
    pub what: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl ConfigError {
    pub(crate) fn new(what: &'static str, problem: String) -> Self {
        Self { what, problem }
    }
}

/// Why a recording cannot be started, found or stopped, or a packet is refused.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No recording has this id.
    #[error("there is no recording {0}")]
    NotFound(Uuid),
    /// Another recording fills the storage.
    #[error("recording {0} fills this storage already")]
    StorageTaken(Uuid),
    /// There are too many recordings.
    #[error("there are {max} recordings already; stop one first")]
    TooMany {
        /// The maximum.
        max: usize,
    },
    /// The engine refused the operation.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
