//! Analysis of I/O and block cache traces.
//!
//! [`CacheAnalysis`] answers [`CacheQuestions`] about accesses to a block cache in one pass over
//! the records: who accesses what, how caches of other sizes and policies would do, and how
//! blocks are used again. [`IoAnalysis`] does the same for reads and writes. Every analysis is a
//! module of its own that is fed one access at a time; memory grows with the number of distinct
//! blocks, not with the trace.

mod buckets;
mod cache;
mod error;
mod exchange;
mod histogram;
mod io;
mod labels;
mod out_file;
mod plot;
mod simulate;
mod table;

pub use buckets::{Buckets, parse_size};
pub use cache::{
    BucketQuestion, CacheAnalysis, CacheQuestions, CacheReport, CallerSummary, Coefficients,
    CorrelationQuestion, Summary,
};
pub use error::AnalysisError;
pub use exchange::{FioIolog, IO_CSV_HEADING, OracleGeneral, put_io_csv};
pub use histogram::Histogram;
pub use io::{
    Amplification, Direction, HeatMap, IoAccess, IoAnalysis, IoQuestions, IoReport, LatencyRow,
    LookUps, PAGE_BYTES, RocksdbIo, SequentialRow, SlowOperation, ThroughputStep, own_access,
};
pub use labels::LabelSet;
pub use out_file::OutFile;
pub use plot::{cache_picture, io_picture};
pub use simulate::{CacheConfig, CurvePoint, MissTimeline, Policy};

#[cfg(test)]
mod tests;
