//! Gzip files with random access.
//!
//! A gzip file is a sequence of members, each a header, a deflate stream and a trailer. Inflating
//! can start at any member, but not at any place inside a large one, because deflate refers back to
//! the last 32 KiB of text and blocks begin at any bit. An [`Entry`] is a place where inflating can
//! start: a member, or a deflate block inside one together with the text before it (Mark Adler's
//! zran method). [`Scanner`] reads a file once, in bounded memory, and finds entries; [`Inflater`]
//! inflates the part between two of them.
//!
//! Two libraries are used: libdeflate inflates members that fit in memory, zlib-rs streams the
//! others. `docs/decisions` explains why, and how bit offsets are found although neither library
//! reports them.

mod bits;
mod damage;
mod entry;
mod header;
mod inflater;
mod input;
mod members;
mod piece_packet;
mod probe;
mod resume;
mod scan;
mod stream;
mod stream_text;
mod text;
mod verified;

#[cfg(test)]
mod tests;

pub use damage::{DamageReason, GzipDamage};
pub use entry::{Entry, Piece, PieceEnd};
pub use header::is_gzip;
pub use inflater::Inflater;
pub(crate) use members::MembersText;
pub use piece_packet::{PIECE_TEXT_BYTES_MAX, PieceDamage, PiecePacket, is_piece};
pub use scan::{ScanOptions, Scanned, Scanner, TextSink};
pub use text::TextBuffer;

/// How far back deflate can refer.
pub const WINDOW_BYTES: usize = 32 << 10;
/// Members of at most this much text are inflated in one call.
pub const WHOLE_TEXT_BYTES_MAX: usize = 32 << 20;

/// Why a gzip file cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum GzipError {
    /// The source cannot be read.
    #[error("cannot read at byte {offset}")]
    Read {
        /// Offset of the first byte that could not be read.
        offset: u64,
        /// The error of the source.
        #[source]
        source: std::io::Error,
    },
    /// The bytes do not match the entry.
    #[error("gzip piece at byte {offset} does not match the index: {reason}; index the file again")]
    Piece {
        /// Offset of the entry.
        offset: u64,
        /// What differs.
        reason: &'static str,
    },
}
