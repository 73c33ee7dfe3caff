//! Comma-separated values (RFC 4180, with a header line and single newlines).

use query_language::{FieldPath, FieldTable, Value};
use trace_kinds::Event;

use crate::columns::bind;
use crate::json::{write_display, write_integer, write_json_string, write_json_value};
use crate::lines::Lines;
use crate::path_set::PathSet;
use crate::{Column, Columns, RowFormat, RowSink, SinkOptions};

/// The columns of a table of all fields. A table needs its columns before its rows, so all other
/// fields of an event become one JSON object in a last column.
const COMMON: [&str; 6] = ["ts", "dur", "name", "cat", "pid", "tid"];
pub(super) const REST: &str = "rest";

/// The columns of a table.
#[derive(Debug, Clone, Default)]
pub(super) struct TableColumns {
    pub(super) columns: Vec<Column>,
    /// Whether a last column has all other fields.
    pub(super) has_rest: bool,
    /// The paths of the fields that have a column of their own.
    paths: PathSet,
}

impl TableColumns {
    pub(super) fn new(columns: &Columns, table: &mut FieldTable) -> TableColumns {
        let (columns, has_rest) = match columns {
            Columns::Fields(labels) => (bind(labels, table), false),
            Columns::First(labels) => (bind(labels, table), true),
            Columns::All => (bind(&COMMON, table), true),
        };
        let path = |column: &Column| FieldPath::new(&column.label).as_str().to_owned();
        TableColumns {
            paths: columns.iter().map(path).collect(),
            columns,
            has_rest,
        }
    }

    /// Appends the fields of an event without a column of their own as one JSON object, or nothing
    /// if there are none.
    pub(super) fn write_rest(&self, event: &dyn Event, out: &mut Vec<u8>) {
        let before = out.len();
        event.each_field(&mut |path, value| {
            if !self.paths.contains(path) {
                out.push(if out.len() == before { b'{' } else { b',' });
                write_json_string(path, out);
                out.push(b':');
                write_json_value(value, out);
            }
        });
        if out.len() > before {
            out.push(b'}');
        }
    }
}

/// Comma-separated values with a header line.
#[derive(Debug, Clone, Default)]
pub struct Csv {
    table: TableColumns,
}

impl RowFormat for Csv {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        self.table = TableColumns::new(columns, table);
    }

    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        for (index, column) in self.table.columns.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            if let Some(value) = event.field(column.id) {
                write_value(value, out);
            }
        }
        if self.table.has_rest {
            out.push(b',');
            let mut rest = Vec::new();
            self.table.write_rest(event, &mut rest);
            write_cell(&rest, out);
        }
        out.push(b'\n');
    }

    fn sink(&self, _: SinkOptions) -> Box<dyn RowSink + '_> {
        Box::new(Lines::with_header(self.header()))
    }
}

impl Csv {
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        for (index, column) in self.table.columns.iter().enumerate() {
            if index > 0 {
                header.push(b',');
            }
            write_cell(column.label.as_bytes(), &mut header);
        }
        if self.table.has_rest {
            header.push(b',');
            header.extend_from_slice(REST.as_bytes());
        }
        header.push(b'\n');
        header
    }
}

pub(super) fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Str(text) => write_cell(text, out),
        Value::Int(value) => write_integer(value, out),
        Value::Uint(value) => write_integer(value, out),
        Value::Float(value) => write_display(value, out),
        Value::Bool(value) => write_display(value, out),
    }
}

pub(super) fn write_cell(text: &[u8], out: &mut Vec<u8>) {
    if !text
        .iter()
        .any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'))
    {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for byte in text {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}
