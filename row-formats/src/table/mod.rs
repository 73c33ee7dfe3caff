//! Tables of typed columns: Arrow and Parquet.
//!
//! A table needs its columns before its rows. The name of a field alone decides the type of its
//! column, so all tables of the same columns have one schema. A value that does not fit its column
//! is not lost: the last column, `rest`, contains it under its name in a JSON object, together with
//! the fields that have no column.

mod column;
mod encoder;
mod open_table;
mod plain;
mod row_block;
mod sink;
mod writer;

use query_language::{FieldPath, FieldTable};
use trace_kinds::{Event, FieldType};

use crate::cells::write_cell;
use crate::csv::TableColumns;
use crate::{Columns, RowFormat, RowSink, SinkOptions};

pub(super) use column::{ColumnType, Heading};
pub use plain::{ColumnFacts, Limit, PlainColumn, PlainType, TableFacts};
pub(super) use sink::TableSink;

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
    is_plain: bool,
}

impl Table {
    /// A table of this kind.
    pub fn new(kind: TableKind) -> Table {
        Table {
            kind,
            table: TableColumns::default(),
            has_filters: false,
            is_plain: false,
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

    /// The same, with plain columns: times are integers, and texts are no dictionaries of Arrow
    /// (those of Parquet remain). For files of tables whose readers have no other types.
    #[must_use]
    pub fn with_plain_columns(self) -> Table {
        Table {
            is_plain: true,
            ..self
        }
    }

    /// The columns that a table of `columns` has [with plain columns](Self::with_plain_columns).
    pub fn plain_columns(columns: &Columns) -> Vec<PlainColumn> {
        let mut table = Table::new(TableKind::Parquet).with_plain_columns();
        table.prepare(columns, &mut FieldTable::new());
        let options = SinkOptions {
            row_group_bytes: 0,
            is_by_time: false,
        };
        table.table_sink(options).plain_columns()
    }

    fn table_sink(&self, options: SinkOptions) -> TableSink {
        let headings = self.table.columns.iter().map(|column| {
            let kind = ColumnType::from(FieldType::of(&FieldPath::new(&column.label)));
            Heading {
                label: column.label.clone(),
                kind: if self.is_plain { kind.plain() } else { kind },
            }
        });
        let layout = Layout {
            kind: self.kind,
            has_filters: self.has_filters,
        };
        TableSink::new(layout, headings.collect(), options)
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
            self.table.write_rest(event, out);
        }
    }

    fn sink(&self, options: SinkOptions) -> Box<dyn RowSink + '_> {
        Box::new(self.table_sink(options))
    }
}
