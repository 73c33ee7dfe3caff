//! Spatial locality of Gets: the share of a data block that is accessed.

use std::collections::HashMap;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use trace_kinds::rocksdb::{BlockType, Caller};

use super::blocks::{Access, Blocks};
use super::group_counts::GroupCounts;
use crate::buckets::Buckets;
use crate::cache::labels::LabelSet;
use crate::numbers::floor_to_u64;
use crate::result_file::{ResultFile, bucket_file, percent};

/// The keys of a data block that Gets and MultiGets accessed.
#[derive(Debug, Default, Clone, Copy)]
struct BlockKeys {
    keys_in_block: u64,
    /// Distinct accessed keys that are in the block.
    referenced: u64,
    referenced_bytes: u64,
    /// Accesses to a key that is in the block, by Get and MultiGet.
    hits: u64,
    /// The same by Get alone.
    get_hits: u64,
}

/// The accessed keys of each data block.
///
/// Keys are distinguished by a 64-bit hash, so that a key costs eight bytes regardless of its
/// length. A collision in a billion keys does not affect a percentage.
#[derive(Debug)]
pub(crate) struct SpatialLocality {
    labels: Vec<LabelSet>,
    buckets: Buckets,
    blocks: HashMap<u32, BlockKeys>,
    seen: HashSet<u64>,
    hasher: RandomState,
}

impl SpatialLocality {
    pub(crate) fn new(labels: Vec<LabelSet>, buckets: Buckets) -> Self {
        Self {
            labels,
            buckets,
            blocks: HashMap::new(),
            seen: HashSet::new(),
            hasher: RandomState::new(),
        }
    }

    #[inline]
    pub(crate) fn observe(&mut self, access: &Access<'_>) {
        let record = access.record;
        if record.block_type != BlockType::DATA || !record.caller.is_get() {
            return;
        }
        let keys = self.blocks.entry(access.block).or_default();
        keys.keys_in_block = record.num_keys_in_block;
        if record.referenced_key_exists {
            let key = self.hasher.hash_one((access.block, record.referenced_key));
            if self.seen.insert(key) {
                keys.referenced += 1;
                keys.referenced_bytes = keys
                    .referenced_bytes
                    .saturating_add(record.referenced_data_size);
            }
            keys.hits += 1;
            keys.get_hits += u64::from(record.caller == Caller::GET);
        }
    }

    /// Three files per label set, all by data block: percent of its keys that were accessed,
    /// percent of its bytes, and accesses to existing keys divided by those by Get.
    ///
    /// The last exceeds 100 if MultiGet also accesses the block. RocksDB defines it this way; with
    /// Gets alone it is always 100, which is in the last bucket.
    pub(crate) fn files(&self, blocks: &Blocks) -> Vec<ResultFile> {
        let mut files = Vec::new();
        let buckets = &self.buckets;
        for labels in &self.labels {
            let new = || GroupCounts::new(buckets);
            let (mut keys, mut accesses, mut bytes) = (new(), new(), new());
            let mut present = HashSet::new();
            let mut count = 0;
            for (&block, of) in &self.blocks {
                if of.keys_in_block == 0 {
                    continue;
                }
                let state = blocks.states()[block as usize];
                let group = if labels.by_block() {
                    block
                } else {
                    state.segment
                } as usize;
                let bucket = |n, of| buckets.index(floor_to_u64(percent(n, of)));
                keys.add(group, bucket(of.referenced, of.keys_in_block), 1);
                accesses.add(group, bucket(of.hits, of.get_hits), 1);
                bytes.add(group, bucket(of.referenced_bytes, state.size), 1);
                present.insert(labels.label(blocks, state.segment, Caller::GET, Some(block)));
                count += 1;
            }
            for (suffix, counts) in [
                ("percent_ref_keys", keys),
                ("percent_accesses_on_ref_keys", accesses),
                ("percent_data_size_on_ref_keys", bytes),
            ] {
                let mut sums = if labels.by_block() {
                    counts.by_block(blocks, labels)
                } else {
                    counts.by_segment(blocks, labels)
                };
                sums.retain(|label, _| present.contains(label));
                let name = format!("{}_{suffix}", labels.text());
                files.push(bucket_file(name, buckets, &sums, count));
            }
        }
        files
    }
}
