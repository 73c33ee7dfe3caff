//! What can be read: a file or a stream of a storage, in chunks.

use chunk_index::{Chunk, ColumnFilter, Index};
use query_language::{BareUnit, Expr, FieldTable, Filter};
use trace_kinds::gzip::{Inflater, Scanner, TextBuffer};
use trace_kinds::{Decoded, EachEvent};

use crate::{Evidence, ReadError};

/// Something that can be read in chunks, each alone.
///
/// The engine asks for the index, rules chunks out with it, and has the others read in tasks. A
/// source without an index is one that has nothing to rule out.
pub trait ChunkSource: Send + Sync {
    /// What messages call it.
    fn place(&self) -> String;

    /// What a bare number means beside `ts` and `dur`.
    fn unit(&self) -> BareUnit;

    /// The index as far as it is at hand; `None` where there is none.
    ///
    /// # Errors
    ///
    /// When the index cannot be fetched.
    fn evidence(&self) -> Result<Option<Evidence>, ReadError>;

    /// Why an index that is there is not used.
    fn unused_index(&self) -> Option<String> {
        None
    }

    /// What of the source cannot be read, as far as its index knows.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// The filter in terms of this source.
    fn localize(&self, filter: &Filter) -> LocalFilter;

    /// Units of work that together read the given chunks, in the order of the source; all of the
    /// source for `None`, which is what a source without an index is asked for.
    fn tasks(&self, chunks: Option<&[usize]>) -> Vec<Task>;

    /// Whether [`ChunkSource::narrow`] may tell anything.
    fn has_columns(&self) -> bool {
        false
    }

    /// What columns tell of the chunks of a task without reading them; `None` where there are no
    /// columns. What is damaged is told in the counters and not believed.
    fn narrow(&self, _task: &Task, _filter: &ColumnFilter) -> Option<Narrowed> {
        None
    }

    /// Whether [`ChunkSource::read`] takes tasks with records.
    fn reads_records(&self) -> bool {
        false
    }

    /// Shows the events of the task's chunks to `each`, in the order of their bytes; those of its
    /// records where it has some.
    ///
    /// # Errors
    ///
    /// When bytes cannot be fetched, or are not those that were indexed.
    fn read(
        &self,
        task: &Task,
        fields: &FieldTable,
        scratch: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError>;

    /// As [`ChunkSource::read`], but events that do not pass `filter` may be left out.
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

/// What columns tell of the chunks of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrowed {
    /// Chunks of which the matches are known, where there are some, and how many there are.
    pub known: Vec<(usize, u64)>,
    /// Chunks that must be read to know.
    pub unknown: Vec<usize>,
    /// What that cost.
    pub counters: Counters,
}

/// A filter as one source understands it.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalFilter {
    /// What events are asked.
    pub evaluate: Filter,
    /// What chunks are asked. True of the same events, but spelled with fields that are indexed.
    pub prune: Filter,
}

/// Whether a filter is known to pass no event of any kind.
pub(crate) fn passes_none(filter: &Filter) -> bool {
    known(filter) == Some(false)
}

/// What a filter says of every event, where it asks for none.
fn known(filter: &Filter) -> Option<bool> {
    match filter {
        Expr::Test(_) => None,
        Expr::Not(operand) => known(operand).map(|value| !value),
        Expr::And(operands) => decided(operands, false),
        Expr::Or(operands) => decided(operands, true),
    }
}

/// What operands say together, of which one with the value `decisive` decides.
fn decided(operands: &[Filter], decisive: bool) -> Option<bool> {
    let mut values = operands.iter().map(known);
    let mut open = false;
    for value in &mut values {
        match value {
            Some(value) if value == decisive => return Some(decisive),
            Some(_) => {}
            None => open = true,
        }
    }
    (!open).then_some(!decisive)
}

/// A unit of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The chunks, or a number of the source's own choice where it has no index.
    pub chunks: Vec<usize>,
    /// No event of the task starts before; `None` when that is not known.
    pub first_ts: Option<i64>,
    /// About how many bytes of events there are.
    pub bytes: u64,
    /// The only records of the chunks that can match, where the index kept them; these are read
    /// and the chunks are not.
    pub records: Option<Vec<u8>>,
}

/// When the first event of a chunk starts, where all its events are known to have a start.
pub(crate) fn first_ts(chunk: &Chunk) -> Option<i64> {
    let timed = chunk.timed == chunk.events && chunk.odd == 0;
    chunk.times.filter(|_| timed).map(|times| times.first)
}

/// Tasks that read chunks of packets: neighbours of `chunks` together, up to `batch_bytes`.
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
                    first_ts,
                    bytes: chunk.raw_length,
                    records: None,
                },
            )),
        }
    }
    tasks.into_iter().map(|(_, task)| task).collect()
}

/// Working space of one thread.
#[derive(Default)]
pub struct Scratch {
    /// Inflates pieces.
    pub inflater: Inflater,
    /// What was inflated of a piece.
    pub text: TextBuffer,
    /// Inflates whole files.
    pub scanner: Scanner,
}

/// What reading cost and found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that were fetched.
    pub fetched_bytes: u64,
    /// Bytes of events after inflating.
    pub decoded_bytes: u64,
    /// Bytes of columns that were fetched.
    pub column_bytes: u64,
    /// Chunks that need not be read, because columns told their matches.
    pub told_by_columns: usize,
    /// What the bytes held.
    pub decoded: Decoded,
    /// What could not be read and was left out, for people.
    pub faults: Vec<String>,
    /// Parts of indexes that turned out to be damaged, and were gone past.
    pub damaged: Vec<String>,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.fetched_bytes += other.fetched_bytes;
        self.decoded_bytes += other.decoded_bytes;
        self.column_bytes += other.column_bytes;
        self.told_by_columns += other.told_by_columns;
        self.decoded += other.decoded;
        self.faults.extend(other.faults);
        self.damaged.extend(other.damaged);
    }
}
