//! From the numbers of a chunk's values to its filter, once the whole file is known.

use query_language::Value;

use crate::builder::ChunkSummary;
use crate::config::IndexConfig;
use crate::dimension::filter_of_values;
use crate::filter::ChunkFilter;
use crate::lexicon::{Lexicon, Places, places_of};
use crate::members::Members;

impl Members {
    /// Makes the filters of chunks of what they said in numbers: places in `lexicon` where it has
    /// all of a chunk's values, Bloom filters elsewhere. Gives whether any chunk has places now.
    pub fn settle<'s>(
        &self,
        lexicon: Option<&Lexicon>,
        config: &IndexConfig,
        summaries: impl IntoIterator<Item = &'s mut ChunkSummary>,
    ) -> bool {
        let places = lexicon.map(|lexicon| places_of(lexicon, self.values()));
        let all: Vec<Value<'_>> = self.values().collect();
        let mut any = false;
        for summary in summaries {
            let Some(dimension) = summary.dimensions.get_mut(self.dimension()) else {
                continue;
            };
            let Some(numbers) = dimension.members.take() else {
                continue;
            };
            let of_number = |number: u32| places.as_ref()?.get(number as usize).copied()?;
            let known: Option<Vec<u32>> = numbers.iter().map(of_number).collect();
            dimension.filter = Some(match known {
                Some(mut known) => {
                    any = true;
                    known.sort_unstable();
                    known.dedup();
                    ChunkFilter::Places(Places::new(&known))
                }
                None => {
                    let own = numbers.iter().filter_map(|number| all.get(number as usize));
                    let own: Vec<Value<'_>> = own.copied().collect();
                    ChunkFilter::Bloom(filter_of_values(&own, config))
                }
            });
        }
        any
    }
}
