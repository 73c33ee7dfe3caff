//! Queries over storages: their leaves as sources of `query-engine`, run on a thread of their own,
//! rows streamed as they are found.

mod bases;
mod leaves;
mod run;

use std::sync::Arc;

use chunk_index::FilterCache;
use io_trace::Cause;
use query_engine::{LeafRanges, Limits, ReadError, Request, StorageSet};
use query_language::{FieldPath, QueryError};
use row_formats::{Columns, Format};
use storage_core::{Engine, LeafBases};
use storage_format::StorageId;
use tokio::sync::Semaphore;

use crate::config::QueryConfig;

pub(crate) use bases::time_bases;
pub(crate) use leaves::stored_leaves;
pub(crate) use run::{Answer, Rows, columns};

/// What queries share.
pub(crate) struct Queries {
    permits: Arc<Semaphore>,
    cache: Arc<FilterCache>,
    limits: Limits,
    concurrent_max: u32,
}

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
    pub(crate) wanted: Wanted,
    pub(crate) format: Format,
    pub(crate) explain: bool,
}

/// What the answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The matching events.
    Rows(Columns),
    /// Their number.
    Count,
    /// What they add up to, by the values of a field.
    Groups(String),
}

impl Wanted {
    /// The fields that are named.
    fn fields(&self) -> Vec<FieldPath> {
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

impl Queries {
    pub(crate) fn new(config: &QueryConfig) -> Self {
        let defaults = Limits::default();
        let threads = match usize::try_from(config.threads) {
            Ok(threads @ 1..) => threads,
            _ => defaults.threads,
        };
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            permits: Arc::new(Semaphore::new(config.concurrent_max as usize)),
            cache: Arc::new(FilterCache::new(bytes(config.filter_cache_bytes_max))),
            limits: Limits {
                threads,
                waiting_bytes_max: bytes(config.waiting_bytes_max),
                row_group_bytes: bytes(config.row_group_bytes_max),
            },
            concurrent_max: config.concurrent_max,
        }
    }

    /// The parts of the storage's data files in which the request may find events, and what times
    /// in them rest on.
    ///
    /// # Errors
    /// When the storage is not there, the query is faulty, or an index cannot be read.
    pub(crate) async fn candidates(
        &self,
        engine: &Engine,
        storage: StorageId,
        request: Request,
    ) -> Result<(Vec<LeafRanges>, LeafBases), AnswerError> {
        let leaves = stored_leaves(engine, storage, Cause::Query).await?;
        let cache = self.filter_cache();
        let find = move || {
            let set = StorageSet::open(leaves, Some(cache))?;
            let bases = set.time_bases().collect();
            Ok::<_, ReadError>((set.candidates(&request)?, bases))
        };
        let found = tokio::task::spawn_blocking(find).await;
        Ok(found.map_err(|_| storage_core::StorageError::Stopping)??)
    }

    /// Filters that queries share.
    pub(crate) fn filter_cache(&self) -> Arc<FilterCache> {
        Arc::clone(&self.cache)
    }
}
