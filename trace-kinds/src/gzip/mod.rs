//! Gzip files that can be entered in many places.
//!
//! A gzip file is a row of members, each a header, a deflate stream and a trailer. Members can be
//! inflated on their own; what one big member holds cannot, because deflate refers back to the
//! last 32 KiB of its own text and its blocks begin at any bit. An [`Entry`] is a place where
//! inflating can begin: the start of a member, or the start of a deflate block inside one together
//! with the text in front of it (Mark Adler's zran method). [`Scanner`] reads a file once, in
//! bounded memory, and finds entries on the way; [`Inflater`] inflates what lies between two of
//! them.
//!
//! Two libraries share the work: libdeflate inflates what is whole and fits in memory, zlib-rs
//! streams through the rest. `docs/decisions` says why, and how bit offsets are found without
//! either telling them.

mod bits;
mod entry;
mod header;
mod inflater;
mod probe;
mod scan;
mod stream;
mod text;

#[cfg(test)]
mod tests;

pub use entry::{Entry, Piece, PieceEnd};
pub use header::is_gzip;
pub use inflater::Inflater;
pub use scan::{ScanOptions, Scanned, Scanner, TextSink};
pub use text::TextBuffer;

/// How far back deflate can refer.
pub const WINDOW_BYTES: usize = 32 << 10;
/// Members of at most this much text are inflated in one go.
pub const WHOLE_TEXT_BYTES_MAX: usize = 32 << 20;

/// Why a gzip file cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub enum GzipError {
    /// The source cannot be read.
    #[error("cannot read at byte {offset}")]
    Read {
        /// Offset of the first byte that could not be read.
        offset: u64,
        /// What the source says.
        #[source]
        source: std::io::Error,
    },
    /// The bytes are not what an entry promises.
    #[error(
        "gzip piece at byte {offset} does not inflate to what was indexed: {reason}; \
         index the file again"
    )]
    Piece {
        /// Offset of the entry.
        offset: u64,
        /// What differs.
        reason: &'static str,
    },
}
