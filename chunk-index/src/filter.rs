//! What a chunk says of the values that it may have.

use crate::BloomFilter;
use crate::lexicon::Places;

/// Which values of a dimension a chunk may have, where there are too many for a dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkFilter {
    /// Nearly none but those that it has.
    Bloom(BloomFilter),
    /// Just those at these places of the dimension's [`Lexicon`](crate::Lexicon).
    Places(Places),
}

impl ChunkFilter {
    /// Bytes that it takes in memory.
    pub fn byte_len(&self) -> usize {
        match self {
            ChunkFilter::Bloom(filter) => filter.byte_len(),
            ChunkFilter::Places(places) => places.bytes().len(),
        }
    }
}
