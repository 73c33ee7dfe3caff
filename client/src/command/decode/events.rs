//! Prints DFTracer files, Chrome traces and files of OpenTelemetry spans, in the order of the file.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ctf_folder::TimeWindow;
use query_engine::{ChunkSource, Request, Scratch, open_paths};
use query_language::FieldTable;
use row_formats::{Columns, RowFormat, Text};
use trace_kinds::Event;

use super::format::Format;
use super::object::put_object;
use super::selection::Selection;
use crate::command::{CommandError, Context};

/// Text is written when it reaches this many bytes.
const TEXT_BYTES: usize = 1 << 16;

/// Prints the trace at `path`. Returns false if something in it cannot be read; all other events
/// are printed.
pub(super) fn decode(
    context: &Context,
    path: &Path,
    format: Format,
    selection: &Selection<'_>,
) -> Result<bool, CommandError> {
    let paths: [PathBuf; 1] = [path.to_owned()];
    let sources = open_paths(&paths, false, &Request::default(), &[])?.sources;
    let begin = if selection.needs_begin() {
        first_instant(&sources)?
    } else {
        None
    };
    let window = selection.window(begin)?;
    let units = sources.iter().filter_map(|source| source.unit());
    selection
        .bare_times()
        .check((window.from, window.to), units)?;
    let mut printer = Printer::new(format, window);
    let mut scratch = Scratch::default();
    let (mut broken, mut told) = (0, BTreeSet::new());
    let mut tell = |fault: String| {
        if told.insert(fault.clone()) {
            context.note(fault);
        }
    };
    let mut is_complete = true;
    for source in &sources {
        // Of a copy that lacks the rest of its file, or by an index.
        let known = source.faults();
        is_complete &= known.is_empty();
        known.into_iter().for_each(&mut tell);
        for task in source.tasks(None) {
            let mut failed = None::<io::Error>;
            let read = source.read(&task, &printer.table.clone(), &mut scratch, &mut |event| {
                printer.event(event);
                if printer.text.len() < TEXT_BYTES {
                    return ControlFlow::Continue(());
                }
                failed = printer.write(context).err();
                match failed {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            });
            let counters = read?;
            if let Some(error) = failed {
                return Err(error.into());
            }
            printer.write(context)?;
            broken += counters.decoded.broken;
            is_complete &= counters.faults.is_empty();
            counters.faults.into_iter().for_each(&mut tell);
        }
    }
    if format == Format::Counter {
        let events = printer.events;
        let mut out = context.out();
        writeln!(out, "{events:>15} Event messages")?;
        writeln!(out, "{events:>15} messages (TOTAL)")?;
    }
    if broken > 0 {
        let records = if broken == 1 { "record" } else { "records" };
        context.note(format!(
            "{}: {broken} {records} cannot be read; the others are decoded",
            path.display()
        ));
    }
    Ok(is_complete && broken == 0)
}

/// The first time in the trace.
fn first_instant(sources: &[Box<dyn ChunkSource>]) -> Result<Option<i64>, CommandError> {
    let (table, mut scratch) = (FieldTable::new(), Scratch::default());
    let mut first = None;
    for source in sources {
        for task in source.tasks(None) {
            source.read(&task, &table, &mut scratch, &mut |event| {
                first = event.ts();
                match first {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            })?;
            if first.is_some() {
                return Ok(first);
            }
        }
    }
    Ok(first)
}

/// The text of the events in a window.
struct Printer {
    format: Format,
    window: TimeWindow,
    table: FieldTable,
    lines: Text,
    text: Vec<u8>,
    /// Events in the window.
    events: u64,
}

impl Printer {
    fn new(format: Format, window: TimeWindow) -> Self {
        let mut table = FieldTable::new();
        let mut lines = Text::default();
        lines.prepare(&Columns::All, &mut table);
        Self {
            format,
            window,
            table,
            lines,
            text: Vec::new(),
            events: 0,
        }
    }

    fn event(&mut self, event: &dyn Event) {
        if !self.window.contains(event.ts()) {
            return;
        }
        self.events += 1;
        match self.format {
            Format::Counter | Format::Dummy => {}
            Format::Ndjson => put_object(&mut self.text, event),
            // The formats of CTF only were refused.
            _ => self.lines.row(event, &mut self.text),
        }
    }

    fn write(&mut self, context: &Context) -> io::Result<()> {
        let written = context.out().write_all(&self.text);
        self.text.clear();
        written
    }
}
