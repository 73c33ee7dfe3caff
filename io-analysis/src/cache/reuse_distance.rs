//! Reuse distance: the bytes of distinct blocks accessed between two accesses to a block, including
//! that block.
//!
//! Each access takes the next position in an array; only the position of the latest access to a
//! block has its size. The distance of an access is then the sum from the block's previous position
//! to the end. A Fenwick tree stores the sums, so an access costs O(log n). When the array is full,
//! the used positions are compacted, which costs O(1) per access amortized. Memory grows with the
//! number of distinct blocks, not with the length of the trace.

use super::blocks::{Access, Blocks};
use super::group_counts::GroupCounts;
use crate::buckets::Buckets;
use crate::cache::labels::LabelSet;
use crate::numbers::to_u32;
use crate::result_file::{ResultFile, bucket_file};

/// An unused position.
const VACANT: u32 = u32::MAX;

/// Minimum length of the line.
const LINE_MIN: usize = 1 << 12;

/// The array of positions.
#[derive(Debug)]
pub(crate) struct DistanceLine {
    /// Fenwick tree over sizes, from index 1.
    tree: Vec<u64>,
    /// The block at each position.
    owners: Vec<u32>,
    /// The position of each block's latest access, and its size then.
    positions: Vec<(u32, u64)>,
    next: usize,
    total: u64,
}

impl Default for DistanceLine {
    fn default() -> Self {
        Self {
            tree: vec![0; LINE_MIN + 1],
            owners: vec![VACANT; LINE_MIN],
            positions: Vec::new(),
            next: 0,
            total: 0,
        }
    }
}

impl DistanceLine {
    /// Adds an access to `block`, which has `size` bytes now. Returns the distance, unless it is
    /// the first access.
    #[inline]
    pub(crate) fn access(&mut self, block: u32, size: u64) -> Option<u64> {
        if self.next == self.owners.len() {
            self.compact();
        }
        let index = block as usize;
        if index >= self.positions.len() {
            self.positions.resize(index + 1, (VACANT, 0));
        }
        let (position, old_size) = self.positions[index];
        let distance = (position != VACANT).then(|| {
            let distance = self.total.wrapping_sub(self.sum_before(position as usize));
            self.add(position as usize, old_size.wrapping_neg());
            self.owners[position as usize] = VACANT;
            distance
        });
        self.add(self.next, size);
        self.owners[self.next] = block;
        self.positions[index] = (to_u32(self.next), size);
        self.next += 1;
        distance
    }

    fn sum_before(&self, position: usize) -> u64 {
        let mut sum = 0u64;
        let mut node = position;
        while node > 0 {
            sum = sum.wrapping_add(self.tree[node]);
            node &= node - 1;
        }
        sum
    }

    /// Sums wrap, so that damaged sizes near 2^64 give a wrong distance instead of a panic.
    fn add(&mut self, position: usize, size: u64) {
        self.total = self.total.wrapping_add(size);
        let mut node = position + 1;
        while node < self.tree.len() {
            self.tree[node] = self.tree[node].wrapping_add(size);
            node += node & node.wrapping_neg();
        }
    }

    /// Compacts the used positions into an array with at least as much free space.
    #[cold]
    fn compact(&mut self) {
        let mut used = 0;
        for position in 0..self.owners.len() {
            let owner = self.owners[position];
            if owner != VACANT {
                self.owners[used] = owner;
                self.positions[owner as usize].0 = to_u32(used);
                used += 1;
            }
        }
        let length = (used * 4).max(LINE_MIN).min(VACANT as usize);
        assert!(used < length, "there are fewer blocks than positions");
        self.owners.truncate(used);
        self.owners.resize(length, VACANT);
        self.tree.clear();
        self.tree.resize(length + 1, 0);
        for position in 0..used {
            self.tree[position + 1] = self.positions[self.owners[position] as usize].1;
        }
        for node in 1..=length {
            let parent = node + (node & node.wrapping_neg());
            if parent <= length {
                self.tree[parent] = self.tree[parent].wrapping_add(self.tree[node]);
            }
        }
        self.next = used;
    }
}

/// Counts of reuse distances by label.
#[derive(Debug)]
pub(crate) struct ReuseDistance {
    buckets: Buckets,
    labels: Vec<LabelSet>,
    line: DistanceLine,
    by_segment: GroupCounts,
    by_block: Option<GroupCounts>,
}

impl ReuseDistance {
    pub(crate) fn new(labels: Vec<LabelSet>, buckets: Buckets) -> Self {
        let by_block = labels
            .iter()
            .any(LabelSet::by_block)
            .then(|| GroupCounts::new(&buckets));
        let by_segment = GroupCounts::new(&buckets);
        Self {
            buckets,
            labels,
            line: DistanceLine::default(),
            by_segment,
            by_block,
        }
    }

    #[inline]
    pub(crate) fn observe(&mut self, access: &Access<'_>) {
        let Some(distance) = self.line.access(access.block, access.record.block_size) else {
            return;
        };
        let bucket = self.buckets.index(distance);
        self.by_segment.add(access.segment as usize, bucket, 1);
        if let Some(by_block) = &mut self.by_block {
            by_block.add(access.block as usize, bucket, 1);
        }
    }

    /// One file per label set: `LABELS_reuse_distance`.
    pub(crate) fn files(&self, blocks: &Blocks) -> Vec<ResultFile> {
        let total = self.by_segment.total();
        let file = |labels: &LabelSet| {
            let counts = match &self.by_block {
                Some(by_block) if labels.by_block() => by_block.by_block(blocks, labels),
                _ => self.by_segment.by_segment(blocks, labels),
            };
            bucket_file(
                format!("{}_reuse_distance", labels.text()),
                &self.buckets,
                &counts,
                total,
            )
        };
        self.labels.iter().map(file).collect()
    }

    /// Reuses by bucket over the complete trace: limit in bytes, count.
    pub(crate) fn overall(&self) -> Vec<(u64, u64)> {
        let mut sums = vec![0; self.buckets.len()];
        for row in self.by_segment.rows() {
            for (sum, count) in sums.iter_mut().zip(row) {
                *sum += count;
            }
        }
        self.buckets.limits().iter().copied().zip(sums).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A direct implementation: the sizes of the distinct blocks since the last access.
    fn slow_distances(accesses: &[(u32, u64)]) -> Vec<Option<u64>> {
        let distance = |now: usize| {
            let (block, _) = accesses[now];
            let before = accesses[..now]
                .iter()
                .rposition(|access| access.0 == block)?;
            let latest: std::collections::HashMap<_, _> =
                accesses[before..now].iter().copied().collect();
            Some(latest.values().sum())
        };
        (0..accesses.len()).map(distance).collect()
    }

    proptest! {
        #[test]
        fn equal_to_the_definition(
            accesses in proptest::collection::vec((0u32..40, 0u64..5000), 0..400),
        ) {
            let mut line = DistanceLine::default();
            let fast: Vec<_> =
                accesses.iter().map(|&(block, size)| line.access(block, size)).collect();
            prop_assert_eq!(fast, slow_distances(&accesses));
        }
    }

    #[test]
    fn stays_right_over_many_compactions() {
        let mut line = DistanceLine::default();
        let blocks = 3000u32;
        for round in 0..20u64 {
            for block in 0..blocks {
                let distance = line.access(block, 10);
                let expected = (round > 0).then_some(u64::from(blocks) * 10);
                assert_eq!(distance, expected, "round {round} block {block}");
            }
        }
    }
}
