//! Sums over time in a bounded number of steps, which are merged in pairs when the trace gets
//! longer.

use serde::Serialize;

use super::{Direction, IoAccess};
use crate::numbers::to_usize;

/// A value that can be summed over time.
pub(super) trait Merge: Default {
    fn merge(&mut self, other: &Self);
}

/// Consecutive steps of equal width. The width doubles when there would be more than `limit` steps,
/// so memory is bounded even if times are damaged.
#[derive(Debug)]
pub(super) struct Steps<T> {
    /// The width is 2^`shift` ns.
    shift: u32,
    /// Start of the first step, in steps since the epoch.
    first: i64,
    steps: Vec<T>,
    limit: usize,
}

impl<T: Merge> Steps<T> {
    /// At most `limit` steps with an initial width of 2^`shift` ns.
    pub(super) fn new(shift: u32, limit: usize) -> Self {
        Self {
            shift,
            first: 0,
            steps: Vec::new(),
            limit: limit.max(2),
        }
    }

    /// The step that contains `at_ns`.
    #[inline]
    pub(super) fn at(&mut self, at_ns: i64) -> &mut T {
        if self.steps.is_empty() {
            self.first = at_ns >> self.shift;
            self.steps.push(T::default());
        }
        loop {
            let step = at_ns >> self.shift;
            let last = self.start_of(self.steps.len() - 1);
            let span = step.max(last).abs_diff(step.min(self.first));
            if span < self.limit as u64 {
                return self.reach(step);
            }
            self.halve();
        }
    }

    /// The start of a step, in steps since the epoch.
    fn start_of(&self, index: usize) -> i64 {
        self.first.saturating_add_unsigned(index as u64)
    }

    /// Extends the steps, at either end, to include `step`.
    fn reach(&mut self, step: i64) -> &mut T {
        if step < self.first {
            let missing = to_usize(self.first.abs_diff(step));
            self.steps.splice(0..0, (0..missing).map(|_| T::default()));
            self.first = step;
        }
        let index = to_usize(step.abs_diff(self.first));
        while self.steps.len() <= index {
            self.steps.push(T::default());
        }
        &mut self.steps[index]
    }

    fn halve(&mut self) {
        let first = self.first >> 1;
        let mut halved: Vec<T> = Vec::with_capacity(self.steps.len() / 2 + 1);
        for (index, step) in self.steps.iter().enumerate() {
            let at = to_usize((self.start_of(index) >> 1).abs_diff(first));
            if at == halved.len() {
                halved.push(T::default());
            }
            halved[at].merge(step);
        }
        self.steps = halved;
        self.first = first;
        self.shift += 1;
    }

    /// Start (ns since the epoch) and value of every step, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &T)> {
        let start = |index: usize| self.start_of(index) << self.shift;
        self.steps
            .iter()
            .enumerate()
            .map(move |(index, step)| (start(index), step))
    }

    /// The width of a step in ns.
    pub(super) fn width_ns(&self) -> u64 {
        1 << self.shift.min(63)
    }
}

/// Throughput in one time step.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct ThroughputStep {
    /// Start of the step, ns since the epoch.
    pub start_ns: i64,
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Number of syncs.
    pub syncs: u64,
    /// Number of other operations.
    pub others: u64,
    /// Sum of the latencies, ns.
    pub busy_ns: u64,
}

impl ThroughputStep {
    pub(super) fn add(&mut self, access: &IoAccess<'_>) {
        let len = access.len.unwrap_or(0);
        match access.direction {
            Direction::Read => {
                self.reads += 1;
                self.read_bytes = self.read_bytes.saturating_add(len);
            }
            Direction::Write => {
                self.writes += 1;
                self.written_bytes = self.written_bytes.saturating_add(len);
            }
            Direction::Sync => self.syncs += 1,
            Direction::Other => self.others += 1,
        }
        self.busy_ns = self.busy_ns.saturating_add(access.latency_ns);
    }
}

impl Merge for ThroughputStep {
    fn merge(&mut self, other: &Self) {
        self.reads += other.reads;
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.writes += other.writes;
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
        self.syncs += other.syncs;
        self.others += other.others;
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Default)]
    struct Count(u64);

    impl Merge for Count {
        fn merge(&mut self, other: &Self) {
            self.0 += other.0;
        }
    }

    proptest! {
        #[test]
        fn all_values_are_counted_in_bounded_steps(
            times in proptest::collection::vec(prop_oneof![any::<i64>(), 0i64..100_000], 1..100),
            limit in 2usize..50,
        ) {
            let mut steps = Steps::<Count>::new(4, limit);
            for &time in &times {
                steps.at(time).0 += 1;
            }
            let rows: Vec<_> = steps.iter().collect();
            prop_assert!(rows.len() <= limit);
            prop_assert_eq!(rows.iter().map(|(_, count)| count.0).sum::<u64>(), times.len() as u64);
            let width = i128::from(steps.width_ns());
            for (start, count) in rows {
                let start = i128::from(start);
                let inside = |time: &&i64| (start..start + width).contains(&i128::from(**time));
                prop_assert_eq!(count.0, times.iter().filter(inside).count() as u64);
            }
        }
    }
}
