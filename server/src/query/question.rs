//! Questions to storages, and why they cannot be answered.

use query_engine::{GroupSpec, ReadError, Request, Split};
use query_language::{FieldPath, QueryError};
use row_formats::{Columns, Format};
use storage_format::StorageId;
use storage_format::checksum::crc32c;

/// Format of rows and groups.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowsFormat {
    /// One JSON object per line.
    #[default]
    Ndjson,
    /// Comma-separated values with a header.
    Csv,
    /// Lines for people.
    Text,
    /// A stream of Arrow record batches (IPC).
    Arrow,
    /// A Parquet file.
    Parquet,
    /// A Perfetto trace.
    Perfetto,
    /// A Chrome trace in JSON.
    Chrome,
}

impl From<RowsFormat> for Format {
    fn from(format: RowsFormat) -> Self {
        match format {
            RowsFormat::Ndjson => Self::Ndjson,
            RowsFormat::Csv => Self::Csv,
            RowsFormat::Text => Self::Text,
            RowsFormat::Arrow => Self::Arrow,
            RowsFormat::Parquet => Self::Parquet,
            RowsFormat::Perfetto => Self::Perfetto,
            RowsFormat::Chrome => Self::Chrome,
        }
    }
}

/// A question to storages.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) storages: Vec<StorageId>,
    pub(crate) request: Request,
    pub(crate) result: ResultKind,
    pub(crate) format: Format,
    pub(crate) explain: bool,
    /// Whether derived streams are read next to their sources.
    pub(crate) derived: bool,
    /// Rows are only wanted if at most so many events match.
    pub(crate) matched_max: Option<u64>,
    /// Whether what the result lacks is said after it; otherwise only the summary says so.
    pub(crate) is_summarized: bool,
    /// The only part of the storages that is asked about.
    pub(crate) split: Option<Split>,
}

/// The kind of result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ResultKind {
    /// The matching events.
    Rows(Columns),
    /// The number of matching events.
    Count,
    /// Aggregates of the matching events in groups.
    Groups(GroupSpec),
    /// The fields of the matching events by kind.
    Fields,
}

impl Question {
    /// Which events are asked for, beside the storages.
    pub(crate) fn events(&self) -> String {
        let request = &self.request;
        let query = request.query.as_ref().map_or("", |query| query.text());
        let limits = (request.from, request.to);
        format!("{limits:?} {} {query}", self.derived)
    }

    /// Identifies which events are asked for, beside the storages.
    pub(crate) fn checksum(&self) -> u32 {
        crc32c(self.events().as_bytes())
    }

    /// The named fields.
    pub(super) fn fields(&self) -> Vec<FieldPath> {
        let mut fields = self.result.fields();
        fields.extend(self.request.order.fields());
        fields
    }
}

impl ResultKind {
    /// The named fields.
    fn fields(&self) -> Vec<FieldPath> {
        match self {
            Self::Rows(columns) => columns.fields(),
            Self::Count | Self::Fields => Vec::new(),
            Self::Groups(spec) => spec.fields(),
        }
    }
}

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    /// The maximum number of queries is running.
    #[error("{max} queries are already running")]
    Busy {
        /// The maximum.
        max: u32,
    },
    /// A storage cannot be read.
    #[error(transparent)]
    Storage(#[from] storage_core::StorageError),
    /// The query is invalid, or a file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<QueryError> for AnswerError {
    fn from(error: QueryError) -> Self {
        Self::Read(error.into())
    }
}
