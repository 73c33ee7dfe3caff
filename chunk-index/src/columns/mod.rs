//! Columns of a file, `.cidx`: times, durations and values of every event, next to its `.idx`.
//!
//! Summaries decide which chunks may contain a match. If these are many and their bytes are
//! compressed text, reading them takes long. Columns decide for every single event of a chunk
//! whether it matches, as far as a filter is about fields with columns: counts are then known
//! without reading, and chunks without a match are skipped. Columns take a good part of the
//! compressed size of the trace and are made only on request.
//!
//! ```text
//! header   as of a sidecar, magic "THLDCOL\0"
//! body     columns, one after another, compressed with zstd if that makes them smaller
//! footer   identity of the file; columns: list of text, the first `ts` and `dur`;
//!          chunks: list of (raw offset, raw length, events, then for each column 0 if it is
//!            omitted, else stored length + 1, raw length, CRC32C of the stored bytes: 4 bytes)
//! trailer  as of a sidecar
//! ```
//!
//! `ts` and `dur` are written as `integers` says, the others as `values` says. A column of a chunk
//! is omitted if a time is not a whole number of nanoseconds, or if a field has more values than
//! the index counts one by one. Columns belong to an index if both are of the same file, divided
//! into the same chunks with the same numbers of events.

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
/// Events of a chunk up to which it has columns.
const ROWS_MAX: usize = 1 << 22;
/// Indexes of `ts` and `dur` among the columns.
const TS: usize = 0;
const DUR: usize = 1;

/// Whether the bytes are a column of times or of values.
pub(crate) fn decode_any(bytes: &[u8], rows: usize) -> bool {
    let (times, values) = (integers::decode(bytes, rows), values::decode(bytes, rows));
    times.is_ok() || values.is_ok()
}
