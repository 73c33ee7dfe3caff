//! What is asked of storages, and why there may be no answer.

use query_engine::{ReadError, Request};
use query_language::{FieldPath, QueryError};
use row_formats::{Columns, Format};
use storage_format::StorageId;

/// How rows and groups are written.
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
    /// A JSON object a line.
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
        }
    }
}

/// What is asked of storages.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) storages: Vec<StorageId>,
    pub(crate) request: Request,
    pub(crate) result: ResultKind,
    pub(crate) format: Format,
    pub(crate) explain: bool,
}

/// What the answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResultKind {
    /// The matching events.
    Rows(Columns),
    /// Their number.
    Count,
    /// What they add up to, by the values of a field.
    Groups(String),
}

impl ResultKind {
    /// The fields that are named.
    pub(super) fn fields(&self) -> Vec<FieldPath> {
        match self {
            Self::Rows(columns) => columns.fields(),
            Self::Count => Vec::new(),
            Self::Groups(field) => vec![FieldPath::new(field)],
        }
    }
}

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    /// As many queries as may run are running.
    #[error("{max} queries are running already")]
    Busy {
        /// How many may run.
        max: u32,
    },
    /// A storage cannot be read.
    #[error(transparent)]
    Storage(#[from] storage_core::StorageError),
    /// The query is faulty, or something cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<QueryError> for AnswerError {
    fn from(error: QueryError) -> Self {
        Self::Read(error.into())
    }
}
