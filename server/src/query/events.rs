//! All events of one kind of a storage, as a Parquet file.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use io_trace::Cause;
use query_engine::{
    Limits, ReadError, Report, Request, StorageSet, StoredLeaf, without_derived, write_rows,
};
use query_language::FieldPath;
use row_formats::{Columns, Table, TableKind};
use storage_core::{EventSink, StorageError};
use storage_format::{Kind, StorageId};

use super::missing::missing;
use super::queries::Queries;
use super::question::AnswerError;
use crate::jobs::JobHandle;
use crate::stored_leaves::leaves_among;

/// How often the progress of the job is brought up to date.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// The first columns of every file of events.
const COMMON: [&str; 8] = ["ts", "dur", "name", "cat", "agent", "stream", "pid", "tid"];

/// The columns of the files of a kind, the same in every file: those that all kinds have, and those
/// that its own readers ask for most. All other fields are in the column `rest`.
pub(super) fn event_columns(kind: Kind) -> Vec<String> {
    let own: &[&str] = match kind {
        Kind::Dft => &["fname", "ret", "size", "offset", "count"],
        Kind::Otlp => &["trace_id", "span_id", "parent_span_id"],
        _ => &[],
    };
    let names = COMMON.iter().chain(own);
    names.map(|name| (*name).to_owned()).collect()
}

/// A file of events has the memory of so many queries for rows that wait: it has all rows of a
/// storage, whose streams have the same times, and one file is made at a time.
const SHARES_OF_QUERIES: usize = 2;

/// Why a file of events was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EventsError {
    /// The storage cannot be read.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The storage has no stream of this kind.
    #[error("the storage has no stream of the kind {0}")]
    NoStream(Kind),
    /// The file would be longer than all files of events may be together.
    #[error("it would have more than {0} bytes")]
    TooLong(u64),
}

impl From<StorageError> for EventsError {
    fn from(error: StorageError) -> Self {
        Self::Answer(error.into())
    }
}

/// What a thread needs that makes a file.
pub(super) struct Making {
    leaves: Vec<StoredLeaf>,
    kind: Kind,
    pub(super) request: Request,
    limits: Limits,
    cache: Arc<chunk_index::FilterCache>,
    bytes_max: u64,
}

impl Making {
    /// Writes the file by `append`, as a table of this form. Returns the report on the reading.
    pub(super) fn write(
        self,
        mut table: Table,
        mut append: impl FnMut(&[u8]) -> Result<(), EventsError>,
    ) -> Result<Report, EventsError> {
        let read = |error: ReadError| EventsError::Answer(error.into());
        let set = StorageSet::open(self.leaves, Some(self.cache)).map_err(read)?;
        let columns = event_columns(self.kind);
        // Named, so that what an event refers to (the names of files) is found.
        let fields: Vec<FieldPath> = columns.iter().map(|name| FieldPath::new(name)).collect();
        let sources = set.sources(&self.request, &fields).map_err(read)?;
        let (mut failed, mut length) = (None, 0_u64);
        let mut write = |bytes: &[u8]| -> io::Result<()> {
            length = length.saturating_add(bytes.len() as u64);
            let written = if length > self.bytes_max {
                Err(EventsError::TooLong(self.bytes_max))
            } else {
                append(bytes)
            };
            written.map_err(|error| {
                failed = Some(error);
                io::Error::other("the file cannot be written")
            })
        };
        let columns = Columns::First(columns);
        let written = write_rows(
            &sources,
            &self.request,
            &columns,
            &mut table,
            self.limits,
            &mut write,
        );
        match (failed, written) {
            (Some(error), _) => Err(error),
            (None, written) => written.map_err(read),
        }
    }
}

impl Queries {
    /// Looks for what makes a file with all events of a kind of a storage.
    ///
    /// # Errors
    /// When the storage has none, or cannot be read.
    pub(super) async fn making(
        &self,
        (id, kind): (StorageId, Kind),
        bytes_max: u64,
    ) -> Result<Making, EventsError> {
        let of_kind = leaves_among(&self.engine, id, Cause::Query, |path| path.kind == kind);
        let (leaves, _) = without_derived(of_kind.await?);
        if leaves.is_empty() {
            return Err(EventsError::NoStream(kind));
        }
        Ok(Making {
            leaves,
            kind,
            request: Request {
                missing: missing(&self.engine, &[id]),
                ..Request::default()
            },
            limits: Limits {
                waiting_bytes_max: (self.limits.waiting_bytes_max)
                    .saturating_mul(SHARES_OF_QUERIES),
                ..self.limits
            },
            cache: self.filter_cache(),
            bytes_max,
        })
    }

    /// Makes the file with all events of a kind of a finalized storage, in order of time.
    ///
    /// # Errors
    /// When the storage has none, cannot be read, the job is cancelled, or the file cannot be
    /// written or would have more than `bytes_max` bytes.
    pub(crate) async fn make_events(
        &self,
        (id, kind): (StorageId, Kind),
        job: &JobHandle,
        bytes_max: u64,
    ) -> Result<(), EventsError> {
        let making = self.making((id, kind), bytes_max).await?;
        let cancel = making.request.cancel.clone();
        let progress = making.request.progress.clone();
        let lost_count = making.request.missing.len();
        let (metrics, unreadable) = (Arc::clone(&self.metrics), Arc::clone(&self.unreadable));
        let indexes = Arc::clone(&self.indexes);
        let make = move |sink: &mut EventSink<'_>| -> Result<u64, EventsError> {
            let _running = metrics.queries.began();
            let append = |bytes: &[u8]| sink.write(bytes).map_err(EventsError::from);
            let report = making.write(Table::new(TableKind::Parquet).with_filters(), append)?;
            let read = report.skipped.len().saturating_sub(lost_count);
            unreadable.found(report.skipped.get(..read).unwrap_or_default());
            metrics.queries.ended(&report);
            if !report.damaged.is_empty() {
                indexes.rebuild(id);
            }
            Ok(report.skipped_parts())
        };
        let files = self.engine.event_files();
        let mut made = std::pin::pin!(files.make(id, kind, make));
        let shown = job.progress();
        loop {
            tokio::select! {
                made = &mut made => {
                    let unless_deleted =
                        |error| self.deleted(&[id]).map_or(error, EventsError::from);
                    return made.map_err(unless_deleted);
                }
                () = job.cancelled() => {
                    cancel.cancel();
                    return match made.await {
                        Ok(()) => Ok(()),
                        Err(_) => Err(StorageError::Cancelled.into()),
                    };
                }
                () = tokio::time::sleep(PROGRESS_EVERY) => {
                    let order = std::sync::atomic::Ordering::Relaxed;
                    shown.bytes_total.store(progress.total_bytes(), order);
                    shown.bytes_done.store(progress.done_bytes(), order);
                }
            }
        }
    }
}
