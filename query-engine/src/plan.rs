//! Plan: rules out chunks, and answers from summaries.

use std::collections::BTreeMap;

use chunk_index::{
    BlockKind, ChunkStatistics, ColumnFilter, Index, Pruner, Pruning, SlowRecord, Totals,
};
use query_language::Filter;

use crate::estimate::Estimates;
use crate::groups::EstimatedKeys;
use crate::interval::interval_of;
use crate::skipped::Unreadable;
use crate::source::{ChunkSource, Task, first_ts, passes_none};
use crate::{Evidence, ReadError, Report, Request};

/// What chunk summaries may answer instead of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortcut {
    /// Nothing: every matching event is needed.
    None,
    /// How many events match.
    Count,
    /// Totals of the groups of events with one category and name, in intervals of time if these
    /// have a length in nanoseconds. With `estimate`, numbers of events may be estimated.
    Groups {
        every: Option<i64>,
        estimate: Option<EstimatedKeys>,
        /// Whether events of different sources are in different groups.
        by_origin: bool,
    },
}

/// A source and what remains to be read of it.
pub(crate) struct Planned<'s> {
    pub(crate) source: &'s dyn ChunkSource,
    /// Filter for its events.
    pub(crate) filter: Option<Filter>,
    /// Filter for its columns, if it has some.
    pub(crate) columns: Option<ColumnFilter>,
    pub(crate) tasks: Vec<Task>,
    /// What its index says of its unreadable parts.
    pub(crate) unreadable: Unreadable,
}

/// What remains to be read, and what is known already.
pub(crate) struct Plan<'s> {
    pub(crate) sources: Vec<Planned<'s>>,
    /// What summaries answered: the number of matching events, and their statistics in each
    /// interval of time, of each source if these are groups of their own.
    pub(crate) counted: u64,
    pub(crate) statistics: BTreeMap<(Option<i64>, usize), ChunkStatistics>,
    /// What is estimated, if the request accepts that.
    pub(crate) estimates: Option<Estimates>,
    pub(crate) report: Report,
}

/// The filters of a source for its chunks.
#[derive(Clone, Copy)]
struct Filters<'f> {
    /// The number of the source.
    source: usize,
    /// The filter.
    prune: Option<&'f Filter>,
    /// The filter without the window of the request.
    whole: Option<&'f Filter>,
}

/// Rules out chunks that cannot match, and answers from summaries where possible.
pub(crate) fn plan<'s>(
    sources: &'s [Box<dyn ChunkSource>],
    filter: Option<&Filter>,
    shortcut: Shortcut,
    request: &Request,
) -> Result<Plan<'s>, ReadError> {
    let mut plan = Plan {
        sources: Vec::new(),
        counted: 0,
        statistics: BTreeMap::new(),
        estimates: None,
        report: Report {
            sources: sources.len(),
            ..Report::default()
        },
    };
    let mut whole = None;
    if let Shortcut::Groups {
        every: Some(every),
        estimate: Some(keys),
        ..
    } = shortcut
    {
        plan.estimates = Some(Estimates::new(every, keys, request));
        whole = request.without_window().filter(sources)?;
    }
    for (number, source) in sources.iter().enumerate() {
        request.cancel.check()?;
        let local = filter.map(|filter| source.localize(filter));
        if (local.as_ref()).is_some_and(|local| passes_none(&local.evaluate)) {
            plan.report.excluded += 1;
            continue;
        }
        let unreadable = Unreadable::of_index(&**source);
        if request.strict {
            unreadable.refuse(&**source)?;
        }
        let whole = whole.as_ref().map(|whole| source.localize(whole).prune);
        let filters = Filters {
            source: number,
            prune: local.as_ref().map(|local| &local.prune),
            whole: whole.as_ref(),
        };
        let tasks = plan.left(&**source, filters, shortcut)?;
        let columns = local
            .as_ref()
            .filter(|_| !tasks.is_empty() && source.has_columns())
            .map(|local| ColumnFilter::new(&local.prune));
        let filter = local.map(|local| local.evaluate);
        plan.sources.push(Planned {
            source: &**source,
            filter,
            columns,
            tasks,
            unreadable,
        });
    }
    Ok(plan)
}

impl Plan<'_> {
    /// What of a source must be read.
    fn left(
        &mut self,
        source: &dyn ChunkSource,
        filters: Filters<'_>,
        shortcut: Shortcut,
    ) -> Result<Vec<Task>, ReadError> {
        Ok(match source.evidence()? {
            None => source.tasks(None),
            Some(Evidence::Times(index)) => {
                source.tasks(Some(&self.prune_by_times(&index, filters.prune)))
            }
            Some(evidence) => {
                let (left, slowest) =
                    self.prune(evidence, filters, shortcut, source.reads_records())?;
                let mut tasks = source.tasks(Some(&left));
                tasks.extend(slowest);
                tasks.sort_by_key(|task| task.chunks.first().copied());
                tasks
            }
        })
    }

    /// Adds the statistics of the matching events of a chunk, unless a group of them is in several
    /// intervals of time.
    fn take(&mut self, matched: ChunkStatistics, every: Option<i64>, source: usize) -> bool {
        let groups = matched.groups.iter();
        let intervals: Option<Vec<_>> =
            groups.map(|group| interval(&group.totals, every)).collect();
        let Some(intervals) = intervals else {
            return false;
        };
        let mut parts: BTreeMap<Option<i64>, ChunkStatistics> = BTreeMap::new();
        for (group, interval) in matched.groups.into_iter().zip(intervals) {
            parts.entry(interval).or_default().groups.push(group);
        }
        for (interval, part) in parts {
            let place = (interval, source);
            self.statistics.entry(place).or_default().merge(&part);
        }
        true
    }

    /// The chunks whose packets may have events in the requested time range. Only their times are
    /// known, so no summary can answer for them.
    fn prune_by_times(&mut self, index: &Index, filter: Option<&Filter>) -> Vec<usize> {
        let all = Filter::And(Vec::new());
        let pruning = Pruner::new(filter.unwrap_or(&all)).run(index);
        self.report.timed += pruning.total;
        self.report.ruled_out_by_time += pruning.total - pruning.candidates.len();
        pruning.candidates
    }

    /// The chunks that must be read. With `with_records`, also tasks for chunks of which the index
    /// contains all records that can match.
    fn prune(
        &mut self,
        mut evidence: Evidence,
        filters: Filters<'_>,
        shortcut: Shortcut,
        with_records: bool,
    ) -> Result<(Vec<usize>, Vec<Task>), ReadError> {
        // A filter that passes everything needs no evidence.
        let all = Filter::And(Vec::new());
        let pruner = Pruner::new(filters.prune.unwrap_or(&all));
        let loaded = load(&mut evidence, &pruner, shortcut, with_records);
        self.report.indexed += 1;
        let pruning = match loaded {
            Ok(pruning) => pruning,
            // The footer is intact, so all chunks are read as if nothing ruled them out.
            Err(error) if error.is_of_index() => {
                self.report.damaged.push(error.line());
                self.report.index_bytes += evidence.fetched_bytes();
                let chunks = evidence.index().chunks().len();
                self.report.chunks += chunks;
                self.report.read += chunks;
                return Ok(((0..chunks).collect(), Vec::new()));
            }
            Err(error) => return Err(error),
        };
        self.report.chunks += pruning.total;
        for (sum, ruled_out) in self.report.ruled_out.iter_mut().zip(pruning.ruled_out) {
            *sum += ruled_out;
        }
        let (mut left, mut slowest) = (Vec::new(), Vec::new());
        for chunk in pruning.candidates {
            let index = evidence.index();
            let answered = match shortcut {
                Shortcut::None => false,
                Shortcut::Count => match pruner.count(index, chunk) {
                    Some(count) => {
                        self.counted += count;
                        true
                    }
                    None => false,
                },
                Shortcut::Groups {
                    every, by_origin, ..
                } => {
                    let source = if by_origin { filters.source } else { 0 };
                    let matched = pruner.matched(index, chunk);
                    let exact = matched.filter(|matched| matched.other.events == 0);
                    exact.is_some_and(|matched| self.take(matched, every, source))
                        || match &mut self.estimates {
                            Some(estimates) => {
                                estimates.add(source, filters.whole, index, chunk)?
                            }
                            None => false,
                        }
                }
            };
            if answered {
                self.report.summarized += 1;
            } else if let Some(records) = pruner.slowest(index, chunk).filter(|_| with_records) {
                slowest.push(slowest_task(index, chunk, records));
            } else {
                left.push(chunk);
            }
        }
        self.report.slowest += slowest.len();
        self.report.read += left.len();
        self.report.index_bytes += evidence.fetched_bytes();
        Ok((left, slowest))
    }
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

/// Rules out chunks, and loads the summaries that may answer for the others.
fn load(
    evidence: &mut Evidence,
    pruner: &Pruner,
    shortcut: Shortcut,
    records: bool,
) -> Result<Pruning, ReadError> {
    if matches!(shortcut, Shortcut::Groups { .. }) {
        evidence.load_kinds(&[BlockKind::Statistics])?;
        evidence.load_kinds(&[BlockKind::Sketches])?;
    }
    let pruning = evidence.prune(pruner)?;
    if records {
        evidence.load_slowest(pruner, &pruning)?;
    }
    Ok(pruning)
}

/// A task that reads records stored in the index.
fn slowest_task(index: &Index, chunk: usize, slowest: &[SlowRecord]) -> Task {
    let mut records = Vec::new();
    for record in slowest {
        records.extend_from_slice(&record.bytes);
        if !record.bytes.ends_with(b"\n") {
            records.push(b'\n');
        }
    }
    Task {
        chunks: vec![chunk],
        first_ts: first_ts(&index.chunks()[chunk]),
        bytes: records.len() as u64,
        records: Some(records),
    }
}
