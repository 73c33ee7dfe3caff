//! Analysis of I/O traces.

mod access;
mod amplification;
mod analysis;
mod grid;
mod latency;
mod report;
mod sequential;
mod server_trace;
mod slowest;
mod steps;
mod working_set;

pub use access::{Direction, IoAccess, RocksdbIo};
pub use amplification::Amplification;
pub use analysis::{IoAnalysis, IoQuestions};
pub use grid::HeatMap;
pub use latency::LatencyRow;
pub use report::IoReport;
pub use sequential::SequentialRow;
pub use server_trace::{CacheLookups, PAGE_BYTES, server_access};
pub use slowest::SlowOperation;
pub use steps::ThroughputStep;
