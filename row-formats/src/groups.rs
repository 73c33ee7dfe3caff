//! Groups as rows: a value of the field and the totals of the events that have it.

use std::io;

use chunk_index::{OwnedValue, Totals};
use query_language::Value;

use crate::cells::write_cell as put_cell;
use crate::csv::{write_cell, write_value};
use crate::json::write_json_value;
use crate::table::{ColumnType, Heading, Seen, TableSink};
use crate::{Format, Out, RowSink, SinkOptions, TableKind};

/// Events that have one value of a field, `None` for those that lack it.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRow {
    /// The value.
    pub value: Option<OwnedValue>,
    /// Their totals.
    pub totals: Totals,
}

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

/// The columns of a group other than its value. Durations are in nanoseconds.
pub const GROUP_COLUMNS: [&str; 9] = [
    "count",
    "dur_count",
    "dur_sum",
    "dur_min",
    "dur_max",
    "dur_mean",
    "dur_p50",
    "dur_p90",
    "dur_p99",
];
/// The first of [`GROUP_COLUMNS`] that contains fractions.
const FIRST_FRACTION: usize = 5;

/// Writes groups: as a table in Arrow and Parquet, else one line each.
///
/// # Errors
///
/// The first error of `out`, or when the format cannot contain groups
/// ([`Format::supports_groups`]).
pub fn write_groups(
    format: Format,
    field: &str,
    groups: &[GroupRow],
    row_group_bytes: usize,
    out: &mut Out<'_>,
) -> Result<(), GroupsError> {
    let kind = match format {
        Format::Perfetto => return Err(GroupsError::Timeline),
        Format::Arrow => TableKind::Arrow,
        Format::Parquet => TableKind::Parquet,
        Format::Text | Format::Ndjson | Format::Csv => {
            return Ok(write_lines(format, field, groups, out)?);
        }
    };
    let options = SinkOptions {
        row_group_bytes,
        is_by_time: false,
    };
    let mut sink = TableSink::new(kind, headings(field, groups), None, options);
    let mut write = || {
        sink.begin(out)?;
        let mut row = Vec::new();
        for group in groups {
            row.clear();
            put_cell(group.value.as_ref().map(|value| value.as_value()), &mut row);
            numbers(group)
                .iter()
                .for_each(|number| put_cell(*number, &mut row));
            sink.row(&row, out)?;
        }
        sink.end(out)
    };
    let _no_notes = write()?;
    Ok(())
}

/// The columns of a table of groups. All values are known, so the type of their column is.
fn headings(field: &str, groups: &[GroupRow]) -> Vec<Heading> {
    let mut seen = Seen::default();
    let values = groups.iter().filter_map(|group| group.value.as_ref());
    values.for_each(|value| seen.add(value.as_value()));
    let number = |(index, name): (usize, &&str)| Heading {
        label: (*name).to_owned(),
        kind: Some(if index < FIRST_FRACTION {
            ColumnType::Int
        } else {
            ColumnType::Float
        }),
    };
    let value = Heading {
        label: field.to_owned(),
        kind: Some(seen.decide()),
    };
    let numbers = GROUP_COLUMNS.iter().enumerate().map(number);
    std::iter::once(value).chain(numbers).collect()
}

fn write_lines(
    format: Format,
    field: &str,
    groups: &[GroupRow],
    out: &mut Out<'_>,
) -> io::Result<()> {
    if format == Format::Csv {
        out(&group_csv_header(field))?;
    }
    let mut row = Vec::new();
    for group in groups {
        row.clear();
        match format {
            Format::Csv => write_group_csv(group, &mut row),
            _ => write_group_ndjson(field, group, &mut row),
        }
        out(&row)?;
    }
    Ok(())
}

/// Appends a group as a line with a JSON object. The value is `null` for events without the field.
pub fn write_group_ndjson(field: &str, group: &GroupRow, out: &mut Vec<u8>) {
    out.push(b'{');
    write_json_value(Value::from(field), out);
    out.push(b':');
    match &group.value {
        Some(value) => write_json_value(value.as_value(), out),
        None => out.extend_from_slice(b"null"),
    }
    for (name, number) in GROUP_COLUMNS.iter().zip(numbers(group)) {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        match number {
            Some(number) => write_json_value(number, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(b"}\n");
}

/// The header line of groups as comma-separated values.
fn group_csv_header(field: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_cell(field.as_bytes(), &mut out);
    for name in GROUP_COLUMNS {
        out.push(b',');
        out.extend_from_slice(name.as_bytes());
    }
    out.push(b'\n');
    out
}

/// Appends a group as comma-separated values; unknown ones are empty.
fn write_group_csv(group: &GroupRow, out: &mut Vec<u8>) {
    if let Some(value) = &group.value {
        write_value(value.as_value(), out);
    }
    for number in numbers(group) {
        out.push(b',');
        if let Some(number) = number {
            write_json_value(number, out);
        }
    }
    out.push(b'\n');
}

/// The numbers of a group in the order of [`GROUP_COLUMNS`].
fn numbers(group: &GroupRow) -> [Option<Value<'static>>; 9] {
    let durations = &group.totals.durations;
    let (min, max) = durations.range().unzip();
    let sum = (durations.count > 0).then(|| i64::try_from(durations.sum).unwrap_or(i64::MAX));
    let quantile = |q| durations.quantile(q).map(Value::Float);
    [
        Some(Value::Uint(group.totals.events)),
        Some(Value::Uint(durations.count)),
        sum.map(Value::Int),
        min.map(Value::Int),
        max.map(Value::Int),
        durations.mean().map(Value::Float),
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
    ]
}
