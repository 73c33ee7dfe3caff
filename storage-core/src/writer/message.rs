//! Messages to the writer task of a storage.

use std::{path::PathBuf, sync::Arc};

use storage_format::storage_file::StorageFile;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::{
    Progress, StorageError,
    push::{Gaps, Push, PushOutcome},
};

/// Where the outcome of a finalization goes.
#[derive(Debug)]
pub(crate) struct FinalizeReply {
    pub(crate) to: oneshot::Sender<Result<StorageFile, StorageError>>,
    /// Its progress, and the flag that cancels it.
    pub(crate) progress: Arc<Progress>,
    /// Lets the next finalization begin when this one has an outcome, even if nobody waits for it.
    pub(crate) _turn: OwnedMutexGuard<()>,
}

impl FinalizeReply {
    pub(crate) fn send(self, result: Result<StorageFile, StorageError>) {
        // The caller may have gone away; the outcome is on disk.
        let _ = self.to.send(result);
    }
}

/// A message to a writer.
#[derive(Debug)]
pub(crate) enum WriterMessage {
    Submit {
        push: Push,
        gaps: Gaps,
        /// The request that sent it, for the I/O trace.
        request: Option<Arc<str>>,
        reply: oneshot::Sender<PushOutcome>,
    },
    /// Drain and complete every file; the state is FINALIZING.
    Finalize { reply: FinalizeReply },
    /// Drain and save the tree: the server stops.
    Stop { reply: oneshot::Sender<()> },
    /// Drain, save the tree, and end. When the tree cannot be saved, the writer continues.
    Pause {
        reply: oneshot::Sender<Result<(), StorageError>>,
    },
    /// Drain, give the folder of the storage the name `to`, and close every file: the storage is
    /// being deleted. When it cannot be renamed, the writer continues.
    Delete {
        to: PathBuf,
        reply: oneshot::Sender<Result<(), StorageError>>,
    },
}
