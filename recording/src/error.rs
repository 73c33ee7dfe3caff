//! What is refused, and what ends a recording.

use storage_core::StorageError;
use uuid::Uuid;

/// A setting of a chain or a recording that cannot work.
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

/// Why a recording cannot be started, found or stopped, or a packet not be taken.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The instruction cannot be followed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No recording has this id.
    #[error("there is no recording {0}")]
    NotFound(Uuid),
    /// Another recording fills the storage.
    #[error("recording {0} fills this storage")]
    StorageTaken(Uuid),
    /// There are as many as there may be.
    #[error("there are {max} recordings already")]
    TooMany {
        /// How many there may be.
        max: usize,
    },
    /// The engine refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
