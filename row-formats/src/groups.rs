//! Groups as rows: the values of their keys, and aggregates of their events.

use std::io;

use chunk_index::OwnedValue;
use query_language::Value;

use crate::cells::write_cell as put_cell;
use crate::csv::{write_cell, write_value};
use crate::json::{write_json_string, write_json_value};
use crate::table::{ColumnType, Heading, Seen, TableSink};
use crate::{Format, Out, RowSink, SinkOptions, TableKind};

/// A column of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupColumn {
    /// Its name.
    pub label: String,
    /// What its numbers are.
    pub kind: GroupColumnKind,
}

/// What the values of a column of groups are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupColumnKind {
    /// Values of fields, of any type.
    Values,
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

/// Writes groups: as a table in Arrow and Parquet, else one line each.
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
    out: &mut Out<'_>,
) -> Result<(), GroupsError> {
    let kind = match format {
        Format::Perfetto => return Err(GroupsError::Timeline),
        Format::Arrow => TableKind::Arrow,
        Format::Parquet => TableKind::Parquet,
        Format::Text | Format::Ndjson | Format::Csv => {
            return Ok(write_lines(format, columns, groups, out)?);
        }
    };
    let options = SinkOptions {
        row_group_bytes,
        is_by_time: false,
    };
    let mut sink = TableSink::new(kind, headings(columns, groups), None, options);
    let mut write = || {
        sink.begin(out)?;
        let mut row = Vec::new();
        for group in groups {
            row.clear();
            for cell in group {
                put_cell(cell.as_ref().map(OwnedValue::as_value), &mut row);
            }
            sink.row(&row, out)?;
        }
        sink.end(out)
    };
    let _no_notes = write()?;
    Ok(())
}

/// The columns of a table of groups. All values are known, so the types of their columns are.
fn headings(columns: &[GroupColumn], groups: &[GroupRow]) -> Vec<Heading> {
    let heading = |(index, column): (usize, &GroupColumn)| {
        let kind = match column.kind {
            GroupColumnKind::Integers => ColumnType::Int,
            GroupColumnKind::Fractions => ColumnType::Float,
            GroupColumnKind::Values => {
                let mut seen = Seen::default();
                let cells = groups.iter().filter_map(|group| group.get(index));
                let values = cells.filter_map(|cell| cell.as_ref());
                values.for_each(|value| seen.add(value.as_value()));
                seen.decide()
            }
        };
        Heading {
            label: column.label.clone(),
            kind: Some(kind),
        }
    };
    columns.iter().enumerate().map(heading).collect()
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
