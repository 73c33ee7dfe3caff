//! The sink of rows for a table.

use std::io;

use super::Layout;
use super::column::{ColumnType, Heading};
use super::encoder::{Encoder, Step as _};
use super::open_table::OpenTable;
use super::plain::PlainColumn;
use super::row_block::RowBlock;
use crate::csv::REST;
use crate::{Known, Out, RowSink, SinkOptions};

/// Bytes of a block of rows, which are encoded together. A table with fewer has no thread.
const BLOCK_BYTES: usize = 256 << 10;
/// With the row that fills it, if that is not very long.
const BLOCK_CAPACITY: usize = BLOCK_BYTES + (16 << 10);

/// Collects rows into blocks, and writes what becomes of them.
pub(crate) struct TableSink {
    layout: Layout,
    headings: Vec<Heading>,
    /// Name of the column for values without a column.
    rest: String,
    options: SinkOptions,
    block: RowBlock,
    encoder: Encoder<OpenTable>,
}

impl TableSink {
    /// A sink of rows with one cell per heading, followed by a JSON object of the fields without a
    /// column, which becomes the column `rest`.
    pub(crate) fn new(layout: Layout, headings: Vec<Heading>, options: SinkOptions) -> TableSink {
        let mut named = TableSink {
            layout,
            headings: Vec::with_capacity(headings.len()),
            rest: String::new(),
            options,
            block: RowBlock::with_capacity(0),
            encoder: Encoder::new(),
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

    /// Passes the block on to the encoder, and writes what that has encoded.
    fn pass_on(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let next = RowBlock::with_capacity(BLOCK_CAPACITY);
        let block = std::mem::replace(&mut self.block, next);
        let begin = || OpenTable::new(self.layout, &self.headings, self.rest.clone(), self.options);
        let mut encoded = self.encoder.add(block, begin)?;
        encoded.try_for_each(|bytes| out(&bytes))
    }
}

impl RowSink for TableSink {
    fn begin(&mut self, _: &mut Out<'_>) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, row: &[u8], out: &mut Out<'_>) -> io::Result<()> {
        self.block.push(row)?;
        if self.block.bytes() >= BLOCK_BYTES {
            self.pass_on(out)?;
        }
        Ok(())
    }

    fn end(&mut self, known: Known<'_>, out: &mut Out<'_>) -> io::Result<Vec<String>> {
        let begin = || OpenTable::new(self.layout, &self.headings, self.rest.clone(), self.options);
        let (mut table, encoded) = self.encoder.finish(begin)?;
        encoded.iter().try_for_each(|bytes| out(bytes))?;
        table.add(std::mem::take(&mut self.block))?;
        let (pieces, notes) = table.finish(known)?;
        pieces.iter().try_for_each(|bytes| out(bytes))?;
        Ok(notes)
    }
}
