//! IO traces and block cache traces that RocksDB wrote, releases 6.2 to 11.9.
//!
//! [`IoTrace`] and [`BlockCacheTrace`] iterate over the records of a file or packet without
//! copying; [`Cutter`] and [`PacketReader`] cut a file of any length into packets that can each be
//! decoded alone, and [`join`] restores the file; [`put_io_line`] and [`BlockCsv`] write the output
//! of RocksDB's tools. The modules that read the layouts document them.
//!
//! Pitfalls, and where they are handled:
//!
//! - IO times are of the monotonic clock, read after the call; the header's is of the wall clock,
//!   read before the first call: [`IoTrace::start_ns`].
//! - Records are not ordered by time: the time span of a packet is its least start and greatest
//!   end.
//! - `no_insert` is negated, `is_cache_hit` is not: [`BlockRecord`].
//! - MultiGet before 8.2 logs data blocks without key and type: [`BlockType::UNKNOWN`].
//! - A torn end is an error with its offset, not the end of the trace: [`RocksdbError::Torn`].

mod block_cache;
mod csv;
mod cursor;
mod cutter;
mod decimal;
mod envelope;
mod error;
mod events;
mod file_class;
mod header;
mod io;
mod numbering;
mod text;

pub use block_cache::{BlockCacheTrace, BlockRecord, BlockType, Caller};
pub use csv::BlockCsv;
pub use cutter::{Cutter, Packet, PacketReader, ReadError, join};
pub use envelope::{ENVELOPE_BYTES, Envelope, Envelopes, PAYLOAD_BYTES_MAX};
pub use error::RocksdbError;
pub use events::RocksdbDecoder;
pub use file_class::file_class;
pub use header::{CONTINUATION_BYTES, Continuation, HEADER_BYTES, TraceHeader, TraceKind};
pub(crate) use header::{has_magic, kind_of_prefix};
pub use io::{IoRecord, IoTrace};
pub use numbering::{BlockNumbers, Fingerprints, NumberedStrings};
pub use text::{put_io_header, put_io_line};

#[cfg(test)]
mod tests;
