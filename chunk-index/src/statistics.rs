//! Statistics of a chunk: counts, time range and durations, in total and for each group of events
//! with the same category and name.

use std::collections::BTreeMap;

use crate::Sketch;

/// Groups for which a chunk has separate totals.
pub(crate) const GROUPS_MAX: usize = 1_024;

/// Times of events, in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The earliest start.
    pub first: i64,
    /// The latest start.
    pub last: i64,
    /// The latest end; an event without a duration ends when it starts.
    pub end: i64,
}

impl TimeRange {
    fn merge(left: Option<TimeRange>, right: Option<TimeRange>) -> Option<TimeRange> {
        match (left, right) {
            (Some(left), Some(right)) => Some(TimeRange {
                first: left.first.min(right.first),
                last: left.last.max(right.last),
                end: left.end.max(right.end),
            }),
            (one, other) => one.or(other),
        }
    }
}

/// Durations of events, in nanoseconds.
///
/// The second moment is stored as an exact integer sum instead of Welford's running float: merging
/// is then exact, independent of the order, and cheaper. [`Self::variance`] has the precision for
/// which Welford's recurrence is used.
#[derive(Debug, Clone, PartialEq)]
pub struct Durations {
    /// Events that have a duration.
    pub count: u64,
    /// Their sum.
    pub sum: i128,
    /// The sum of their squares; saturates.
    pub sum_squares: u128,
    /// The shortest; `i64::MAX` without durations.
    pub min: i64,
    /// The longest; `i64::MIN` without durations.
    pub max: i64,
    /// Their distribution.
    pub sketch: Sketch,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations {
            count: 0,
            sum: 0,
            sum_squares: 0,
            min: i64::MAX,
            max: i64::MIN,
            sketch: Sketch::default(),
        }
    }
}

impl Durations {
    /// Adds a duration.
    #[inline]
    pub fn add(&mut self, nanos: i64) {
        let magnitude = u128::from(nanos.unsigned_abs());
        self.count += 1;
        self.sum += i128::from(nanos);
        self.sum_squares = self.sum_squares.saturating_add(magnitude * magnitude);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
        self.sketch.add(nanos);
    }

    /// Adds all durations of `other`.
    pub fn merge(&mut self, other: &Durations) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_squares = self.sum_squares.saturating_add(other.sum_squares);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sketch.merge(&other.sketch);
    }

    /// Shortest and longest; `None` without durations.
    pub fn range(&self) -> Option<(i64, i64)> {
        (self.count > 0).then_some((self.min, self.max))
    }

    /// The mean; `None` without durations.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| {
            let (sum, count) = (self.sum as f64, self.count as f64);
            let quotient = sum / count;
            // What the conversion and the division left over.
            #[expect(clippy::cast_possible_truncation, reason = "it was an integer")]
            let lost = self.sum.saturating_sub(sum as i128) as f64;
            quotient + (quotient.mul_add(-count, sum) + lost) / count
        })
    }

    /// The duration that the share `quantile` (0 to 1) of them does not exceed, within the error of
    /// the sketch, and always within [`range`](Durations::range). `None` without durations.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let (min, max) = self.range()?;
        let about = self.sketch.quantile(quantile)?;
        Some(about.max(min as f64).min(max as f64))
    }

    /// The population variance (divided by the count); `None` without durations, or if the sum of
    /// the squares saturated.
    pub fn variance(&self) -> Option<f64> {
        let count = i128::from(self.count);
        if count == 0 || self.sum_squares == u128::MAX {
            return None;
        }
        // Deviations from the integer part of the mean, summed exactly; as floats the two large
        // sums would cancel and leave rounding errors.
        let (mean, rest) = (self.sum.div_euclid(count), self.sum.rem_euclid(count));
        let exact = || {
            let squares = i128::try_from(self.sum_squares).ok()?;
            let cross = mean.checked_mul(self.sum)?.checked_mul(2)?;
            let shift = mean.checked_mul(mean)?.checked_mul(count)?;
            squares.checked_sub(cross)?.checked_add(shift)
        };
        let about_mean = match exact() {
            Some(squares) => squares as f64,
            None => {
                let mean = mean as f64;
                self.sum_squares as f64 - mean * (2.0 * self.sum as f64 - mean * count as f64)
            }
        };
        let rest = rest as f64;
        let count = count as f64;
        Some(((about_mean - rest * rest / count) / count).max(0.0))
    }
}

/// The events with the same category and name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// `cat`; `None` where the events have none.
    pub cat: Option<Box<[u8]>>,
    /// `name`; `None` where the events have none.
    pub name: Option<Box<[u8]>>,
    /// Their totals.
    pub totals: Totals,
}

/// Counts and sums over a set of events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    /// Number of events.
    pub events: u64,
    /// Number of events that have a start.
    pub timed: u64,
    /// Number of events whose `ts` or `dur` is present and not a whole number of nanoseconds. These
    /// values are not part of any sum.
    pub odd: u64,
    /// Times of the events that have a start.
    pub times: Option<TimeRange>,
    /// Durations of the events that have one.
    pub durations: Durations,
}

impl Totals {
    /// Adds the events of `other`.
    pub fn merge(&mut self, other: &Totals) {
        self.events = self.events.saturating_add(other.events);
        self.timed = self.timed.saturating_add(other.timed);
        self.odd = self.odd.saturating_add(other.odd);
        self.times = TimeRange::merge(self.times, other.times);
        self.durations.merge(&other.durations);
    }
}

/// The statistics of a chunk: its events by category and name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChunkStatistics {
    /// One for each pair of category and name.
    pub groups: Vec<Group>,
    /// Totals of the events whose `cat` or `name` is not text, or that came when there were too
    /// many groups already.
    pub other: Totals,
}

impl ChunkStatistics {
    /// All events.
    pub fn totals(&self) -> Totals {
        let mut totals = self.other.clone();
        for group in &self.groups {
            totals.merge(&group.totals);
        }
        totals
    }

    /// Number of events.
    pub fn events(&self) -> u64 {
        let grouped = self.groups.iter().map(|group| group.totals.events);
        grouped.fold(self.other.events, u64::saturating_add)
    }

    /// Times of all events that have a start.
    pub fn times(&self) -> Option<TimeRange> {
        let grouped = self.groups.iter().map(|group| group.totals.times);
        grouped.fold(self.other.times, TimeRange::merge)
    }

    /// Adds the statistics of another chunk.
    pub fn merge(&mut self, other: &ChunkStatistics) {
        self.other.merge(&other.other);
        let mut known: BTreeMap<_, _> = self
            .groups
            .iter()
            .enumerate()
            .map(|(at, group)| ((group.cat.clone(), group.name.clone()), at))
            .collect();
        for group in &other.groups {
            let key = (group.cat.clone(), group.name.clone());
            match known.get(&key) {
                Some(&at) => self.groups[at].totals.merge(&group.totals),
                None => {
                    known.insert(key, self.groups.len());
                    self.groups.push(group.clone());
                }
            }
        }
    }

    /// The groups merged by `key`; `None` if there are events with unknown name and category,
    /// because then no sum by name is exact.
    pub fn group_by<K: Ord>(&self, key: impl Fn(&Group) -> K) -> Option<BTreeMap<K, Totals>> {
        if self.other.events > 0 {
            return None;
        }
        let mut sums: BTreeMap<K, Totals> = BTreeMap::new();
        for group in &self.groups {
            sums.entry(key(group)).or_default().merge(&group.totals);
        }
        Some(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn durations(values: &[i64]) -> Durations {
        let mut durations = Durations::default();
        values.iter().for_each(|value| durations.add(*value));
        durations
    }

    /// Welford's recurrence, as the reference.
    fn welford(values: &[i64]) -> f64 {
        let (mut mean, mut squares) = (0.0, 0.0);
        for (index, value) in values.iter().enumerate() {
            let distance = *value as f64 - mean;
            mean += distance / (index + 1) as f64;
            squares += distance * (*value as f64 - mean);
        }
        squares / values.len() as f64
    }

    #[test]
    fn a_small_variance_of_large_values_is_exact() {
        // A month.
        let base = 30 * 86_400_000_000_000;
        let values: Vec<i64> = (0..1_000).map(|index| base + index % 2).collect();
        assert_eq!(durations(&values).variance(), Some(0.25));
    }

    #[test]
    fn a_quantile_is_within_the_range() {
        assert_eq!(durations(&[1_000_000_000]).quantile(0.5), Some(1e9));
        let two = durations(&[100_000_000, 1_000_000_000]);
        assert_eq!(two.quantile(1.0), Some(1e9));
        assert!(
            two.sketch.quantile(1.0) > Some(1e9),
            "the sketch on its own"
        );
    }

    #[test]
    fn no_durations_have_no_mean() {
        let none = Durations::default();
        assert_eq!(
            (none.mean(), none.variance(), none.range()),
            (None, None, None)
        );
        assert_eq!(none.quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn merged_parts_equal_the_whole(
            values in proptest::collection::vec(0_i64..10_000_000_000, 1..200),
            cut in 0_usize..200,
        ) {
            let (left, right) = values.split_at(cut.min(values.len()));
            let mut merged = durations(left);
            merged.merge(&durations(right));
            let whole = durations(&values);
            prop_assert_eq!(&merged, &whole);
            let (variance, yardstick) = (whole.variance().unwrap(), welford(&values));
            prop_assert!(
                (variance - yardstick).abs() <= yardstick * 1e-6 + 1e-3,
                "{} {}", variance, yardstick);
        }
    }
}
