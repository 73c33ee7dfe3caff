//! Filters: which values a chunk may have.

use query_language::Value;

use crate::bloom::BloomFilter;
use crate::config::IndexConfig;
use crate::entry_set::EntrySet;
use crate::value::{ValueTypes, hash_bool, hash_number, hash_text};

/// The values of a dimension that a chunk may have, where these are too many for a dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkFilter {
    /// Contains all values of the chunk, and others with a small probability.
    Bloom(BloomFilter),
    /// Contains exactly the values of the chunk: indexes into the dimension's
    /// [`FileDictionary`](crate::FileDictionary).
    Entries(EntrySet),
}

impl ChunkFilter {
    /// A Bloom filter of distinct values.
    pub(crate) fn of_values(values: &[Value<'_>], config: &IndexConfig) -> ChunkFilter {
        // Text that spells a number is inserted twice: as text and as the number.
        let is_numeric = |value: &&Value<'_>| ValueTypes::of(**value) == ValueTypes::NUMERIC_TEXT;
        let entries = values.len() + values.iter().filter(is_numeric).count();
        let mut filter = BloomFilter::new(entries as u64, config.false_positive_rate);
        for value in values {
            match *value {
                Value::Str(text) => filter.insert(hash_text(text)),
                Value::Bool(value) => filter.insert(hash_bool(value)),
                Value::Int(_) | Value::Uint(_) | Value::Float(_) => {}
            }
            if let Some(number) = value.as_number() {
                filter.insert(hash_number(number));
            }
        }
        ChunkFilter::Bloom(filter)
    }

    /// Bytes that the filter takes in memory.
    pub fn byte_len(&self) -> usize {
        match self {
            ChunkFilter::Bloom(filter) => filter.byte_len(),
            ChunkFilter::Entries(entries) => entries.bytes().len(),
        }
    }
}
