//! What a reader asks for, and what an answer cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use query_language::{
    BareUnit, CompareOp, Condition, Expr, FieldPath, Filter, Number, Query, Scalar,
};

use crate::ReadError;
use crate::source::{ChunkSource, Counters};

/// A question to a set of sources.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Which events; all of them without.
    pub query: Option<Query>,
    /// Events that start at or after this time, in nanoseconds since the epoch.
    pub from: Option<i64>,
    /// Events that start before this time.
    pub to: Option<i64>,
    /// Ends the work from outside.
    pub cancel: Cancel,
}

/// Ends a query from outside: what is under way stops at its next event, with
/// [`ReadError::Cancelled`]. Clones belong together.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Nobody waits for the answer any more.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether nobody waits any more.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    ///
    /// When nobody waits any more.
    pub(crate) fn check(&self) -> Result<(), ReadError> {
        match self.is_cancelled() {
            true => Err(ReadError::Cancelled),
            false => Ok(()),
        }
    }
}

impl Request {
    /// The one filter of all sources.
    ///
    /// # Errors
    ///
    /// When the query compares a time with a bare number and the sources have different units, or
    /// a literal has a unit that its field has not.
    pub fn filter(&self, sources: &[Box<dyn ChunkSource>]) -> Result<Option<Filter>, ReadError> {
        let unit = sources
            .iter()
            .map(|source| source.unit())
            .reduce(|a, b| a.and(b));
        self.bind(unit.unwrap_or(BareUnit::NANOS))
    }

    /// The filter for sources of this unit.
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

/// How much work goes on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Threads that read.
    pub threads: usize,
    /// Bytes of rows that wait for their turn before they are put aside in a file.
    pub waiting_bytes_max: usize,
    /// Bytes of a row group of a Parquet file, before they are compressed, at which it is written.
    /// A batch more may be in it.
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

/// Each thread holds a piece of up to 64 MiB in the worst case.
const THREADS_MAX: usize = 16;

/// How a question was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Sources that were asked.
    pub sources: usize,
    /// Sources that have an index.
    pub indexed: usize,
    /// Sources of which it is known by where they come from that they hold no match.
    pub left_out: usize,
    /// Chunks of those that have an index.
    pub chunks: usize,
    /// Chunks that each tier ruled out: statistics, dictionaries, filters.
    pub ruled_out: [usize; 3],
    /// Runs of packets that no chunk index covers, of which the index of the storage was asked.
    pub timed: usize,
    /// Those of them that were ruled out by the times of their packets.
    pub out_of_time: usize,
    /// Chunks that were answered by their summaries.
    pub summarized: usize,
    /// Chunks of which only the records that the index keeps of the slowest events were read.
    pub slowest: usize,
    /// Chunks that were read.
    pub read: usize,
    /// Bytes of indexes that were fetched.
    pub index_bytes: u64,
    /// What reading cost, metadata and broken lines of what was read included.
    pub counters: Counters,
    /// Events that match.
    pub matched: u64,
    /// How often rows that waited were put aside in a file.
    pub spills: u64,
    /// What the reader of the answer should know of it.
    pub notes: Vec<String>,
    /// Parts of indexes that turned out to be damaged: what they tell was read from the events.
    pub damaged: Vec<String>,
}

impl Report {
    /// Takes in what reading cost and found.
    pub(crate) fn add(&mut self, mut counters: Counters) {
        self.damaged.append(&mut counters.damaged);
        self.read = self.read.saturating_sub(counters.told_by_columns);
        self.counters += counters;
    }

    /// The report as a JSON object.
    pub fn json(&self) -> String {
        let [statistics, dictionaries, filters] = self.ruled_out;
        let counters = &self.counters;
        let numbers = [
            ("sources", self.sources as u64),
            ("left_out", self.left_out as u64),
            ("indexed", self.indexed as u64),
            ("chunks", self.chunks as u64),
            ("timed", self.timed as u64),
            ("out_of_time", self.out_of_time as u64),
            ("summarized", self.summarized as u64),
            ("slowest", self.slowest as u64),
            ("columns", counters.told_by_columns as u64),
            ("read", self.read as u64),
            ("index_bytes", self.index_bytes),
            ("column_bytes", counters.column_bytes),
            ("fetched_bytes", counters.fetched_bytes),
            ("decoded_bytes", counters.decoded_bytes),
            ("events", counters.decoded.events),
            ("broken", counters.decoded.broken),
            ("matched", self.matched),
            ("spills", self.spills),
        ];
        let numbers: Vec<String> = numbers
            .iter()
            .map(|(name, number)| format!("\"{name}\":{number}"))
            .collect();
        format!(
            "{{{},\"ruled_out\":{{\"statistics\":{statistics},\"dictionaries\":{dictionaries},\
             \"filters\":{filters}}}}}",
            numbers.join(",")
        )
    }

    /// The report for people, a line each.
    pub fn lines(&self) -> Vec<String> {
        let [statistics, dictionaries, filters] = self.ruled_out;
        let left = self.chunks - statistics - dictionaries - filters;
        let mut lines = vec![
            format!(
                "sources: {}, left out by where they come from: {}, with an index: {}",
                self.sources, self.left_out, self.indexed
            ),
            format!("chunks: {}", self.chunks),
            format!("  ruled out by statistics: {statistics}"),
            format!("  ruled out by dictionaries: {dictionaries}"),
            format!("  ruled out by filters: {filters}"),
            format!("  answered by summaries: {}", self.summarized),
            format!("  slowest events kept in the index: {}", self.slowest),
            format!("  told by columns: {}", self.counters.told_by_columns),
            format!("  read: {} of {left} left", self.read),
            format!("index bytes fetched: {}", self.index_bytes),
            format!("column bytes fetched: {}", self.counters.column_bytes),
            format!("bytes fetched: {}", self.counters.fetched_bytes),
            format!("bytes decoded: {}", self.counters.decoded_bytes),
            format!("events decoded: {}", self.counters.decoded.events),
            format!("events matched: {}", self.matched),
        ];
        if self.timed > 0 {
            lines.push(format!(
                "runs of packets without a chunk index: {}, ruled out by the times of their \
                 packets: {}",
                self.timed, self.out_of_time
            ));
        }
        if self.counters.decoded.broken > 0 {
            lines.push(format!(
                "broken records stepped over: {}",
                self.counters.decoded.broken
            ));
        }
        if self.spills > 0 {
            lines.push(format!("rows put aside in a file: {} times", self.spills));
        }
        lines
    }
}
