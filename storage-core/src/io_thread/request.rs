//! Requests to a channel.

use std::{collections::HashMap, sync::Arc};

use storage_format::LeafId;
use tokio::sync::oneshot;

use super::{
    Appended, Frame, IoThreadError, LeafSpec, LogEnd, Reply,
    tail::{ClosedFile, LoggedLeaf},
};

/// A request to the task of a channel.
pub(super) enum ChannelRequest {
    Append(Append),
    Resume,
    /// Write waiting frames and close the file; with `finishes`, the log is complete afterwards.
    Close {
        reply: oneshot::Sender<Ended>,
        finishes: bool,
    },
    Forget,
}

/// The end of a channel.
pub(super) struct Ended {
    /// What the next channel of the log needs.
    pub(super) log: ClosedLog,
    pub(super) result: Result<(), IoThreadError>,
}

/// A log without an open file.
#[derive(Debug, Default)]
pub(super) struct ClosedLog {
    pub(super) end: LogEnd,
    /// The newest file, if it may be written again.
    pub(super) file: Option<ClosedFile>,
    pub(super) leaves: HashMap<LeafId, LoggedLeaf>,
    /// Whether appends are refused until [`ChannelRequest::Resume`].
    pub(super) is_refusing: bool,
}

/// Frames to append.
pub(super) struct Append {
    pub(super) leaf: Arc<LeafSpec>,
    pub(super) frames: Vec<Frame>,
    /// The request that sent them, while I/O is traced.
    pub(super) request: Option<Arc<str>>,
    pub(super) reply: Reply<Appended>,
}

impl Append {
    pub(super) fn bytes(&self) -> u64 {
        self.frames
            .iter()
            .map(|frame| frame.header.frame_bytes())
            .sum()
    }
}
