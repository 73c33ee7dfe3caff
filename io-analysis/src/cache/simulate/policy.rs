//! One simulated cache: a policy at one capacity.

use std::collections::{HashMap, VecDeque};

use trace_kinds::rocksdb::{BlockRecord, BlockType, Caller};

use super::config::{CacheConfig, Policy};
use super::lru::Lru;

/// An access to the simulated caches.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimAccess<'a> {
    pub(super) record: &'a BlockRecord<'a>,
    /// The number of the block among all entries.
    pub(super) block: u32,
    /// For a Get: the number of the key-value entry, and the length of its cache key.
    pub(super) row: Option<(u32, usize)>,
}

/// The bytes that RocksDB charges for the handle of an entry whose key has `length` bytes: the
/// usable size of an allocation of 71 bytes plus the key (release 7.8 with glibc; 88 for 16 bytes).
fn handle_charge(length: usize) -> u64 {
    let requested = 71 + length as u64;
    (requested + 8).next_multiple_of(16) - 8
}

/// Maximum number of Gets whose state is stored, in order of first access. The accesses of a Get
/// are close together, so the limit matters only with more concurrent Gets than this.
const GETS_MAX: usize = 1 << 16;

/// The state of a key-value entry within one Get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowState {
    /// It is in the cache, or will not be inserted.
    Decided,
    /// It is inserted as soon as an access reports its size.
    Admitted,
}

/// The state of a Get.
#[derive(Debug, Default)]
struct GetState {
    /// Its key was in the cache: it accesses no more blocks.
    complete: bool,
    rows: Vec<(u32, RowState)>,
}

/// One cache at one capacity.
#[derive(Debug)]
pub(super) struct SimCache {
    policy: Policy,
    cache: Lru,
    ghost: Option<Lru>,
    gets: HashMap<u64, GetState>,
    get_order: VecDeque<u64>,
}

impl SimCache {
    pub(super) fn new(config: &CacheConfig, capacity: u64) -> Self {
        let prioritized = config.policy != Policy::Lru;
        Self {
            policy: config.policy,
            cache: Lru::new(capacity, config.shard_bits, prioritized),
            // The ghost cache of RocksDB always has two shards.
            ghost: config
                .ghost
                .then(|| Lru::new(config.ghost_capacity, 1, false)),
            gets: HashMap::new(),
            get_order: VecDeque::new(),
        }
    }

    /// The charge of a block.
    #[inline]
    pub(super) fn peek(&self, block: u32) -> u64 {
        self.cache.peek(block)
    }

    /// Whether `access` misses.
    #[inline]
    pub(super) fn misses(&mut self, access: &SimAccess<'_>) -> bool {
        match (self.policy, access.row) {
            (Policy::Lru | Policy::LruPriority, _) | (_, None) => {
                self.block_misses(access, access.record.no_insert)
            }
            (_, Some((row, length))) => self.get_misses(access, row, length),
        }
    }

    #[inline]
    fn block_misses(&mut self, access: &SimAccess<'_>, no_insert: bool) -> bool {
        let record = access.record;
        let preferred = self.policy != Policy::Lru
            && matches!(
                record.block_type,
                BlockType::INDEX | BlockType::FILTER | BlockType::UNCOMPRESSION_DICT
            );
        let size = record.block_size;
        let (hit, _) = self.entry_hits(
            access.block,
            record.block_key.len(),
            size,
            no_insert,
            preferred,
        );
        !hit
    }

    /// Looks up an entry, and inserts it if permitted. Returns whether it was a hit, and whether
    /// the ghost cache admits it.
    #[inline]
    fn entry_hits(
        &mut self,
        entry: u32,
        key_length: usize,
        size: u64,
        no_insert: bool,
        preferred: bool,
    ) -> (bool, bool) {
        let mut admitted = true;
        if let Some(ghost) = self.ghost.as_mut().filter(|_| !no_insert) {
            admitted = ghost.lookup(entry);
            if !admitted {
                let charge = key_length as u64 + handle_charge(key_length);
                ghost.insert(entry, charge, false);
            }
        }
        if self.cache.lookup(entry) {
            return (true, admitted);
        }
        if !no_insert && admitted && size > 0 {
            let charge = size.saturating_add(handle_charge(key_length));
            self.cache.insert(entry, charge, preferred);
        }
        (false, admitted)
    }

    /// An access by a Get, whose key-value entry `row` may be cached.
    fn get_misses(&mut self, access: &SimAccess<'_>, row: u32, length: usize) -> bool {
        let record = access.record;
        let mut get = self.remove_get(record.get_id);
        if get.complete {
            self.gets.insert(record.get_id, get);
            return false;
        }
        let size = record.referenced_data_size;
        let known = get.rows.iter().position(|known| known.0 == row);
        let index = known.unwrap_or_else(|| {
            let (hit, admitted) = self.entry_hits(row, length, size, false, true);
            get.complete = hit;
            let waits = admitted && size == 0;
            get.rows.push((
                row,
                if waits {
                    RowState::Admitted
                } else {
                    RowState::Decided
                },
            ));
            get.rows.len() - 1
        });
        if get.complete {
            self.gets.insert(record.get_id, get);
            return false;
        }
        let no_insert = record.no_insert || self.policy == Policy::LruHybridNoInsertOnRowMiss;
        let missed = self.block_misses(access, no_insert);
        if size > 0 && get.rows[index].1 == RowState::Admitted {
            let charge = size.saturating_add(handle_charge(length));
            self.cache.insert(row, charge, true);
            get.rows[index].1 = RowState::Decided;
        }
        self.gets.insert(record.get_id, get);
        missed
    }

    /// Removes the state of a Get, so that the caches can be modified while it is used.
    fn remove_get(&mut self, get_id: u64) -> GetState {
        if let Some(get) = self.gets.get_mut(&get_id) {
            return std::mem::take(get);
        }
        self.get_order.push_back(get_id);
        if self.get_order.len() > GETS_MAX
            && let Some(oldest) = self.get_order.pop_front()
        {
            self.gets.remove(&oldest);
        }
        GetState::default()
    }
}

/// Whether an access belongs to a Get whose key-value entry may be cached.
pub(super) fn is_numbered_get(record: &BlockRecord<'_>) -> bool {
    record.caller == Caller::GET && record.get_id != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_charged_as_glibc_rounds() {
        for (length, charge) in [
            (0, 72),
            (1, 72),
            (2, 88),
            (16, 88),
            (17, 88),
            (18, 104),
            (33, 104),
        ] {
            assert_eq!(handle_charge(length), charge, "{length}");
        }
    }
}
