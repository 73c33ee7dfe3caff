//! Events and groups as bytes: text, NDJSON, CSV, Arrow, Parquet and Perfetto.
//!
//! | what | type |
//! | --- | --- |
//! | the formats, and their names and media types | [`Format`] |
//! | the fields of an event that a row contains | [`Columns`] |
//! | an event as one row, on any thread | [`RowFormat`] |
//! | the rows of a result in order, with header and footer | [`RowSink`] |
//! | groups of events with their totals | [`GroupRow`], [`write_groups`] |

mod cells;
mod csv;
mod format;
mod groups;
mod json;
mod lines;
mod ndjson;
mod perfetto;
mod table;
#[cfg(test)]
mod tests;
mod text;

use std::io;

use query_language::{FieldId, FieldPath, FieldTable};
use trace_kinds::Event;

pub use csv::Csv;
pub use format::Format;
pub use groups::{GROUP_COLUMNS, GroupRow, GroupsError, write_group_ndjson, write_groups};
pub use json::write_json_value;
pub use ndjson::Ndjson;
pub use perfetto::Perfetto;
pub use table::{Table, TableKind};
pub use text::Text;

/// Where bytes of an answer go.
pub type Out<'o> = dyn FnMut(&[u8]) -> io::Result<()> + 'o;

/// The columns of the rows that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Columns {
    /// Every field that an event has.
    #[default]
    All,
    /// These fields, as the user spells them.
    Fields(Vec<String>),
}

/// A column of known field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What the column is called.
    pub label: String,
    /// The field of the table that events are decoded with.
    pub id: FieldId,
}

impl Columns {
    /// The fields that are named.
    pub fn fields(&self) -> Vec<FieldPath> {
        match self {
            Columns::All => Vec::new(),
            Columns::Fields(labels) => labels.iter().map(|label| FieldPath::new(label)).collect(),
        }
    }

    /// The named columns, their fields added to `table`; `None` for all fields.
    pub fn bind(&self, table: &mut FieldTable) -> Option<Vec<Column>> {
        match self {
            Columns::All => None,
            Columns::Fields(labels) => Some(
                labels
                    .iter()
                    .map(|label| Column {
                        label: label.clone(),
                        id: table.insert(&FieldPath::new(label)),
                    })
                    .collect(),
            ),
        }
    }
}

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
