//! Cutting trace files into packets, deterministically and in bounded memory.
//!
//! The same bytes are always cut at the same places, whatever was pushed of them before: that is
//! what makes a push resumable by nothing but the next expected sequence.
//!
//! | file | packets |
//! | --- | --- |
//! | any file, kind `raw` | [`RawCutter`]: stretches of the target length |
//! | DFTracer text | [`LineCutter`]: up to the last line end within the target length |
//! | DFTracer text in gzip | [`GzipCutter`]: whole members untouched, or text where a member is huge |
//! | RocksDB IO and block cache traces | [`RocksdbCutter`]: whole records behind a header |
//! | CTF data stream file | [`CtfCutter`]: the producer's packets |

mod ctf;
mod gzip;
mod lines;
mod raw;
mod rocksdb;

use bytes::Bytes;

use crate::ClientError;

pub use ctf::CtfCutter;
pub use gzip::GzipCutter;
pub use lines::LineCutter;
pub use raw::RawCutter;
pub use rocksdb::RocksdbCutter;

/// Length that packets have about, in bytes, unless the caller wants another one.
pub const PACKET_BYTES_TARGET: usize = 1 << 20;

/// Changes whenever some cutter begins to cut elsewhere: a push that was begun by another one is
/// not to be resumed by this one.
pub const CUTTING_VERSION: u8 = 1;

/// A packet cut off a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The packet.
    pub bytes: Bytes,
    /// How far the file is used up: offset behind the last byte that went into this packet.
    pub position: u64,
    /// What the packet is of the file's text; `None` where the file is no text.
    pub text: Option<TextLength>,
}

/// Length of a stretch of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLength {
    /// Bytes, after inflating.
    pub bytes: u64,
    /// Lines that begin in it.
    pub lines: u64,
}

impl TextLength {
    /// That of whole lines, of which the last may lack its end.
    fn of(text: &[u8]) -> Self {
        let ends = memchr::memchr_iter(b'\n', text).count() as u64;
        let open = text.last().is_some_and(|byte| *byte != b'\n');
        Self {
            bytes: text.len() as u64,
            lines: ends + u64::from(open),
        }
    }
}

/// What the end of the file means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The file is complete: what is left is the last packet.
    Final,
    /// The file may grow: only full packets are cut.
    Growing,
    /// The file may grow, but what is there of whole lines or records is wanted now.
    Pause,
}

/// Cuts one file.
pub trait Cutter: Send {
    /// The next packet; `None` when there is none, or none yet.
    fn next(&mut self, end: End) -> Result<Option<Cut>, ClientError>;

    /// Goes over `count` packets that need not be sent again.
    ///
    /// Gives how many there were, which is less when the file ends before.
    fn skip(&mut self, count: u64) -> Result<u64, ClientError> {
        for done in 0..count {
            if self.next(End::Final)?.is_none() {
                return Ok(done);
            }
        }
        Ok(count)
    }

    /// Something about the file worth telling a person once it was cut to its end.
    fn remark(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests;
