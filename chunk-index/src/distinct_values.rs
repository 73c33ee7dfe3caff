//! The distinct values of a dimension over all chunks of a file, while it is indexed.

use query_language::Value;

use crate::chunk_summary::ChunkSummary;
use crate::config::IndexConfig;
use crate::entry_set::EntrySet;
use crate::file_dictionary::{ENTRIES_MAX, FileDictionary};
use crate::filter::ChunkFilter;
use crate::value_counts::ValueCounts;

/// The distinct values of all chunks so far, numbered in the order in which they came.
///
/// A chunk that has too many values for a dictionary stores the numbers of its values, until the
/// order of the file dictionary is known: see [`DistinctValues::build_filters`].
#[derive(Debug)]
pub struct DistinctValues {
    /// Index of the dimension in the configuration.
    dimension: usize,
    counts: ValueCounts,
}

impl DistinctValues {
    pub(crate) fn new(dimension: usize) -> DistinctValues {
        DistinctValues {
            dimension,
            counts: ValueCounts::new(),
        }
    }

    pub(crate) fn dimension(&self) -> usize {
        self.dimension
    }

    /// The numbers of the values of a chunk; `None` when there are too many values in the file.
    pub(crate) fn numbers_of<'a>(
        &mut self,
        values: impl Iterator<Item = Value<'a>>,
    ) -> Option<EntrySet> {
        let numbers = values.map(|value| self.counts.count(value, ENTRIES_MAX));
        let mut numbers: Vec<u32> = numbers.collect::<Option<_>>()?;
        numbers.sort_unstable();
        Some(EntrySet::new(&numbers))
    }

    /// The values, in the order of their numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.counts.values().map(|(value, _)| value)
    }

    /// Builds the filters of all chunks that stored numbers: a set of entries of `dictionary` for
    /// a chunk whose values are all in it, a Bloom filter for each other chunk. Returns whether
    /// any filter refers to the dictionary.
    pub fn build_filters<'s>(
        &self,
        dictionary: Option<&FileDictionary>,
        config: &IndexConfig,
        summaries: impl IntoIterator<Item = &'s mut ChunkSummary>,
    ) -> bool {
        let entries = dictionary.map(|dictionary| dictionary.indexes_of(self.values()));
        let values: Vec<Value<'_>> = self.values().collect();
        let mut uses_dictionary = false;
        for summary in summaries {
            let Some(dimension) = summary.dimensions.get_mut(self.dimension) else {
                continue;
            };
            let Some(numbers) = dimension.numbers.take() else {
                continue;
            };
            let entry_of = |number: usize| entries.as_ref()?.get(number).copied()?;
            let numbers = || {
                numbers
                    .iter()
                    .filter_map(|number| usize::try_from(number).ok())
            };
            let indexes: Option<Vec<u32>> = numbers().map(entry_of).collect();
            dimension.filter = Some(match indexes {
                Some(mut indexes) => {
                    uses_dictionary = true;
                    indexes.sort_unstable();
                    indexes.dedup();
                    ChunkFilter::Entries(EntrySet::new(&indexes))
                }
                None => {
                    let values = numbers().filter_map(|number| values.get(number).copied());
                    ChunkFilter::of_values(&values.collect::<Vec<_>>(), config)
                }
            });
        }
        uses_dictionary
    }
}
