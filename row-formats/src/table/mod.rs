//! Tables of typed columns: Arrow and Parquet.
//!
//! A table needs its columns before its rows. The name of a field alone decides the type of its
//! column, so all tables of the same columns have one schema. A value that does not fit its column
//! is not lost: the last column, `rest`, contains it under its name in a JSON object, together with
//! the fields that have no column.

mod column;
mod sink;
mod writer;

use query_language::{FieldPath, FieldTable};
use trace_kinds::{Event, FieldType};

use crate::cells::write_cell;
use crate::csv::{rest_of, table_columns};
use crate::{Column, Columns, RowFormat, RowSink, SinkOptions};

pub(super) use column::ColumnType;
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
            kind: FieldType::of(&FieldPath::new(&column.label)).into(),
        });
        Box::new(TableSink::new(self.kind, headings.collect(), options))
    }
}
