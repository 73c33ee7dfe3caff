//! Merges index parts of a storage, so that their number stays small however many packets it has.
//!
//! Parts are merged by size, as the runs of a log-structured merge tree are: several of similar
//! size become one of the next size, and only neighbours are merged, because a part continues the
//! one before. Each byte is written about once for each size, and the number of parts grows with
//! the logarithm of the size of the index. A merge reads and writes block by block, with pauses.

use std::{
    ops::Range,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use storage_format::{
    DataFileId, LeafId,
    index_part::{
        DataFileEntry, Footer, IndexPartBuilder, IndexPartHeader, LogPosition, TimeBases,
    },
    limits::INDEX_FOOTER_BYTES_MAX,
};

use crate::{
    StorageError,
    tree::{IndexPart, PartBlock},
};

/// Blocks of a leaf are joined up to this many packets, and as many extents.
const JOINED_RECORDS_MAX: u32 = 64 << 10;
/// Parts below this size are of similar size.
const SMALL_BYTES: u64 = 64 << 10;
/// Each further size is this many times the one before.
const SIZE_RATIO: u64 = 8;
/// The share of a footer in its part that is large: 1/4. Half as many of such parts are merged,
/// because their footers are in memory.
const HEAVY_DIVISOR: u64 = 4;
/// Rough size of the record of a leaf in a footer.
const RECORD_BYTES: u64 = 256;
/// Longest record of a leaf in a footer, and of a data file.
const RECORD_BYTES_MAX: u64 = 512;
/// Parts that one merge replaces at most.
const INPUT_COUNT_MAX: usize = 64;
/// Encoded bytes that are written at once.
const PIECE_BYTES: usize = 256 << 10;
/// With this many times the parts that cause a merge, it does not pause.
const BEHIND_TIMES: usize = 4;
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The size of a part, as far as it decides what is merged.
#[derive(Debug, Clone, Copy)]
struct PartSize {
    bytes: u64,
    records: u64,
    files: u64,
}

impl PartSize {
    fn of(part: &IndexPart) -> Self {
        let records = part.footer.leaves.len() as u64;
        Self {
            bytes: (part.footer.bases.end).saturating_add(records.saturating_mul(RECORD_BYTES)),
            records,
            files: part.footer.files.len() as u64,
        }
    }

    fn level(self) -> u32 {
        let times = self.bytes / SMALL_BYTES;
        times
            .checked_ilog(SIZE_RATIO)
            .map_or(0, |level| level.saturating_add(1))
    }

    fn footer_bytes_max(self) -> u64 {
        let records = self.records.saturating_add(self.files);
        records.saturating_mul(RECORD_BYTES_MAX)
    }
}

/// The parts to merge, of those of a storage from old to new: the newest ones of similar size, if
/// they are at least `count`. A part that is smaller than a newer one counts as that large, so that
/// sizes fall from old to new, whatever their order.
fn choose(parts: &[PartSize], count: usize) -> Option<Range<usize>> {
    let mut end = parts.len();
    let mut level = 0;
    while end > 0 {
        let mut start = end;
        level = level.max(parts.get(start.checked_sub(1)?)?.level());
        while let Some(before) = start.checked_sub(1)
            && parts.get(before)?.level() <= level
        {
            start = before;
        }
        let run = parts.get(start..end)?;
        let sum = |of: fn(&PartSize) -> u64| run.iter().map(of).fold(0_u64, u64::saturating_add);
        let footers = sum(|part| part.records).saturating_mul(RECORD_BYTES);
        let is_heavy = footers > sum(|part| part.bytes) / HEAVY_DIVISOR;
        let needed = if is_heavy { count.div_ceil(2) } else { count };
        let mut footer_bytes: u64 = 0;
        let fitting = run.iter().take(INPUT_COUNT_MAX).take_while(|part| {
            footer_bytes = footer_bytes.saturating_add(part.footer_bytes_max());
            footer_bytes <= u64::from(INDEX_FOOTER_BYTES_MAX)
        });
        let fitting = fitting.count();
        if run.len() >= needed.max(2) && fitting >= 2 {
            return Some(start..start.saturating_add(fitting));
        }
        end = start;
    }
    None
}

/// A merge of parts.
#[derive(Debug)]
pub(crate) struct Merge {
    inputs: Vec<Arc<IndexPart>>,
    pauses: bool,
}

/// A merged part, of which all bytes were handed over.
#[derive(Debug)]
pub(crate) struct MergedPart {
    pub(crate) header: IndexPartHeader,
    pub(crate) footer: Footer,
    pub(crate) bases: TimeBases,
}

impl Merge {
    /// What to merge of the parts of a storage, when `count` parts of similar size are merged.
    pub(crate) fn of(parts: &[Arc<IndexPart>], count: usize) -> Option<Self> {
        // Parts of format version 1 describe files of leaves, and are before all others.
        let old = parts.iter().take_while(|part| part.is_of_leaf_files());
        let parts = parts.get(old.count()..)?;
        let sizes: Vec<_> = parts.iter().map(|part| PartSize::of(part)).collect();
        let chosen = choose(&sizes, count)?;
        Some(Self {
            inputs: parts.get(chosen)?.to_vec(),
            pauses: parts.len() < count.saturating_mul(BEHIND_TIMES),
        })
    }

    /// Bytes of the merged part, about.
    pub(crate) fn bytes(&self) -> u64 {
        let sizes = self.inputs.iter().map(|part| PartSize::of(part).bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// Hands the bytes of the merged part to `write`, piece by piece; blocks. `is_cancelled` is
    /// called before each block.
    ///
    /// Returns `None` when it was cancelled.
    pub(crate) fn run(
        self,
        is_cancelled: &dyn Fn() -> bool,
        write: &mut dyn FnMut(Vec<u8>) -> Result<(), StorageError>,
    ) -> Result<Option<MergedPart>, StorageError> {
        let (first, last) = (self.inputs.first())
            .zip(self.inputs.last())
            .expect("parts were chosen");
        let header = IndexPartHeader {
            first_ordinal: first.header.first_ordinal,
            ..last.header
        };
        let (files, position) = self.log();
        let mut builder = IndexPartBuilder::new(header);
        let mut working = Instant::now();
        let mut blocks = Blocks::of(&self.inputs);
        while let Some(of_leaf) = blocks.next_leaf() {
            for group in groups(&of_leaf) {
                if is_cancelled() {
                    return Ok(None);
                }
                add(&mut builder, group)?;
                if builder.waiting() >= PIECE_BYTES {
                    write(builder.take())?;
                    if self.pauses {
                        thread::sleep(working.elapsed().min(PAUSE_MAX));
                    }
                    working = Instant::now();
                }
            }
        }
        let (rest, footer, bases) = builder.finish(files, position);
        write(rest)?;
        Ok(Some(MergedPart {
            header,
            footer,
            bases,
        }))
    }

    /// What the parts together say of the log.
    fn log(&self) -> (Vec<DataFileEntry>, Option<LogPosition>) {
        let mut files = std::collections::BTreeMap::<DataFileId, DataFileEntry>::new();
        let mut position: Option<LogPosition> = None;
        for part in &self.inputs {
            for entry in &part.footer.files {
                let known = files.entry(entry.file).or_insert(*entry);
                if entry.length >= known.length {
                    *known = *entry;
                }
            }
            let batch = |position: Option<LogPosition>| position.map(|position| position.batch);
            if batch(part.footer.position) >= batch(position) {
                position = part.footer.position;
            }
        }
        (files.into_values().collect(), position)
    }
}

/// The blocks of several parts, leaf by leaf.
struct Blocks<'a> {
    parts: Vec<(&'a Arc<IndexPart>, usize)>,
}

impl<'a> Blocks<'a> {
    fn of(parts: &'a [Arc<IndexPart>]) -> Self {
        let parts = parts.iter().map(|part| (part, 0)).collect();
        Self { parts }
    }

    /// The blocks of the next leaf, in the order of the leaf.
    fn next_leaf(&mut self) -> Option<Vec<PartBlock>> {
        let leaf_at = |(part, at): &(&Arc<IndexPart>, usize)| -> Option<LeafId> {
            part.footer.leaves.get(*at).map(|entry| entry.leaf)
        };
        let leaf = self.parts.iter().filter_map(leaf_at).min()?;
        let mut blocks = Vec::new();
        for next in &mut self.parts {
            while leaf_at(next) == Some(leaf) {
                blocks.push(PartBlock::new(next.0, next.1));
                next.1 = next.1.saturating_add(1);
            }
        }
        Some(blocks)
    }
}

/// Divides the blocks of a leaf into those that become one.
fn groups(blocks: &[PartBlock]) -> Vec<&[PartBlock]> {
    let mut groups = Vec::new();
    let (mut start, mut packets, mut extents) = (0, 0_u32, 0_u32);
    for (at, block) in blocks.iter().enumerate() {
        let entry = block.entry();
        packets = packets.saturating_add(entry.block_packets);
        extents = extents.saturating_add(entry.block_extents);
        if packets.max(extents) > JOINED_RECORDS_MAX {
            groups.push(blocks.get(start..at).unwrap_or_default());
            (start, packets, extents) = (at, entry.block_packets, entry.block_extents);
        }
    }
    groups.push(blocks.get(start..).unwrap_or_default());
    groups.retain(|group| !group.is_empty());
    groups
}

/// Reads blocks that become one, and adds them.
fn add(builder: &mut IndexPartBuilder, group: &[PartBlock]) -> Result<(), StorageError> {
    let bytes: Result<Vec<_>, _> = group.iter().map(PartBlock::read).collect();
    let bytes = bytes?;
    let stored = group.iter().zip(&bytes);
    let stored: Vec<_> = stored.map(|(block, bytes)| block.stored(bytes)).collect();
    let added = builder.add_joined(&stored);
    let path = group.first().map(|block| block.part().path.clone());
    added.map_err(StorageError::damaged(path.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// Which of parts with these sizes are merged, four of similar size together.
    fn check(kib: &[u64], wanted: Option<Range<usize>>) {
        let parts = kib.iter().map(|kib| PartSize {
            bytes: kib * KIB,
            records: 1,
            files: 1,
        });
        assert_eq!(choose(&parts.collect::<Vec<_>>(), 4), wanted, "{kib:?}");
    }

    #[test]
    fn neighbours_of_similar_size_are_merged() {
        check(&[], None);
        check(&[1, 2, 1], None);
        check(&[1, 2, 1, 3], Some(0..4));
        // Larger parts stay until there are enough of them.
        check(&[900, 1, 2, 1], None);
        check(&[900, 1, 2, 1, 1], Some(1..5));
        check(&[900, 900, 900, 900, 1, 1], Some(0..4));
        check(&[900, 900, 900, 900, 1, 1, 1, 1], Some(4..8));
        // Small parts between large ones count as large.
        check(&[900, 1, 900, 1], None);
        check(&[900, 1, 900, 1, 900], Some(0..5));
        check(&[1, 1, 900], None);
        check(&[1, 1, 1, 900], Some(0..4));
    }

    #[test]
    fn heavy_footers_are_merged_earlier_and_never_become_too_long() {
        let heavy = |records| PartSize {
            bytes: records * RECORD_BYTES,
            records,
            files: 1,
        };
        assert_eq!(choose(&[heavy(10_000); 3], 8), None);
        assert_eq!(choose(&[heavy(10_000); 4], 8), Some(0..4));
        assert_eq!(choose(&[heavy(200_000); 4], 8), Some(0..2));
        assert_eq!(choose(&[heavy(300_000); 9], 8), None);
    }

    /// Parts arrive one after another and are merged at once: at no time are there more than
    /// `parts_max`, and no byte is written more than `times_max` times on average.
    fn check_growth(count: usize, size: impl Fn(usize) -> u64, parts_max: usize, times_max: u64) {
        let mut parts = Vec::new();
        let (mut added, mut merged) = (0, 0);
        for at in 0..count {
            let part = PartSize {
                bytes: size(at),
                records: 1,
                files: 1,
            };
            added += part.bytes;
            parts.push(part);
            while let Some(chosen) = choose(&parts, 8) {
                let bytes = parts[chosen.clone()].iter().map(|part| part.bytes).sum();
                merged += bytes;
                let part = PartSize { bytes, ..part };
                parts.splice(chosen, [part]);
            }
            assert!(parts.len() <= parts_max, "{} parts after {at}", parts.len());
        }
        assert!(
            merged <= added * times_max,
            "{merged} bytes written for {added}"
        );
    }

    #[test]
    fn the_number_of_parts_grows_with_the_logarithm_of_their_size() {
        const FULL: u64 = (256 << 10) * 104;
        // 10^9 packets.
        check_growth(3815, |_| FULL, 4 * 7, 4);
        check_growth(3815, |_| 20 * KIB, 5 * 7, 5);
        check_growth(3815, |at| [FULL, KIB][at % 2], 6 * 7, 5);
        check_growth(3815, |at| KIB << (at * 7 % 15), 7 * 7, 8);
        check_growth(3815, |at| KIB * (at as u64 + 1), 7 * 7, 8);
        check_growth(3815, |at| KIB * (4000 - at as u64), 7 * 7, 8);
    }
}
