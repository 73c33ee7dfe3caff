//! Analysis of block cache traces: one pass, memory by distinct blocks.

mod access_counts;
mod analysis;
mod blocks;
mod correlation;
mod distance;
mod grouped;
mod interval;
mod locality;
mod report;
mod reuse_window;
mod summary;
mod timeline;

pub use analysis::{BucketQuestion, CacheAnalysis, CacheQuestions, CorrelationQuestion};
pub(crate) use blocks::{Access, Blocks, US_PER_SECOND};
pub use correlation::Coefficients;
pub use report::CacheReport;
pub use summary::{CallerSummary, Summary};
pub(crate) use timeline::step_range;
