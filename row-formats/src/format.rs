//! The formats of a result.

use crate::{Chrome, Csv, Ndjson, Perfetto, RowFormat, Table, TableKind, Text};

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines for people to read.
    Text,
    /// One JSON object per line.
    Ndjson,
    /// Comma-separated values with a header.
    Csv,
    /// A stream of Arrow record batches (IPC).
    Arrow,
    /// A Parquet file.
    Parquet,
    /// A Perfetto trace.
    Perfetto,
    /// A Chrome trace in JSON.
    Chrome,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 7] = [
        Format::Text,
        Format::Ndjson,
        Format::Csv,
        Format::Arrow,
        Format::Parquet,
        Format::Perfetto,
        Format::Chrome,
    ];

    /// Name of the format in options and requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Ndjson => "ndjson",
            Format::Csv => "csv",
            Format::Arrow => "arrow",
            Format::Parquet => "parquet",
            Format::Perfetto => "perfetto",
            Format::Chrome => "chrome",
        }
    }

    /// The format that files with this ending have, as a rule.
    pub fn of_ending(ending: &str) -> Option<Self> {
        Some(match ending.to_ascii_lowercase().as_str() {
            "ndjson" | "jsonl" => Format::Ndjson,
            "csv" => Format::Csv,
            "arrow" | "arrows" => Format::Arrow,
            "parquet" => Format::Parquet,
            "pftrace" | "perfetto-trace" => Format::Perfetto,
            "json" => Format::Chrome,
            _ => return None,
        })
    }

    /// Whether it consists of lines of text, so that a line can be appended.
    pub fn is_lines(self) -> bool {
        matches!(self, Format::Text | Format::Ndjson | Format::Csv)
    }

    /// Whether it cannot be shown on a terminal.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Arrow | Format::Parquet | Format::Perfetto)
    }

    /// Whether it shows events in order of time, and nothing else.
    pub fn is_timeline(self) -> bool {
        matches!(self, Format::Perfetto | Format::Chrome)
    }

    /// Whether it can contain groups: a timeline cannot.
    pub fn supports_groups(self) -> bool {
        !self.is_timeline()
    }

    /// The media type of rows in this format.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; charset=utf-8",
            Format::Ndjson => "application/x-ndjson",
            Format::Csv => "text/csv; charset=utf-8",
            Format::Arrow => "application/vnd.apache.arrow.stream",
            Format::Parquet => "application/vnd.apache.parquet",
            Format::Perfetto => "application/x-protobuf",
            Format::Chrome => "application/json",
        }
    }

    /// The format of rows.
    pub fn rows(self) -> Box<dyn RowFormat> {
        match self {
            Format::Text => Box::new(Text::default()),
            Format::Ndjson => Box::new(Ndjson::default()),
            Format::Csv => Box::new(Csv::default()),
            Format::Arrow => Box::new(Table::new(TableKind::Arrow)),
            Format::Parquet => Box::new(Table::new(TableKind::Parquet)),
            Format::Perfetto => Box::new(Perfetto::default()),
            Format::Chrome => Box::new(Chrome::default()),
        }
    }
}
