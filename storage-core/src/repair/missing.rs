//! Which numbers are missing around damage.
//!
//! Packets are numbered in the order of the log: those of a batch have greater numbers than those
//! of the batches before it. So what is missing between two batches that are whole is known by its
//! numbers, although nothing of it can be read.

use std::collections::{BTreeMap, BTreeSet};

use storage_format::{
    DataFileId, LeafId,
    frame::HEADER_BYTES,
    repair_file::{MISSING_COUNT_MAX, Missing, join_neighbours},
};

/// Bytes from a batch that is whole to the next one.
#[derive(Debug)]
struct Region {
    file: DataFileId,
    offset: u64,
    length: u64,
    whole: BTreeSet<u64>,
    /// The packets whose headers are intact: their leaf, offset and length.
    known: BTreeMap<u64, (LeafId, u64, u64)>,
}

/// Collects what is missing.
#[derive(Debug)]
pub(super) struct MissingNumbers {
    /// The last number before the open region.
    last: Option<u64>,
    open: Option<Region>,
    found: Vec<Missing>,
}

impl MissingNumbers {
    /// Begins after the packet `last`.
    pub(super) fn after(last: Option<u64>) -> Self {
        Self {
            last,
            open: None,
            found: Vec::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Notes damaged bytes.
    pub(super) fn damage(&mut self, file: DataFileId, offset: u64, length: u64) {
        let region = self.open.get_or_insert_with(|| Region {
            file,
            offset,
            length: 0,
            whole: BTreeSet::new(),
            known: BTreeMap::new(),
        });
        region.length = region.length.saturating_add(length);
    }

    /// Notes a damaged packet whose header is intact.
    pub(super) fn packet(&mut self, number: u64, leaf: LeafId, offset: u64, length: u64) {
        if let Some(region) = &mut self.open {
            region.known.insert(number, (leaf, offset, length));
        }
    }

    /// Notes the numbers of a batch of which all packets are whole, or those of the rest of a
    /// damaged one.
    pub(super) fn whole(&mut self, numbers: impl IntoIterator<Item = u64>, is_damaged: bool) {
        let numbers: BTreeSet<u64> = numbers.into_iter().collect();
        match &mut self.open {
            Some(region) if is_damaged => region.whole.extend(numbers),
            _ => {
                if let Some(first) = numbers.first() {
                    self.close(*first);
                }
                self.last = self.last.max(numbers.last().copied());
            }
        }
    }

    /// Ends the open region, whose packets have numbers before `end`.
    fn close(&mut self, end: u64) {
        let Some(region) = self.open.take() else {
            return;
        };
        let mut next = self.last.map_or(0, |last| last.saturating_add(1));
        let marks = region.whole.iter().copied();
        let mut marks: BTreeSet<u64> = marks.chain(region.known.keys().copied()).collect();
        marks.insert(end);
        for mark in marks {
            if mark > next {
                self.found.push(Missing {
                    first: next,
                    last: mark.saturating_sub(1),
                    file: region.file.0,
                    offset: region.offset,
                    length: region.length,
                    leaf: None,
                });
            }
            if let Some(&(leaf, offset, length)) = region.known.get(&mark) {
                self.found.push(Missing {
                    first: mark,
                    last: mark,
                    file: region.file.0,
                    offset,
                    length,
                    leaf: Some(leaf.0),
                });
            }
            next = next.max(mark.saturating_add(1));
        }
        let inside = region.whole.last().copied();
        self.last = self.last.max(end.checked_sub(1)).max(inside);
    }

    /// Ends what is open at the end of the log. `known` is the last number up to a place that is
    /// known, and how many damaged bytes are behind that place; otherwise all damaged bytes say how
    /// many packets there were at most.
    pub(super) fn end(mut self, known: Option<(u64, u64)>) -> (Vec<Missing>, Option<u64>) {
        if let Some(region) = &self.open {
            let inside = region.whole.last().copied();
            let inside = inside.max(region.known.last_key_value().map(|(&number, _)| number));
            let before = self.last.max(inside).max(known.map(|(last, _)| last));
            let packets = |bytes: u64| bytes.checked_div(HEADER_BYTES as u64).unwrap_or(0);
            let upper = match known {
                Some((_, behind)) => before.unwrap_or(0).saturating_add(packets(behind)),
                None => {
                    let next = before.map_or(0, |before| before.saturating_add(1));
                    next.saturating_add(packets(region.length))
                }
            };
            self.close(upper.saturating_add(1));
        }
        while self.found.len() > MISSING_COUNT_MAX {
            self.found = join_neighbours(&self.found);
        }
        (self.found, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(found: &[Missing]) -> Vec<(u64, u64)> {
        found
            .iter()
            .map(|range| (range.first, range.last))
            .collect()
    }

    #[test]
    fn numbers_between_whole_batches_are_missing() {
        let mut missing = MissingNumbers::after(Some(4));
        missing.whole([5, 6], false);
        missing.damage(DataFileId(1), 4096, 4096);
        // A damaged batch: 8 is whole, 10 is known to be damaged, 7, 9 and 11 are not known.
        missing.whole([8], true);
        missing.packet(10, LeafId(3), 5000, 100);
        missing.whole([12, 13], false);
        assert!(!missing.is_open());
        missing.damage(DataFileId(2), 8192, 88 * 3);
        let (found, last) = missing.end(Some((15, 0)));
        assert_eq!(
            ranges(&found),
            [(7, 7), (9, 9), (10, 10), (11, 11), (14, 15)]
        );
        assert_eq!(found[2].leaf, Some(3));
        assert_eq!((found[2].offset, found[2].length), (5000, 100));
        assert_eq!((found[4].file, found[4].offset), (2, 8192));
        assert_eq!(last, Some(15));
    }

    #[test]
    fn damage_without_a_packet_loses_nothing() {
        let mut missing = MissingNumbers::after(None);
        missing.damage(DataFileId(0), 4096, 10);
        missing.whole([0, 1], false);
        missing.damage(DataFileId(0), 8192, 10);
        missing.whole([2], false);
        assert_eq!(missing.end(None), (Vec::new(), Some(2)));
    }

    #[test]
    fn at_the_end_damaged_bytes_bound_the_numbers() {
        let mut missing = MissingNumbers::after(Some(9));
        missing.damage(DataFileId(0), 4096, 880);
        let (found, last) = missing.end(None);
        assert_eq!((ranges(&found), last), (vec![(10, 20)], Some(20)));
        // The last number is known up to a place, and 200 of the bytes are behind it.
        let mut missing = MissingNumbers::after(Some(9));
        missing.damage(DataFileId(0), 4096, 880);
        let (found, last) = missing.end(Some((12, 200)));
        assert_eq!((ranges(&found), last), (vec![(10, 14)], Some(14)));
        let mut missing = MissingNumbers::after(None);
        missing.damage(DataFileId(0), 4096, 0);
        assert_eq!(ranges(&missing.end(None).0), [(0, 0)]);
    }

    #[test]
    fn too_many_ranges_are_joined() {
        let range = |first| Missing {
            first,
            last: first,
            file: 0,
            offset: 0,
            length: 1,
            leaf: Some(1),
        };
        let joined = join_neighbours(&[range(1), range(5), range(9)]);
        assert_eq!(ranges(&joined), [(1, 5), (9, 9)]);
        assert_eq!((joined[0].leaf, joined[1].leaf), (None, Some(1)));
    }
}
