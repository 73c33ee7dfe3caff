//! The summary of one dimension in one chunk.

use crate::dictionary::Dictionary;
use crate::entry_set::EntrySet;
use crate::filter::ChunkFilter;
use crate::zone::Zone;

/// What is known about one dimension in one chunk.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DimensionSummary {
    /// The limits.
    pub zone: Zone,
    /// All values with their counts, unless they take too much space.
    pub dictionary: Option<Dictionary>,
    /// A filter of the values, unless there is a dictionary, which answers all that a filter can,
    /// or there are too many values.
    pub filter: Option<ChunkFilter>,
    /// The numbers of the values in [`DistinctValues`](crate::DistinctValues), until
    /// [`build_filters`](crate::DistinctValues::build_filters) makes a filter of them.
    pub(crate) numbers: Option<EntrySet>,
}
