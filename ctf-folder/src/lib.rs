//! Folders of CTF traces: their streams and packets, events merged by time, and the text that
//! Babeltrace prints.

mod error;
mod folder;
mod index;
mod losses;
mod merge;
mod preamble;
mod producer;
mod text;

pub use error::{FolderError, FolderFault};
pub use folder::{FolderParts, PacketEntry, StreamFile, TraceFolder, TraceStream, find_traces};
pub use index::{IndexEntry, read_index};
pub use losses::{Loss, LossKind, losses};
pub use merge::{
    EventFormat, OnFault, TimeWindow, WriteError, WriteOptions, Written, write_events,
};
pub use preamble::{PacketFacts, packet_facts};
pub use text::TextPlan;

#[cfg(test)]
mod folder_tests;
#[cfg(test)]
mod tests;
