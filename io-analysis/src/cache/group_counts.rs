//! Counts by group and bucket, where a group is a segment, a segment and caller, or a block.

use trace_kinds::rocksdb::Caller;

use super::blocks::{Blocks, CALLERS, caller_index};
use crate::buckets::Buckets;
use crate::cache::labels::LabelSet;
use crate::numbers::to_u32;
use crate::result_file::LabelCounts;

/// The group for a segment and caller.
pub(crate) fn caller_group(segment: u32, caller: Caller) -> usize {
    segment as usize * CALLERS + caller_index(caller)
}

/// The segment and caller of a [`caller_group`].
pub(crate) fn segment_and_caller(group: usize) -> (u32, Caller) {
    let caller = u8::try_from(group % CALLERS).unwrap_or(u8::MAX);
    (to_u32(group / CALLERS), Caller(caller))
}

/// A growing table of counts: one row per group, one column per bucket.
#[derive(Debug, Clone)]
pub(crate) struct GroupCounts {
    columns: usize,
    counts: Vec<u64>,
}

impl GroupCounts {
    pub(crate) fn new(buckets: &Buckets) -> Self {
        Self {
            columns: buckets.len(),
            counts: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, group: usize, bucket: usize, count: u64) {
        let at = group * self.columns + bucket;
        if at >= self.counts.len() {
            self.counts.resize((group + 1) * self.columns, 0);
        }
        self.counts[at] += count;
    }

    /// Subtracts one from a count.
    pub(crate) fn subtract(&mut self, group: usize, bucket: usize) {
        let at = group * self.columns + bucket;
        if let Some(count) = self.counts.get_mut(at) {
            *count = count.saturating_sub(1);
        }
    }

    fn row(&self, group: usize) -> Option<&[u64]> {
        self.counts
            .get(group * self.columns..(group + 1) * self.columns)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks_exact(self.columns)
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sums by label over segments. Includes the labels of all segments.
    pub(crate) fn by_segment(&self, blocks: &Blocks, labels: &LabelSet) -> LabelCounts {
        let segments = 0..to_u32(blocks.segments().len());
        let label = |segment| labels.label(blocks, segment, Caller::NONE, None);
        self.sum(segments.map(|segment| (segment as usize, label(segment))))
    }

    /// Sums by label over segments and callers. Includes the labels of all groups in `present`.
    pub(crate) fn by_caller(
        &self,
        blocks: &Blocks,
        labels: &LabelSet,
        present: impl Iterator<Item = (u32, Caller)>,
    ) -> LabelCounts {
        self.sum(present.map(|(segment, caller)| {
            (
                caller_group(segment, caller),
                labels.label(blocks, segment, caller, None),
            )
        }))
    }

    /// Sums by label over blocks.
    pub(crate) fn by_block(&self, blocks: &Blocks, labels: &LabelSet) -> LabelCounts {
        let states = blocks.states().iter().zip(0u32..);
        let label = |segment, block| labels.label(blocks, segment, Caller::NONE, Some(block));
        self.sum(states.map(|(state, block)| (block as usize, label(state.segment, block))))
    }

    fn sum(&self, groups: impl Iterator<Item = (usize, String)>) -> LabelCounts {
        let mut sums = LabelCounts::new();
        for (group, label) in groups {
            let sum = sums.entry(label).or_insert_with(|| vec![0; self.columns]);
            for (sum, count) in sum.iter_mut().zip(self.row(group).unwrap_or_default()) {
                *sum += count;
            }
        }
        sums
    }
}
