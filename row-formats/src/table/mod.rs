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
use crate::csv::TableColumns;
use crate::{Columns, RowFormat, RowSink, SinkOptions};

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

/// How a table is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) kind: TableKind,
    /// Whether columns of text have Bloom filters, in a Parquet file.
    pub(super) has_filters: bool,
}

/// Events as rows of a table.
#[derive(Debug, Clone)]
pub struct Table {
    kind: TableKind,
    table: TableColumns,
    has_filters: bool,
}

impl Table {
    /// A table of this kind.
    pub fn new(kind: TableKind) -> Table {
        Table {
            kind,
            table: TableColumns::default(),
            has_filters: false,
        }
    }

    /// The same, with Bloom filters of columns of text: for Parquet files that are read often.
    #[must_use]
    pub fn with_filters(self) -> Table {
        Table {
            has_filters: true,
            ..self
        }
    }
}

impl RowFormat for Table {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        self.table = TableColumns::new(columns, table);
    }

    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        for column in &self.table.columns {
            write_cell(event.field(column.id), out);
        }
        if self.table.has_rest {
            out.extend_from_slice(&self.table.rest_of(event));
        }
    }

    fn sink(&self, options: SinkOptions) -> Box<dyn RowSink + '_> {
        let headings = self.table.columns.iter().map(|column| Heading {
            label: column.label.clone(),
            kind: FieldType::of(&FieldPath::new(&column.label)).into(),
        });
        let layout = Layout {
            kind: self.kind,
            has_filters: self.has_filters,
        };
        Box::new(TableSink::new(layout, headings.collect(), options))
    }
}
