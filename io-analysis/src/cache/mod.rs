//! Analysis of block cache traces, in one pass. Memory grows with the number of distinct blocks.

mod access_counts;
mod analysis;
mod blocks;
mod correlation;
mod group_counts;
mod labels;
mod report;
mod reuse_distance;
mod reuse_interval;
mod reuse_window;
mod simulate;
mod spatial_locality;
mod summary;
mod timeline;

pub use analysis::{BucketQuestion, CacheAnalysis, CacheQuestions, CorrelationQuestion};
pub use correlation::Coefficients;
pub use labels::LabelSet;
pub use report::CacheReport;
pub use simulate::{CacheConfig, CurvePoint, MissTimeline, Policy};
pub use summary::{CallerSummary, Summary};
