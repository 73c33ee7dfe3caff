//! Rows in order to batches of columns.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use query_language::Value;

use super::Layout;
use super::column::{ColumnBuilder, ColumnType};
use super::plain::PlainColumn;
use super::writer::TableWriter;
use crate::cells::Cells;
use crate::csv::REST;
use crate::json::{write_json_string, write_json_value};
use crate::{Known, Out, RowSink, SinkOptions};

/// Most rows of a batch.
const BATCH_ROWS: usize = 1 << 16;
/// Bytes of rows after which a batch is written.
const BATCH_BYTES: usize = 4 << 20;

/// A column.
#[derive(Debug, Clone)]
pub(crate) struct Heading {
    pub(crate) label: String,
    pub(crate) kind: ColumnType,
}

/// Collects rows into batches.
pub(crate) struct TableSink {
    layout: Layout,
    headings: Vec<Heading>,
    /// Name of the column for values without a column.
    rest: String,
    batch_bytes: usize,
    options: SinkOptions,
    /// Rows and their bytes that are not in a batch yet.
    rows: usize,
    row_bytes: usize,
    open: Option<OpenTable>,
}

/// A table to which rows are written.
struct OpenTable {
    schema: Arc<Schema>,
    columns: Vec<ColumnBuilder>,
    /// Names of the columns, for values in `rest`.
    labels: Vec<String>,
    rest: ColumnBuilder,
    /// Values that did not fit, by column.
    misfits: BTreeMap<String, u64>,
    writer: TableWriter,
}

impl TableSink {
    /// A sink of rows with one cell per heading, followed by a JSON object of the fields without a
    /// column, which becomes the column `rest`.
    pub(crate) fn new(layout: Layout, headings: Vec<Heading>, options: SinkOptions) -> TableSink {
        let mut named = TableSink {
            layout,
            headings: Vec::with_capacity(headings.len()),
            rest: String::new(),
            batch_bytes: BATCH_BYTES.min(options.row_group_bytes),
            options,
            rows: 0,
            row_bytes: 0,
            open: None,
        };
        for heading in headings {
            let label = named.unused(heading.label);
            named.headings.push(Heading { label, ..heading });
        }
        named.rest = named.unused(REST.to_owned());
        named
    }

    /// The columns of the table, if it has plain columns.
    pub(super) fn plain_columns(&self) -> Vec<PlainColumn> {
        let headings = self.headings.iter();
        let columns = headings.map(|heading| (&heading.label, heading.kind));
        let columns = columns.chain([(&self.rest, ColumnType::Json)]);
        let column = |(name, kind): (&String, ColumnType)| PlainColumn {
            name: name.clone(),
            kind: kind.plain_type(),
        };
        columns.map(column).collect()
    }

    /// `label`, with a number appended if a column has that name already.
    fn unused(&self, label: String) -> String {
        let is_used = |label: &str| self.headings.iter().any(|heading| heading.label == label);
        if !is_used(&label) {
            return label;
        }
        let mut numbered = (2_u32..).map(|number| format!("{label}_{number}"));
        let unused = numbered.find(|label| !is_used(label));
        unused.unwrap_or(label)
    }

    /// The table, which the first row or the end of the result begins.
    fn open(&mut self) -> io::Result<&mut OpenTable> {
        let table = match self.open.take() {
            Some(open) => open,
            None => self.begin_table()?,
        };
        Ok(self.open.insert(table))
    }

    fn begin_table(&self) -> io::Result<OpenTable> {
        let column = |label: &String, kind: ColumnType| Field::new(label, kind.data_type(), true);
        let headings = self.headings.iter();
        let fields = headings.map(|heading| column(&heading.label, heading.kind));
        let fields = fields.chain([column(&self.rest, ColumnType::Json)]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        let headings = self.headings.iter();
        Ok(OpenTable {
            writer: TableWriter::new(self.layout, &schema, self.options)?,
            columns: headings
                .map(|heading| ColumnBuilder::new(heading.kind))
                .collect(),
            labels: self.headings.iter().map(|h| h.label.clone()).collect(),
            rest: ColumnBuilder::new(ColumnType::Json),
            misfits: BTreeMap::new(),
            schema,
        })
    }

    /// Writes the collected rows as a batch.
    fn flush(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let has_rows = self.rows > 0;
        let open = self.open()?;
        if has_rows {
            let batch = open.batch()?;
            open.writer.write(&batch)?;
        }
        out(&open.writer.take())?;
        (self.rows, self.row_bytes) = (0, 0);
        Ok(())
    }
}

impl OpenTable {
    fn append(&mut self, row: &[u8]) -> io::Result<()> {
        let mut cells = Cells::new(row);
        let mut misfits: Vec<(usize, Value<'_>)> = Vec::new();
        for (number, column) in self.columns.iter_mut().enumerate() {
            let value = cells.next()?;
            if !column.append(value)
                && let Some(value) = value
            {
                misfits.push((number, value));
            }
        }
        let known = cells.rest();
        if misfits.is_empty() {
            let known = (!known.is_empty()).then_some(Value::Str(known));
            self.rest.append(known);
            return Ok(());
        }
        let mut rest = known.strip_suffix(b"}").unwrap_or(b"{").to_vec();
        for (number, value) in misfits {
            if rest.len() > 1 {
                rest.push(b',');
            }
            let label = &self.labels[number];
            write_json_string(label, &mut rest);
            rest.push(b':');
            write_json_value(value, &mut rest);
            *self.misfits.entry(label.clone()).or_default() += 1;
        }
        rest.push(b'}');
        self.rest.append(Some(Value::Str(&rest)));
        Ok(())
    }

    fn batch(&mut self) -> io::Result<RecordBatch> {
        let columns = self.columns.iter_mut().chain([&mut self.rest]);
        let columns: Vec<ArrayRef> = columns.map(ColumnBuilder::finish).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(io::Error::other)
    }
}

impl RowSink for TableSink {
    fn begin(&mut self, _: &mut Out<'_>) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, row: &[u8], out: &mut Out<'_>) -> io::Result<()> {
        self.open()?.append(row)?;
        self.rows += 1;
        self.row_bytes += row.len();
        if self.rows >= BATCH_ROWS || self.row_bytes >= self.batch_bytes {
            self.flush(out)?;
        }
        Ok(())
    }

    fn end(&mut self, known: Known<'_>, out: &mut Out<'_>) -> io::Result<Vec<String>> {
        if self.open.is_none() || self.rows > 0 {
            self.flush(out)?;
        }
        let Some(open) = self.open.take() else {
            return Ok(Vec::new());
        };
        let rest = &self.rest;
        let note = |(label, count): (&String, &u64)| {
            format!(
                "{count} values of {label} are not of the type of their column and are in the \
                 column {rest}"
            )
        };
        let notes: Vec<String> = open.misfits.iter().map(note).collect();
        let told = [known.notes, &notes].concat();
        out(&open.writer.finish(&told, known.skipped)?)?;
        Ok(notes)
    }
}
