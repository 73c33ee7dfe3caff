//! An LRU cache of sizes, without contents, that evicts like RocksDB's `LRUCache`.
//!
//! Each shard is one list in eviction order. The list has a low-priority part, followed by a
//! high-priority part, which may use up to a given share of the capacity and overflows into the
//! young end of the low part. Without a high part it is plain LRU. Entries are numbers assigned by
//! the caller, so the lists are links in one array, and no hash table is needed to find an entry.

use crate::numbers::to_usize;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Flags in the upper bits of a node's charge.
const HIGH: u64 = 1 << 63;
const HIT: u64 = 1 << 62;
const PREFERRED: u64 = 1 << 61;
const CHARGE: u64 = PREFERRED - 1;

/// An entry; absent if its charge is 0.
#[derive(Debug, Clone, Copy)]
struct Node {
    older: u32,
    younger: u32,
    charge: u64,
}

const ABSENT: Node = Node {
    older: NONE,
    younger: NONE,
    charge: 0,
};

#[derive(Debug, Clone, Copy)]
struct Shard {
    oldest: u32,
    youngest: u32,
    /// The youngest entry of the low part.
    boundary: u32,
    usage: u64,
    high_usage: u64,
}

/// A cache of sizes.
#[derive(Debug)]
pub(super) struct Lru {
    nodes: Vec<Node>,
    shards: Vec<Shard>,
    shard_bits: u32,
    /// Bytes per shard.
    capacity: u64,
    high_capacity: u64,
    has_high_part: bool,
}

impl Lru {
    /// A cache of `capacity` bytes in 2^`shard_bits` shards. With `prioritized`, half of each shard
    /// is for high-priority entries.
    pub(super) fn new(capacity: u64, shard_bits: u32, prioritized: bool) -> Self {
        let shards = 1u64 << shard_bits;
        let capacity = capacity.div_ceil(shards);
        let shard = Shard {
            oldest: NONE,
            youngest: NONE,
            boundary: NONE,
            usage: 0,
            high_usage: 0,
        };
        Self {
            nodes: Vec::new(),
            shards: vec![shard; to_usize(shards)],
            shard_bits,
            capacity,
            high_capacity: if prioritized { capacity / 2 } else { 0 },
            has_high_part: prioritized,
        }
    }

    /// The charge of `entry`, without changing its age.
    #[inline]
    pub(super) fn peek(&self, entry: u32) -> u64 {
        self.nodes
            .get(entry as usize)
            .map_or(0, |node| node.charge & CHARGE)
    }

    /// Whether `entry` is in the cache. If so, it becomes the youngest.
    #[inline]
    pub(super) fn lookup(&mut self, entry: u32) -> bool {
        match self.nodes.get(entry as usize) {
            Some(node) if node.charge != 0 => {}
            _ => return false,
        }
        self.unlink(entry);
        self.nodes[entry as usize].charge |= HIT;
        self.link(entry);
        true
    }

    /// Inserts or replaces `entry` with `charge` bytes. Older entries are evicted. An entry that is
    /// larger than the shard empties the shard and is not inserted.
    #[inline]
    pub(super) fn insert(&mut self, entry: u32, charge: u64, preferred: bool) {
        let shard = self.shard_of(entry);
        let charge = charge.clamp(1, CHARGE);
        while self.shards[shard].usage.saturating_add(charge) > self.capacity {
            let oldest = self.shards[shard].oldest;
            if oldest == NONE {
                return;
            }
            self.remove(oldest);
        }
        let index = entry as usize;
        if index >= self.nodes.len() {
            self.nodes.resize((index + 1).next_power_of_two(), ABSENT);
        } else if self.nodes[index].charge != 0 {
            self.remove(entry);
        }
        self.nodes[index].charge = charge | if preferred { PREFERRED } else { 0 };
        self.shards[shard].usage += charge;
        self.link(entry);
    }

    /// Bytes in use.
    #[cfg(test)]
    pub(super) fn usage(&self) -> u64 {
        self.shards.iter().map(|shard| shard.usage).sum()
    }

    fn shard_of(&self, entry: u32) -> usize {
        if self.shard_bits == 0 {
            return 0;
        }
        let mixed = u64::from(entry)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        to_usize(mixed >> (64 - self.shard_bits))
    }

    fn remove(&mut self, entry: u32) {
        self.unlink(entry);
        let charge = self.nodes[entry as usize].charge & CHARGE;
        self.nodes[entry as usize].charge = 0;
        let shard = self.shard_of(entry);
        self.shards[shard].usage -= charge;
    }

    fn unlink(&mut self, entry: u32) {
        let number = self.shard_of(entry);
        let shard = &mut self.shards[number];
        let Node {
            older,
            younger,
            charge,
        } = self.nodes[entry as usize];
        if shard.boundary == entry {
            shard.boundary = older;
        }
        match older {
            NONE => shard.oldest = younger,
            older => self.nodes[older as usize].younger = younger,
        }
        match younger {
            NONE => shard.youngest = older,
            younger => self.nodes[younger as usize].older = older,
        }
        if charge & HIGH != 0 {
            shard.high_usage -= charge & CHARGE;
            self.nodes[entry as usize].charge &= !HIGH;
        }
    }

    /// Links `entry` at the young end of its part.
    fn link(&mut self, entry: u32) {
        let number = self.shard_of(entry);
        let charge = self.nodes[entry as usize].charge;
        let shard = &mut self.shards[number];
        let high = self.has_high_part && charge & (HIT | PREFERRED) != 0;
        let older = if high { shard.youngest } else { shard.boundary };
        let younger = match older {
            NONE => std::mem::replace(&mut shard.oldest, entry),
            older => std::mem::replace(&mut self.nodes[older as usize].younger, entry),
        };
        match younger {
            NONE => shard.youngest = entry,
            younger => self.nodes[younger as usize].older = entry,
        }
        let node = &mut self.nodes[entry as usize];
        (node.older, node.younger) = (older, younger);
        if !high {
            shard.boundary = entry;
            return;
        }
        node.charge |= HIGH;
        shard.high_usage += charge & CHARGE;
        while shard.high_usage > self.high_capacity {
            let overflow = match shard.boundary {
                NONE => shard.oldest,
                boundary => self.nodes[boundary as usize].younger,
            };
            let node = &mut self.nodes[overflow as usize];
            node.charge &= !HIGH;
            shard.high_usage -= node.charge & CHARGE;
            shard.boundary = overflow;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let mut lru = Lru::new(30, 0, false);
        for entry in [1, 2, 3] {
            lru.insert(entry, 10, false);
        }
        assert!(lru.lookup(1));
        lru.insert(4, 10, false);
        assert_eq!(
            [1, 2, 3, 4].map(|entry| lru.lookup(entry)),
            [true, false, true, true]
        );
        lru.insert(5, 31, false);
        assert_eq!((lru.lookup(5), lru.usage()), (false, 0));
    }

    #[test]
    fn preferred_entries_and_hits_outlive_a_scan() {
        let mut lru = Lru::new(100, 0, true);
        lru.insert(1, 20, true);
        lru.insert(2, 20, false);
        assert!(lru.lookup(2));
        for entry in 10..40 {
            lru.insert(entry, 10, false);
        }
        assert!(lru.lookup(1) && lru.lookup(2) && lru.lookup(39) && !lru.lookup(10));
        // The high part is half of the cache; the rest overflows and is then evicted.
        for entry in 50..60 {
            lru.insert(entry, 20, true);
        }
        assert!(!lru.lookup(1) && lru.lookup(59));
    }

    /// Plain LRU over a vector, as a reference.
    fn slow(capacity: u64, accesses: &[(u32, u64)]) -> Vec<bool> {
        let mut list: Vec<(u32, u64)> = Vec::new();
        accesses
            .iter()
            .map(|&(entry, charge)| {
                let found = list.iter().position(|known| known.0 == entry);
                if let Some(index) = found {
                    let known = list.remove(index);
                    list.push(known);
                } else {
                    while list.iter().map(|known| known.1).sum::<u64>() + charge > capacity {
                        if list.is_empty() {
                            return false;
                        }
                        list.remove(0);
                    }
                    list.push((entry, charge));
                }
                found.is_some()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn plain_lru_equals_the_reference(
            capacity in 1u64..200,
            accesses in proptest::collection::vec((0u32..30, 1u64..60), 0..300),
        ) {
            let mut lru = Lru::new(capacity, 0, false);
            let hits: Vec<_> = accesses
                .iter()
                .map(|&(entry, charge)| {
                    let hit = lru.lookup(entry);
                    if !hit {
                        lru.insert(entry, charge, false);
                    }
                    hit
                })
                .collect();
            prop_assert_eq!(hits, slow(capacity, &accesses));
        }

        #[test]
        fn never_more_than_its_capacity(
            bits in 0u32..3,
            prioritized in any::<bool>(),
            accesses in proptest::collection::vec((0u32..50, 0u64..90, any::<bool>()), 0..300),
        ) {
            let mut lru = Lru::new(200, bits, prioritized);
            for (entry, charge, preferred) in accesses {
                if !lru.lookup(entry) || preferred {
                    lru.insert(entry, charge, preferred);
                }
                prop_assert!(lru.usage() <= 200 + (1 << bits));
            }
        }
    }
}
