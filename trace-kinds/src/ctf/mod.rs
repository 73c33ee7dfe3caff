//! CTF: traces in folders, their events merged by time, and their text.

mod error;
mod events;
mod fields;
mod folder;
mod index;
mod losses;
mod merge;
mod packet;
mod producer;
mod text;

pub use error::{FolderError, FolderFault};
pub use events::CtfDecoder;
pub use folder::{FolderParts, PacketEntry, StreamFile, TraceFolder, TraceStream, find_traces};
pub use index::{IndexEntry, read_index};
pub use losses::{Loss, LossKind, losses};
pub use merge::{
    EventFormat, OnFault, TimeWindow, WriteError, WriteOptions, Written, write_events,
};
pub use packet::{PacketFacts, packet_facts};
pub use text::TextPlan;

#[cfg(test)]
mod folder_tests;
#[cfg(test)]
mod tests;
