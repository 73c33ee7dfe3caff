//! DFTracer traces: one JSON object per line, in three dialects.
//!
//! | dialect | numbers | host and file | metadata records | frame |
//! | --- | --- | --- | --- | --- |
//! | v0 | in quotes | `args.hostname`, `args.fname` | none | `[` in the first line |
//! | v1 | bare, hashes of 64 unsigned bits | `hhash`, `fhash` | `ph` is `"M"` | `[` and `]` |
//! | v2 | bare, hashes hexadecimal text | `hhash`, `fhash` | `ph` is `4` | none |
//!
//! A record is an event if its line is a JSON object and `ph` does not mark it as metadata. Lines
//! that only frame the others are ignored; lines that are not JSON are counted as broken and
//! skipped. A trace is UTF-8; a line that is not is broken. So is a declaration of another unit of
//! times than the one that the trace is read with, the first.

mod arguments;
mod decoder;
mod event;
mod line;
mod lines;
mod metadata;
mod names;
mod packet;
mod parsed;
mod prefilter;
mod remainder;
mod scalar;
mod shapes;
mod time;

#[cfg(test)]
mod tests;

/// Fields that are indexed by default, in addition to `name` and `cat`.
pub const DIMENSIONS: [&str; 8] = [
    "pid",
    "tid",
    "hhash",
    "fhash",
    "cmd_hash",
    "exec_hash",
    "fname",
    "hostname",
];

/// Fields that have the same values in all events of a shape: see
/// [`Event::shape`](crate::Event::shape).
pub const SHAPED_FIELDS: [&str; 5] = ["name", "cat", "type", "pid", "tid"];

pub(crate) use decoder::begins_with_lines;
pub use decoder::{DftDecoder, DftVisitor};
pub use lines::{LINE_BYTES_MAX, Lines, Part};
pub use metadata::Metadata;
pub use names::{HASH_FIELDS, HashField, HashKind, HashNames, HashValue, Names};
pub use packet::{Declared, PacketDecoder};
pub use prefilter::Prefilter;
pub use shapes::Shapes;
pub use time::TimeUnit;
