//! Batches to bytes.

use std::io;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::encoder::{Pieces, Step};
use super::{Layout, TableKind};
use crate::SinkOptions;

/// Most rows of a row group, however short they are.
const ROW_GROUP_ROWS: usize = 1 << 20;
/// Most different texts of a row group for which a Bloom filter is made: with more, it rules out
/// less.
const FILTER_VALUES: u64 = 4096;
/// Keys in the footer of a Parquet file, each with lines: notes for the user, and what could not be
/// read. Absent if there is nothing to say.
const NOTES: &str = "tracehold.notes";
const SKIPPED: &str = "tracehold.skipped";

/// Writes batches to memory, from which the sink takes them piece by piece.
pub(super) enum TableWriter {
    Arrow(Box<StreamWriter<Vec<u8>>>),
    Parquet {
        writer: Box<ArrowWriter<Vec<u8>>>,
        row_group_bytes: usize,
    },
}

impl TableWriter {
    pub(super) fn new(
        layout: Layout,
        schema: &Arc<Schema>,
        options: SinkOptions,
    ) -> io::Result<TableWriter> {
        Ok(match layout.kind {
            TableKind::Arrow => {
                let writer = StreamWriter::try_new(Vec::new(), schema);
                TableWriter::Arrow(Box::new(writer.map_err(io::Error::other)?))
            }
            TableKind::Parquet => {
                let properties = Some(properties(schema, layout, options.is_by_time));
                let writer = ArrowWriter::try_new(Vec::new(), Arc::clone(schema), properties);
                TableWriter::Parquet {
                    writer: Box::new(writer?),
                    row_group_bytes: options.row_group_bytes,
                }
            }
        })
    }

    /// Ends the table; the bytes after the last batch.
    pub(super) fn finish(self, notes: &[String], skipped: &[String]) -> io::Result<Vec<u8>> {
        match self {
            TableWriter::Arrow(mut writer) => {
                writer.finish().map_err(io::Error::other)?;
                Ok(std::mem::take(writer.get_mut()))
            }
            TableWriter::Parquet { mut writer, .. } => {
                for (key, lines) in [(NOTES, notes), (SKIPPED, skipped)] {
                    if !lines.is_empty() {
                        let lines = KeyValue::new(key.to_owned(), lines.join("\n"));
                        writer.append_key_value_metadata(lines);
                    }
                }
                Ok(writer.into_inner()?)
            }
        }
    }
}

impl Step for TableWriter {
    type Block = RecordBatch;

    const THREAD: &str = "encode table";

    fn add(&mut self, batch: RecordBatch) -> io::Result<()> {
        match self {
            TableWriter::Arrow(writer) => writer.write(&batch).map_err(io::Error::other),
            TableWriter::Parquet {
                writer,
                row_group_bytes,
            } => {
                writer.write(&batch)?;
                if writer.in_progress_size() >= *row_group_bytes {
                    writer.flush()?;
                }
                Ok(())
            }
        }
    }

    fn take(&mut self) -> Pieces {
        let bytes = std::mem::take(match self {
            TableWriter::Arrow(writer) => writer.get_mut(),
            // The writer counts offsets independently of this buffer.
            TableWriter::Parquet { writer, .. } => writer.inner_mut(),
        });
        if bytes.is_empty() {
            Pieces::new()
        } else {
            vec![bytes]
        }
    }
}

fn properties(schema: &Schema, layout: Layout, is_by_time: bool) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("tracehold ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS));
    // The last column, `rest`, has a text of its own in nearly every row.
    let columns = schema
        .fields()
        .split_last()
        .map_or(&[][..], |(_, rest)| rest);
    let texts = columns.iter().filter(|field| {
        let is_text = matches!(field.data_type(), DataType::Dictionary(..) | DataType::Utf8);
        layout.has_filters && is_text
    });
    for field in texts {
        let path = ColumnPath::from(vec![field.name().clone()]);
        builder = builder
            .set_column_bloom_filter_enabled(path.clone(), true)
            .set_column_bloom_filter_max_ndv(path, FILTER_VALUES);
    }
    let ts = schema
        .fields()
        .iter()
        .position(|field| field.name() == "ts");
    let ts = ts.filter(|_| is_by_time);
    if let Some(column_idx) = ts.and_then(|ts| i32::try_from(ts).ok()) {
        // Times are distinct and ascending: a dictionary would only add bytes.
        let path = ColumnPath::from("ts");
        builder = builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
            .set_sorting_columns(Some(vec![SortingColumn {
                column_idx,
                descending: false,
                nulls_first: true,
            }]));
    }
    builder.build()
}
