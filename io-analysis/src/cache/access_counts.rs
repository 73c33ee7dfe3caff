//! Blocks by number of accesses, and the skew of accesses.

use std::collections::{BTreeMap, HashMap};

use trace_kinds::rocksdb::{BlockType, Caller};

use super::blocks::{BlockState, Blocks};
use super::group_counts::GroupCounts;
use crate::buckets::Buckets;
use crate::cache::labels::LabelSet;
use crate::histogram::Histogram;
use crate::numbers::to_u32;
use crate::result_file::{LabelCounts, ResultFile, bucket_file};

/// The number of accesses to a block.
fn accesses(state: &BlockState, user_only: bool) -> u64 {
    u64::from(if user_only {
        state.user_accesses
    } else {
        state.accesses
    })
}

/// `cf_` and `bt_`, `user_access_only_` and `all_access_`, each `access_count_summary`.
pub(crate) fn count_files(blocks: &Blocks, buckets: &Buckets) -> Vec<ResultFile> {
    let mut files = Vec::new();
    for user_only in [true, false] {
        let mut counts = GroupCounts::new(buckets);
        for state in blocks.states() {
            let accesses = accesses(state, user_only);
            if accesses > 0 {
                counts.add(state.segment as usize, buckets.index(accesses), 1);
            }
        }
        let prefix = if user_only {
            "user_access_only"
        } else {
            "all_access"
        };
        for label in ["cf", "bt"] {
            let labels = LabelSet::parse(label).expect("the two labels are known");
            let sums = counts.by_segment(blocks, &labels);
            let name = format!("{label}_{prefix}_access_count_summary");
            files.push(bucket_file(name, buckets, &sums, counts.total()));
        }
    }
    files
}

/// The share of accesses to the most accessed labels, by percent of the labels.
///
/// A label set with `block` has four files: index, filter and data blocks, and all.
pub(crate) fn skew_files(
    blocks: &Blocks,
    labels: &[LabelSet],
    buckets: &Buckets,
) -> Vec<ResultFile> {
    let mut files = Vec::new();
    for labels in labels {
        if labels.by_block() {
            for only in [BlockType::INDEX, BlockType::FILTER, BlockType::DATA] {
                files.push(skew_file(blocks, labels, buckets, Some(only)));
            }
        }
        files.push(skew_file(blocks, labels, buckets, None));
    }
    files
}

fn skew_file(
    blocks: &Blocks,
    labels: &LabelSet,
    buckets: &Buckets,
    only: Option<BlockType>,
) -> ResultFile {
    let mut by_label: HashMap<String, u64> = HashMap::new();
    let mut by_block = Vec::new();
    for (state, block) in blocks.states().iter().zip(0u32..) {
        if only.is_some_and(|only| only != blocks.segment(state.segment).block_type) {
            continue;
        }
        if labels.by_block() {
            // No two blocks have the same label, because a block has one file, family and type.
            by_block.push(u64::from(state.accesses));
        } else {
            let label = labels.label(blocks, state.segment, Caller::NONE, Some(block));
            *by_label.entry(label).or_default() += u64::from(state.accesses);
        }
    }
    let mut counts: Vec<u64> = by_label.into_values().chain(by_block).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let total = counts.iter().sum();
    let mut start = 0;
    let row = buckets.limits().iter().map(|&limit| {
        let end = match limit {
            u64::MAX => counts.len(),
            limit => share_of(limit, counts.len()),
        };
        let sum = counts.get(start..end).unwrap_or_default().iter().sum();
        start = end;
        sum
    });
    let sums = LabelCounts::from([(labels.text().to_owned(), row.collect())]);
    let prefix = only
        .map(|only| format!("{}_", only.name()))
        .unwrap_or_default();
    let name = format!("{}_{prefix}skewness", labels.text());
    bucket_file(name, buckets, &sums, total)
}

/// `percent` of `count`, at most `count`.
fn share_of(percent: u64, count: usize) -> usize {
    let share = u128::from(percent) * count as u128 / 100;
    usize::try_from(share).unwrap_or(count).min(count)
}

/// Histograms of a property of blocks: of all blocks, by type, and by family and type.
#[derive(Debug, Default)]
pub(crate) struct BlockHistograms {
    pub(crate) all: Histogram,
    pub(crate) by_type: BTreeMap<BlockType, Histogram>,
    pub(crate) by_family: BTreeMap<(String, BlockType), Histogram>,
}

impl BlockHistograms {
    /// Sizes of blocks at their last access.
    pub(crate) fn sizes(blocks: &Blocks) -> Self {
        Self::of(blocks, |state| state.size)
    }

    /// Number of accesses to each block.
    pub(crate) fn accesses(blocks: &Blocks, user_only: bool) -> Self {
        Self::of(blocks, |state| accesses(state, user_only))
    }

    fn of(blocks: &Blocks, number: impl Fn(&BlockState) -> u64) -> Self {
        let mut histograms = Self::default();
        let families: Vec<_> = (0..to_u32(blocks.families().len()))
            .map(|family| blocks.family_name(family))
            .collect();
        let mut by_family: HashMap<(u32, BlockType), Histogram> = HashMap::new();
        for state in blocks.states() {
            let number = number(state);
            if number > 0 {
                let segment = blocks.segment(state.segment);
                histograms.all.add(number);
                histograms
                    .by_type
                    .entry(segment.block_type)
                    .or_default()
                    .add(number);
                by_family
                    .entry((segment.family, segment.block_type))
                    .or_default()
                    .add(number);
            }
        }
        histograms.by_family = by_family
            .into_iter()
            .map(|((family, block_type), histogram)| {
                ((families[family as usize].clone(), block_type), histogram)
            })
            .collect();
        histograms
    }
}
