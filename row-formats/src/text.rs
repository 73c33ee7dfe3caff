//! Rows for people to read.

use jiff::Timestamp;
use query_language::{FieldTable, Value};
use trace_kinds::Event;

use crate::json::{write_display, write_integer};
use crate::lines::Lines;
use crate::{Column, Columns, RowFormat, RowSink, SinkOptions};

/// One line per event: the time, then `field=value` for every other field; or the requested fields,
/// separated by tabs.
#[derive(Debug, Clone, Default)]
pub struct Text {
    columns: Option<Vec<Column>>,
}

impl RowFormat for Text {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        self.columns = columns.bind(table);
    }

    fn sink(&self, _: SinkOptions) -> Box<dyn RowSink + '_> {
        Box::new(Lines::default())
    }

    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        match &self.columns {
            Some(columns) => {
                for (index, column) in columns.iter().enumerate() {
                    if index > 0 {
                        out.push(b'\t');
                    }
                    match event.field(column.id) {
                        Some(value) => write_value(value, out),
                        None => out.push(b'-'),
                    }
                }
            }
            None => write_event(event, out),
        }
        out.push(b'\n');
    }
}

fn write_event(event: &dyn Event, out: &mut Vec<u8>) {
    match event
        .ts()
        .map(|ts| Timestamp::from_nanosecond(i128::from(ts)))
    {
        Some(Ok(time)) => write_display(format_args!("{time:.9}"), out),
        _ => out.push(b'-'),
    }
    event.each_field(&mut |path, value| {
        if path != "ts" {
            out.push(b' ');
            // Names come from traced programs, too.
            write_value(Value::Str(path.as_bytes()), out);
            out.push(b'=');
            write_value(value, out);
        }
    });
}

/// Text is escaped if it would break its line or field.
fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Str(text) => {
            for chunk in text.utf8_chunks() {
                for c in chunk.valid().chars() {
                    if c.is_control() {
                        write_display(c.escape_default(), out);
                    } else {
                        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                }
                for byte in chunk.invalid() {
                    write_display(format_args!("\\x{byte:02x}"), out);
                }
            }
        }
        Value::Int(value) => write_integer(value, out),
        Value::Uint(value) => write_integer(value, out),
        // Its sign means nothing to people.
        Value::Float(0.0) => out.extend_from_slice(b"0.0"),
        Value::Float(value) => write_display(format_args!("{value:?}"), out),
        Value::Bool(value) => write_display(value, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_short_and_have_no_negative_zero() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "0.0"),
            (-2.0, "-2.0"),
            (0.25, "0.25"),
            (1e308, "1e308"),
            (-1.5e21, "-1.5e21"),
            (1e-7, "1e-7"),
            (5e-324, "5e-324"),
        ] {
            let mut out = Vec::new();
            write_value(Value::Float(value), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
