//! A reader of folders of CTF traces: streams and packets, events merged by time, losses, and the
//! text that Babeltrace prints.
//!
//! | input | function | result |
//! | --- | --- | --- |
//! | a trace folder | [`TraceFolder::open`] | streams, and their packets sorted by time |
//! | a trace folder | [`FolderParts::open`] | metadata and files, without reading any packet |
//! | traces | [`write_events`] | the events of a window of time, as text or JSON |
//! | traces | [`write_details`] | all messages with their properties, as text |
//! | a trace | [`write_trimmed`] | the part in a window of time, as a trace |
//! | a trace | [`losses`] | events and packets that the producer discarded |

mod details;
mod error;
mod folder;
mod json;
mod losses;
mod merge;
mod order;
mod packet_index;
mod preamble;
mod producer;
mod stream;
mod text;
mod time_window;
mod trim;

pub use details::{DetailsOptions, write_details};
pub use error::{FolderError, FolderFault, OnFault};
pub use folder::{FolderParts, TraceFolder};
pub use losses::{Loss, LossKind, losses};
pub use merge::{EventFormat, WriteError, WriteOptions, WriteSummary, write_events};
pub use packet_index::{PacketIndexEntry, read_packet_index};
pub use preamble::{MagicError, Preamble, PreambleError};
pub use stream::{PacketEntry, StreamFile, TraceStream};
pub use text::{ClockText, FieldChoice, NameChoice, TextPlan, TextStyle};
pub use time_window::TimeWindow;
pub use trim::{TrimFault, TrimSummary, write_trimmed};

#[cfg(test)]
mod tests;
