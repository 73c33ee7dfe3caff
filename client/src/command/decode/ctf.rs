//! Prints CTF traces as Babeltrace does.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ctf::{ElementReader, ElementText, Procedure};
use ctf_folder::{
    EventFormat, FolderError, FolderFault, OnFault, TimeWindow, TraceFolder, WriteError,
    WriteOptions, losses, write_events,
};
use query_engine::find_traces;
use query_language::time::{Time, TimeErrorKind};

use super::format::Format;
use crate::command::{CommandError, Context};

/// Element text is written when it reaches this many bytes.
const TEXT_BYTES: usize = 1 << 16;

/// Which events are printed, and whether damaged packets are skipped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) from: Option<Time>,
    pub(super) to: Option<Time>,
    pub(super) salvage: bool,
}

impl Options {
    /// The requested window, with the day on which the first trace begins for times of day.
    fn window(&self, traces: &[TraceFolder]) -> Result<TimeWindow, CommandError> {
        let packets = traces
            .iter()
            .flat_map(|trace| trace.streams.iter().flat_map(|stream| &stream.packets));
        let begin = packets.filter_map(|packet| packet.begin).min();
        let resolve = |time: Option<Time>, option: &str| {
            let instant = time.map(|time| match (time, begin) {
                (Time::Instant(instant), _) => Ok(instant),
                (time @ Time::TimeOfDay(_), Some(begin)) => time.on_day_of(begin),
                (Time::TimeOfDay(_), None) => Err(TimeErrorKind::NoDate),
            });
            let instant = instant.transpose();
            instant.map_err(|error| CommandError::usage(format!("--{option}: {error}")))
        };
        Ok(TimeWindow {
            from: resolve(self.from, "from")?,
            to: resolve(self.to, "to")?,
        })
    }
}

/// Prints the events of all traces in the folders `paths`, merged by time; whether all were whole.
pub(super) fn decode(
    context: &Context,
    paths: &[PathBuf],
    format: Format,
    options: Options,
) -> Result<bool, CommandError> {
    let mut traces: Vec<TraceFolder> = Vec::new();
    for path in paths {
        for folder in find_traces(path)? {
            let opened = if options.salvage || format == Format::Elements {
                TraceFolder::salvage(&folder)
            } else {
                TraceFolder::open(&folder)
            };
            let opened = opened.map_err(refused)?;
            join(&mut traces, opened);
        }
    }
    let has_files = |trace: &TraceFolder| !trace.streams.is_empty() || !trace.unread.is_empty();
    let is_empty = !traces.iter().any(has_files);
    if is_empty {
        context.note("there are no stream files to decode");
    }
    for trace in &traces {
        for warning in &trace.warnings {
            let (path, at) = (trace.path.join("metadata"), warning.location);
            context.note(format!("{}:{at}: {}", path.display(), warning.message));
        }
    }
    let event_format = match format {
        Format::Elements => return elements(context, &traces),
        Format::Text => EventFormat::Text,
        Format::Ndjson => EventFormat::Json,
    };
    let on_fault = if options.salvage {
        OnFault::Skip
    } else {
        OnFault::Stop
    };
    let how = WriteOptions {
        format: event_format,
        window: options.window(&traces)?,
        on_fault,
        is_intersection: false,
    };
    let written = write_events(&traces, how, &mut *context.out()).map_err(|error| match error {
        WriteError::Trace(error) => refused(error),
        WriteError::Output(error) => CommandError::Output(error),
    })?;
    for loss in traces.iter().flat_map(losses) {
        context.note(loss.message);
    }
    let opening = traces.iter().flat_map(|trace| &trace.faults);
    let mut faults = opening.chain(&written.faults).peekable();
    let is_whole = faults.peek().is_none();
    for fault in faults {
        context.note(format!("tracehold: {fault}"));
    }
    Ok(is_whole && !is_empty)
}

/// Adds a trace, or joins it with the one that it is a part of.
fn join(traces: &mut Vec<TraceFolder>, opened: TraceFolder) {
    let mut rest = Some(opened);
    for trace in traces.iter_mut() {
        rest = rest.and_then(|rest| trace.merge(rest));
    }
    traces.extend(rest);
}

fn refused(error: FolderError) -> CommandError {
    match error.fault {
        FolderFault::Io(source) => CommandError::io(error.path.display(), source),
        fault => CommandError::damage(error.path.display(), fault),
    }
}

/// Prints the elements of all stream files, one file after another.
fn elements(context: &Context, traces: &[TraceFolder]) -> Result<bool, CommandError> {
    let mut is_whole = true;
    for trace in traces {
        let files = trace.streams.iter().flat_map(|stream| &stream.files);
        for file in files.chain(&trace.unread) {
            is_whole &= elements_of(context, trace.plan.procedure(), &file.path)?;
        }
    }
    Ok(is_whole)
}

fn elements_of(
    context: &Context,
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
            context.out().write_all(text.as_bytes())?;
            text.clear();
        }
    };
    if let Err(error) = &ends {
        written(writer.error(&mut text, error));
    }
    context.out().write_all(text.as_bytes())?;
    Ok(ends.is_ok())
}

/// Formatting into a string cannot fail.
fn written(result: std::fmt::Result) {
    debug_assert!(result.is_ok(), "formatting into a string cannot fail");
}
