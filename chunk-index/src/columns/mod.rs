//! The columns of a file, `.cidx`: times, durations and values of every event, beside its `.idx`.
//!
//! Summaries tell which chunks can hold a match; where these are many and their bytes are
//! compressed text, reading them is what takes long. Columns say of every single event of a chunk
//! whether it matches, as far as a filter asks for what they hold: a count is then known without
//! reading, and chunks without a match are left out. They take a good part of the trace's
//! compressed size and are made only where they are asked for.
//!
//! ```text
//! header   as of a sidecar, magic "THLDCOL\0"
//! body     columns, one after another, compressed with zstd where that makes them smaller
//! footer   identity of the file; columns: list of text, the first `ts` and `dur`;
//!          chunks: list of (raw offset, raw length, events, then for each column 0 where it is
//!            left out, else stored length + 1, raw length, CRC32C of the stored bytes: 4 bytes)
//! trailer  as of a sidecar
//! ```
//!
//! `ts` and `dur` are written as `integers` says, the others as `values` says. A column of a chunk
//! is left out where a time is no whole number of nanoseconds, or where a field has more values
//! than the index keeps apart; then nothing is known of it. The columns belong to an index when
//! both are of the same file, cut into the same chunks of as many events each.

mod bits;
mod builder;
mod file;
mod integers;
mod select;
#[cfg(test)]
mod tests;
mod values;

pub use builder::ChunkColumns;
pub(crate) use builder::{ColumnsBuilder, MISSING, row_number};
pub(crate) use file::decode as decode_footer;
pub use file::{ColumnBlock, Columns, ColumnsOfChunk, ColumnsOpened, ColumnsWriter};
pub use select::{ColumnFilter, Matches};

use crate::sidecar::Signature;

pub(crate) const SIGNATURE: Signature = Signature {
    magic: *b"THLDCOL\0",
    version: 1,
};
/// Events of a chunk of which columns are kept.
const ROWS_MAX: usize = 1 << 22;
/// EntrySet of `ts` and `dur` among the columns.
const TS: usize = 0;
const DUR: usize = 1;

/// Whether the bytes are a column of times or one of values.
pub(crate) fn decode_any(bytes: &[u8], rows: usize) -> bool {
    let (times, values) = (integers::decode(bytes, rows), values::decode(bytes, rows));
    times.is_ok() || values.is_ok()
}
