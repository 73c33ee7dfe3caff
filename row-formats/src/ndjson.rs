//! One JSON object per row.

use query_language::FieldTable;
use trace_kinds::Event;

use crate::json::{write_json_string, write_json_value};
use crate::lines::Lines;
use crate::{Column, Columns, RowFormat, RowSink, SinkOptions};

/// One JSON object per line: the requested fields under their requested names, null if the event
/// lacks one; or every field of the event under its path.
#[derive(Debug, Clone, Default)]
pub struct Ndjson {
    columns: Option<Vec<Column>>,
}

impl RowFormat for Ndjson {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        self.columns = columns.bind(table);
    }

    fn sink(&self, _: SinkOptions) -> Box<dyn RowSink + '_> {
        Box::new(Lines::default())
    }

    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        let mut separator = b'{';
        let mut key = |name: &str, out: &mut Vec<u8>| {
            out.push(separator);
            separator = b',';
            write_json_string(name, out);
            out.push(b':');
        };
        match &self.columns {
            Some(columns) => {
                for column in columns {
                    key(&column.label, out);
                    match event.field(column.id) {
                        Some(value) => write_json_value(value, out),
                        None => out.extend_from_slice(b"null"),
                    }
                }
            }
            None => event.each_field(&mut |path, value| {
                key(path, out);
                write_json_value(value, out);
            }),
        }
        if separator == b'{' {
            out.push(b'{');
        }
        out.extend_from_slice(b"}\n");
    }
}
