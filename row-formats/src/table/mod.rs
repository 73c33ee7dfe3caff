//! Tables of typed columns: Arrow and Parquet.
//!
//! A table needs its columns before its rows. The common fields have fixed types; the types of
//! other fields are derived from the first batch of rows. A later value that does not fit its
//! column is not lost: the last column, `rest`, contains it under its name in a JSON object,
//! together with the fields that have no column.

mod column;
mod sink;
mod writer;

use query_language::{FieldPath, FieldTable};
use trace_kinds::Event;

use crate::cells::write_cell;
use crate::csv::{REST, rest_of, table_columns};
use crate::{Column, Columns, RowFormat, RowSink, SinkOptions};

pub(super) use column::{ColumnType, Seen};
pub(super) use sink::{Heading, TableSink};

/// The file format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// A stream of record batches (IPC).
    Arrow,
    /// A file of row groups.
    Parquet,
}

/// Events as rows of a table.
#[derive(Debug, Clone)]
pub struct Table {
    kind: TableKind,
    columns: Vec<Column>,
    /// Whether fields without a column are written to `rest`.
    has_rest: bool,
}

impl Table {
    /// A table of this kind.
    pub fn new(kind: TableKind) -> Table {
        Table {
            kind,
            columns: Vec::new(),
            has_rest: false,
        }
    }
}

impl RowFormat for Table {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        (self.columns, self.has_rest) = table_columns(columns, table);
    }

    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        for column in &self.columns {
            write_cell(event.field(column.id), out);
        }
        if self.has_rest {
            out.extend_from_slice(&rest_of(event));
        }
    }

    fn sink(&self, options: SinkOptions) -> Box<dyn RowSink + '_> {
        let headings = self.columns.iter().map(|column| Heading {
            label: column.label.clone(),
            kind: fixed_type(&column.label),
        });
        Box::new(TableSink::new(
            self.kind,
            headings.collect(),
            Some(REST),
            options,
        ))
    }
}

/// The type of a field whose type is the same for every kind of trace.
fn fixed_type(label: &str) -> Option<ColumnType> {
    match FieldPath::new(label).as_str() {
        "ts" | "dur" | "pid" | "tid" => Some(ColumnType::Int),
        "name" | "cat" | "agent" | "stream" | "storage" | "kind" => Some(ColumnType::Text),
        _ => None,
    }
}
