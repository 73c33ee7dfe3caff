//! Rows in order to batches of columns, and these to bytes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use query_language::Value;

use super::Layout;
use super::column::{ColumnBuilder, ColumnType, Heading};
use super::encoder::{Encoder, Pieces, Step};
use super::row_block::RowBlock;
use super::writer::TableWriter;
use crate::cells::Cells;
use crate::json::{write_json_string, write_json_value};
use crate::{Known, SinkOptions};

/// Most rows of a batch.
const BATCH_ROWS: usize = 1 << 16;
/// Bytes of rows after which a batch is written.
const BATCH_BYTES: usize = 4 << 20;

/// A table to which rows are written.
pub(super) struct OpenTable {
    schema: Arc<Schema>,
    columns: Vec<ColumnBuilder>,
    /// Names of the columns, for values in `rest`.
    labels: Vec<String>,
    /// Name of the column for values without a column.
    rest_label: String,
    rest: ColumnBuilder,
    /// Values that did not fit, by column.
    misfits: BTreeMap<String, u64>,
    layout: Layout,
    options: SinkOptions,
    writer: Encoder<TableWriter>,
    /// What was encoded and not taken.
    encoded: Pieces,
    batch_bytes: usize,
    /// Rows and their bytes that are not in a batch yet.
    rows: usize,
    row_bytes: usize,
}

impl OpenTable {
    pub(super) fn new(
        layout: Layout,
        headings: &[Heading],
        rest_label: String,
        options: SinkOptions,
    ) -> io::Result<OpenTable> {
        let column = |label: &String, kind: ColumnType| Field::new(label, kind.data_type(), true);
        let fields = headings.iter();
        let fields = fields.map(|heading| column(&heading.label, heading.kind));
        let fields = fields.chain([column(&rest_label, ColumnType::Json)]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        Ok(OpenTable {
            layout,
            options,
            writer: Encoder::new(),
            encoded: Pieces::new(),
            columns: headings
                .iter()
                .map(|heading| ColumnBuilder::new(heading.kind))
                .collect(),
            labels: headings.iter().map(|h| h.label.clone()).collect(),
            rest_label,
            rest: ColumnBuilder::new(ColumnType::Json),
            misfits: BTreeMap::new(),
            schema,
            batch_bytes: BATCH_BYTES.min(options.row_group_bytes),
            rows: 0,
            row_bytes: 0,
        })
    }

    /// Adds a row, and passes a batch on if that is full.
    fn row(&mut self, row: &[u8]) -> io::Result<()> {
        self.append(row)?;
        self.rows += 1;
        self.row_bytes += row.len();
        if self.rows >= BATCH_ROWS || self.row_bytes >= self.batch_bytes {
            let batch = self.batch()?;
            let begin = || TableWriter::new(self.layout, &self.schema, self.options);
            self.encoded.extend(self.writer.add(batch, begin)?);
        }
        Ok(())
    }

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

    /// The rows that are not in a batch yet.
    fn batch(&mut self) -> io::Result<RecordBatch> {
        let columns = self.columns.iter_mut().chain([&mut self.rest]);
        let columns: Vec<ArrayRef> = columns.map(ColumnBuilder::finish).collect();
        (self.rows, self.row_bytes) = (0, 0);
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        batch.map_err(io::Error::other)
    }

    /// Ends the table: the bytes that were not taken, and notes for the user.
    pub(super) fn finish(mut self, known: Known<'_>) -> io::Result<(Pieces, Vec<String>)> {
        let begin = || TableWriter::new(self.layout, &self.schema, self.options);
        let (mut writer, encoded) = self.writer.finish(begin)?;
        let mut pieces = std::mem::take(&mut self.encoded);
        pieces.extend(encoded);
        if self.rows > 0 {
            writer.add(self.batch()?)?;
        }
        let rest = &self.rest_label;
        let note = |(label, count): (&String, &u64)| {
            format!(
                "{count} values of {label} are not of the type of their column and are in the \
                 column {rest}"
            )
        };
        let notes: Vec<String> = self.misfits.iter().map(note).collect();
        let told = [known.notes, &notes].concat();
        pieces.push(writer.finish(&told, known.skipped)?);
        Ok((pieces, notes))
    }
}

impl Step for OpenTable {
    type Block = RowBlock;

    const THREAD: &str = "fill columns";

    fn add(&mut self, block: RowBlock) -> io::Result<()> {
        block.each_row(|row| self.row(row))
    }

    fn take(&mut self) -> Pieces {
        std::mem::take(&mut self.encoded)
    }
}
