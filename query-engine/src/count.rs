//! Counts, from chunk summaries where these are exact.

use std::ops::ControlFlow;

use query_language::FieldTable;
use trace_kinds::Event;

use crate::engine::{TaskRef, Worker, read, tasks};
use crate::hints::{Requested, add_hints};
use crate::plan::{Shortcut, plan};
use crate::source::ChunkSource;
use crate::{Limits, ReadError, Report, Request};

/// The number of matching events.
///
/// # Errors
///
/// When the query is invalid for the sources, or something cannot be read.
pub fn count(
    sources: &[Box<dyn ChunkSource>],
    request: &Request,
    limits: Limits,
) -> Result<(u64, Report), ReadError> {
    let filter = request.filter(sources)?;
    let (table, work) = (FieldTable::new(), (limits, request));
    let query = (filter.as_ref(), &table);
    let plan = plan(sources, query, Shortcut::Count(0), request)?;
    let tasks = tasks(&plan.sources);
    let reading = read(&plan.sources, &tasks, &table, work, || Counting)?;
    let mut report = plan.report;
    report.matched = plan.shortcut.counted();
    report.rows = 1;
    reading.report(plan.sources, &mut report);
    add_hints(sources, request, &Requested::default(), &mut report);
    Ok((report.matched, report))
}

/// Counts only: the reader counts the matching events itself.
struct Counting;

impl Worker for Counting {
    const COUNTS_ONLY: bool = true;

    fn begin(&mut self, _: TaskRef<'_>) {}

    fn event(&mut self, _: &dyn Event) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn end(&mut self, _: TaskRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
