//! Comma-separated values (RFC 4180, with a header line and single newlines).

use query_language::{FieldTable, Value};
use trace_kinds::Event;

use crate::json::{write_display, write_json_string, write_json_value};
use crate::lines::Lines;
use crate::{Column, Columns, RowFormat, RowSink, SinkOptions};

/// The columns of a table of all fields. A table needs its columns before its rows, so all other
/// fields of an event become one JSON object in a last column.
const COMMON: [&str; 6] = ["ts", "dur", "name", "cat", "pid", "tid"];
pub(super) const REST: &str = "rest";

/// The columns of a table, and whether it has a last column for all other fields.
pub(super) fn table_columns(columns: &Columns, table: &mut FieldTable) -> (Vec<Column>, bool) {
    match columns.bind(table) {
        Some(columns) => (columns, false),
        None => {
            let common = Columns::Fields(COMMON.map(String::from).to_vec());
            (common.bind(table).unwrap_or_default(), true)
        }
    }
}

/// Comma-separated values with a header line.
#[derive(Debug, Clone, Default)]
pub struct Csv {
    columns: Vec<Column>,
    has_rest: bool,
}

impl RowFormat for Csv {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        (self.columns, self.has_rest) = table_columns(columns, table);
    }

    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        for (index, column) in self.columns.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            if let Some(value) = event.field(column.id) {
                write_value(value, out);
            }
        }
        if self.has_rest {
            out.push(b',');
            write_cell(&rest_of(event), out);
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
        for (index, column) in self.columns.iter().enumerate() {
            if index > 0 {
                header.push(b',');
            }
            write_cell(column.label.as_bytes(), &mut header);
        }
        if self.has_rest {
            header.push(b',');
            header.extend_from_slice(REST.as_bytes());
        }
        header.push(b'\n');
        header
    }
}

/// The fields of an event other than the common ones as one JSON object; empty without any.
pub(super) fn rest_of(event: &dyn Event) -> Vec<u8> {
    let mut rest = Vec::new();
    event.each_field(&mut |path, value| {
        if !COMMON.contains(&path) {
            rest.push(if rest.is_empty() { b'{' } else { b',' });
            write_json_string(path, &mut rest);
            rest.push(b':');
            write_json_value(value, &mut rest);
        }
    });
    if !rest.is_empty() {
        rest.push(b'}');
    }
    rest
}

pub(super) fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Str(text) => write_cell(text, out),
        Value::Int(value) => write_display(value, out),
        Value::Uint(value) => write_display(value, out),
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
