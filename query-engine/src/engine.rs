//! Plan, prune, read, filter: shared by rows, counts and groups.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use chunk_index::{
    BlockKind, ChunkStatistics, ColumnFilter, Index, Pruner, Pruning, SlowRecord, Totals,
};
use query_language::{FieldTable, Filter, Program};
use trace_kinds::Event;

use crate::groups::interval_of;
use crate::skipped::{REASONS_MAX, Unreadable};
use crate::source::{ChunkSource, Counters, Scratch, Task, first_ts, passes_none};
use crate::{Evidence, Limits, ReadError, Report, Request};

/// What chunk summaries may answer instead of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortcut {
    /// Nothing: every matching event is needed.
    None,
    /// How many events match.
    Count,
    /// Totals of the groups of events with one category and name, in intervals of time if these
    /// have a length in nanoseconds.
    Groups { every: Option<i64> },
}

/// A source and what remains to be read of it.
pub(crate) struct Planned<'s> {
    pub(crate) source: &'s dyn ChunkSource,
    /// Filter for its events.
    filter: Option<Filter>,
    /// Filter for its columns, if it has some.
    columns: Option<ColumnFilter>,
    tasks: Vec<Task>,
    /// What its index says of its unreadable parts.
    unreadable: Unreadable,
}

/// What remains to be read, and what is known already.
pub(crate) struct Plan<'s> {
    pub(crate) sources: Vec<Planned<'s>>,
    /// What summaries answered: the number of matching events, and their statistics in each interval
    /// of time.
    pub(crate) counted: u64,
    pub(crate) statistics: BTreeMap<Option<i64>, ChunkStatistics>,
    pub(crate) report: Report,
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
        report: Report {
            sources: sources.len(),
            ..Report::default()
        },
    };
    for source in sources {
        request.cancel.check()?;
        let local = filter.map(|filter| source.localize(filter));
        if local
            .as_ref()
            .is_some_and(|local| passes_none(&local.evaluate))
        {
            plan.report.excluded += 1;
            continue;
        }
        let unreadable = Unreadable::of_index(&**source);
        if request.strict {
            unreadable.refuse(&**source)?;
        }
        let tasks = match source.evidence()? {
            None => source.tasks(None),
            Some(Evidence::Times(index)) => {
                let prune = local.as_ref().map(|local| &local.prune);
                source.tasks(Some(&plan.prune_by_times(&index, prune)))
            }
            Some(evidence) => {
                let prune = local.as_ref().map(|local| &local.prune);
                let (left, slowest) =
                    plan.prune(evidence, prune, shortcut, source.reads_records())?;
                let mut tasks = source.tasks(Some(&left));
                tasks.extend(slowest);
                tasks.sort_by_key(|task| task.chunks.first().copied());
                tasks
            }
        };
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
    /// Adds the statistics of the matching events of a chunk, unless a group of them is in several
    /// intervals of time.
    fn take(&mut self, matched: ChunkStatistics, every: Option<i64>) -> bool {
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
            self.statistics.entry(interval).or_default().merge(&part);
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
        filter: Option<&Filter>,
        shortcut: Shortcut,
        with_records: bool,
    ) -> Result<(Vec<usize>, Vec<Task>), ReadError> {
        // A filter that passes everything needs no evidence.
        let all = Filter::And(Vec::new());
        let pruner = Pruner::new(filter.unwrap_or(&all));
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
                Shortcut::Groups { every } => match pruner.matched(index, chunk) {
                    Some(matched) if matched.other.events == 0 => self.take(matched, every),
                    _ => false,
                },
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

/// A task of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskRef<'p> {
    pub(crate) task: &'p Task,
    /// Number of the task in the order of sources and their bytes.
    pub(crate) number: u32,
    source: usize,
}

/// What one thread does with matching events.
pub(crate) trait Worker {
    /// Whether it only counts events.
    const COUNTS_ONLY: bool = false;

    /// A task begins.
    fn begin(&mut self, task: TaskRef<'_>);

    /// A matching event. `Break` ends all reading.
    fn event(&mut self, event: &dyn Event) -> ControlFlow<()>;

    /// The task ended. `Break` ends all reading.
    fn end(&mut self, task: TaskRef<'_>) -> ControlFlow<()>;
}

/// The tasks of a plan, those with early events first.
pub(crate) fn tasks<'p>(plan: &'p [Planned<'_>]) -> Vec<TaskRef<'p>> {
    let sources = plan.iter().enumerate();
    let of_source = sources.flat_map(|(at, planned)| planned.tasks.iter().map(move |t| (at, t)));
    let mut tasks: Vec<TaskRef<'_>> = (0_u32..)
        .zip(of_source)
        .map(|(number, (source, task))| TaskRef {
            task,
            number,
            source,
        })
        .collect();
    tasks.sort_by_key(|task| (task.task.first_ts, task.number));
    tasks
}

/// The result of reading tasks.
pub(crate) struct Reading<W> {
    pub(crate) counters: Counters,
    /// Number of matching events.
    pub(crate) matched: u64,
    pub(crate) workers: Vec<W>,
    /// Whether a worker ended the reading.
    pub(crate) ended_early: bool,
    /// What could not be read, by the index of its source in the plan.
    unreadable: Vec<(usize, u64, Vec<String>)>,
}

/// Reads tasks, with one worker per thread.
pub(crate) fn read<W: Worker + Send>(
    plan: &[Planned<'_>],
    tasks: &[TaskRef<'_>],
    table: &FieldTable,
    (limits, request): (Limits, &Request),
    make_worker: impl Fn() -> W + Sync,
) -> Result<Reading<W>, ReadError> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let outcome = Mutex::new((Reading::default(), None));
    let run = || {
        let mut reader = Reader {
            plan,
            table,
            stop: &stop,
            request,
            matched: 0,
            scratch: Scratch::default(),
            unreadable: Vec::new(),
        };
        let mut worker = make_worker();
        let mut counters = Counters::default();
        let mut failure = None;
        while !stop.load(Ordering::Relaxed)
            && let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed))
        {
            match reader.read(*task, &mut worker) {
                Ok(cost) => counters += cost,
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    failure = Some(error);
                }
            }
        }
        let mut outcome = outcome
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let (reading, first) = &mut *outcome;
        reading.counters += counters;
        reading.matched += reader.matched;
        reading.workers.push(worker);
        reading.unreadable.append(&mut reader.unreadable);
        *first = first.take().or(failure);
    };
    let threads = limits.threads.clamp(1, tasks.len().max(1));
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    let outcome = outcome
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    match outcome {
        (reading, None) => Ok(Reading {
            ended_early: stop.load(Ordering::Relaxed),
            ..reading
        }),
        (_, Some(error)) => Err(error),
    }
}

impl<W> Default for Reading<W> {
    fn default() -> Self {
        Reading {
            counters: Counters::default(),
            matched: 0,
            workers: Vec::new(),
            ended_early: false,
            unreadable: Vec::new(),
        }
    }
}

impl<W> Reading<W> {
    /// Drops the workers.
    pub(crate) fn without_workers(self) -> Reading<()> {
        Reading {
            counters: self.counters,
            matched: self.matched,
            workers: Vec::new(),
            ended_early: self.ended_early,
            unreadable: self.unreadable,
        }
    }

    /// Completes the report of a plan whose tasks were read. Returns the workers.
    pub(crate) fn report(mut self, sources: Vec<Planned<'_>>, report: &mut Report) -> Vec<W> {
        report.matched += self.matched;
        report.add(self.counters);
        self.unreadable.sort_by_key(|(source, ..)| *source);
        let mut found = self.unreadable.into_iter().peekable();
        for (index, planned) in sources.into_iter().enumerate() {
            let mut unreadable = planned.unreadable;
            while let Some((_, records, reasons)) = found.next_if(|(source, ..)| *source == index) {
                unreadable.add(records, reasons);
            }
            report.skipped.extend(unreadable.skipped(planned.source));
        }
        report.notes.extend(report.counters.unpaired_note());
        self.workers
    }
}

/// State of one reading thread.
struct Reader<'p, 's> {
    plan: &'p [Planned<'s>],
    table: &'p FieldTable,
    stop: &'p AtomicBool,
    request: &'p Request,
    matched: u64,
    scratch: Scratch,
    unreadable: Vec<(usize, u64, Vec<String>)>,
}

impl Reader<'_, '_> {
    /// Evaluates the filter on columns: the task without the chunks that need not be read, `None`
    /// without columns. If the query only counts, known matches are counted here.
    fn narrow<W: Worker>(
        &mut self,
        planned: &Planned<'_>,
        task: &Task,
    ) -> (Counters, Option<Task>) {
        let filter = planned.columns.as_ref().filter(|_| task.records.is_none());
        let Some(narrowed) = filter.and_then(|filter| planned.source.narrow(task, filter)) else {
            return (Counters::default(), None);
        };
        let (mut counters, mut chunks) = (narrowed.counters, narrowed.unknown);
        for (chunk, matches) in narrowed.known {
            if W::COUNTS_ONLY {
                self.matched += matches;
                counters.answered_by_columns += 1;
            } else {
                chunks.push(chunk);
            }
        }
        chunks.sort_unstable();
        let left = Task {
            chunks,
            ..task.clone()
        };
        (counters, Some(left))
    }

    fn read<W: Worker>(
        &mut self,
        task: TaskRef<'_>,
        worker: &mut W,
    ) -> Result<Counters, ReadError> {
        self.request.cancel.check()?;
        let planned = &self.plan[task.source];
        let (counters, narrowed) = self.narrow::<W>(planned, task.task);
        let read = narrowed.as_ref().unwrap_or(task.task);
        if narrowed.as_ref().is_some_and(|task| task.chunks.is_empty()) {
            worker.begin(task);
            if worker.end(task).is_break() {
                self.stop.store(true, Ordering::Relaxed);
            }
            return Ok(counters);
        }
        let mut table = self.table.clone();
        let program = planned
            .filter
            .as_ref()
            .map(|filter| Program::compile(filter, &mut table));
        worker.begin(task);
        let (matched, stop, cancel) = (&mut self.matched, self.stop, &self.request.cancel);
        let mut each = |event: &dyn Event| {
            if cancel.is_cancelled() {
                return ControlFlow::Break(());
            }
            let passes = match &program {
                Some(program) => program.matches(event),
                None => true,
            };
            if !passes {
                return ControlFlow::Continue(());
            }
            *matched += 1;
            if stop.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            worker.event(event)
        };
        let mut counters = counters;
        let (source, scratch) = (planned.source, &mut self.scratch);
        counters += match &planned.filter {
            Some(filter) => source.read_passing(read, &table, filter, scratch, &mut each)?,
            None => source.read(read, &table, scratch, &mut each)?,
        };
        self.request.cancel.check()?;
        self.set_aside_unreadable(task.source, &mut counters)?;
        if worker.end(task).is_break() {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(counters)
    }

    /// Moves what a task could not read from its counters to its source.
    fn set_aside_unreadable(
        &mut self,
        source: usize,
        counters: &mut Counters,
    ) -> Result<(), ReadError> {
        let records = counters.decoded.broken;
        let reasons = std::mem::take(&mut counters.faults);
        if records == 0 && reasons.is_empty() {
            return Ok(());
        }
        if self.request.strict {
            let mut found = Unreadable::default();
            found.add(records, reasons);
            return found.refuse(self.plan[source].source);
        }
        match self.unreadable.last_mut() {
            Some((last, sum, known)) if *last == source => {
                *sum = sum.saturating_add(records);
                known.extend(reasons);
                known.truncate(REASONS_MAX);
            }
            _ => self.unreadable.push((source, records, reasons)),
        }
        Ok(())
    }
}
