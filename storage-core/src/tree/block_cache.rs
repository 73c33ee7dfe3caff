//! Blocks of index parts in memory, bounded in bytes; the least recently used one is evicted first.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use io_trace::{Access, BlockType, FileTag, Operation};
use parking_lot::Mutex;
use storage_format::index_part::{ArrayBlock, Extent, LeafEntry, PacketEntry, TimeBases};

use super::{PartBlock, time_index::TimeIndex};
use crate::{StorageError, counters::Counters, traced::tag_in_scope};

/// A block that was read and checked.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    /// Length of the entries in `bytes`; extents follow.
    entry_bytes: usize,
    bases: Arc<TimeBases>,
    pub(crate) times: TimeIndex,
}

impl Block {
    fn read(block: &PartBlock) -> Result<Self, StorageError> {
        let bytes = block.read()?;
        let bases = Arc::clone(&block.part().bases);
        let mut times = TimeIndex::default();
        let entry_bytes = block.entry().entries_in(&bytes).len();
        if let Ok(entries) = ArrayBlock::new(&bytes[..entry_bytes], &bases) {
            (0..entries.len()).for_each(|at| times.push(&entries.facts(at)));
        }
        Ok(Self {
            bytes,
            entry_bytes,
            bases,
            times,
        })
    }

    /// The entries; the length was checked when the block was read.
    pub(crate) fn entries(&self) -> ArrayBlock<'_> {
        ArrayBlock::new(&self.bytes[..self.entry_bytes], &self.bases)
            .expect("the length of a block is checked when it is read")
    }

    /// The entry at `index`.
    pub(crate) fn entry(
        &self,
        block: &PartBlock,
        index: usize,
    ) -> Result<PacketEntry, StorageError> {
        let entry = self.entries().get(index);
        entry.map_err(StorageError::damaged(&block.part().path))
    }

    /// The extents; `block` says where it is.
    pub(crate) fn extents(&self, block: &PartBlock) -> Result<Vec<Extent>, StorageError> {
        let extents = block.entry().extents_in(&self.bytes);
        extents.map_err(StorageError::damaged(&block.part().path))
    }

    /// The extent that contains the byte `offset` of the leaf; `block` says where this is.
    pub(crate) fn extent_at(&self, block: &PartBlock, offset: u64) -> Option<Extent> {
        block.entry().extent_at(&self.bytes, offset)
    }

    fn cost(&self) -> u64 {
        self.times.bytes().saturating_add(self.bytes.len() as u64)
    }
}

type Key = (u64, usize);

#[derive(Debug, Default)]
struct Cached {
    blocks: HashMap<Key, (u64, Arc<Block>)>,
    by_use: BTreeMap<u64, Key>,
    next_use: u64,
    bytes: u64,
}

impl Cached {
    fn new_use(&mut self) -> u64 {
        let now = self.next_use;
        self.next_use = now.checked_add(1).expect("uses do not reach 2^64");
        now
    }
}

/// A cache of blocks.
#[derive(Debug)]
pub(crate) struct BlockCache {
    cached: Mutex<Cached>,
    bytes_max: u64,
    counters: Arc<Counters>,
}

impl BlockCache {
    pub(crate) fn new(bytes_max: u64, counters: Arc<Counters>) -> Self {
        Self {
            cached: Mutex::default(),
            bytes_max,
            counters,
        }
    }

    /// A block, from memory or from disk.
    pub(crate) fn get(&self, block: &PartBlock) -> Result<Arc<Block>, StorageError> {
        self.lookup(block, |_| None).map(|(block, _)| block)
    }

    /// A block, and the index of the entry that `find` finds.
    pub(crate) fn find(
        &self,
        block: &PartBlock,
        find: impl FnOnce(&Block) -> Option<usize>,
    ) -> Result<(Arc<Block>, Option<usize>), StorageError> {
        let (block, at) = self.lookup(block, |block| Some(find(block)))?;
        Ok((block, at.flatten()))
    }

    fn lookup(
        &self,
        wanted: &PartBlock,
        find: impl FnOnce(&Block) -> Option<Option<usize>>,
    ) -> Result<(Arc<Block>, Option<Option<usize>>), StorageError> {
        let key = wanted.key();
        let tag = tag_in_scope(&wanted.part().path);
        let started = tag.as_ref().map(FileTag::begin);
        let cached = self.cached_block(key);
        let is_hit = cached.is_some();
        let block = match cached {
            Some(block) => {
                self.counters.index_cache_hits.add(1);
                block
            }
            None => {
                self.counters.index_cache_misses.add(1);
                let block = Arc::new(Block::read(wanted)?);
                self.insert(key, &block);
                block
            }
        };
        let found = find(&block);
        if let (Some(tag), Some(started)) = (tag, started) {
            let is_found = found.as_ref().map(Option::is_some);
            tag.end(started, Operation::Lookup, || {
                self.access(wanted.entry(), &block, is_hit, is_found)
            });
        }
        Ok((block, found))
    }

    /// The record of a lookup in the I/O trace.
    fn access(
        &self,
        entry: &LeafEntry,
        block: &Block,
        is_hit: bool,
        is_found: Option<bool>,
    ) -> Access {
        let range = entry.block_range();
        Access {
            offset: Some(range.start),
            asked: range.end.saturating_sub(range.start),
            done: block.bytes.len() as u64,
            errno: 0,
            cache_hit: Some(is_hit),
            block: Some(io_trace::Block {
                block_type: BlockType::Index,
                size: block.cost(),
                not_inserted: block.cost() > self.bytes_max,
                leaf: entry.leaf.0,
                entries: block.entries().len() as u64,
                // An index part is never written again.
                immutable: true,
                found: is_found,
            }),
        }
    }

    fn cached_block(&self, key: Key) -> Option<Arc<Block>> {
        let mut cached = self.cached.lock();
        let cached = &mut *cached;
        let now = cached.new_use();
        let (last_use, block) = cached.blocks.get_mut(&key)?;
        cached.by_use.remove(last_use);
        *last_use = now;
        cached.by_use.insert(now, key);
        Some(Arc::clone(block))
    }

    fn insert(&self, key: Key, block: &Arc<Block>) {
        let cost = block.cost();
        if cost > self.bytes_max {
            return;
        }
        let mut cached = self.cached.lock();
        let now = cached.new_use();
        if let Some((last_use, old)) = cached.blocks.insert(key, (now, Arc::clone(block))) {
            cached.by_use.remove(&last_use);
            cached.bytes = cached.bytes.saturating_sub(old.cost());
        }
        cached.by_use.insert(now, key);
        cached.bytes = cached.bytes.saturating_add(cost);
        while cached.bytes > self.bytes_max {
            let Some((_, oldest)) = cached.by_use.pop_first() else {
                break;
            };
            if let Some((_, block)) = cached.blocks.remove(&oldest) {
                cached.bytes = cached.bytes.saturating_sub(block.cost());
            }
        }
        assert!(
            cached.bytes <= self.bytes_max,
            "the cache stays within its limit"
        );
        assert_eq!(
            cached.blocks.len(),
            cached.by_use.len(),
            "every cached block has one last use"
        );
        self.counters.index_cache_bytes.set(cached.bytes);
    }
}
