//! Groups as rows: the values of their keys, and aggregates of their events.

use std::io;

use chunk_index::OwnedValue;
use query_language::{FieldPath, Value};
use trace_kinds::FieldType;

use crate::cells::write_cell as put_cell;
use crate::csv::{write_cell, write_value};
use crate::json::{write_json_string, write_json_value};
use crate::table::{ColumnType, Heading, Layout, TableSink};
use crate::{Format, Known, Out, RowSink, SinkOptions, TableKind};

/// A column of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupColumn {
    /// Its name.
    pub label: String,
    /// What its numbers are.
    pub kind: GroupColumnKind,
}

/// What the values of a column of groups are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupColumnKind {
    /// Values of this field.
    Values(FieldPath),
    /// Sums of this field.
    Sums(FieldPath),
    /// Integers.
    Integers,
    /// Fractions.
    Fractions,
}

/// The cells of a group in the order of the columns.
pub type GroupRow = Vec<Option<OwnedValue>>;

/// Why groups cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// A timeline shows events only.
    #[error("a timeline cannot contain groups: use parquet, arrow, csv, ndjson or text")]
    Timeline,
    /// The output failed.
    #[error("cannot write the groups")]
    Output(#[from] io::Error),
}

/// Writes groups: as a table in Arrow and Parquet, else one line each. A Parquet
/// file says what is `known` of them. Returns more notes for the user.
///
/// # Errors
///
/// The first error of `out`, or when the format cannot contain groups
/// ([`Format::supports_groups`]).
pub fn write_groups(
    format: Format,
    columns: &[GroupColumn],
    groups: &[GroupRow],
    row_group_bytes: usize,
    known: Known<'_>,
    out: &mut Out<'_>,
) -> Result<Vec<String>, GroupsError> {
    let kind = match format {
        Format::Perfetto | Format::Chrome => return Err(GroupsError::Timeline),
        Format::Arrow => TableKind::Arrow,
        Format::Parquet => TableKind::Parquet,
        Format::Text | Format::Ndjson | Format::Csv => {
            write_lines(format, columns, groups, out)?;
            return Ok(Vec::new());
        }
    };
    let options = SinkOptions {
        row_group_bytes,
        is_by_time: false,
    };
    let layout = Layout {
        kind,
        has_filters: false,
    };
    let mut sink = TableSink::new(layout, headings(columns), options);
    sink.begin(out)?;
    let mut row = Vec::new();
    for group in groups {
        row.clear();
        for cell in group {
            put_cell(cell.as_ref().map(OwnedValue::as_value), &mut row);
        }
        sink.row(&row, out)?;
    }
    Ok(sink.end(known, out)?)
}

/// The columns of a table of groups. As in tables of rows, the values do not decide their types.
fn headings(columns: &[GroupColumn]) -> Vec<Heading> {
    let heading = |column: &GroupColumn| Heading {
        label: column.label.clone(),
        kind: match &column.kind {
            GroupColumnKind::Integers => ColumnType::Int,
            GroupColumnKind::Fractions => ColumnType::Float,
            GroupColumnKind::Values(field) => FieldType::of(field).into(),
            GroupColumnKind::Sums(field) => match FieldType::of(field) {
                FieldType::Time | FieldType::Integer => ColumnType::Int,
                FieldType::Fraction | FieldType::Flag | FieldType::Text => ColumnType::Float,
            },
        },
    };
    columns.iter().map(heading).collect()
}

fn write_lines(
    format: Format,
    columns: &[GroupColumn],
    groups: &[GroupRow],
    out: &mut Out<'_>,
) -> io::Result<()> {
    if format == Format::Csv {
        out(&group_csv_header(columns))?;
    }
    let mut row = Vec::new();
    for group in groups {
        row.clear();
        match format {
            Format::Csv => write_group_csv(group, &mut row),
            _ => write_group_ndjson(columns, group, &mut row),
        }
        out(&row)?;
    }
    Ok(())
}

/// Appends a group as a line with a JSON object. Unknown values are `null`.
pub fn write_group_ndjson(columns: &[GroupColumn], group: &GroupRow, out: &mut Vec<u8>) {
    let mut separator = b'{';
    for (column, cell) in columns.iter().zip(group) {
        out.push(separator);
        separator = b',';
        write_json_string(&column.label, out);
        out.push(b':');
        match cell {
            Some(value) => write_json_value(value.as_value(), out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(b"}\n");
}

/// The header line of groups as comma-separated values.
fn group_csv_header(columns: &[GroupColumn]) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_cell(column.label.as_bytes(), &mut out);
    }
    out.push(b'\n');
    out
}

/// Appends a group as comma-separated values; unknown ones are empty.
fn write_group_csv(group: &GroupRow, out: &mut Vec<u8>) {
    for (index, cell) in group.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match cell.as_ref().map(OwnedValue::as_value) {
            // Debug formatting always has a fraction, so a float remains one.
            Some(value @ Value::Float(_)) => write_json_value(value, out),
            Some(value) => write_value(value, out),
            None => {}
        }
    }
    out.push(b'\n');
}
