use query_engine::{Limits, Request};
use query_language::FieldPath;
use row_formats::{Columns, Format};

/// A query from the command line, independent of where it is executed.
pub(super) struct QueryOptions {
    pub(super) request: Request,
    pub(super) columns: Columns,
    pub(super) count: bool,
    pub(super) group_by: Option<String>,
    pub(super) format: Format,
    pub(super) explain: bool,
    /// Whether derived streams of a storage are read next to their sources.
    pub(super) derived: bool,
    pub(super) row_group_bytes: usize,
}

impl QueryOptions {
    /// Limits on memory and parallelism.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            row_group_bytes: self.row_group_bytes,
            ..Limits::default()
        }
    }

    /// The fields that the output needs in addition to those of the expression.
    pub(super) fn fields(&self) -> Vec<FieldPath> {
        let mut fields = self.columns.fields();
        fields.extend(self.group_by.as_deref().map(FieldPath::new));
        fields
    }
}
