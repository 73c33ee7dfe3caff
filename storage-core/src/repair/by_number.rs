//! The packets behind the damage of a log, in the order of their numbers, from all leaves at once:
//! what is in memory is a page of the index and a place in each leaf, however many packets there
//! are.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::Arc,
};

use storage_format::{
    LeafId, LeafType,
    frame::{HEADER_BYTES, frame_bytes},
    repair_file::{MISSING_COUNT_MAX, Missing, join_neighbours},
};

use super::{
    indexed_leaf::IndexedLeaf,
    leaf_frames::OpenFiles,
    unindexed::{Frames, Piece},
};
use crate::{
    Progress, StorageError,
    storage::{Storage, StorageReader},
    tree::{Selection, merge},
};

/// Packets that are read from the index at once.
const PAGE_PACKETS: usize = 1 << 14;
/// Leaves that are looked up while the tree is held: a writer waits for it.
const LEAVES_AT_ONCE: usize = 1 << 10;

/// A packet of which the number is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) number: u64,
    /// The leaf, as an index.
    pub(super) leaf: usize,
    /// Where its frame is in the leaf.
    pub(super) offset: u64,
    /// Bytes of the frame.
    pub(super) length: u64,
}

/// What is missing, in the order of the numbers.
pub(super) struct MissingRanges {
    found: Vec<Missing>,
    /// The number after the last one that is known.
    next: u64,
    /// A leaf has bytes of which nobody knows which packets they were: those with numbers from
    /// `next` on, up to the first of the key, that no leaf is known to have. By that number and the
    /// leaf as an index.
    unknown: BTreeMap<(u64, usize), Missing>,
}

impl MissingRanges {
    fn new(next: u64) -> Self {
        Self {
            found: Vec::new(),
            next,
            unknown: BTreeMap::new(),
        }
    }

    /// Notes the next packet that is known: the numbers before it that are not are missing where a
    /// leaf has unknown bytes.
    fn known(&mut self, number: u64) {
        if let Some((&(end, _), missing)) = self.unknown.last_key_value() {
            let end = end.min(number);
            if end > self.next {
                let range = Missing {
                    first: self.next,
                    last: end.saturating_sub(1),
                    ..missing.clone()
                };
                self.add(range);
            }
            self.unknown = self.unknown.split_off(&(number.saturating_add(1), 0));
        }
        self.next = self.next.max(number.saturating_add(1));
    }

    /// Notes a packet that is missing, and known.
    pub(super) fn add(&mut self, missing: Missing) {
        self.found.push(missing);
        if self.found.len() >= MISSING_COUNT_MAX.saturating_mul(2) {
            self.found = join_neighbours(&self.found);
        }
    }

    /// All that is missing.
    pub(super) fn finish(mut self) -> Vec<Missing> {
        self.known(u64::MAX);
        while self.found.len() > MISSING_COUNT_MAX {
            self.found = join_neighbours(&self.found);
        }
        self.found
    }
}

/// The packets of leaves of which the index has every packet.
struct Listed<'a> {
    storage: &'a Arc<Storage>,
    leaves: &'a [IndexedLeaf],
    /// Indexes of these leaves that may have more packets.
    left: Vec<usize>,
    by_id: BTreeMap<LeafId, usize>,
    selection: Selection,
    page: VecDeque<Place>,
    /// No packet that was acknowledged before has a greater number.
    last: u64,
}

impl Listed<'_> {
    fn next_number(&mut self) -> Result<Option<u64>, StorageError> {
        while self.page.is_empty() && !self.left.is_empty() {
            self.read_page()?;
        }
        Ok(self.page.front().map(|place| place.number))
    }

    fn read_page(&mut self) -> Result<(), StorageError> {
        let mut runs = Vec::new();
        for some in self.left.chunks(LEAVES_AT_ONCE) {
            let tree = self.storage.tree.read();
            let Some(tree) = &*tree else {
                return Err(StorageError::Stopping);
            };
            let leaves = some.iter().filter_map(|&at| self.leaves.get(at));
            runs.extend(leaves.flat_map(|leaf| tree.select_leaf(leaf.id, &self.selection)));
        }
        let page = merge(runs, &self.selection, &StorageReader(self.storage))?;
        let last = page.last().map(|packet| packet.entry.number);
        for packet in page {
            let entry = packet.entry;
            let offset = entry.offset.saturating_sub(HEADER_BYTES as u64);
            let at = self.by_id.get(&packet.leaf).copied();
            let leaf = at.and_then(|at| Some((at, self.leaves.get(at)?)));
            // What came since the survey began is not behind the damage that it looks at.
            let leaf = leaf.filter(|(_, leaf)| offset < leaf.end);
            self.page.extend(leaf.map(|(leaf, _)| Place {
                number: entry.number,
                leaf,
                offset,
                length: frame_bytes(entry.stored_size),
            }));
        }
        let Some(last) = last.filter(|&last| last < self.last) else {
            self.left.clear();
            return Ok(());
        };
        self.selection.after = Some(last);
        let leaves = self.leaves;
        let has_more = |&at: &usize| leaves.get(at).is_some_and(|leaf| leaf.last > last);
        self.left.retain(has_more);
        Ok(())
    }
}

/// A place in a leaf of which the index has no packets.
struct Walk<'a> {
    leaf: usize,
    frames: Frames<'a>,
    offset: u64,
    /// Its packets from here on have this number or a greater one.
    next: u64,
}

impl Walk<'_> {
    /// The next packet; before it there may be bytes of which nobody knows what they were.
    fn step(
        &mut self,
        leaf: &IndexedLeaf,
        ranges: &mut MissingRanges,
        progress: &Progress,
    ) -> Result<Option<Place>, StorageError> {
        let mut unknown: Option<(u64, u64)> = None;
        let mut place = None;
        while place.is_none() && self.offset < self.frames.end {
            progress.check()?;
            let offset = self.offset;
            let Piece {
                bytes: length,
                number,
            } = self.frames.next(offset)?;
            self.offset = offset.saturating_add(length);
            progress.add(length);
            place = number
                .filter(|&number| number >= self.next)
                .map(|number| Place {
                    number,
                    leaf: self.leaf,
                    offset,
                    length,
                });
            if place.is_none() {
                let (from, before) = unknown.unwrap_or((offset, 0));
                unknown = Some((from, before.saturating_add(length)));
            }
        }
        let end = place.map_or(leaf.last.saturating_add(1), |place| place.number);
        if let Some((from, length)) = unknown.filter(|_| self.next < end) {
            let missing = leaf.missing(self.next, from, length)?;
            ranges.unknown.insert((end, self.leaf), missing);
        }
        self.next = end.saturating_add(1);
        Ok(place)
    }
}

/// The packets of all leaves, merged by number.
pub(super) struct ByNumber<'a> {
    leaves: &'a [IndexedLeaf],
    listed: Listed<'a>,
    walks: Vec<(Walk<'a>, Option<Place>)>,
    /// By number: the walks that have a packet.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    /// The walk of which the packet was given last.
    given: Option<usize>,
    pub(super) missing: MissingRanges,
}

impl<'a> ByNumber<'a> {
    /// The packets of `leaves` with numbers after `before`.
    pub(super) fn new(
        storage: &'a Arc<Storage>,
        leaves: &'a [IndexedLeaf],
        before: Option<u64>,
        files: &'a OpenFiles,
        progress: &Progress,
    ) -> Result<Self, StorageError> {
        let next = before.map_or(0, |before| before.saturating_add(1));
        let of_type = |wanted: LeafType| {
            let leaves = leaves.iter().enumerate();
            leaves.filter(move |(_, leaf)| leaf.leaf_type == wanted)
        };
        let listed = Listed {
            storage,
            leaves,
            left: of_type(LeafType::Array).map(|(at, _)| at).collect(),
            by_id: of_type(LeafType::Array)
                .map(|(at, leaf)| (leaf.id, at))
                .collect(),
            selection: Selection {
                after: before,
                limit: PAGE_PACKETS,
                ..Selection::default()
            },
            page: VecDeque::new(),
            last: leaves.iter().map(|leaf| leaf.last).max().unwrap_or(0),
        };
        let walk = |(at, leaf): (usize, &'a IndexedLeaf)| {
            let walk = Walk {
                leaf: at,
                frames: Frames {
                    files,
                    map: &leaf.map,
                    leaf: leaf.id,
                    end: leaf.end,
                },
                offset: leaf.start,
                next,
            };
            (walk, None)
        };
        let mut merged = Self {
            leaves,
            listed,
            walks: of_type(LeafType::Plain).map(walk).collect(),
            next: BinaryHeap::new(),
            given: None,
            missing: MissingRanges::new(next),
        };
        for at in 0..merged.walks.len() {
            merged.step(at, progress)?;
        }
        Ok(merged)
    }

    fn step(&mut self, at: usize, progress: &Progress) -> Result<(), StorageError> {
        let Some((walk, place)) = self.walks.get_mut(at) else {
            return Ok(());
        };
        let Some(leaf) = self.leaves.get(walk.leaf) else {
            return Ok(());
        };
        *place = walk.step(leaf, &mut self.missing, progress)?;
        self.next
            .extend(place.map(|place| Reverse((place.number, at))));
        Ok(())
    }

    /// The next packet of which the number is known.
    pub(super) fn next(&mut self, progress: &Progress) -> Result<Option<Place>, StorageError> {
        // Only now, because what it finds comes after the packet that was given.
        if let Some(at) = self.given.take() {
            self.step(at, progress)?;
        }
        let listed = self.listed.next_number()?;
        let walked = self.next.peek().map(|Reverse((number, _))| *number);
        let is_walked = walked.is_some_and(|walked| listed.is_none_or(|listed| walked < listed));
        let place = if is_walked {
            let at = self.next.pop().map(|Reverse((_, at))| at);
            self.given = at;
            at.and_then(|at| self.walks.get(at)?.1)
        } else {
            let place = self.listed.page.pop_front();
            place.inspect(|place| progress.add(place.length))
        };
        if let Some(place) = &place {
            self.missing.known(place.number);
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(leaf: u64) -> Missing {
        Missing {
            first: 0,
            last: 0,
            file: 0,
            offset: 0,
            length: 8,
            leaf: Some(leaf),
        }
    }

    fn ranges(found: &[Missing]) -> Vec<(u64, u64)> {
        found.iter().map(|one| (one.first, one.last)).collect()
    }

    #[test]
    fn numbers_that_nobody_has_are_missing_where_bytes_are_unknown() {
        let mut found = MissingRanges::new(3);
        found.known(4);
        found.unknown.insert((9, 0), missing(0));
        found.known(6);
        found.unknown.insert((20, 1), missing(1));
        for number in [7, 9, 10, 15] {
            found.known(number);
        }
        found.unknown.insert((18, 0), missing(0));
        assert_eq!(
            ranges(&found.finish()),
            [(5, 5), (8, 8), (11, 14), (16, 19)]
        );
    }

    #[test]
    fn what_is_missing_is_bounded_while_it_is_found() {
        let mut found = MissingRanges::new(0);
        for number in (0..1 << 20).step_by(2) {
            found.known(number);
            found.add(Missing {
                first: number,
                last: number,
                ..missing(0)
            });
            assert!(found.found.len() <= 2 * MISSING_COUNT_MAX);
        }
        let found = found.finish();
        assert!(found.len() <= MISSING_COUNT_MAX);
        assert_eq!(
            (found[0].first, found[found.len() - 1].last),
            (0, (1 << 20) - 2)
        );
    }
}
