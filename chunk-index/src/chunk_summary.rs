//! The summary of a chunk.

use crate::dimension_summary::DimensionSummary;
use crate::slowest::Slowest;
use crate::statistics::ChunkStatistics;

/// What is known about a chunk without decoding it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChunkSummary {
    /// Counts, times and durations, by category and name.
    pub statistics: ChunkStatistics,
    /// One summary for each dimension of the configuration, in its order.
    pub dimensions: Vec<DimensionSummary>,
    /// The slowest events, of those that were added with their records.
    pub slowest: Slowest,
}
