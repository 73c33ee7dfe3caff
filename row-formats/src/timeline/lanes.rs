//! Lanes of one thread: each is a track whose slices are nested or follow each other.
//!
//! A slice is on the first lane where it fits. Thousands of slices may be open at once, so a tree
//! has for each range of lanes the latest end that fits in one of them, and lanes are not searched
//! one by one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Depth of nested slices on a track.
const DEPTH_MAX: usize = 256;
/// A lane that is full: nothing fits.
const FULL: i64 = i64::MIN;
/// A lane without an open slice: everything fits.
const FREE: i64 = i64::MAX;

/// The lanes of a thread, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Of all open slices: end and number of the lane, the earliest end first.
    ends: BinaryHeap<Reverse<(i64, usize)>>,
    /// The latest end that fits, of ranges of lanes: the root at 1, the children of a node at twice
    /// its place, and the lanes in the second half.
    fits: Vec<i64>,
}

#[derive(Debug)]
struct Lane {
    id: u64,
    /// Ends of the open slices, the innermost last.
    open: Vec<i64>,
}

impl Lane {
    /// The latest end that fits.
    fn fits(&self) -> i64 {
        match self.open.last() {
            _ if self.open.len() >= DEPTH_MAX => FULL,
            Some(innermost) => *innermost,
            None => FREE,
        }
    }
}

impl Lanes {
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// The id of the first lane.
    pub(super) fn first(&self) -> Option<u64> {
        self.lanes.first().map(|lane| lane.id)
    }

    /// Adds a lane with a slice, or without one.
    pub(super) fn add(&mut self, id: u64, end: Option<i64>) {
        let number = self.lanes.len();
        self.lanes.push(Lane {
            id,
            open: Vec::new(),
        });
        if self.lanes.len() > self.fits.len() / 2 {
            self.grow();
        }
        match end {
            Some(end) => self.open(number, end),
            None => self.update(number),
        }
    }

    /// The id of the first lane where a slice fits that starts at `begin`, which is not before the
    /// slices before it. It is open there until `end`.
    pub(super) fn place(&mut self, begin: i64, end: i64) -> Option<u64> {
        self.close(begin);
        let number = self.find(end)?;
        self.open(number, end);
        self.lanes.get(number).map(|lane| lane.id)
    }

    /// Closes the slices that end until `begin`.
    fn close(&mut self, begin: i64) {
        while let Some(Reverse((end, number))) = self.ends.peek().copied()
            && end <= begin
        {
            self.ends.pop();
            if let Some(lane) = self.lanes.get_mut(number) {
                // The innermost slice of a lane is the first that ends.
                lane.open.pop();
            }
            self.update(number);
        }
    }

    fn open(&mut self, number: usize, end: i64) {
        if let Some(lane) = self.lanes.get_mut(number) {
            lane.open.push(end);
            self.ends.push(Reverse((end, number)));
        }
        self.update(number);
    }

    /// The first lane where `end` fits.
    fn find(&self, end: i64) -> Option<usize> {
        let leaves = self.fits.len() / 2;
        let fits = |at: usize| self.fits.get(at).is_some_and(|fits| *fits >= end);
        // Nothing fits in a full lane, also no slice that ends before all times.
        if end == FULL || !fits(1) {
            return None;
        }
        let mut at = 1;
        while at < leaves {
            at *= 2;
            if !fits(at) {
                at += 1;
            }
        }
        Some(at - leaves)
    }

    /// Brings the tree up to date with a lane.
    fn update(&mut self, number: usize) {
        let Some(lane) = self.lanes.get(number) else {
            return;
        };
        let mut at = self.fits.len() / 2 + number;
        self.fits[at] = lane.fits();
        while at > 1 {
            at /= 2;
            self.fits[at] = self.fits[2 * at].max(self.fits[2 * at + 1]);
        }
    }

    fn grow(&mut self) {
        let leaves = self.lanes.len().next_power_of_two();
        self.fits = vec![FULL; 2 * leaves];
        for number in 0..self.lanes.len() {
            self.update(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lane of each slice, by looking at one lane after the other.
    fn one_by_one(slices: &[(i64, i64)]) -> Vec<u64> {
        let mut lanes: Vec<Vec<i64>> = Vec::new();
        let mut found = Vec::new();
        for (begin, end) in slices {
            let place = lanes.iter_mut().position(|open| {
                open.retain(|open| open > begin);
                open.last().is_none_or(|open| end <= open) && open.len() < DEPTH_MAX
            });
            let place = place.unwrap_or_else(|| {
                lanes.push(Vec::new());
                lanes.len() - 1
            });
            lanes[place].push(*end);
            found.push(place as u64);
        }
        found
    }

    fn placed(slices: &[(i64, i64)]) -> Vec<u64> {
        let mut lanes = Lanes::default();
        let place = |(begin, end): &(i64, i64)| {
            lanes.place(*begin, *end).unwrap_or_else(|| {
                let id = lanes.len() as u64;
                lanes.add(id, Some(*end));
                id
            })
        };
        slices.iter().map(place).collect()
    }

    #[test]
    fn a_slice_is_on_the_first_lane_where_it_fits() {
        let mut state = 1_u64;
        let mut below = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            i64::try_from((state >> 33) % most).unwrap()
        };
        for round in 0..300 {
            let mut slices: Vec<_> = (0..200).map(|_| (below(60), below(40))).collect();
            slices.sort_by_key(|(begin, length)| (*begin, Reverse(*length)));
            let with_end = |(begin, length): &(i64, i64)| (*begin, begin + length);
            let slices: Vec<_> = slices.iter().map(with_end).collect();
            assert_eq!(placed(&slices), one_by_one(&slices), "{round}");
        }
    }

    #[test]
    fn a_lane_has_a_limited_depth() {
        let slices: Vec<_> = (0..300).map(|at| (at, 1_000 - at)).collect();
        assert_eq!(placed(&slices), one_by_one(&slices));
        assert_eq!(placed(&slices).iter().max(), Some(&1));
    }

    /// Lane by lane, these are a thousand million steps.
    #[test]
    fn slices_do_not_look_through_all_lanes() {
        let slices: Vec<_> = (0..100_000).map(|at| (at, at + 10_000)).collect();
        let lanes = placed(&slices);
        assert_eq!(lanes.iter().max(), Some(&9_999));
        assert_eq!(lanes[10_000], 0);
    }
}
