//! Prints DFTracer files and Chrome traces, in the order of the file.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use query_engine::{Request, Scratch, open_paths};
use query_language::FieldTable;
use row_formats::{Columns, RowFormat, Text};

use super::format::Format;
use super::rocksdb::put_object;
use crate::command::{CommandError, Context};

/// Text is written when it reaches this many bytes.
const TEXT_BYTES: usize = 1 << 16;

/// Prints the trace at `path`. Returns false if something in it cannot be read; all other events
/// are printed.
pub(super) fn decode(context: &Context, path: &Path, format: Format) -> Result<bool, CommandError> {
    let mut table = FieldTable::new();
    let mut lines = Text::default();
    lines.prepare(&Columns::All, &mut table);
    let (mut text, mut failed) = (Vec::new(), None::<io::Error>);
    let mut scratch = Scratch::default();
    let (mut broken, mut is_complete) = (0, true);
    let paths: [PathBuf; 1] = [path.to_owned()];
    for source in open_paths(&paths, false, &Request::default(), &[])? {
        for task in source.tasks(None) {
            let read = source.read(&task, &table, &mut scratch, &mut |event| {
                match format {
                    Format::Ndjson => put_object(&mut text, event),
                    // The formats of CTF only were refused.
                    _ => lines.row(event, &mut text),
                }
                if text.len() < TEXT_BYTES {
                    return ControlFlow::Continue(());
                }
                let written = context.out().write_all(&text);
                text.clear();
                failed = written.err();
                match failed {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            });
            let counters = read?;
            if let Some(error) = failed.take() {
                return Err(error.into());
            }
            context.out().write_all(&text)?;
            text.clear();
            broken += counters.decoded.broken;
            is_complete &= counters.faults.is_empty();
            for fault in counters.faults {
                context.note(fault);
            }
        }
    }
    if broken > 0 {
        context.note(format!(
            "{}: {broken} records cannot be read; the others are printed",
            path.display()
        ));
    }
    Ok(is_complete && broken == 0)
}
