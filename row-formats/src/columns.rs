//! The fields of an event that its row contains.

use query_language::{FieldId, FieldPath, FieldTable};

/// The requested columns of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Columns {
    /// Every field that an event has.
    #[default]
    All,
    /// These fields, as the user wrote them.
    Fields(Vec<String>),
}

/// A column of a known field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name of the column.
    pub label: String,
    /// The field in the table that events are decoded with.
    pub id: FieldId,
}

impl Columns {
    /// The requested fields; none for all.
    pub fn fields(&self) -> Vec<FieldPath> {
        match self {
            Columns::All => Vec::new(),
            Columns::Fields(labels) => labels.iter().map(|label| FieldPath::new(label)).collect(),
        }
    }

    /// Adds the requested fields to `table`; `None` for all fields.
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
