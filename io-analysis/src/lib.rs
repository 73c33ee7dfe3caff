//! Analysis of I/O and block cache traces.
//!
//! [`CacheAnalysis`] answers [`CacheQuestions`] about accesses to a block cache in one pass over
//! the records: who accesses what, how caches of other sizes and policies would perform, and how
//! blocks are reused. [`IoAnalysis`] does the same for reads and writes. Each analysis is a module
//! that observes one access at a time. Memory grows with the number of distinct blocks, not with
//! the length of the trace.

#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "the numbers of tests are small"
    )
)]

mod buckets;
mod cache;
mod error;
mod exchange;
mod histogram;
mod io;
mod numbers;
mod plot;
mod result_file;
mod table;

pub use buckets::{Buckets, parse_size};
pub use cache::{
    BucketQuestion, CacheAnalysis, CacheConfig, CacheQuestions, CacheReport, CallerSummary,
    Coefficients, CorrelationQuestion, CurvePoint, LabelSet, MissTimeline, Policy, Summary,
};
pub use error::AnalysisError;
pub use exchange::{FioIolog, IO_CSV_HEADING, OracleGeneral, put_io_csv};
pub use histogram::Histogram;
pub use io::{
    Amplification, CacheLookups, Direction, HeatMap, IoAccess, IoAnalysis, IoQuestions, IoReport,
    LatencyRow, PAGE_BYTES, RocksdbIo, SequentialRow, SlowOperation, ThroughputStep, server_access,
};
pub use plot::{cache_picture, io_picture};
pub use result_file::ResultFile;
pub use table::{Layout, TextTable, bytes_text};

#[cfg(test)]
mod tests;
