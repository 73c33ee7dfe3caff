//! Matching events as rows, in order of time or of fields.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use query_language::{FieldPath, FieldTable};
use row_formats::{Columns, Known, Out, RowFormat, SinkOptions};
use trace_kinds::Event;

use crate::engine::{Reading, TaskRef, Worker, read, tasks};
use crate::first_rows::{FirstRows, FirstRowsOfThread};
use crate::hints::{Requested, add_hints};
use crate::order::Merge;
use crate::plan::{Planned, Shortcut, plan};
use crate::run::{RUN_BYTES, RowKey, Run};
use crate::sorted_rows::write_sorted;
use crate::source::ChunkSource;
use crate::window::{PlanRef, RowMaker, Window};
use crate::{Limits, ReadError, Report, Request};

/// Messages in the queue from the reading threads to the writing one. Runs of rows in it do not
/// count towards the memory budget of the merge.
const MESSAGES_MAX: usize = 16;

/// Writes the matching events as rows to `out` in the requested order: by their start unless it has
/// keys. Rows with equal starts or keys are in the order of the sources and their bytes.
///
/// Rows in order of time are written while later ones are still being read, as soon as the index
/// shows that no earlier one can follow. Reading ends when a limited result is complete.
///
/// # Errors
///
/// When the query is invalid for the sources, when something cannot be read, or the first error of
/// `out`.
pub fn write_rows(
    sources: &[Box<dyn ChunkSource>],
    request: &Request,
    columns: &Columns,
    format: &mut dyn RowFormat,
    limits: Limits,
    out: &mut Out<'_>,
) -> Result<Report, ReadError> {
    let filter = request.filter(sources)?;
    let mut table = FieldTable::new();
    format.prepare(columns, &mut table);
    let fields = [columns.fields(), request.order.fields()].concat();
    let requested = Requested::new(&fields, &mut table);
    if !matches!(columns, Columns::Fields(_)) {
        // Every field is asked for.
        table.insert(&FieldPath::new("dur"));
    }
    for key in request.order.fields() {
        table.insert(&key);
    }
    let query = (filter.as_ref(), &table);
    let planned = plan(sources, query, Shortcut::None, request)?;
    let format: &dyn RowFormat = format;
    let mut sink = format.sink(SinkOptions {
        row_group_bytes: limits.row_group_bytes,
        is_by_time: request.order.keys.is_empty(),
    });
    sink.begin(out).map_err(ReadError::Output)?;
    let tasks = tasks(&planned.sources);
    let mut report = planned.report;
    let mut window = Window::new(&request.order, &mut *sink, out);
    let plan = (planned.sources.as_slice(), tasks.as_slice());
    let written = if request.order.keys.is_empty() {
        write_by_time(
            plan,
            &table,
            (limits, request),
            (format, &requested),
            &mut window,
        )
    } else {
        write_sorted(
            plan,
            table,
            (limits, request),
            (format, &requested),
            &mut window,
        )
    };
    report.rows = window.written;
    let (spills, reading) = written?;
    report.spills = spills;
    report.ended_early = reading.ended_early;
    reading.report(planned.sources, &mut report);
    report.skipped.extend(request.missing.iter().cloned());
    let skipped: Vec<String> = report.skipped_reasons().map(str::to_owned).collect();
    let known = Known {
        skipped: &skipped,
        notes: &report.notes,
    };
    let notes = sink.end(known, out).map_err(ReadError::Output)?;
    report.notes.extend(notes);
    add_hints(sources, request, &requested, &mut report);
    Ok(report)
}

/// Writes rows in order of time. Returns how often rows were spilled.
fn write_by_time(
    (sources, tasks): PlanRef<'_, '_>,
    table: &FieldTable,
    work: (Limits, &Request),
    format: RowMaker<'_>,
    window: &mut Window<'_, '_>,
) -> Result<(u64, Reading<()>), ReadError> {
    let (sender, receiver) = sync_channel(MESSAGES_MAX);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || read_rows(sources, tasks, table, work, format, sender));
        let written = Writer::new(tasks, work.0).run(receiver, &mut |row| window.row(row));
        // A panic of a reader is a bug and is propagated.
        let read = reading
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (written, read) {
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(spills), Ok(reading)) => Ok((spills, reading)),
        }
    })
}

/// From the reading threads to the writing one.
enum Message {
    Rows(Run<RowKey>),
    /// The task with this number has no more rows.
    Ended(u32),
}

fn read_rows(
    sources: &[Planned<'_>],
    tasks: &[TaskRef<'_>],
    table: &FieldTable,
    work: (Limits, &Request),
    (format, requested): RowMaker<'_>,
    sender: SyncSender<Message>,
) -> Result<Reading<()>, ReadError> {
    let first = work.1.order.first_rows_max().map(FirstRows::new);
    let make = || RowWorker {
        format,
        requested,
        sender: sender.clone(),
        run: Run::default(),
        rows_max: work.1.order.rows_max().unwrap_or(usize::MAX),
        first: first.as_ref().map(FirstRows::of_thread),
        task: 0,
        row: 0,
    };
    // The workers own senders, and the writer ends when there are none.
    Ok(read(sources, tasks, table, work, make)?.without_workers())
}

struct RowWorker<'f> {
    format: &'f dyn RowFormat,
    requested: &'f Requested,
    sender: SyncSender<Message>,
    run: Run<RowKey>,
    /// The first rows of each run that can be in the result.
    rows_max: usize,
    /// If the result is short.
    first: Option<FirstRowsOfThread<'f>>,
    task: u32,
    row: u32,
}

impl RowWorker<'_> {
    fn send(&mut self, message: Message) -> ControlFlow<()> {
        // The writer has stopped, and reports why.
        match self.sender.send(message) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    fn flush(&mut self) -> ControlFlow<()> {
        let mut run = std::mem::take(&mut self.run);
        if run.is_empty() {
            return ControlFlow::Continue(());
        }
        run.sort(self.rows_max);
        self.send(Message::Rows(run))
    }
}

impl Worker for RowWorker<'_> {
    fn begin(&mut self, task: TaskRef<'_>) {
        (self.task, self.row) = (task.number, 0);
    }

    fn event(&mut self, event: &dyn Event) -> ControlFlow<()> {
        let key = RowKey {
            ts: event.ts().unwrap_or(i64::MIN),
            task: self.task,
            row: self.row,
        };
        self.row = self.row.saturating_add(1);
        self.requested.note(event);
        if let Some(first) = &mut self.first
            && !first.admit(key)
        {
            return ControlFlow::Continue(());
        }
        let format = self.format;
        self.run.push(key, |bytes| format.row(event, bytes));
        if self.run.size() < RUN_BYTES {
            return ControlFlow::Continue(());
        }
        self.flush()
    }

    fn end(&mut self, task: TaskRef<'_>) -> ControlFlow<()> {
        if let Some(first) = &mut self.first {
            first.end_task();
        }
        self.flush()?;
        self.send(Message::Ended(task.number))
    }
}

/// Writes a row, and breaks once no further one is wanted.
type WriteRow<'w> = dyn FnMut(&[u8]) -> Result<ControlFlow<()>, ReadError> + 'w;

struct Writer {
    merge: Merge<RowKey>,
    /// Tasks that may still produce rows, by the earliest start of these rows.
    open: BTreeSet<(i64, u32)>,
    first: Vec<i64>,
}

impl Writer {
    fn new(tasks: &[TaskRef<'_>], limits: Limits) -> Writer {
        let mut first = vec![i64::MIN; tasks.len()];
        for task in tasks {
            first[task.number as usize] = task.task.first_ts.unwrap_or(i64::MIN);
        }
        let open = tasks
            .iter()
            .map(|task| (first[task.number as usize], task.number))
            .collect();
        Writer {
            merge: Merge::new(limits.waiting_bytes_max).drained(),
            open,
            first,
        }
    }

    fn run(
        mut self,
        receiver: Receiver<Message>,
        write_row: &mut WriteRow<'_>,
    ) -> Result<u64, ReadError> {
        for message in receiver {
            match message {
                Message::Rows(run) => self.merge.push(run)?,
                Message::Ended(number) => {
                    self.open.remove(&(self.first[number as usize], number));
                    if let Some((watermark, _)) = self.open.first() {
                        let is_due = |key: &RowKey| key.ts < *watermark;
                        // Without a receiver, the reading threads stop.
                        if self.merge.drain(is_due, &mut *write_row)?.is_break() {
                            return Ok(self.merge.spills());
                        }
                    }
                }
            }
        }
        let _all = self.merge.drain(|_| true, write_row)?;
        Ok(self.merge.spills())
    }
}
