//! Rows in order to batches of columns.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use query_language::Value;

use super::TableKind;
use super::column::{ColumnBuilder, ColumnType, Seen};
use super::writer::TableWriter;
use crate::cells::Cells;
use crate::json::{write_json_string, write_json_value};
use crate::{Out, RowSink, SinkOptions};

/// Most rows of a batch.
const BATCH_ROWS: usize = 1 << 16;
/// Bytes of rows after which a batch is written.
const BATCH_BYTES: usize = 4 << 20;

/// A column before its type is known.
#[derive(Debug, Clone)]
pub(crate) struct Heading {
    pub(crate) label: String,
    /// The type, if it does not depend on the values.
    pub(crate) kind: Option<ColumnType>,
}

/// Collects rows into batches.
pub(crate) struct TableSink {
    kind: TableKind,
    headings: Vec<Heading>,
    /// Name of the column for values without a column.
    rest: Option<String>,
    batch_bytes: usize,
    options: SinkOptions,
    /// Rows that are not in a batch yet.
    rows: Vec<u8>,
    ends: Vec<usize>,
    open: Option<OpenTable>,
}

/// The table once the types are known.
struct OpenTable {
    schema: Arc<Schema>,
    columns: Vec<ColumnBuilder>,
    /// Names of the columns, for values in `rest`.
    labels: Vec<String>,
    rest: Option<StringBuilder>,
    /// Values that did not fit, by column.
    misfits: BTreeMap<String, u64>,
    writer: TableWriter,
}

impl TableSink {
    /// A sink of rows with one cell per heading, followed by a JSON object of the fields without a
    /// column, which becomes the column `rest`.
    pub(crate) fn new(
        kind: TableKind,
        headings: Vec<Heading>,
        rest: Option<&str>,
        options: SinkOptions,
    ) -> TableSink {
        let mut named = TableSink {
            kind,
            headings: Vec::with_capacity(headings.len()),
            rest: None,
            batch_bytes: BATCH_BYTES.min(options.row_group_bytes),
            options,
            rows: Vec::new(),
            ends: Vec::new(),
            open: None,
        };
        for heading in headings {
            let label = named.unused(heading.label);
            named.headings.push(Heading { label, ..heading });
        }
        named.rest = rest.map(|rest| named.unused(rest.to_owned()));
        named
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

    /// Derives the types of the columns from the collected rows.
    fn open(&self) -> io::Result<OpenTable> {
        let mut seen = vec![Seen::default(); self.headings.len()];
        for row in rows(&self.rows, &self.ends) {
            let mut cells = Cells::new(row);
            for seen in &mut seen {
                if let Some(value) = cells.next()? {
                    seen.add(value);
                }
            }
        }
        let kinds = self.headings.iter().zip(seen);
        let kinds: Vec<ColumnType> = kinds
            .map(|(heading, seen)| heading.kind.unwrap_or_else(|| seen.decide()))
            .collect();
        let labels: Vec<String> = self.headings.iter().map(|h| h.label.clone()).collect();
        let field =
            |(label, kind): (&String, &ColumnType)| Field::new(label, kind.data_type(), true);
        let mut fields: Vec<Field> = labels.iter().zip(&kinds).map(field).collect();
        if let Some(rest) = &self.rest {
            fields.push(Field::new(rest, DataType::Utf8, true));
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(OpenTable {
            writer: TableWriter::new(self.kind, &schema, self.options)?,
            columns: kinds.iter().map(|kind| ColumnBuilder::new(*kind)).collect(),
            labels,
            rest: self.rest.as_ref().map(|_| StringBuilder::new()),
            misfits: BTreeMap::new(),
            schema,
        })
    }

    /// Writes the collected rows as a batch.
    fn flush(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.open()?,
        };
        if !self.ends.is_empty() {
            for row in rows(&self.rows, &self.ends) {
                open.append(row)?;
            }
            let batch = open.batch()?;
            open.writer.write(&batch)?;
        }
        out(&open.writer.take())?;
        self.rows.clear();
        self.ends.clear();
        self.open = Some(open);
        Ok(())
    }
}

fn rows<'r>(bytes: &'r [u8], ends: &'r [usize]) -> impl Iterator<Item = &'r [u8]> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| &bytes[start..*end])
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
        let Some(column) = &mut self.rest else {
            return Ok(());
        };
        let known = cells.rest();
        if misfits.is_empty() {
            if known.is_empty() {
                column.append_null();
            } else {
                // JSON is UTF-8.
                column.append_value(String::from_utf8_lossy(known));
            }
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
        column.append_value(String::from_utf8_lossy(&rest));
        Ok(())
    }

    fn batch(&mut self) -> io::Result<RecordBatch> {
        let columns = self.columns.iter_mut().map(ColumnBuilder::finish);
        let mut columns: Vec<ArrayRef> = columns.collect();
        if let Some(rest) = &mut self.rest {
            columns.push(Arc::new(rest.finish()));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(io::Error::other)
    }
}

impl RowSink for TableSink {
    fn begin(&mut self, _: &mut Out<'_>) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, row: &[u8], out: &mut Out<'_>) -> io::Result<()> {
        self.rows.extend_from_slice(row);
        self.ends.push(self.rows.len());
        if self.ends.len() >= BATCH_ROWS || self.rows.len() >= self.batch_bytes {
            self.flush(out)?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out<'_>) -> io::Result<Vec<String>> {
        if self.open.is_none() || !self.ends.is_empty() {
            self.flush(out)?;
        }
        let Some(open) = self.open.take() else {
            return Ok(Vec::new());
        };
        let rest = self.rest.as_deref().unwrap_or_default();
        let note = |(label, count): (&String, &u64)| {
            format!(
                "{count} values of {label} have another type than the first ones and are in the \
                 column {rest}"
            )
        };
        let notes: Vec<String> = open.misfits.iter().map(note).collect();
        out(&open.writer.finish(&notes)?)?;
        Ok(notes)
    }
}
