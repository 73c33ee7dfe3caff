//! Why a storage is not taken over.

use object_tier::TierError;
use storage_core::StorageError;
use thiserror::Error;

use super::adopting::AdoptError;
use super::chains::RebuildError;

/// Why a storage is not taken over.
#[derive(Debug, Error)]
pub(crate) enum TakeoverError {
    /// Without chains nothing can be taken over.
    #[error("object_store.durability is local on this node")]
    Off,
    #[error("node {0} writes the storage, and lives")]
    WriterLives(String),
    #[error(
        "node {0} writes the storage, lives, and has durability = \"local\": it would go on \
         acknowledging"
    )]
    UnchainedWriterLives(String),
    #[error("the packets of the storage are on the disk of node {0} and nowhere else")]
    NotChained(String),
    /// The disk is too small.
    #[error("the storage needs about {needed} bytes here, and {free} are free")]
    NoRoom {
        /// Bytes of its chain, and a quarter more.
        needed: u64,
        /// Free bytes of the disk.
        free: u64,
    },
    /// It is being taken over here.
    #[error("this node takes the storage over at this moment")]
    Underway,
    /// Another node was faster.
    #[error("{0}")]
    Superseded(String),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Store(TierError),
}

impl From<TierError> for TakeoverError {
    fn from(error: TierError) -> Self {
        match error {
            TierError::Superseded { reason, .. } => Self::Superseded(reason),
            error => Self::Store(error),
        }
    }
}

impl From<AdoptError> for TakeoverError {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Storage(error) => error.into(),
            AdoptError::Store(error) => error.into(),
        }
    }
}

impl From<RebuildError> for TakeoverError {
    fn from(error: RebuildError) -> Self {
        match error {
            RebuildError::Storage(error) => error.into(),
            RebuildError::Store(error) => error.into(),
        }
    }
}
