//! Requests to a channel.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Appended, Frame, IoThreadError, Reply, Tail};

/// A request to the task of a channel.
pub(super) enum ChannelRequest {
    Append(Append),
    Resume,
    /// Write waiting frames and close the file; with `cuts`, a closed file is opened to truncate
    /// it.
    Close {
        reply: oneshot::Sender<Ended>,
        cuts: bool,
    },
    Forget,
}

/// The end of a channel.
pub(super) struct Ended {
    /// The durable tail; `None` when the file was never created.
    pub(super) tail: Option<Tail>,
    pub(super) result: Result<(), IoThreadError>,
}

/// Frames to append.
pub(super) struct Append {
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
