//! Errors in the options of an analysis, or in its input.

use trace_kinds::rocksdb::{ReadError, RocksdbError};

/// Why an analysis failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// Unknown label.
    #[error(
        "unknown label `{given}`; use all, block, bt, caller, cf, level, sst, or several \
        joined by `_`"
    )]
    UnknownLabel {
        /// The given label.
        given: String,
    },
    /// Unknown caller.
    #[error("unknown caller `{given}`; use a name such as Get, MultiGet, Iterator or Compaction")]
    UnknownCaller {
        /// The name as it was given.
        given: String,
    },
    /// Invalid number.
    #[error("`{given}` is not a number; use digits and an optional unit K, M, G or T")]
    NotANumber {
        /// The given text.
        given: String,
    },
    /// Bucket limits do not increase.
    #[error("the bucket limits `{given}` must increase")]
    BucketsDoNotRise {
        /// The given limits.
        given: String,
    },
    /// A line of a cache configuration is invalid.
    #[error("line {line} of the cache configuration: {what}")]
    CacheConfiguration {
        /// Line number, counted from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A timeline would have too many columns.
    #[error(
        "the timeline was skipped: the trace spans {seconds} s, more than {limit} steps of {unit} s; \
        use a longer step, or check the trace for damaged times"
    )]
    TimelineTooLong {
        /// Seconds from the first to the last access.
        seconds: u64,
        /// Seconds per step.
        unit: u64,
        /// Maximum number of steps.
        limit: u64,
    },
    /// Too many windows for the reuse analysis.
    #[error("the trace has more than {limit} windows of {window} s; use a longer window")]
    TooManyWindows {
        /// Seconds per window.
        window: u64,
        /// Maximum number of windows.
        limit: u64,
    },
    /// Reading the trace failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Writing a result failed.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The trace is of another kind than the analysis.
    #[error("the trace is {found}; this analysis requires {wanted}")]
    WrongKind {
        /// The kind of the trace.
        found: &'static str,
        /// The kind that the analysis requires.
        wanted: &'static str,
    },
}

impl From<RocksdbError> for AnalysisError {
    fn from(error: RocksdbError) -> Self {
        Self::Read(error.into())
    }
}
