//! Read and filter: shared by rows, counts and groups.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use query_language::{FieldTable, Program};
use trace_kinds::Event;

use crate::computed_fields::ComputedFields;
use crate::plan::Planned;
use crate::skipped::{REASONS_MAX, Unreadable};
use crate::source::{Counters, Scratch, Task};
use crate::{Limits, ReadError, Report, Request};

/// After how many events of a task those who wait are told.
const EVENTS_SHOWN: u64 = 1 << 12;

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
                Ok(cost) => {
                    counters += cost;
                    request.progress.add_bytes(task.task.bytes);
                }
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
    let bytes = tasks.iter().map(|task| task.task.bytes);
    request.progress.expect_bytes(bytes.sum());
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
            if planned.source.is_changed() {
                let place = planned.source.place();
                unreadable.add(
                    1,
                    vec![format!("{place}: it was written to while it was read")],
                );
            }
            report.skipped.extend(unreadable.skipped(planned.source));
            for note in planned.source.notes() {
                if !report.notes.contains(&note) {
                    report.notes.push(note);
                }
            }
        }
        report.add_slice_faults();
        report.notes.extend(report.counters.pairing.notes());
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
        let computed = ComputedFields::new(&mut table);
        worker.begin(task);
        let (matched, stop, cancel) = (&mut self.matched, self.stop, &self.request.cancel);
        let (progress, mut events) = (&self.request.progress, 0_u64);
        let mut each = |event: &dyn Event| {
            if cancel.is_cancelled() {
                return ControlFlow::Break(());
            }
            events += 1;
            if events.is_multiple_of(EVENTS_SHOWN) {
                progress.add_events(EVENTS_SHOWN);
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
            computed.pass(event, |event| worker.event(event))
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
        if self.request.strict
            && let Some(reason) = counters.slice_faults.first()
        {
            let reason = reason.clone();
            return Err(ReadError::Incomplete { reason });
        }
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
