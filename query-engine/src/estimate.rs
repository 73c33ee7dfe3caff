//! Numbers of events in intervals of time, estimated from chunk summaries: the events of a group of
//! a chunk are spread evenly over the time between its first and its last one.

use std::collections::{BTreeMap, HashMap};

use chunk_index::{ChunkStatistics, Group, Index, Pruner};
use query_language::Filter;

use crate::groups::{EstimatedKeys, GROUPS_MAX};
use crate::interval::interval_of;
use crate::{ReadError, Request};

/// Chunks that are read although their summaries could be spread: a short window is exact.
const EXACT_CHUNKS_MAX: usize = 4;

/// A group that is in more intervals is read, because a summary says too little about them.
const INTERVALS_MAX: i64 = 65_536;

/// Category and name of a group, as far as they are keys.
pub(crate) type Label = (Option<Box<[u8]>>, Option<Box<[u8]>>);

/// Where estimated events are: the interval, the source, and the number of the label.
pub(crate) type Place = (Option<i64>, usize, usize);

/// Estimated numbers of events.
pub(crate) struct Estimates {
    every: i64,
    window: (Option<i64>, Option<i64>),
    keys: EstimatedKeys,
    exact_left: usize,
    labels: HashMap<Label, usize>,
    events: BTreeMap<Place, u64>,
    chunks: usize,
}

impl Estimates {
    pub(crate) fn new(every: i64, keys: EstimatedKeys, request: &Request) -> Estimates {
        Estimates {
            every,
            window: (request.from, request.to),
            keys,
            exact_left: EXACT_CHUNKS_MAX,
            labels: HashMap::new(),
            events: BTreeMap::new(),
            chunks: 0,
        }
    }

    /// Adds the matching events of a chunk of a source; `whole` is its filter without the window.
    /// Returns false if the chunk must be read.
    ///
    /// # Errors
    ///
    /// When there are too many groups.
    pub(crate) fn add(
        &mut self,
        source: usize,
        whole: Option<&Filter>,
        index: &Index,
        chunk: usize,
    ) -> Result<bool, ReadError> {
        let all = Filter::And(Vec::new());
        let matched = Pruner::new(whole.unwrap_or(&all)).matched(index, chunk);
        let Some(matched) = matched.filter(|matched| self.can_spread(matched)) else {
            return Ok(false);
        };
        if let Some(left) = self.exact_left.checked_sub(1) {
            self.exact_left = left;
            return Ok(false);
        }
        for group in &matched.groups {
            self.spread(source, group);
        }
        self.chunks += 1;
        if self.events.len() > GROUPS_MAX {
            return Err(ReadError::TooManyGroups {
                field: "ts".to_owned(),
                max: GROUPS_MAX,
            });
        }
        Ok(true)
    }

    /// Whether the starts of all events are known, and those of no group are too far apart.
    fn can_spread(&self, matched: &ChunkStatistics) -> bool {
        matched.other.events == 0
            && matched.groups.iter().all(|group| {
                let totals = &group.totals;
                let first_to_last = totals.times.map_or(0, |times| {
                    times.last.saturating_sub(times.first) / self.every
                });
                totals.odd == 0 && totals.timed == totals.events && first_to_last < INTERVALS_MAX
            })
    }

    fn spread(&mut self, source: usize, group: &Group) {
        let Some(times) = group.totals.times else {
            return;
        };
        let label = (
            group.cat.clone().filter(|_| self.keys.cat),
            group.name.clone().filter(|_| self.keys.name),
        );
        let next = self.labels.len();
        let label = *self.labels.entry(label).or_insert(next);
        let span = i128::from(times.last) - i128::from(times.first) + 1;
        let events = i128::from(group.totals.events);
        // What is before the end of an interval is rounded, so that the sum is exact.
        let before = |time: i128| events * (time - i128::from(times.first)).clamp(0, span) / span;
        let mut start = i128::from(interval_of(times.first, self.every));
        while start <= i128::from(times.last) {
            let end = start + i128::from(self.every);
            let (low, high) = self.window;
            let from = low.map_or(start, |low| start.max(low.into()));
            let to = high.map_or(end, |high| end.min(high.into()));
            let inside = before(to.max(from)) - before(from);
            if let (Ok(inside @ 1..), Ok(interval)) = (u64::try_from(inside), i64::try_from(start))
            {
                *self
                    .events
                    .entry((Some(interval), source, label))
                    .or_default() += inside;
            }
            start = end;
        }
    }

    /// The labels by their number, and the number of events at each place.
    pub(crate) fn finish(self) -> (Vec<Label>, BTreeMap<Place, u64>) {
        let mut labels: Vec<(usize, Label)> =
            self.labels.into_iter().map(|(l, n)| (n, l)).collect();
        labels.sort_by_key(|(number, _)| *number);
        let labels = labels.into_iter().map(|(_, label)| label).collect();
        (labels, self.events)
    }

    /// What a reader must know.
    pub(crate) fn note(&self) -> Option<String> {
        (self.chunks > 0).then(|| {
            format!(
                "the numbers of events are estimates: those of {} chunks are spread evenly over the \
                 time of their events",
                self.chunks
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use chunk_index::{TimeRange, Totals};

    use super::*;

    fn spread(
        events: u64,
        times: (i64, i64),
        window: (Option<i64>, Option<i64>),
    ) -> Vec<(i64, u64)> {
        let keys = EstimatedKeys {
            name: true,
            cat: false,
        };
        let request = Request {
            from: window.0,
            to: window.1,
            ..Request::default()
        };
        let mut estimates = Estimates::new(10, keys, &request);
        let (first, last) = times;
        estimates.spread(
            0,
            &Group {
                cat: None,
                name: None,
                totals: Totals {
                    events,
                    timed: events,
                    times: Some(TimeRange {
                        first,
                        last,
                        end: last,
                    }),
                    ..Totals::default()
                },
            },
        );
        let (_, places) = estimates.finish();
        let places = places.into_iter();
        places
            .map(|((interval, _, _), events)| (interval.unwrap(), events))
            .collect()
    }

    #[test]
    fn events_are_spread_evenly_and_none_is_lost() {
        let all = (None, None);
        for (events, times, window, expected) in [
            (1, (5, 5), all, vec![(0, 1)]),
            (2, (0, 19), all, vec![(0, 1), (10, 1)]),
            (3, (0, 19), all, vec![(0, 1), (10, 2)]),
            (
                40,
                (-10, 29),
                all,
                vec![(-10, 10), (0, 10), (10, 10), (20, 10)],
            ),
            (40, (-10, 29), (Some(0), Some(20)), vec![(0, 10), (10, 10)]),
            (40, (-10, 29), (Some(5), Some(15)), vec![(0, 5), (10, 5)]),
            (40, (-10, 29), (Some(30), None), vec![]),
            (7, (i64::MIN, i64::MIN + 5), all, vec![(i64::MIN, 7)]),
        ] {
            assert_eq!(
                spread(events, times, window),
                expected,
                "{events} {times:?} {window:?}"
            );
        }
    }
}
