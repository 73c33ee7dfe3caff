//! The formats that an answer may have.

use crate::{Csv, Ndjson, Perfetto, RowFormat, Table, TableKind, Text};

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Ndjson,
    /// Comma-separated values with a header.
    Csv,
    /// A stream of Arrow record batches (IPC).
    Arrow,
    /// A Parquet file.
    Parquet,
    /// A Perfetto trace.
    Perfetto,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] = [
        Format::Text,
        Format::Ndjson,
        Format::Csv,
        Format::Arrow,
        Format::Parquet,
        Format::Perfetto,
    ];

    /// As the user spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Ndjson => "ndjson",
            Format::Csv => "csv",
            Format::Arrow => "arrow",
            Format::Parquet => "parquet",
            Format::Perfetto => "perfetto",
        }
    }

    /// Whether it is made of lines of text, so that a line may be added.
    pub fn is_lines(self) -> bool {
        matches!(self, Format::Text | Format::Ndjson | Format::Csv)
    }

    /// Whether groups can be told in it: not in a timeline.
    pub fn tells_groups(self) -> bool {
        self != Format::Perfetto
    }

    /// The media type of rows.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; charset=utf-8",
            Format::Ndjson => "application/x-ndjson",
            Format::Csv => "text/csv; charset=utf-8",
            Format::Arrow => "application/vnd.apache.arrow.stream",
            Format::Parquet => "application/vnd.apache.parquet",
            Format::Perfetto => "application/x-protobuf",
        }
    }

    /// Rows in it.
    pub fn rows(self) -> Box<dyn RowFormat> {
        match self {
            Format::Text => Box::new(Text::default()),
            Format::Ndjson => Box::new(Ndjson::default()),
            Format::Csv => Box::new(Csv::default()),
            Format::Arrow => Box::new(Table::new(TableKind::Arrow)),
            Format::Parquet => Box::new(Table::new(TableKind::Parquet)),
            Format::Perfetto => Box::new(Perfetto::default()),
        }
    }
}
