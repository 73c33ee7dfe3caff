//! Rows as bytes.

mod csv;
mod groups;
mod json;
mod ndjson;
mod text;

use trace_events::Event;
use trace_query::{FieldId, FieldPath, FieldTable};

pub use csv::Csv;
pub use groups::{GROUP_COLUMNS, group_csv_head, write_group_csv, write_group_ndjson};
pub use json::write_json_value;
pub use ndjson::Ndjson;
pub use text::Text;

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

/// Writes events as rows. Rows are written by many threads at once and put in order afterwards, so
/// a row knows nothing of its neighbours.
pub trait RowFormat: Send + Sync {
    /// Fields that the format itself needs; added to the table before any event is decoded.
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable);

    /// What stands in front of the first row.
    fn head(&self) -> Vec<u8>;

    /// Appends one row.
    fn row(&self, event: &dyn Event, out: &mut Vec<u8>);

    /// What stands behind the last row.
    fn tail(&self) -> Vec<u8> {
        Vec::new()
    }
}
