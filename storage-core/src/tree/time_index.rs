//! Finds the packets of a leaf that a time frame cannot exclude, in O(log n).
//!
//! Packets of a stream nearly always arrive in the order of time, but a producer does not have to
//! send them so. The running maximum of the ends is always sorted, so the first packet that can
//! overlap a frame is found by binary search; so is the last one if the begins are sorted.

use std::ops::Range;

use storage_format::{TimeBasis, frame::Facts};

/// Bytes of memory of a packet in a [`TimeIndex`].
pub(super) const PACKET_BYTES: usize = 2 * size_of::<i64>();

/// Time order of the packets of one segment.
#[derive(Debug, Default, Clone)]
pub(crate) struct TimeIndex {
    max_ends: Vec<i64>,
    begins: Vec<i64>,
    is_unsorted: bool,
    basis: Option<Basis>,
}

/// The time bases of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// All packets have the same.
    One(Option<u32>),
    Many,
}

impl TimeIndex {
    /// Adds the time span of the next packet; a packet without one is never excluded.
    pub(crate) fn push(&mut self, facts: &Facts) {
        if facts.time_span.is_some() {
            let one = Basis::One(facts.time_basis);
            self.basis = match self.basis {
                Some(basis) if basis != one => Some(Basis::Many),
                _ => Some(one),
            };
        }
        let (begin, end) = facts.time_span.unwrap_or((i64::MIN, i64::MAX));
        let max_end = self.max_ends.last().map_or(end, |&last| last.max(end));
        self.is_unsorted |= self.begins.last().is_some_and(|&last| begin < last);
        self.max_ends.push(max_end);
        self.begins.push(begin);
        assert_eq!(
            self.max_ends.len(),
            self.begins.len(),
            "every packet has a begin and an end"
        );
    }

    /// Indexes of the packets that may overlap `[from, to)` with `basis` as the current time basis;
    /// some of them may not overlap.
    pub(crate) fn candidates(&self, (from, to): (i64, i64), basis: TimeBasis) -> Range<usize> {
        let is_present = match self.basis {
            Some(Basis::One(of_all)) => basis.is_of(of_all),
            Some(Basis::Many) => basis == TimeBasis::Bytes,
            None => true,
        };
        if !is_present {
            return 0..self.begins.len();
        }
        let first = self.max_ends.partition_point(|&end| end < from);
        let end = if self.is_unsorted {
            self.begins.len()
        } else {
            self.begins.partition_point(|&begin| begin < to)
        };
        first..end.max(first)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let times = self.max_ends.len().saturating_add(self.begins.len());
        times.saturating_mul(size_of::<i64>()) as u64
    }
}

/// Whether a packet with this time span overlaps `[from, to)`.
pub(crate) fn overlaps(span: Option<(i64, i64)>, from: i64, to: i64) -> bool {
    span.is_none_or(|(begin, end)| begin < to && end >= from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spans: &[Option<(i64, i64)>], from: i64, to: i64, candidates: Range<usize>) {
        let mut index = TimeIndex::default();
        for &time_span in spans {
            index.push(&Facts {
                time_span,
                ..Facts::default()
            });
        }
        let found = index.candidates((from, to), TimeBasis::Bytes);
        assert_eq!(found, candidates);
        for (at, &span) in spans.iter().enumerate() {
            let is_in = overlaps(span, from, to);
            assert!(!is_in || found.contains(&at), "{span:?} is missed");
        }
    }

    #[test]
    fn sorted_packets_are_found_by_binary_search() {
        let spans: Vec<_> = (0..100).map(|at| Some((at * 10, at * 10 + 9))).collect();
        check(&spans, 500, 520, 50..52);
        check(&spans, 509, 510, 50..51);
        check(&spans, -5, 0, 0..0);
        check(&spans, 5000, 6000, 100..100);
        check(&spans, i64::MIN, i64::MAX, 0..100);
    }

    #[test]
    fn packets_out_of_order_and_without_time_are_never_missed() {
        check(
            &[Some((50, 60)), Some((10, 20)), Some((70, 80))],
            10,
            21,
            0..3,
        );
        check(&[Some((0, 1)), None, Some((10, 20))], 15, 16, 1..3);
        check(
            &[Some((0, 100)), Some((10, 20)), Some((30, 40))],
            90,
            95,
            0..3,
        );
    }

    #[test]
    fn stale_times_exclude_nothing() {
        let of = |bases: &[Option<u32>], present| {
            let mut index = TimeIndex::default();
            // A packet without a span has no stale one.
            index.push(&Facts::default());
            for (at, &time_basis) in (0..).zip(bases) {
                index.push(&Facts {
                    time_span: Some((at * 10, at * 10 + 9)),
                    time_basis,
                    ..Facts::default()
                });
            }
            index.candidates((0, 10), present)
        };
        let seven = TimeBasis::Number(7);
        assert_eq!(of(&[Some(7), Some(7)], seven), 0..2);
        assert_eq!(of(&[Some(7), Some(7)], TimeBasis::Number(8)), 0..3);
        assert_eq!(of(&[Some(7), Some(7)], TimeBasis::Unknown), 0..3);
        assert_eq!(of(&[Some(7), Some(8)], seven), 0..3);
        assert_eq!(of(&[Some(8), Some(7), Some(7)], seven), 0..4);
        assert_eq!(of(&[None, None], seven), 0..3);
        assert_eq!(of(&[None, Some(7)], TimeBasis::Bytes), 0..2);
    }
}
