//! Cutting trace files into packets, deterministically and in bounded memory.
//!
//! The same bytes are always cut at the same offsets. A push can therefore resume knowing only the
//! next sequence that the server expects.
//!
//! | file | packets |
//! | --- | --- |
//! | any file, kind `raw` | [`RawCutter`]: pieces of the target size |
//! | DFTracer text, also in zstd | [`LineCutter`]: up to the last line end within the target size |
//! | DFTracer text in gzip | [`GzipCutter`]: unchanged members, and pieces of large ones |
//! | RocksDB I/O and block cache traces | [`RocksdbCutter`]: complete records after a header |
//! | Chrome traces | [`ChromeCutter`]: events, pieces of gzip members, or the text of zstd |
//! | OpenTelemetry spans | [`OtlpCutter`]: requests; the text of a compressed file |
//! | CTF data stream file | [`CtfCutter`]: the producer's packets |
//!
//! What of a file cannot be read is in packets that nobody can decode
//! ([`DamagedBytes`](trace_kinds::DamagedBytes)), and so is what says that something is missing.

mod chrome;
mod ctf;
mod damage;
mod gzip;
mod lines;
mod otlp;
mod pieces;
mod raw;
mod rocksdb;
mod text;

use bytes::Bytes;

use crate::ClientError;

pub use chrome::ChromeCutter;
pub use ctf::CtfCutter;
pub use gzip::GzipCutter;
pub use lines::LineCutter;
pub use otlp::OtlpCutter;
pub use raw::RawCutter;
pub use rocksdb::RocksdbCutter;

/// Default target size of packets, in bytes.
pub const PACKET_BYTES_TARGET: usize = 1 << 20;

/// To be increased when a cutter changes where it cuts: a push must not be resumed by a client that
/// cuts differently.
pub const CUTTING_VERSION: u8 = 2;

/// A packet cut from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The packet.
    pub bytes: Bytes,
    /// Offset in the file after the last byte of this packet.
    pub position: u64,
    /// Length of the packet's text; `None` if the file is not text.
    pub text: Option<TextLength>,
}

/// Length of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLength {
    /// Bytes, after decompression.
    pub bytes: u64,
    /// Number of lines that begin in it.
    pub lines: u64,
}

impl TextLength {
    /// The length of complete lines, except that the last may lack its line end.
    fn of(text: &[u8]) -> Self {
        let ends = memchr::memchr_iter(b'\n', text).count() as u64;
        let open = text.last().is_some_and(|byte| *byte != b'\n');
        Self {
            bytes: text.len() as u64,
            lines: ends + u64::from(open),
        }
    }
}

/// What a cutter does at the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The file is complete: the rest is the last packet.
    Final,
    /// The file may grow: cut only full packets.
    Growing,
    /// The file may grow, but cut the complete lines or records that are there.
    Pause,
}

/// Cuts one file.
pub trait Cutter: Send {
    /// The next packet; `None` if there is none (yet).
    fn next(&mut self, end: End) -> Result<Option<Cut>, ClientError>;

    /// Skips up to `count` packets. Returns how many there were.
    fn skip(&mut self, count: u64) -> Result<u64, ClientError> {
        for done in 0..count {
            if self.next(End::Final)?.is_none() {
                return Ok(done);
            }
        }
        Ok(count)
    }

    /// What of the file is damaged, after it was cut to its end. Its bytes are in packets all the
    /// same.
    fn damage(&self) -> Option<String> {
        None
    }

    /// A note about the file for the user, after it was cut to its end.
    fn remark(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests;
