//! What every format implements.

use std::io;

use query_language::FieldTable;
use trace_kinds::Event;

use crate::Columns;

/// Where bytes of an answer go.
pub type Out<'o> = dyn FnMut(&[u8]) -> io::Result<()> + 'o;

/// Turns events into rows. That is done by many threads at once and in any order, so a row knows
/// nothing of its neighbours; a [`RowSink`] takes the rows in order.
pub trait RowFormat: Send + Sync {
    /// Fields that the format itself needs; added to the table before any event is decoded.
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable);

    /// Appends one row, in the form that the format's own sink takes.
    fn row(&self, event: &dyn Event, out: &mut Vec<u8>);

    /// What takes the rows. A Parquet row group is written once it has `row_group_bytes` bytes
    /// before compression.
    fn sink(&self, row_group_bytes: usize) -> Box<dyn RowSink + '_>;
}

/// Takes the rows of one answer in their order and gives the bytes of the answer.
pub trait RowSink {
    /// What stands in front of the first row.
    ///
    /// # Errors
    ///
    /// The first that `out` has.
    fn begin(&mut self, out: &mut Out<'_>) -> io::Result<()>;

    /// One row, as [`RowFormat::row`] wrote it.
    ///
    /// # Errors
    ///
    /// The first that `out` has, or when the row cannot be told in this format.
    fn row(&mut self, row: &[u8], out: &mut Out<'_>) -> io::Result<()>;

    /// What stands behind the last row. Gives what its reader should know of the answer.
    ///
    /// # Errors
    ///
    /// As [`RowSink::row`].
    fn end(&mut self, out: &mut Out<'_>) -> io::Result<Vec<String>>;
}
