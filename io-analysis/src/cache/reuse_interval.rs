//! Reuse interval: seconds between two accesses to a block; and the mean interval of each block.
//!
//! Intervals are between seconds; a second access in the same second has interval 0. With several
//! threads, a record may have an earlier second than the previous record. The two latest seconds of
//! each block are stored, so a record that is late by up to one access to its block is counted
//! correctly. RocksDB stores every second of every block instead.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use trace_kinds::rocksdb::Caller;

use super::blocks::{Access, Blocks, US_PER_SECOND};
use super::group_counts::{GroupCounts, caller_group};
use crate::buckets::Buckets;
use crate::cache::labels::LabelSet;
use crate::result_file::{LabelCounts, ResultFile, bucket_file};

/// The two latest seconds in which a block was accessed.
#[derive(Debug, Clone, Copy)]
struct Seconds {
    latest: u64,
    before: Option<u64>,
}

/// Intervals counted by group.
#[derive(Debug)]
struct Intervals {
    counts: GroupCounts,
    total: u64,
}

impl Intervals {
    /// Counts an access at `second` after those in `seconds`.
    #[inline]
    fn add(&mut self, seconds: &mut Seconds, second: u64, group: usize, buckets: &Buckets) {
        self.total += 1;
        let Seconds { latest, before } = *seconds;
        if second == latest || before == Some(second) {
            self.counts.add(group, buckets.index(0), 1);
        } else if second > latest {
            self.counts.add(group, buckets.index(second - latest), 1);
            *seconds = Seconds {
                latest: second,
                before: Some(latest),
            };
        } else {
            self.add_late(seconds, second, group, buckets);
        }
    }

    /// A late access splits an interval.
    #[cold]
    fn add_late(&mut self, seconds: &mut Seconds, second: u64, group: usize, buckets: &Buckets) {
        let Seconds { latest, before } = *seconds;
        match before {
            Some(before) if before < second => {
                self.counts.subtract(group, buckets.index(latest - before));
                self.counts.add(group, buckets.index(second - before), 1);
                self.counts.add(group, buckets.index(latest - second), 1);
                seconds.before = Some(second);
            }
            Some(before) => self.counts.add(group, buckets.index(before - second), 1),
            None => {
                self.counts.add(group, buckets.index(latest - second), 1);
                seconds.before = Some(second);
            }
        }
    }
}

/// Intervals between accesses of one caller to one block.
#[derive(Debug)]
struct CallerIntervals {
    seconds: HashMap<(u32, u8), Seconds>,
    intervals: Intervals,
    /// Segments and callers with at least one access.
    present: BTreeSet<(u32, Caller)>,
}

/// Counts of reuse intervals by label.
#[derive(Debug)]
pub(crate) struct ReuseInterval {
    buckets: Buckets,
    labels: Vec<LabelSet>,
    by_block: Vec<Seconds>,
    intervals: Intervals,
    of_blocks: Option<GroupCounts>,
    by_caller: Option<CallerIntervals>,
}

impl ReuseInterval {
    pub(crate) fn new(labels: Vec<LabelSet>, buckets: Buckets) -> Self {
        let intervals = || Intervals {
            counts: GroupCounts::new(&buckets),
            total: 0,
        };
        Self {
            by_block: Vec::new(),
            intervals: intervals(),
            of_blocks: labels
                .iter()
                .any(LabelSet::by_block)
                .then(|| GroupCounts::new(&buckets)),
            by_caller: labels
                .iter()
                .any(LabelSet::by_caller)
                .then(|| CallerIntervals {
                    seconds: HashMap::new(),
                    intervals: intervals(),
                    present: BTreeSet::new(),
                }),
            labels,
            buckets,
        }
    }

    #[inline]
    pub(crate) fn observe(&mut self, access: &Access<'_>) {
        let second = access.second;
        let first = Seconds {
            latest: second,
            before: None,
        };
        if access.block as usize == self.by_block.len() {
            self.by_block.push(first);
        } else {
            let seconds = &mut self.by_block[access.block as usize];
            if let Some(of_blocks) = &mut self.of_blocks {
                let interval = second.saturating_sub(seconds.latest);
                of_blocks.add(access.block as usize, self.buckets.index(interval), 1);
            }
            self.intervals
                .add(seconds, second, access.segment as usize, &self.buckets);
        }
        if let Some(of) = &mut self.by_caller {
            let caller = access.record.caller;
            match of.seconds.entry((access.block, caller.0)) {
                Entry::Vacant(entry) => {
                    entry.insert(first);
                    of.present.insert((access.segment, caller));
                }
                Entry::Occupied(entry) => {
                    let group = caller_group(access.segment, caller);
                    of.intervals
                        .add(entry.into_mut(), second, group, &self.buckets);
                }
            }
        }
    }

    /// Three files per label set. Grouped by caller, the two files of means have no columns,
    /// because a mean belongs to a block, not to a caller.
    pub(crate) fn files(&self, blocks: &Blocks) -> Vec<ResultFile> {
        let mut files = Vec::new();
        for labels in &self.labels {
            let (intervals, total) = match (&self.by_caller, &self.of_blocks) {
                (Some(of), _) if labels.by_caller() => {
                    let present = of.present.iter().copied();
                    let sums = of.intervals.counts.by_caller(blocks, labels, present);
                    (sums, of.intervals.total)
                }
                (_, Some(of_blocks)) if labels.by_block() => {
                    (of_blocks.by_block(blocks, labels), of_blocks.total())
                }
                _ => (
                    self.intervals.counts.by_segment(blocks, labels),
                    self.intervals.total,
                ),
            };
            let mut file = |suffix: &str, counts: &LabelCounts, total| {
                let name = format!("{}_{suffix}", labels.text());
                files.push(bucket_file(name, &self.buckets, counts, total));
            };
            file("access_reuse_interval", &intervals, total);
            let (means, accesses) = self.means(blocks, labels);
            let all_accesses = blocks
                .states()
                .iter()
                .map(|state| u64::from(state.accesses))
                .sum();
            file("avg_reuse_interval", &means, blocks.states().len() as u64);
            file("avg_reuse_interval_naccesses", &accesses, all_accesses);
        }
        files
    }

    /// Blocks, and accesses to them, by the mean interval of the block.
    fn means(&self, blocks: &Blocks, labels: &LabelSet) -> (LabelCounts, LabelCounts) {
        let (mut means, mut accesses) = (
            GroupCounts::new(&self.buckets),
            GroupCounts::new(&self.buckets),
        );
        if labels.by_caller() {
            return (LabelCounts::new(), LabelCounts::new());
        }
        for (block, state) in blocks.states().iter().enumerate() {
            let count = u64::from(state.accesses);
            let mean = match count {
                0 | 1 => u64::MAX - 1,
                _ => state.last_us.saturating_sub(state.first_us) / US_PER_SECOND / count,
            };
            let group = if labels.by_block() {
                block
            } else {
                state.segment as usize
            };
            means.add(group, self.buckets.index(mean), 1);
            accesses.add(group, self.buckets.index(mean), count);
        }
        let sum = |counts: &GroupCounts| {
            if labels.by_block() {
                counts.by_block(blocks, labels)
            } else {
                counts.by_segment(blocks, labels)
            }
        };
        (sum(&means), sum(&accesses))
    }
}

/// Blocks by lifetime: seconds from a block's first access to its last.
pub(crate) fn lifetime_files(
    blocks: &Blocks,
    labels: &[LabelSet],
    buckets: &Buckets,
) -> Vec<ResultFile> {
    let lifetime = |state: &super::blocks::BlockState| match state.accesses {
        0 | 1 => u64::MAX - 1,
        _ => state.last_us.saturating_sub(state.first_us) / US_PER_SECOND,
    };
    let file = |labels: &LabelSet| {
        let mut counts = GroupCounts::new(buckets);
        for (block, state) in blocks.states().iter().enumerate() {
            let group = if labels.by_block() {
                block
            } else {
                state.segment as usize
            };
            counts.add(group, buckets.index(lifetime(state)), 1);
        }
        let sums = if labels.by_block() {
            counts.by_block(blocks, labels)
        } else {
            counts.by_segment(blocks, labels)
        };
        let name = format!("{}_reuse_lifetime", labels.text());
        bucket_file(name, buckets, &sums, blocks.states().len() as u64)
    };
    labels.iter().map(file).collect()
}
