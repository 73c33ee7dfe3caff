//! Tables of the fields of records: a path, and how its value is read.

use query_language::FieldTable;

/// For each field of `table`, by index, how it is read; `None` for a field that is not in `fields`.
pub(crate) fn select_fields<F: Copy>(table: &FieldTable, fields: &[(&str, F)]) -> Vec<Option<F>> {
    let of_record = |path: &str| {
        let found = fields.iter().find(|(name, _)| *name == path);
        found.map(|(_, read)| *read)
    };
    let paths = table.paths().iter();
    paths.map(|path| of_record(path.as_str())).collect()
}
