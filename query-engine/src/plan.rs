//! Plan: rules out chunks, and answers from summaries.

use chunk_index::{BlockKind, ColumnFilter, Index, Pruner, Pruning, SlowRecord};
use query_language::{FieldPath, FieldTable, Filter, Program};

use crate::groups::Summaries;
use crate::skipped::Unreadable;
use crate::source::{ChunkSource, Task, first_ts};
use crate::{Evidence, ReadError, Report, Request};

/// What chunk summaries may answer instead of events, and what they answered.
pub(crate) enum Shortcut<'s> {
    /// Nothing: every matching event is needed.
    None,
    /// How many events match.
    Count(u64),
    /// Totals of groups.
    Groups(Box<Summaries<'s>>),
}

impl<'s> Shortcut<'s> {
    /// The number of events.
    pub(crate) fn counted(&self) -> u64 {
        match self {
            Shortcut::Count(counted) => *counted,
            Shortcut::None | Shortcut::Groups(_) => 0,
        }
    }

    /// The totals of groups.
    pub(crate) fn into_summaries(self) -> Option<Box<Summaries<'s>>> {
        match self {
            Shortcut::Groups(summaries) => Some(summaries),
            Shortcut::None | Shortcut::Count(_) => None,
        }
    }
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
    pub(crate) shortcut: Shortcut<'s>,
    pub(crate) report: Report,
    /// Whether somebody asks for durations.
    needs_durations: bool,
}

/// The filters of a source for its chunks.
#[derive(Clone, Copy)]
struct Filters<'f> {
    /// The number of the source.
    source: usize,
    /// The filter.
    prune: Option<&'f Filter>,
    /// The filter without the window of the request, for estimates.
    at_any_time: Option<&'f Filter>,
    request: &'f Request,
}

/// Whether the filter or the result, whose fields are in the table, needs durations.
pub(crate) fn needs_durations(filter: Option<&Filter>, table: &FieldTable) -> bool {
    let mut table = table.clone();
    let _program = filter.map(|filter| Program::compile(filter, &mut table));
    table.paths().iter().any(FieldPath::is_duration)
}

/// Rules out chunks that cannot match, and answers from summaries where possible. The table has the
/// fields of the result.
pub(crate) fn plan<'s>(
    sources: &'s [Box<dyn ChunkSource>],
    (filter, table): (Option<&Filter>, &FieldTable),
    shortcut: Shortcut<'s>,
    request: &Request,
) -> Result<Plan<'s>, ReadError> {
    let at_any_time = match &shortcut {
        Shortcut::Groups(summaries) if summaries.is_estimating() => {
            request.without_window().filter(sources)?
        }
        _ => None,
    };
    let mut plan = Plan {
        sources: Vec::new(),
        shortcut,
        report: Report {
            sources: sources.len(),
            ..Report::default()
        },
        needs_durations: needs_durations(filter, table),
    };
    for (number, source) in sources.iter().enumerate() {
        request.cancel.check()?;
        let local = filter.map(|filter| source.localize(filter));
        if (local.as_ref()).is_some_and(|local| local.evaluate.passes_none()) {
            plan.report.excluded += 1;
            continue;
        }
        let unreadable = Unreadable::of_index(&**source);
        if request.strict {
            unreadable.refuse(&**source)?;
        }
        let at_any_time = at_any_time
            .as_ref()
            .map(|filter| source.localize(filter).prune);
        let filters = Filters {
            source: number,
            prune: local.as_ref().map(|local| &local.prune),
            at_any_time: at_any_time.as_ref(),
            request,
        };
        let tasks = plan.left(&**source, filters)?;
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
    ) -> Result<Vec<Task>, ReadError> {
        Ok(match source.evidence()? {
            None => source.tasks(None),
            Some(Evidence::Times(index)) => {
                source.tasks(Some(&self.prune_by_times(&index, filters.prune)))
            }
            Some(evidence) => {
                let pruned = self.prune(evidence, filters, source.reads_records())?;
                if self.needs_durations {
                    self.report.counters.pairing += source.pairing();
                }
                let mut tasks = match &self.shortcut {
                    Shortcut::None => filters.request.order.tasks(source, &pruned.left),
                    Shortcut::Count(_) | Shortcut::Groups(_) => source.tasks(Some(&pruned.left)),
                };
                tasks.extend(pruned.slowest);
                tasks.sort_by_key(|task| task.chunks.first().copied());
                tasks
            }
        })
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

    /// What is left to read. With `with_records`, records in the index are used, too.
    fn prune(
        &mut self,
        mut evidence: Evidence,
        filters: Filters<'_>,
        with_records: bool,
    ) -> Result<Pruned, ReadError> {
        // A filter that passes everything needs no evidence.
        let all = Filter::And(Vec::new());
        let pruner = Pruner::new(filters.prune.unwrap_or(&all));
        let is_estimating = matches!(
            &self.shortcut,
            Shortcut::Groups(summaries) if summaries.is_estimating()
        );
        let at_any_time = is_estimating.then(|| Pruner::new(filters.at_any_time.unwrap_or(&all)));
        let loaded = load(&mut evidence, &pruner, &self.shortcut, with_records);
        self.report.indexed += 1;
        let pruning = match loaded {
            Ok(pruning) => pruning,
            // The footer is intact, so all chunks are read as if nothing ruled them out.
            Err(error) if error.is_of_index() => {
                self.report.damaged.push(error.line());
                self.report.index_bytes += evidence.fetched_bytes();
                let left = evidence.chunks();
                self.report.chunks += left.len();
                self.report.read += left.len();
                return Ok(Pruned {
                    left,
                    ..Pruned::default()
                });
            }
            Err(error) => return Err(error),
        };
        self.report.chunks += pruning.total;
        for (sum, ruled_out) in self.report.ruled_out.iter_mut().zip(pruning.ruled_out) {
            *sum += ruled_out;
        }
        let mut pruned = Pruned::default();
        for chunk in pruning.candidates {
            filters.request.cancel.check()?;
            let index = evidence.index();
            let pruners = (&pruner, at_any_time.as_ref());
            let answered = self.answer(filters.source, pruners, index, chunk)?;
            if answered {
                pruned.summarized.push(chunk);
            } else if let Some(records) = pruner.slowest(index, chunk).filter(|_| with_records) {
                pruned.slowest.push(slowest_task(index, chunk, records));
            } else {
                pruned.left.push(chunk);
            }
        }
        self.report.summarized += pruned.summarized.len();
        self.report.slowest += pruned.slowest.len();
        self.report.read += pruned.left.len();
        self.report.index_bytes += evidence.fetched_bytes();
        Ok(pruned)
    }

    /// Whether the summary of a chunk answers for it; then the answer is added. Estimates need what
    /// matches at any time.
    fn answer(
        &mut self,
        source: usize,
        (pruner, at_any_time): (&Pruner, Option<&Pruner>),
        index: &Index,
        chunk: usize,
    ) -> Result<bool, ReadError> {
        let summaries = match &mut self.shortcut {
            Shortcut::None => return Ok(false),
            Shortcut::Count(counted) => {
                let count = pruner.count(index, chunk);
                *counted += count.unwrap_or(0);
                return Ok(count.is_some());
            }
            Shortcut::Groups(summaries) => summaries,
        };
        if let Some(matched) = pruner.matched(index, chunk)
            && summaries.take(source, matched)?
        {
            return Ok(true);
        }
        match at_any_time.and_then(|pruner| pruner.matched(index, chunk)) {
            Some(matched) => summaries.estimate(source, matched),
            None => Ok(false),
        }
    }
}

/// Rules out chunks, and loads the summaries that may answer for the others.
fn load(
    evidence: &mut Evidence,
    pruner: &Pruner,
    shortcut: &Shortcut<'_>,
    records: bool,
) -> Result<Pruning, ReadError> {
    if let Shortcut::Groups(summaries) = shortcut {
        evidence.load_kinds(&[BlockKind::Statistics])?;
        if summaries.needs_sketches() {
            evidence.load_kinds(&[BlockKind::Sketches])?;
        }
    }
    let pruning = evidence.prune(pruner)?;
    if records {
        evidence.load_slowest(pruner, &pruning)?;
    }
    Ok(pruning)
}

/// The chunks of an indexed source, by what answers for them.
#[derive(Default)]
struct Pruned {
    /// Those that must be read.
    left: Vec<usize>,
    /// Tasks for those of which the index contains all records that can match.
    slowest: Vec<Task>,
    /// Those that summaries answer for.
    summarized: Vec<usize>,
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
        within: None,
        first_ts: first_ts(&index.chunks()[chunk]),
        bytes: records.len() as u64,
        records: Some(records),
    }
}
