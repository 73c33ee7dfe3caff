//! The interface to what can be read: a file or a leaf of a storage, in chunks.

use std::ops::Range;

use chunk_index::{Chunk, ColumnFilter, Index};
use query_language::{BareUnit, FieldTable, Filter};
use storage_format::StorageId;
use trace_kinds::gzip::{Inflater, Scanner, TextBuffer};
use trace_kinds::{Decoded, EachEvent, Origin};

use crate::slices::Pairing;
use crate::{Evidence, Progress, ReadError};

/// Something that can be read in chunks, independently of each other.
///
/// The engine loads the index, rules out chunks with it, and reads the others in tasks. A source
/// without an index is read completely.
pub trait ChunkSource: Send + Sync {
    /// Name of the source in messages.
    fn place(&self) -> String;

    /// The unit of a number without a unit that is compared with `ts` or `dur`; `None` if the
    /// source has no events.
    fn unit(&self) -> Option<BareUnit>;

    /// The index, as far as it is loaded; `None` if there is none.
    ///
    /// # Errors
    ///
    /// When the index cannot be fetched.
    fn evidence(&self) -> Result<Option<Evidence>, ReadError>;

    /// Why an existing index is not used.
    fn unused_index(&self) -> Option<String> {
        None
    }

    /// Parts of the source that cannot be read, as recorded in its index.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Records and packets that cannot be read, as its index counts them; `None` without an index:
    /// reading counts them.
    fn unreadable(&self) -> Option<u64> {
        None
    }

    /// Whether it was written to while it was read, and what was read may be neither the one nor
    /// the other.
    fn is_changed(&self) -> bool {
        false
    }

    /// Where its events come from, if all come from one stream of a storage.
    fn origin(&self) -> Option<&Origin> {
        None
    }

    /// The storage that it is a part of.
    fn storage(&self) -> Option<StorageId> {
        None
    }

    /// The filter rewritten for this source.
    fn localize(&self, filter: &Filter) -> LocalFilter;

    /// Tasks that together read the given chunks, in the order of the source. `None`, for sources
    /// without an index, selects the complete source.
    fn tasks(&self, chunks: Option<&[usize]>) -> Vec<Task>;

    /// As [`ChunkSource::tasks`] of chunks, in smaller parts with times of their own: rows in order
    /// of time then wait for few others. `None` if a source has no such parts.
    fn tasks_by_time(&self, _chunks: &[usize]) -> Option<Vec<Task>> {
        None
    }

    /// What must be said about the durations in its indexed chunks, whether they are read or not: a
    /// begin without an end is found by no duration.
    fn pairing(&self) -> Pairing {
        Pairing::default()
    }

    /// What must be said about its events, whether they are read or not. Each note is told once.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether [`ChunkSource::narrow`] can exclude chunks.
    fn has_columns(&self) -> bool {
        false
    }

    /// Evaluates a filter on the columns of a task's chunks instead of their events; `None` if
    /// there are no columns. Damaged columns are reported in the counters, and their chunks are
    /// read.
    fn narrow(&self, _task: &Task, _filter: &ColumnFilter) -> Option<Narrowed> {
        None
    }

    /// Whether [`ChunkSource::read`] supports tasks with records.
    fn reads_records(&self) -> bool {
        false
    }

    /// Passes the events of the task's chunks to `each`, in the order of their bytes; if the task
    /// has records, only the events in these.
    ///
    /// # Errors
    ///
    /// When bytes cannot be fetched, or differ from those that were indexed.
    fn read(
        &self,
        task: &Task,
        fields: &FieldTable,
        scratch: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError>;

    /// As [`ChunkSource::read`], but may skip events that do not pass `filter`.
    ///
    /// # Errors
    ///
    /// As [`ChunkSource::read`].
    fn read_passing(
        &self,
        task: &Task,
        fields: &FieldTable,
        _filter: &Filter,
        scratch: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        self.read(task, fields, scratch, each)
    }
}

/// The chunks of a task after a filter was evaluated on their columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrowed {
    /// Chunks with a known, positive number of matches.
    pub known: Vec<(usize, u64)>,
    /// Chunks that must be read.
    pub unknown: Vec<usize>,
    /// What the evaluation cost.
    pub counters: Counters,
}

/// A filter rewritten for one source.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalFilter {
    /// For events.
    pub evaluate: Filter,
    /// For chunks: true of the same events, but expressed with indexed fields.
    pub prune: Filter,
}

/// Chunks that are read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Indexes of the chunks. A source without an index chooses numbers of its own.
    pub chunks: Vec<usize>,
    /// Only these bytes of the chunks, which begin and end between packets.
    pub within: Option<Range<u64>>,
    /// No event of the task starts earlier; `None` if unknown.
    pub first_ts: Option<i64>,
    /// Approximate bytes of events.
    pub bytes: u64,
    /// The only records of the chunks that can match, if the index contains them: they are decoded
    /// instead of the chunks.
    pub records: Option<Vec<u8>>,
}

/// Start of the first event of a chunk, if all its events have a start.
pub(crate) fn first_ts(chunk: &Chunk) -> Option<i64> {
    let timed = chunk.timed == chunk.events && chunk.odd == 0;
    chunk.times.filter(|_| timed).map(|times| times.first)
}

/// Tasks that read chunks of packets; consecutive chunks share a task, up to `batch_bytes`.
pub(crate) fn chunk_tasks(index: &Index, chunks: &[usize], batch_bytes: u64) -> Vec<Task> {
    let mut tasks: Vec<(u64, Task)> = Vec::new();
    for number in chunks {
        let Some(chunk) = index.chunks().get(*number) else {
            continue;
        };
        let first_ts = first_ts(chunk);
        match tasks.last_mut() {
            Some((stored, task)) if *stored + chunk.length <= batch_bytes => {
                *stored += chunk.length;
                task.chunks.push(*number);
                task.first_ts = task.first_ts.zip(first_ts).map(|(a, b)| a.min(b));
                task.bytes += chunk.raw_length;
            }
            _ => tasks.push((
                chunk.length,
                Task {
                    chunks: vec![*number],
                    within: None,
                    first_ts,
                    bytes: chunk.raw_length,
                    records: None,
                },
            )),
        }
    }
    tasks.into_iter().map(|(_, task)| task).collect()
}

/// Scratch space of one thread.
#[derive(Default)]
pub struct Scratch {
    /// Decompresses pieces.
    pub inflater: Inflater,
    /// Decompressed text of a piece.
    pub text: TextBuffer,
    /// Decompresses complete files.
    pub scanner: Scanner,
    /// Who shows how far indexing has come.
    pub progress: Progress,
}

/// What reading cost and found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that were fetched.
    pub fetched_bytes: u64,
    /// Bytes of events, decompressed.
    pub decoded_bytes: u64,
    /// Bytes of columns that were fetched.
    pub column_bytes: u64,
    /// Chunks that were not read because columns answered the query.
    pub answered_by_columns: usize,
    /// What the bytes contained.
    pub decoded: Decoded,
    /// What must be said about durations that were requested.
    pub pairing: Pairing,
    /// What could not be read of what slices may end in.
    pub slice_faults: Vec<String>,
    /// What could not be read and was skipped, as messages.
    pub faults: Vec<String>,
    /// Damaged parts of indexes, for which the data was read instead.
    pub damaged: Vec<String>,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.fetched_bytes += other.fetched_bytes;
        self.decoded_bytes += other.decoded_bytes;
        self.column_bytes += other.column_bytes;
        self.answered_by_columns += other.answered_by_columns;
        self.decoded += other.decoded;
        self.pairing += other.pairing;
        self.slice_faults.extend(other.slice_faults);
        self.faults.extend(other.faults);
        self.damaged.extend(other.damaged);
    }
}
