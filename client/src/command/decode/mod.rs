//! `tracehold decode`: prints the events of local trace files.

mod counter;
mod ctf;
mod events;
mod format;
mod io_trace;
mod object;
mod options;
mod rocksdb;
mod selection;
mod trimmed;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::Args;
use query_language::time::{IntegerUnit, Time, TimeError, parse_bound, parse_time};
use trace_kinds::Content;

use super::output_file::OutputFile;
use super::{CommandError, Context, Exit, refuse};
use crate::clock::now_nanos;
use crate::file_content::recognize_file;
use format::Format;
use options::BabeltraceOptions;
use selection::{Limit, Selection};

const ACCEPTED: &str = "a CTF trace folder, a DFTracer file, a Chrome trace, a file of \
                        OpenTelemetry spans, an I/O or block cache trace of RocksDB, or an I/O \
                        trace of a server";

/// Print the events of trace files, without a server
///
/// Accepts CTF trace folders, DFTracer files, Chrome traces and OpenTelemetry spans (JSON lines or
/// protobuf), all three plain, gzip or zstd, I/O and block cache traces of RocksDB, and I/O traces
/// of a server.
/// The exit code is 1 if a trace is damaged or torn.
#[derive(Debug, Args)]
pub(super) struct Decode {
    /// Trace files, and folders with CTF traces; - is the standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Output format
    #[arg(
        short = 'o',
        long,
        visible_alias = "output-format",
        value_enum,
        default_value_t = Format::Text
    )]
    format: Format,
    /// Print only events at or after TIME
    ///
    /// TIME is RFC 3339 (2026-11-21T01:00:00Z), a date, a time of day on the day the trace begins,
    /// nanoseconds since 1970, seconds since 1970 with a fraction, or a duration before now (-1h,
    /// now-1h).
    #[arg(long, value_name = "TIME", value_parser = limit, allow_hyphen_values = true)]
    from: Option<Limit>,
    /// Print only events before TIME, exclusive
    #[arg(long, value_name = "TIME", value_parser = limit, allow_hyphen_values = true)]
    to: Option<Limit>,
    /// Skip damaged packets instead of stopping at them (CTF)
    #[arg(long)]
    salvage: bool,
    #[command(flatten)]
    babeltrace: BabeltraceOptions,
}

fn limit(text: &str) -> Result<Limit, TimeError> {
    let (time, is_bare) = match parse_bound(text) {
        Ok(bound) => (Time::Instant(bound.nanos(now_nanos())), bound.is_bare()),
        Err(_) => (parse_time(text, IntegerUnit::Nanoseconds)?, false),
    };
    Ok(Limit { time, is_bare })
}

impl Decode {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let format = self.printed_format(context)?;
        let mut copies = Vec::new();
        let paths = self.paths.iter().map(|path| readable(path, &mut copies));
        let paths = &paths.collect::<Result<Vec<PathBuf>, _>>()?;
        let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) =
            paths.iter().cloned().partition(|path| path.is_dir());
        if let Some(path) = files.first()
            && (self.babeltrace.is_of_ctf() || format.is_of_ctf())
        {
            let what = "this option or format applies to folders of CTF traces";
            return Err(CommandError::usage(format!("{}: {what}", path.display())));
        }
        let output = self.babeltrace.output.as_deref();
        let output = output.filter(|_| format != Format::Ctf);
        let output = output.map(|path| OutputFile::begin(context, path, paths));
        let output = output.transpose()?;
        let selection = Selection {
            from: self.from,
            to: self.to,
            salvage: self.salvage,
            babeltrace: &self.babeltrace,
        };
        let mut is_whole = true;
        if !folders.is_empty() {
            is_whole &= if format == Format::Ctf {
                trimmed::write(context, &folders, &selection)?
            } else {
                ctf::decode(context, &folders, format, &selection)?
            };
        }
        for path in &files {
            is_whole &= decode_file(context, path, format, &selection)?;
        }
        if let Some(output) = output {
            output.finish(context)?;
        }
        Ok(Exit::of_integrity(is_whole))
    }

    /// The format that the options ask for together.
    fn printed_format(&self, context: &Context) -> Result<Format, CommandError> {
        let usage = |what: &str| Err(CommandError::usage(what.to_owned()));
        let format = match self.format {
            Format::Ctf if context.json() => {
                return usage("--json prints events, and --format ctf writes a trace: give one");
            }
            _ if context.json() => Format::Ndjson,
            _ if self.babeltrace.details => Format::Details,
            format => format,
        };
        if self.babeltrace.has_params() && format != Format::Details {
            return usage("--params is of --details, which prints all messages");
        }
        Ok(format)
    }
}

/// The path of a file that can be read more than once: of a pipe, that of a copy, which is there
/// as long as the copy is open. `-` is the standard input.
fn readable(path: &Path, copies: &mut Vec<File>) -> Result<PathBuf, CommandError> {
    let path = if path == Path::new("-") {
        Path::new("/dev/stdin")
    } else {
        path
    };
    let is_pipe = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    // A named pipe may have no writer, and opening it would wait for one.
    if !is_pipe || !path.starts_with("/dev") {
        return Ok(path.to_owned());
    }
    let failed = |error| CommandError::io(path.display(), error);
    let mut copy = query_engine::temporary_file().map_err(failed)?;
    let copied = File::open(path).and_then(|mut pipe| io::copy(&mut pipe, &mut copy));
    copied.map_err(failed)?;
    let copied = PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd()));
    copies.push(copy);
    Ok(copied)
}

fn decode_file(
    context: &Context,
    path: &Path,
    format: Format,
    selection: &Selection<'_>,
) -> Result<bool, CommandError> {
    let found = recognize_file(path)?;
    if let Content::DftLines | Content::ChromeTrace | Content::Otlp(_) = found.content {
        return events::decode(context, path, format, selection);
    }
    let is_selected = selection.has_times() || format.is_summary();
    let decode = match found.plain() {
        Some(Content::Rocksdb(_)) => rocksdb::decode,
        Some(Content::IoTrace) => io_trace::decode,
        _ => return Err(refuse(path, &found, ACCEPTED)),
    };
    if is_selected {
        let what = "times and counts apply to folders of CTF traces, DFTracer files, Chrome traces \
                    and OpenTelemetry spans; `tracehold query` selects events of other traces by \
                    time, and counts them";
        return Err(CommandError::usage(format!("{}: {what}", path.display())));
    }
    decode(context, path, format)
}
