//! Rows in an order by fields: each thread sorts what it reads, and the runs are merged at the end.
//!
//! With a limit, a thread drops the rows that cannot be in the result, so that its memory does not
//! grow with the number of matching events. Without one, runs are spilled to temporary files.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use query_language::{FieldId, FieldTable};
use row_formats::RowFormat;
use trace_kinds::Event;

use crate::engine::{Reading, TaskRef, Worker, read};
use crate::hints::Requested;
use crate::order::Merge;
use crate::run::{RUN_BYTES, RowKey, Run};
use crate::sort_key::{KeyWriter, SortKey};
use crate::window::{PlanRef, RowMaker, Window};
use crate::{Limits, ReadError, Request};

/// Size at which a run with a limit is reduced to the rows that can be in the result.
const LIMITED_RUN_BYTES: usize = 4 << 20;

/// Writes rows in the order of the keys of the request. Returns how often rows were spilled.
pub(crate) fn write_sorted(
    (sources, tasks): PlanRef<'_, '_>,
    mut table: FieldTable,
    (limits, request): (Limits, &Request),
    (format, requested): RowMaker<'_>,
    window: &mut Window<'_, '_>,
) -> Result<(u64, Reading<()>), ReadError> {
    let keys = request.order.keys.iter();
    let keys: Vec<(FieldId, bool)> = keys
        .map(|key| (table.insert(&key.field()), key.descending))
        .collect();
    let merge = Mutex::new((Merge::new(limits.waiting_bytes_max), None));
    let make = || SortWorker {
        format,
        requested,
        keys: &keys,
        merge: &merge,
        rows_max: request.order.rows_max().unwrap_or(usize::MAX),
        run_bytes: match request.order.limit {
            Some(_) => LIMITED_RUN_BYTES,
            None => RUN_BYTES,
        },
        run: Run::default(),
        cutoff: None,
        writer: KeyWriter::default(),
        task: 0,
        row: 0,
    };
    let mut reading = read(sources, tasks, &table, (limits, request), make)?;
    for worker in &mut reading.workers {
        // A worker that failed has put its error where it is looked for below.
        let _flow = worker.flush();
    }
    let reading = reading.without_workers();
    let (mut merge, failed) = merge.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = failed {
        return Err(error);
    }
    let _flow = merge.drain(|_| true, |row| window.row(row))?;
    Ok((merge.spills(), reading))
}

/// Collects the rows of one thread.
struct SortWorker<'w> {
    format: &'w dyn RowFormat,
    requested: &'w Requested,
    keys: &'w [(FieldId, bool)],
    /// The runs of all threads, and the first error in merging them.
    merge: &'w Mutex<(Merge<SortKey>, Option<ReadError>)>,
    /// The first rows of each run that can be in the result.
    rows_max: usize,
    /// Size at which the run is reduced or delivered.
    run_bytes: usize,
    run: Run<SortKey>,
    /// A row with a greater key is not in the result.
    cutoff: Option<SortKey>,
    writer: KeyWriter,
    task: u32,
    row: u32,
}

impl SortWorker<'_> {
    /// Sorts the run. It remains here if the limit made it short, and is delivered otherwise.
    fn reduce(&mut self) -> ControlFlow<()> {
        self.run.sort(self.rows_max);
        if self.run.len() == self.rows_max {
            self.cutoff = self.run.last().cloned();
        }
        if self.run.size() < self.run_bytes / 2 {
            return ControlFlow::Continue(());
        }
        self.flush()
    }

    fn flush(&mut self) -> ControlFlow<()> {
        let mut run = std::mem::take(&mut self.run);
        if run.is_empty() {
            return ControlFlow::Continue(());
        }
        run.sort(self.rows_max);
        let mut merge = self.merge.lock().unwrap_or_else(PoisonError::into_inner);
        let (merge, failed) = &mut *merge;
        match merge.push(run) {
            Ok(()) if failed.is_none() => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(()),
            Err(error) => {
                failed.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl Worker for SortWorker<'_> {
    fn begin(&mut self, task: TaskRef<'_>) {
        (self.task, self.row) = (task.number, 0);
    }

    fn event(&mut self, event: &dyn Event) -> ControlFlow<()> {
        let tie = RowKey {
            ts: event.ts().unwrap_or(i64::MIN),
            task: self.task,
            row: self.row,
        };
        self.row = self.row.saturating_add(1);
        self.writer.clear();
        for (field, descending) in self.keys {
            self.writer.field(event.field(*field), *descending);
        }
        self.writer.tie(tie);
        let cutoff = self.cutoff.as_ref();
        if cutoff.is_some_and(|cutoff| self.writer.exceeds(cutoff)) {
            return ControlFlow::Continue(());
        }
        self.requested.note(event);
        let format = self.format;
        self.run
            .push(self.writer.key(), |bytes| format.row(event, bytes));
        if self.run.size() < self.run_bytes {
            return ControlFlow::Continue(());
        }
        self.reduce()
    }

    fn end(&mut self, _: TaskRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
