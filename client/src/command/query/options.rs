use query_engine::{GroupSpec, Limits, ReadError, Request, field_columns};
use query_language::FieldPath;
use row_formats::{Columns, Format, GroupColumn};

/// A query from the command line, independent of where it is executed.
pub(super) struct QueryOptions {
    pub(super) request: Request,
    pub(super) columns: Columns,
    pub(super) count: bool,
    /// Whether the result is a list of fields.
    pub(super) list_fields: bool,
    /// The requested groups, if the result is groups.
    pub(super) groups: Option<GroupSpec>,
    pub(super) format: Format,
    pub(super) explain: bool,
    /// Whether derived streams of a storage are read next to their sources.
    pub(super) derived: bool,
    pub(super) row_group_bytes: usize,
}

impl QueryOptions {
    /// The columns of the result, if it is groups or a list of fields.
    pub(super) fn columns_of_groups(&self) -> Result<Option<Vec<GroupColumn>>, ReadError> {
        if self.list_fields {
            return Ok(Some(field_columns()));
        }
        Ok(self.groups.as_ref().map(GroupSpec::columns).transpose()?)
    }

    /// Whether the result is events, not numbers about them.
    pub(super) fn is_rows(&self) -> bool {
        !self.count && !self.list_fields && self.groups.is_none()
    }

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
        fields.extend(self.groups.iter().flat_map(GroupSpec::fields));
        fields.extend(self.request.order.fields());
        fields
    }
}
