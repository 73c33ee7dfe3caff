//! Groups whose totals chunk summaries answer, without reading events.

use std::collections::{BTreeMap, HashMap};

use chunk_index::{ChunkStatistics, Durations, Group as SummarizedGroup, Totals};
use query_language::{FieldPath, Value};

use super::group_map::{Budget, Full, GROUPS_MAX, GroupMap};
use super::spec::{GroupSpec, SummaryKeys};
use crate::interval::interval_of;
use crate::source::ChunkSource;
use crate::{ReadError, Request};

/// Chunks that are read although their summaries could be spread, so that a short window, which is
/// in few chunks, is exact.
const EXACT_CHUNKS_MAX: usize = 4;

/// A group that is in more intervals is read, because a summary says too little about them.
const INTERVALS_MAX: i64 = 65_536;

/// Category and name of a group, as far as they are keys.
type Label = (Option<Box<[u8]>>, Option<Box<[u8]>>);

/// The interval of a group, its source if that is a part of the key, and the number of its label.
type Place = (Option<i64>, usize, usize);

/// Totals of groups by what the keys ask for: interval, source, category and name.
pub(crate) struct Summaries<'s> {
    spec: &'s GroupSpec,
    keys: SummaryKeys,
    needs_durations: bool,
    window: (Option<i64>, Option<i64>),
    budget: &'s Budget,
    labels: HashMap<Label, usize>,
    totals: BTreeMap<Place, Totals>,
    /// What is estimated, if the request accepts that.
    estimates: Option<Estimates>,
}

/// How much is estimated.
struct Estimates {
    every: i64,
    /// Chunks that may still be read although they could be spread.
    exact_left: usize,
    /// Chunks whose events were spread.
    chunks: usize,
    /// Those of them that are partly outside of the window.
    cut: usize,
}

impl<'s> Summaries<'s> {
    /// No totals yet; what is added is taken from `budget`.
    pub(crate) fn new(spec: &'s GroupSpec, request: &Request, budget: &'s Budget) -> Self {
        let every = spec.every.filter(|_| spec.is_estimated());
        Summaries {
            spec,
            keys: spec.summary_keys(),
            needs_durations: spec.needs_durations(),
            window: (request.from, request.to),
            budget,
            labels: HashMap::new(),
            totals: BTreeMap::new(),
            estimates: every.map(|every| Estimates {
                every,
                exact_left: EXACT_CHUNKS_MAX,
                chunks: 0,
                cut: 0,
            }),
        }
    }

    /// Whether numbers of events may be estimated.
    pub(crate) fn is_estimating(&self) -> bool {
        self.estimates.is_some()
    }

    /// Whether the distribution of durations is needed.
    pub(crate) fn needs_sketches(&self) -> bool {
        self.spec.needs_sketches()
    }

    /// Whether the sum over all groups is an estimate, too.
    pub(crate) fn is_sum_estimated(&self) -> bool {
        self.estimates.as_ref().is_some_and(|made| made.cut > 0)
    }

    /// Number of events.
    pub(crate) fn events(&self) -> u64 {
        let events = self.totals.values().map(|totals| totals.events);
        events.fold(0, u64::saturating_add)
    }

    /// Adds the matching events of a chunk of a source. Returns false if the chunk must be read,
    /// because not all groups are known or one is in several intervals.
    ///
    /// # Errors
    ///
    /// When there are too many groups.
    pub(crate) fn take(
        &mut self,
        source: usize,
        matched: ChunkStatistics,
    ) -> Result<bool, ReadError> {
        let every = self.spec.every;
        let groups = matched.groups.iter();
        let intervals: Option<Vec<_>> =
            groups.map(|group| interval(&group.totals, every)).collect();
        let Some(intervals) = intervals.filter(|_| matched.other.events == 0) else {
            return Ok(false);
        };
        // The sketch of a file does not tell durations below zero apart.
        let has_negative = |group: &SummarizedGroup| group.totals.durations.min < 0;
        if self.needs_durations && self.needs_sketches() && matched.groups.iter().any(has_negative)
        {
            return Ok(false);
        }
        for (group, interval) in matched.groups.into_iter().zip(intervals) {
            let mut totals = group.totals;
            if !self.needs_durations {
                totals.durations = Durations::default();
            }
            let added = self
                .label((group.cat, group.name))
                .and_then(|label| self.add((interval, source, label), &totals));
            added.map_err(|Full| self.too_many())?;
        }
        Ok(true)
    }

    /// Adds an estimate of the matching events of a chunk of a source in the window, from those at
    /// any time. Returns false if the chunk must be read.
    ///
    /// # Errors
    ///
    /// When there are too many groups.
    pub(crate) fn estimate(
        &mut self,
        source: usize,
        matched: ChunkStatistics,
    ) -> Result<bool, ReadError> {
        let Some(estimates) = &mut self.estimates else {
            return Ok(false);
        };
        if !estimates.can_spread(&matched) {
            return Ok(false);
        }
        if let Some(left) = estimates.exact_left.checked_sub(1) {
            estimates.exact_left = left;
            return Ok(false);
        }
        let every = estimates.every;
        estimates.chunks += 1;
        let is_cut = |group: &SummarizedGroup| is_cut(&group.totals, self.window);
        estimates.cut += usize::from(matched.groups.iter().any(is_cut));
        for group in matched.groups {
            let added = self
                .label((group.cat, group.name))
                .and_then(|label| self.spread(source, label, &group.totals, every));
            added.map_err(|Full| self.too_many())?;
        }
        Ok(true)
    }

    fn too_many(&self) -> ReadError {
        ReadError::TooManyGroups {
            field: self.spec.keys_text(),
            max: GROUPS_MAX,
        }
    }

    /// The number of a label.
    fn label(&mut self, (cat, name): Label) -> Result<usize, Full> {
        let label = (
            cat.filter(|_| self.keys.cat),
            name.filter(|_| self.keys.name),
        );
        if let Some(number) = self.labels.get(&label) {
            return Ok(*number);
        }
        let bytes = |text: &Option<Box<[u8]>>| text.as_ref().map_or(0, |text| text.len());
        let taken = size_of::<(Label, usize)>() + bytes(&label.0) + bytes(&label.1);
        self.budget.take(taken)?;
        let number = self.labels.len();
        self.labels.insert(label, number);
        Ok(number)
    }

    fn add(&mut self, (interval, source, label): Place, totals: &Totals) -> Result<(), Full> {
        let source = if self.keys.origin { source } else { 0 };
        let known = self.totals.len();
        let own = self.totals.entry((interval, source, label)).or_default();
        let before = own.durations.sketch.memory();
        own.merge(totals);
        let grown = own.durations.sketch.memory().saturating_sub(before);
        let is_new = self.totals.len() > known;
        if is_new && known >= GROUPS_MAX {
            return Err(Full);
        }
        let own = usize::from(is_new) * size_of::<(Place, Totals)>();
        self.budget.take(own + grown)
    }

    /// Spreads the events of a group evenly over the time between the first and the last one, and
    /// adds those in the window.
    fn spread(
        &mut self,
        source: usize,
        label: usize,
        totals: &Totals,
        every: i64,
    ) -> Result<(), Full> {
        let Some(times) = totals.times else {
            return Ok(());
        };
        let (first, behind) = (i128::from(times.first), i128::from(times.last) + 1);
        let low = self.window.0.map_or(first, |from| first.max(from.into()));
        let high = self.window.1.map_or(behind, |to| behind.min(to.into()));
        if low >= high {
            return Ok(());
        }
        // At most 2^64 - 1 and 2^64: their product is below 2^128, whatever an index says.
        let events = u128::from(totals.events);
        let span = (behind - first).unsigned_abs();
        // What is before a time is rounded, so that the sum over adjacent intervals is exact.
        let before = |time: i128| events * (time - first).unsigned_abs() / span;
        let (mut counted, all) = (before(low), before(high));
        while counted < all {
            // From one event to the next, because most intervals may have none.
            let reached = (span * (counted + 1)).div_ceil(events);
            let Ok(next) = i64::try_from(first + reached.cast_signed() - 1) else {
                return Ok(());
            };
            let interval = interval_of(next, every);
            let end = i128::from(next).div_euclid(every.into()) + 1;
            let sum = before(high.min(end * i128::from(every)));
            let events = u64::try_from(sum - counted).unwrap_or(u64::MAX);
            let totals = Totals {
                events,
                timed: events,
                ..Totals::default()
            };
            self.add((Some(interval), source, label), &totals)?;
            counted = sum;
        }
        Ok(())
    }

    /// What a reader must know.
    pub(crate) fn note(&self) -> Option<String> {
        let made = self.estimates.as_ref().filter(|made| made.chunks > 0)?;
        let sum = match made.cut {
            0 => String::new(),
            cut => format!(
                "; {cut} of these chunks are partly outside of the window, so that the sum is an \
                 estimate, too"
            ),
        };
        Some(format!(
            "the numbers of events are estimates: those of {} chunks are spread evenly over the \
             time of their events{sum}",
            made.chunks
        ))
    }

    /// Adds the groups to those that were read.
    pub(crate) fn add_to(
        self,
        map: &mut GroupMap,
        sources: &[Box<dyn ChunkSource>],
    ) -> Result<(), Full> {
        let mut labels = vec![(None, None); self.labels.len()];
        for (label, number) in self.labels {
            labels[number] = label;
        }
        for ((interval, source, label), totals) in self.totals {
            let (cat, name) = &labels[label];
            let origin = sources[source].origin();
            let interval = self.spec.every.map(|_| interval.map(Value::Int));
            let fields = self.spec.keys.iter().map(|key| {
                let text = match FieldPath::new(key).as_str() {
                    "name" => name.as_deref(),
                    "cat" => cat.as_deref(),
                    key => origin
                        .and_then(|origin| origin.field(key))
                        .map(str::as_bytes),
                };
                text.map(Value::Str)
            });
            let (own, _) = map.group(interval.into_iter().chain(fields), 0)?;
            own.totals.merge(&totals);
        }
        Ok(())
    }
}

impl Estimates {
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
}

/// Whether the events of a group are partly in the window.
fn is_cut(totals: &Totals, (from, to): (Option<i64>, Option<i64>)) -> bool {
    totals.times.is_some_and(|times| {
        let splits = |limit: i64| times.first < limit && limit <= times.last;
        from.is_some_and(splits) || to.is_some_and(splits)
    })
}

/// The interval of time in which all events of a group start; `None` inside if they have no start.
/// `None` if they are in several intervals.
fn interval(totals: &Totals, every: Option<i64>) -> Option<Option<i64>> {
    let Some(every) = every else {
        return Some(None);
    };
    match totals.times {
        // The value of an odd time is unknown.
        _ if totals.odd > 0 => None,
        None => Some(None),
        Some(times) => {
            let first = interval_of(times.first, every);
            let is_same = totals.timed == totals.events && interval_of(times.last, every) == first;
            is_same.then_some(Some(first))
        }
    }
}

#[cfg(test)]
mod tests;
