//! Decoded Bloom filters that several queries share, within a bound of bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::index::FilterBlock;
use crate::sidecar::{Block, BlockKind};

/// Filters retained between queries, by their sidecar ([`crate::Sidecar::key`]) and block. Beyond
/// the bound, blocks that were not requested since the hand of the clock last passed them are
/// evicted first.
#[derive(Debug)]
pub struct FilterCache {
    bytes_max: usize,
    state: Mutex<State>,
}

type Key = (u64, BlockKind, u32, u32);

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    clock: VecDeque<Key>,
    counts: CacheCounts,
}

#[derive(Debug)]
struct Entry {
    filters: FilterBlock,
    bytes: usize,
    was_requested: bool,
}

/// Counters of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Requested blocks that were in the cache.
    pub hits: u64,
    /// Requested blocks that were not.
    pub misses: u64,
    /// Blocks that were evicted.
    pub evictions: u64,
    /// Bytes of the blocks in the cache.
    pub bytes: usize,
}

impl FilterCache {
    /// An empty cache of at most `bytes_max` bytes of filters.
    pub fn new(bytes_max: usize) -> FilterCache {
        FilterCache {
            bytes_max,
            state: Mutex::default(),
        }
    }

    /// The filters of a block, if they are in the cache.
    pub fn get(&self, sidecar: u64, block: &Block) -> Option<FilterBlock> {
        let mut state = self.state();
        let found = state.entries.get_mut(&key(sidecar, block)).map(|entry| {
            entry.was_requested = true;
            entry.filters.clone()
        });
        match found {
            Some(_) => state.counts.hits += 1,
            None => state.counts.misses += 1,
        }
        found
    }

    /// Bytes that the filters of a block take in a cache.
    pub fn cost(filters: &FilterBlock) -> usize {
        let entry = std::mem::size_of::<Option<crate::ChunkFilter>>() * filters.len();
        let bits = filters.iter().flatten();
        entry + bits.map(crate::ChunkFilter::byte_len).sum::<usize>()
    }

    /// Inserts the filters of a block, unless they alone exceed the bound; returns whether they
    /// were inserted.
    pub fn put(&self, sidecar: u64, block: &Block, filters: FilterBlock) -> bool {
        let bytes = Self::cost(&filters);
        let key = key(sidecar, block);
        let mut state = self.state();
        if bytes > self.bytes_max || state.entries.contains_key(&key) {
            return bytes <= self.bytes_max;
        }
        while state.counts.bytes + bytes > self.bytes_max {
            state.evict();
        }
        state.counts.bytes += bytes;
        state.clock.push_back(key);
        state.entries.insert(
            key,
            Entry {
                filters,
                bytes,
                was_requested: false,
            },
        );
        true
    }

    /// The counters.
    pub fn counts(&self) -> CacheCounts {
        self.state().counts
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // No step of a change can panic, so the state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Moves the hand to the first block that was not requested, and evicts it.
    fn evict(&mut self) {
        while let Some(key) = self.clock.pop_front() {
            match self.entries.get_mut(&key) {
                Some(entry) if entry.was_requested => {
                    entry.was_requested = false;
                    self.clock.push_back(key);
                }
                Some(entry) => {
                    self.counts.bytes -= entry.bytes;
                    self.counts.evictions += 1;
                    self.entries.remove(&key);
                    return;
                }
                None => {}
            }
        }
    }
}

fn key(sidecar: u64, block: &Block) -> Key {
    (sidecar, block.kind, block.dimension, block.number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BloomFilter, ChunkFilter};
    use std::sync::Arc;

    fn filters() -> FilterBlock {
        Arc::new(vec![Some(ChunkFilter::Bloom(BloomFilter::new(
            1_000, 0.01,
        )))])
    }

    #[test]
    fn requested_blocks_stay_and_bytes_are_bounded() {
        let one = filters()[0].as_ref().unwrap().byte_len() + 64;
        let cache = FilterCache::new(3 * one);
        let block = |number| Block {
            number,
            ..Block::sample()
        };
        for number in 0..10 {
            assert!(cache.put(1, &block(number), filters()));
            assert!(
                cache.get(1, &block(0)).is_some(),
                "block 0 is requested and stays"
            );
            assert!(cache.counts().bytes <= 3 * one);
        }
        assert!(cache.get(1, &block(3)).is_none());
        assert!(
            cache.get(2, &block(0)).is_none(),
            "the block of another sidecar"
        );
        let counts = cache.counts();
        assert_eq!((counts.hits, counts.misses, counts.evictions), (10, 2, 7));
        let large = Arc::new(vec![Some(ChunkFilter::Bloom(BloomFilter::new(
            100_000, 0.01,
        )))]);
        assert!(!cache.put(1, &block(99), large));
        assert!(cache.get(1, &block(99)).is_none(), "larger than the bound");
    }
}
