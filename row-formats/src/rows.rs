//! The interface that every format implements.

use std::io;

use query_language::FieldTable;
use trace_kinds::Event;

use crate::Columns;

/// Where the bytes of a result go.
pub type Out<'o> = dyn FnMut(&[u8]) -> io::Result<()> + 'o;

/// Turns events into rows, on many threads at once and in any order, so a row does not depend on
/// its neighbours. A [`RowSink`] accepts the rows in order.
pub trait RowFormat: Send + Sync {
    /// Adds the requested fields, and those that the format needs, to the table. Called before any
    /// event is decoded.
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable);

    /// Appends one row, encoded for the sink of the same format.
    fn row(&self, event: &dyn Event, out: &mut Vec<u8>);

    /// The sink for the rows of one result.
    fn sink(&self, options: SinkOptions) -> Box<dyn RowSink + '_>;
}

/// What a sink must know of its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkOptions {
    /// Bytes before compression after which a row group of a Parquet file is written.
    pub row_group_bytes: usize,
    /// Whether the rows are ordered by `ts`, which a Parquet file then declares.
    pub is_by_time: bool,
}

/// Accepts the rows of one result in order and writes the bytes of the result.
pub trait RowSink {
    /// Writes what precedes the first row.
    ///
    /// # Errors
    ///
    /// The first error of `out`.
    fn begin(&mut self, out: &mut Out<'_>) -> io::Result<()>;

    /// Accepts one row, as [`RowFormat::row`] encoded it.
    ///
    /// # Errors
    ///
    /// The first error of `out`, or when the format cannot contain the row.
    fn row(&mut self, row: &[u8], out: &mut Out<'_>) -> io::Result<()>;

    /// Writes what follows the last row; formats with a place for it say what is `known` of the
    /// result. Returns more notes for the user.
    ///
    /// # Errors
    ///
    /// As [`RowSink::row`].
    fn end(&mut self, known: Known<'_>, out: &mut Out<'_>) -> io::Result<Vec<String>>;
}

/// What a reader of a result must know, as far as it is known before its end is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// What could not be read and was skipped.
    pub skipped: &'a [String],
    /// Notes for the user.
    pub notes: &'a [String],
}
