//! Folders of CTF traces: their streams and packets, events merged by time, and the text that
//! Babeltrace prints.

mod error;
mod folder;
mod losses;
mod merge;
mod packet_index;
mod preamble;
mod producer;
mod stream;
mod text;

pub use error::{FolderError, FolderFault};
pub use folder::{FolderParts, TraceFolder, find_traces};
pub use losses::{Loss, LossKind, losses};
pub use merge::{
    EventFormat, OnFault, TimeWindow, WriteError, WriteOptions, Written, write_events,
};
pub use packet_index::{PacketIndexEntry, read_packet_index};
pub use preamble::{Preamble, PreambleError};
pub use stream::{PacketEntry, StreamFile, TraceStream};
pub use text::TextPlan;

#[cfg(test)]
mod folder_tests;
#[cfg(test)]
mod tests;
