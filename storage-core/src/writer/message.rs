//! Messages to the writer task of a storage.

use std::sync::Arc;

use storage_format::storage_file::StorageFile;
use tokio::sync::oneshot;

use crate::{
    StorageError,
    push::{Gaps, Push, PushOutcome},
};

/// What a writer is asked to do.
#[derive(Debug)]
pub(crate) enum WriterMessage {
    Submit {
        push: Push,
        gaps: Gaps,
        /// For whom, for the I/O trace.
        request: Option<Arc<str>>,
        reply: oneshot::Sender<PushOutcome>,
    },
    /// Drain and complete every file; the state is FINALIZING already.
    Finalize {
        reply: oneshot::Sender<Result<StorageFile, StorageError>>,
    },
    /// Drain and save the tree; the server stops.
    Stop { reply: oneshot::Sender<()> },
    /// Let go of every file; the storage is being deleted.
    Delete { reply: oneshot::Sender<()> },
}
