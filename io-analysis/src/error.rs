//! What can be wrong with a question to the analysis, or with its input.

use trace_kinds::rocksdb::{ReadError, RocksdbError};

/// Why an analysis could not be set up or carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// A label is not one of those that accesses can be grouped by.
    #[error(
        "`{given}` is not a label; use all, block, bt, caller, cf, level, sst, \
         or some of them joined by `_`"
    )]
    UnknownLabel {
        /// The label as it was given.
        given: String,
    },
    /// A caller has an unknown name.
    #[error("`{given}` is not a caller; use a name such as Get, MultiGet, Iterator or Compaction")]
    UnknownCaller {
        /// The name as it was given.
        given: String,
    },
    /// A number with an optional unit K, M, G or T could not be read.
    #[error("`{given}` is not a number; write digits and optionally K, M, G or T")]
    NotANumber {
        /// The text as it was given.
        given: String,
    },
    /// Bucket limits do not rise.
    #[error("the bucket limits `{given}` must rise from one to the next")]
    BucketsDoNotRise {
        /// The limits as they were given.
        given: String,
    },
    /// A line of a cache configuration is wrong.
    #[error("line {line} of the cache configuration: {what}")]
    CacheConfiguration {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A timeline would have more columns than anyone can use.
    #[error(
        "the trace spans {seconds} seconds, more than {limit} steps of {unit} s; its times are \
         damaged, or the step is too fine"
    )]
    TimelineTooLong {
        /// Seconds from the first to the last access.
        seconds: u64,
        /// Seconds a step.
        unit: u64,
        /// The greatest number of steps.
        limit: u64,
    },
    /// More windows of reuse than are kept for each block.
    #[error("the trace has more than {limit} windows of {window} s; choose a longer window")]
    TooManyWindows {
        /// Seconds a window.
        window: u64,
        /// The greatest number of windows.
        limit: u64,
    },
    /// The trace could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A result could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A trace is of the other kind than the analysis.
    #[error("the trace is {found}, this analysis reads {wanted}")]
    WrongKind {
        /// What the trace is.
        found: &'static str,
        /// What the analysis reads.
        wanted: &'static str,
    },
}

impl From<RocksdbError> for AnalysisError {
    fn from(error: RocksdbError) -> Self {
        Self::Read(error.into())
    }
}
