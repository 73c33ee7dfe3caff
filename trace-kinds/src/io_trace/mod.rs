//! I/O traces of the server (kind `io-trace`), in CTF.
//!
//! [`Encoder`] writes the records of [`io_trace`] into packets, [`each_item`] reads them. All
//! packets have one schema ([`metadata`]) and contain its UUID, so each can be decoded alone,
//! without trace metadata. The clock is the wall clock in ns: the tracer's monotonic clock with an
//! anchor that is recorded when the trace is started and that `trace_begin` contains.
//!
//! | event record | fields |
//! | --- | --- |
//! | one class per operation (`open`, `read`, `write`, …) | `start` (ns since the epoch), `latency` (ns), `file_class`, `cause`, `path` (below the data folder), `thread`, `errno`, `has_offset`, `offset`, `asked`, `done` (bytes requested and done), `cache` (`unknown`, `hit`, `miss`), `request_id` (of the first, empty without one), `requests` (their number) |
//! | `lookup` | the same, and of the block: `block_type`, `block_size`, `not_inserted`, `leaf`, `entries`, `immutable`, `found` (`unknown`, `yes`, `no`) |
//! | `trace_begin` | `version`, `clock`, `wall` (the anchor, ns), `mode`, `bytes_max`, `blocks_one_in`, `operations`, `storages` |
//! | `trace_end` | `reason`, `recorded`, `dropped`, `dropped_by_operation`, `overwritten` |
//!
//! The time of an event record is the end of its operation, or that of the record before it if two
//! threads recorded theirs in the other order; `start` and `latency` are exact. `discarded events`
//! of a packet counts the operations dropped before its end.

mod encoder;
mod events;
mod reader;
mod schema;
mod text;

pub use encoder::{Anchor, Begin, Encoded, Encoder, End};
pub(crate) use events::DIMENSIONS;
pub use events::IoTraceDecoder;
pub use reader::{IoTraceRecord, Item, each_item};
pub(crate) use schema::is_io_trace;
pub use schema::{PREAMBLE_BYTES, metadata, packet_bytes, preamble, tsdl};
pub use text::put_io_trace_line;

#[cfg(test)]
mod tests;
