//! IO traces and block cache traces that RocksDB wrote, releases 6.2 to 11.9.
//!
//! [`IoTrace`] and [`BlockCacheTrace`] walk over the records of a file or packet without copying;
//! [`Cutter`] and [`PacketReader`] cut a file of any length into packets that are decodable alone,
//! and [`join`] makes the file again; [`put_io_line`] and [`BlockCsv`] write what RocksDB's own
//! tools print. The layouts are described in the modules that read them.
//!
//! What is easily got wrong, and where it is handled:
//!
//! - IO times are of the monotonic clock and taken after the call; the header's is the wall clock
//!   before the first: [`IoTrace::start_ns`].
//! - Records are not in the order of time: packet spans are the least start and greatest end.
//! - `no_insert` is negated, `is_cache_hit` is not: [`BlockRecord`].
//! - MultiGet before 8.2 logs data blocks without key and type: [`BlockType::UNKNOWN`].
//! - A torn tail is an error with its offset, not an end: [`RocksdbError::Torn`].

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
pub use header::{
    CONTINUATION_BYTES, Continuation, HEADER_BYTES, TraceHeader, TraceKind, is_trace,
};
pub(crate) use header::{has_magic, kind_of_prefix};
pub use io::{IoRecord, IoTrace};
pub use numbering::{BlockNumbers, Fingerprints, NumberedStrings};
pub use text::{put_io_header, put_io_line};

#[cfg(test)]
mod tests;
