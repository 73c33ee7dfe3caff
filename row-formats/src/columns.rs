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
    /// Every field: these in columns of their own, where the format has columns.
    First(Vec<String>),
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
            Columns::All | Columns::First(_) => Vec::new(),
            Columns::Fields(labels) => labels.iter().map(|label| FieldPath::new(label)).collect(),
        }
    }

    /// Adds the requested fields to `table`; `None` for all fields.
    pub fn bind(&self, table: &mut FieldTable) -> Option<Vec<Column>> {
        match self {
            Columns::All | Columns::First(_) => None,
            Columns::Fields(labels) => Some(bind(labels, table)),
        }
    }
}

/// Adds the fields with these labels to `table`.
pub(super) fn bind<L: AsRef<str>>(labels: &[L], table: &mut FieldTable) -> Vec<Column> {
    let column = |label: &L| Column {
        label: label.as_ref().to_owned(),
        id: table.insert(&FieldPath::new(label.as_ref())),
    };
    labels.iter().map(column).collect()
}
