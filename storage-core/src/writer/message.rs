//! Messages to the writer task of a storage.

use std::sync::Arc;

use storage_format::storage_file::StorageFile;
use tokio::sync::oneshot;

use crate::{
    StorageError,
    push::{Gaps, Push, PushOutcome},
};

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
    Finalize {
        reply: oneshot::Sender<Result<StorageFile, StorageError>>,
    },
    /// Drain and save the tree: the server stops.
    Stop { reply: oneshot::Sender<()> },
    /// Close every file: the storage is being deleted.
    Delete { reply: oneshot::Sender<()> },
}
