//! A query and its limits, and the report on how it was answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use query_language::{
    BareUnit, CompareOp, Condition, Expr, FieldPath, Filter, Number, OrderKey, Query, Scalar,
};

use crate::source::{ChunkSource, Counters, Task};
use crate::{BareTimes, Progress, ReadError, Skipped};

/// Rows up to which a result is short: less than a chunk of each stream has, as a rule.
const FIRST_ROWS_MAX: usize = 10_000;

/// A query of a set of sources.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Which events; all without a query.
    pub query: Option<Query>,
    /// Events that start at or after this time, in nanoseconds since the epoch.
    pub from: Option<i64>,
    /// Events that start before this time.
    pub to: Option<i64>,
    /// Which of these were written without a unit.
    pub bare_times: BareTimes,
    /// Whether the query fails if something that it needs cannot be read. Otherwise that is skipped
    /// and reported.
    pub strict: bool,
    /// The order of the result, and which part of it.
    pub order: ResultOrder,
    /// What is known to be missing in the sources: rows say that it was skipped.
    pub missing: Vec<Skipped>,
    /// Cancels the query.
    pub cancel: Cancel,
    /// How far the query has come.
    pub progress: Progress,
}

/// The order of rows or groups, and which of them are in the result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResultOrder {
    /// The fields that decide; none for rows in order of time, and the largest groups first.
    pub keys: Vec<OrderKey>,
    /// The most rows or groups of the result.
    pub limit: Option<u64>,
    /// Rows or groups that are omitted at the beginning.
    pub offset: u64,
}

impl ResultOrder {
    /// The fields of the keys.
    pub fn fields(&self) -> Vec<FieldPath> {
        self.keys.iter().map(OrderKey::field).collect()
    }

    /// Tasks for the rows of chunks of a source. By time they are parts of chunks where the source
    /// has them. Otherwise, if only the first rows by time are wanted, the first chunks are tasks
    /// of their own: what is read together ends together.
    pub(crate) fn tasks(&self, source: &dyn ChunkSource, chunks: &[usize]) -> Vec<Task> {
        if self.keys.is_empty()
            && let Some(tasks) = source.tasks_by_time(chunks)
        {
            return tasks;
        }
        if self.first_rows_max().is_none() {
            return source.tasks(Some(chunks));
        }
        let (mut tasks, mut begin) = (Vec::new(), 0);
        while begin < chunks.len() {
            // Twice as many as before: a source that is read over a network gets few requests.
            let end = (begin * 2).clamp(begin + 1, chunks.len());
            tasks.extend(source.tasks(chunks.get(begin..end)));
            begin = end;
        }
        tasks
    }

    /// The first rows by time that can be in the result, if these are few.
    pub(crate) fn first_rows_max(&self) -> Option<usize> {
        let rows = self.rows_max().filter(|_| self.keys.is_empty());
        rows.filter(|rows| *rows <= FIRST_ROWS_MAX)
    }

    /// The first rows that can be in the result.
    pub(crate) fn rows_max(&self) -> Option<usize> {
        let end = self.limit?.saturating_add(self.offset);
        Some(usize::try_from(end).unwrap_or(usize::MAX))
    }
}

/// Cancels a query: it stops at the next event with [`ReadError::Cancelled`]. Clones share one
/// state.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl From<Arc<AtomicBool>> for Cancel {
    /// Cancels when the flag is set.
    fn from(flag: Arc<AtomicBool>) -> Self {
        Cancel(flag)
    }
}

impl Cancel {
    /// Cancels the query.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the query was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    ///
    /// When the query was cancelled.
    pub(crate) fn check(&self) -> Result<(), ReadError> {
        if self.is_cancelled() {
            Err(ReadError::Cancelled)
        } else {
            Ok(())
        }
    }
}

impl Request {
    /// The filter, for all sources.
    ///
    /// # Errors
    ///
    /// When the query compares a time with a number without a unit and the sources have different
    /// units, when its window has such a number, or when a literal has a unit that its field does
    /// not have.
    pub fn filter(&self, sources: &[Box<dyn ChunkSource>]) -> Result<Option<Filter>, ReadError> {
        let with_unit = sources
            .iter()
            .filter_map(|source| Some((source.unit()?, &**source)));
        let is_excluded = |source: &&dyn ChunkSource, filter: &Filter| {
            source.localize(filter).evaluate.passes_none()
        };
        let units = self.units(with_unit.collect(), &is_excluded)?;
        self.bare_times
            .check((self.from, self.to), units.iter().copied())?;
        self.bind_all(units)
    }

    /// The units of the sources that count for the meaning of numbers without a unit. If there are
    /// several, these are of the sources that the query does not exclude: what is not read needs no
    /// meaning.
    ///
    /// # Errors
    ///
    /// When the query is invalid whatever the unit.
    pub(crate) fn units<S>(
        &self,
        sources: Vec<(BareUnit, S)>,
        is_excluded: &dyn Fn(&S, &Filter) -> bool,
    ) -> Result<Vec<BareUnit>, ReadError> {
        let units = sources.iter().map(|(unit, _)| *unit);
        let is_mixed = units.clone().reduce(BareUnit::and) == Some(BareUnit::Mixed);
        // What a source is excluded by has no unit, so that any will do to find out.
        let filter = if is_mixed {
            self.bind(BareUnit::NANOS)?
        } else {
            None
        };
        let Some(filter) = filter else {
            return Ok(units.collect());
        };
        let mut sources = sources;
        sources.retain(|(_, source)| !is_excluded(source, &filter));
        Ok(sources.into_iter().map(|(unit, _)| unit).collect())
    }

    /// The filter for sources with these units.
    ///
    /// # Errors
    ///
    /// As [`Request::filter`].
    pub(crate) fn bind_all(&self, units: Vec<BareUnit>) -> Result<Option<Filter>, ReadError> {
        let unit = units.into_iter().reduce(BareUnit::and);
        self.bind(unit.unwrap_or(BareUnit::NANOS))
    }

    /// The same request for events at any time.
    pub(crate) fn without_window(&self) -> Request {
        Request {
            from: None,
            to: None,
            ..self.clone()
        }
    }

    /// The filter for sources with this unit.
    ///
    /// # Errors
    ///
    /// As [`Request::filter`].
    pub fn bind(&self, unit: BareUnit) -> Result<Option<Filter>, ReadError> {
        let mut parts = Vec::new();
        for (op, time) in [(CompareOp::Ge, self.from), (CompareOp::Lt, self.to)] {
            if let Some(time) = time {
                let time = Scalar::Number(Number::Int(i128::from(time)));
                parts.push(Expr::test(
                    FieldPath::new("ts"),
                    Condition::Compare(op, time),
                ));
            }
        }
        if let Some(query) = &self.query {
            parts.push(query.bind(unit)?);
        }
        Ok(match parts.len() {
            0 => None,
            1 => parts.pop(),
            _ => Some(Expr::And(parts)),
        })
    }
}

/// Limits on threads and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Threads that read tasks.
    pub threads: usize,
    /// Bytes of rows that are buffered in memory before they are spilled to a file.
    pub waiting_bytes_max: usize,
    /// Uncompressed bytes after which a row group of a Parquet file is written.
    pub row_group_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Limits {
            threads: threads.min(THREADS_MAX),
            waiting_bytes_max: 64 << 20,
            row_group_bytes: 16 << 20,
        }
    }
}

/// A thread has up to 64 MiB in memory: one gzip piece.
const THREADS_MAX: usize = 16;

/// How a query was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Sources of the query.
    pub sources: usize,
    /// Sources that have an index.
    pub indexed: usize,
    /// Sources without a match, judged by agent, stream, storage and kind alone.
    pub excluded: usize,
    /// Chunks of the sources that have an index.
    pub chunks: usize,
    /// Chunks that each tier ruled out: statistics, dictionaries, filters.
    pub ruled_out: [usize; 3],
    /// Runs of packets without a chunk index whose times are in the index of the storage.
    pub timed: usize,
    /// Those of them that were ruled out by these times.
    pub ruled_out_by_time: usize,
    /// Chunks whose summaries answered the query.
    pub summarized: usize,
    /// Chunks of which only the slowest events, stored in the index, were read.
    pub slowest: usize,
    /// Chunks that were read.
    pub read: usize,
    /// Bytes of indexes that were fetched.
    pub index_bytes: u64,
    /// What reading cost, and what was read.
    pub counters: Counters,
    /// Events that match; if the result ended early, those that were found until then.
    pub matched: u64,
    /// Whether that number is an estimate.
    pub is_matched_estimated: bool,
    /// Rows or groups of the result.
    pub rows: u64,
    /// Whether reading ended early, because the result was complete.
    pub ended_early: bool,
    /// How often buffered rows were spilled to a file.
    pub spills: u64,
    /// Notes for the user about the result.
    pub notes: Vec<String>,
    /// Damaged parts of indexes, for which the events were read instead.
    pub damaged: Vec<String>,
    /// What was skipped because it cannot be read.
    pub skipped: Vec<Skipped>,
}

impl Report {
    /// Adds the counters of a task.
    pub(crate) fn add(&mut self, mut counters: Counters) {
        self.damaged.append(&mut counters.damaged);
        self.read = self.read.saturating_sub(counters.answered_by_columns);
        self.counters += counters;
    }

    /// Adds what could not be read to find the durations of slices, unless it was skipped as a part
    /// of the result, too.
    pub(crate) fn add_slice_faults(&mut self) {
        let faults = std::mem::take(&mut self.counters.slice_faults);
        for fault in faults {
            if self.skipped_reasons().all(|known| known != fault) {
                self.skipped.push(Skipped {
                    storage: None,
                    parts: 1,
                    reasons: vec![format!("durations of slices may be missing: {fault}")],
                });
            }
        }
    }

    /// Whether nothing was skipped.
    pub fn is_complete(&self) -> bool {
        self.skipped.is_empty()
    }

    /// Number of records, packets and other parts that were skipped.
    pub fn skipped_parts(&self) -> u64 {
        self.skipped.iter().map(|skipped| skipped.parts).sum()
    }

    /// What was skipped, and why.
    pub fn skipped_reasons(&self) -> impl Iterator<Item = &str> {
        let reasons = self.skipped.iter().flat_map(|skipped| &skipped.reasons);
        reasons.map(String::as_str)
    }

    /// The report as a JSON object.
    pub fn json(&self) -> String {
        let [statistics, dictionaries, filters] = self.ruled_out;
        let counters = &self.counters;
        let numbers = [
            ("sources", self.sources as u64),
            ("left_out", self.excluded as u64),
            ("indexed", self.indexed as u64),
            ("chunks", self.chunks as u64),
            ("timed", self.timed as u64),
            ("out_of_time", self.ruled_out_by_time as u64),
            ("summarized", self.summarized as u64),
            ("slowest", self.slowest as u64),
            ("columns", counters.answered_by_columns as u64),
            ("read", self.read as u64),
            ("index_bytes", self.index_bytes),
            ("column_bytes", counters.column_bytes),
            ("fetched_bytes", counters.fetched_bytes),
            ("decoded_bytes", counters.decoded_bytes),
            ("events", counters.decoded.events),
            ("broken", counters.decoded.broken),
            ("matched", self.matched),
            ("rows", self.rows),
            ("spills", self.spills),
            ("skipped", self.skipped_parts()),
        ];
        let numbers: Vec<String> = numbers
            .iter()
            .map(|(name, number)| format!("\"{name}\":{number}"))
            .collect();
        format!(
            "{{{},\"matched_is_estimate\":{},\"ended_early\":{},\"ruled_out\":{{\"statistics\":{statistics},\"dictionaries\":{dictionaries},\
             \"filters\":{filters}}}}}",
            numbers.join(","),
            self.is_matched_estimated,
            self.ended_early
        )
    }
}
