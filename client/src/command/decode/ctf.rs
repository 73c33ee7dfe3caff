//! Prints CTF traces as Babeltrace does.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ctf::{ElementReader, ElementText, Leniency, Procedure, metadata_text_with};
use ctf_folder::{
    DetailsOptions, EventFormat, FolderError, FolderFault, FolderParts, TraceFolder, WriteError,
    WriteOptions, losses, write_details, write_events,
};
use query_engine::find_traces;

use super::counter::{Counts, LineCounter};
use super::format::Format;
use super::selection::Selection;
use crate::command::{CommandError, Context};

/// Element text is written when it reaches this many bytes.
const TEXT_BYTES: usize = 1 << 16;

impl Selection<'_> {
    /// Opens the trace in `folder`, which was found in `path`.
    pub(super) fn open(
        &self,
        path: &Path,
        folder: &Path,
        format: Format,
    ) -> Result<TraceFolder, CommandError> {
        if let Some(what) = self.babeltrace.contradiction() {
            return Err(CommandError::usage(what.to_owned()));
        }
        let Some(style) = self.babeltrace.style() else {
            let what = "--clock-offset: the offset exceeds 64 bits of nanoseconds";
            return Err(CommandError::usage(what.to_owned()));
        };
        let name = folder.strip_prefix(path).unwrap_or(folder);
        let parts = FolderParts::open(folder).map_err(refused)?;
        let parts = parts.with_style(style, &name.to_string_lossy());
        let opened = if self.salvage || format == Format::Elements {
            parts.salvage_packets()
        } else {
            parts.find_packets()
        };
        opened.map_err(refused)
    }
}

/// Prints the events of all traces in the folders `paths`, merged by time; whether all were whole.
pub(super) fn decode(
    context: &Context,
    paths: &[PathBuf],
    format: Format,
    selection: &Selection<'_>,
) -> Result<bool, CommandError> {
    decode_to(context, &mut *context.out(), paths, format, selection)
}

fn decode_to(
    context: &Context,
    output: &mut dyn Write,
    paths: &[PathBuf],
    format: Format,
    selection: &Selection<'_>,
) -> Result<bool, CommandError> {
    let mut traces: Vec<TraceFolder> = Vec::new();
    for path in paths {
        for folder in find_traces(path)? {
            if format == Format::CtfMetadata {
                metadata(output, &folder.join("metadata"))?;
                continue;
            }
            join(&mut traces, selection.open(path, &folder, format)?);
        }
    }
    if format == Format::CtfMetadata {
        return Ok(true);
    }
    let mut is_empty = has_no_files(context, &traces);
    if selection.babeltrace.stream_intersection {
        if let Some(trace) = traces.iter().find(|trace| trace.lacks_times()) {
            let what = "--stream-intersection needs packets with begin and end times, and not all \
                        streams have them; run the command without it";
            return Err(CommandError::damage(trace.path.display(), what));
        }
        for trace in traces.iter().filter(|trace| trace.is_disjoint()) {
            let path = trace.path.display();
            context.note(format!("{path}: its streams have no time in common"));
            is_empty = true;
        }
    }
    for trace in &traces {
        for warning in &trace.warnings {
            let (path, at) = (trace.path.join("metadata"), warning.location);
            context.note(format!("{}:{at}: {}", path.display(), warning.message));
        }
    }
    if format == Format::Elements {
        return Ok(elements(output, &traces)? && !is_empty);
    }
    if format == Format::Details {
        return Ok(details(context, output, &traces, selection)? && !is_empty);
    }
    let has_window = selection.has_times() || selection.babeltrace.stream_intersection;
    if format == Format::Counter && has_window {
        // Streams and packets begin and end in the window, too.
        let mut counter = LineCounter::default();
        let options = LineCounter::options();
        let is_whole = messages(context, &mut counter, &traces, selection, options)?;
        counter.counts.print(output)?;
        return Ok(is_whole && !is_empty);
    }
    Ok(events(context, output, &traces, format, selection)? && !is_empty)
}

/// Prints the text of metadata without its packets.
fn metadata(output: &mut dyn Write, path: &Path) -> Result<(), CommandError> {
    let bytes = fs::read(path).map_err(|error| CommandError::io(path.display(), error))?;
    let text = metadata_text_with(&bytes, Leniency::Lenient)
        .map_err(|error| CommandError::damage(path.display(), error))?;
    output.write_all(&text.text)?;
    // As Babeltrace does, whether the text ends a line or not.
    output.write_all(b"\n")?;
    Ok(())
}

/// Prints or counts the events of `traces`; whether all were whole.
fn events(
    context: &Context,
    output: &mut dyn Write,
    traces: &[TraceFolder],
    format: Format,
    selection: &Selection<'_>,
) -> Result<bool, CommandError> {
    let is_json = format == Format::Ndjson;
    let how = WriteOptions {
        format: if is_json {
            EventFormat::Json
        } else {
            EventFormat::Text
        },
        window: selection.window(first_instant(traces))?,
        on_fault: selection.on_fault(),
        is_intersection: selection.babeltrace.stream_intersection,
    };
    let mut nothing = std::io::sink();
    let is_printed = !matches!(format, Format::Counter | Format::Dummy);
    let lines: &mut dyn Write = if is_printed {
        &mut *output
    } else {
        &mut nothing
    };
    let written = write_events(traces, how, lines).map_err(|error| match error {
        WriteError::Trace(error) => refused(error),
        WriteError::Output(error) => CommandError::Output(error),
    })?;
    if format == Format::Counter {
        Counts::of(traces, written.events).print(output)?;
    }
    for loss in traces.iter().flat_map(losses) {
        context.note(loss.message);
    }
    let opening = traces.iter().flat_map(|trace| &trace.faults);
    let mut faults = opening.chain(&written.faults).peekable();
    let is_whole = faults.peek().is_none();
    for fault in faults {
        context.note(format!("tracehold: {fault}"));
    }
    Ok(is_whole)
}

/// Prints the messages of `traces`; whether all were whole.
fn details(
    context: &Context,
    output: &mut dyn Write,
    traces: &[TraceFolder],
    selection: &Selection<'_>,
) -> Result<bool, CommandError> {
    let options = selection.babeltrace;
    if options.has_style() {
        let what = "--details prints messages: it takes no options for lines";
        return Err(CommandError::usage(what.to_owned()));
    }
    messages(context, output, traces, selection, options.details())
}

/// Writes the messages of `traces`; whether all were whole.
fn messages(
    context: &Context,
    output: &mut dyn Write,
    traces: &[TraceFolder],
    selection: &Selection<'_>,
    options: DetailsOptions,
) -> Result<bool, CommandError> {
    let how = WriteOptions {
        window: selection.window(first_instant(traces))?,
        on_fault: selection.on_fault(),
        is_intersection: selection.babeltrace.stream_intersection,
        ..WriteOptions::default()
    };
    let written = write_details(traces, options, how, output);
    let written = written.map_err(|error| match error {
        WriteError::Trace(error) => refused(error),
        WriteError::Output(error) => CommandError::Output(error),
    })?;
    let opening = traces.iter().flat_map(|trace| &trace.faults);
    let mut is_whole = true;
    for fault in opening.chain(&written.faults) {
        is_whole = false;
        context.note(format!("tracehold: {fault}"));
    }
    Ok(is_whole)
}

/// Whether there is nothing to decode, which is said.
pub(super) fn has_no_files<'t>(
    context: &Context,
    traces: impl IntoIterator<Item = &'t TraceFolder>,
) -> bool {
    let has_files = |trace: &TraceFolder| !trace.streams.is_empty() || !trace.unread.is_empty();
    let is_empty = !traces.into_iter().any(has_files);
    if is_empty {
        context.note("there are no stream files to decode");
    }
    is_empty
}

/// The first instant of all packets.
pub(super) fn first_instant(traces: &[TraceFolder]) -> Option<i64> {
    let streams = traces.iter().flat_map(|trace| &trace.streams);
    let packets = streams.flat_map(|stream| &stream.packets);
    packets.filter_map(|packet| packet.begin).min()
}

/// Adds a trace, or joins it with the one that it is a part of.
fn join(traces: &mut Vec<TraceFolder>, opened: TraceFolder) {
    let mut rest = Some(opened);
    for trace in traces.iter_mut() {
        rest = rest.and_then(|rest| trace.merge(rest));
    }
    traces.extend(rest);
}

pub(super) fn refused(error: FolderError) -> CommandError {
    match error.fault {
        FolderFault::Io(source) => CommandError::io(error.path.display(), source),
        fault => CommandError::damage(error.path.display(), fault),
    }
}

/// Prints the elements of all stream files, one file after another.
fn elements(output: &mut dyn Write, traces: &[TraceFolder]) -> Result<bool, CommandError> {
    let mut is_whole = true;
    for trace in traces {
        let files = trace.streams.iter().flat_map(|stream| &stream.files);
        for file in files.chain(&trace.unread) {
            is_whole &= elements_of(output, trace.plan.procedure(), &file.path)?;
        }
    }
    Ok(is_whole)
}

fn elements_of(
    output: &mut dyn Write,
    procedure: &Procedure,
    path: &Path,
) -> Result<bool, CommandError> {
    let data = fs::read(path).map_err(|error| CommandError::io(path.display(), error))?;
    let mut reader = ElementReader::new(procedure, &data);
    let mut writer = ElementText::new();
    let mut text = String::new();
    let ends = loop {
        match reader.next_element() {
            Ok(Some(element)) => {
                let element = *element;
                written(writer.element(&mut text, &reader, &element));
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        if text.len() >= TEXT_BYTES {
            output.write_all(text.as_bytes())?;
            text.clear();
        }
    };
    if let Err(error) = &ends {
        written(writer.error(&mut text, error));
    }
    output.write_all(text.as_bytes())?;
    Ok(ends.is_ok())
}

/// Formatting into a string cannot fail.
fn written(result: std::fmt::Result) {
    debug_assert!(result.is_ok(), "formatting into a string cannot fail");
}
