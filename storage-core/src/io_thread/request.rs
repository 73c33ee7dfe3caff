//! What a channel is asked to do.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Appended, Frame, IoThreadError, Reply, Tail};

/// A request to the task of a channel.
pub(super) enum ChannelRequest {
    Append(Append),
    Resume,
    /// Write what waits and close the file; `cuts` also opens it for that when it is closed.
    Close {
        reply: oneshot::Sender<Ended>,
        cuts: bool,
    },
    Forget,
}

/// How a channel ended.
pub(super) struct Ended {
    /// The durable tail; `None` when the file was never made.
    pub(super) tail: Option<Tail>,
    pub(super) result: Result<(), IoThreadError>,
}

/// Frames to be written behind those that came before.
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
