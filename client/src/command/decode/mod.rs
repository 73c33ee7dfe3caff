//! `tracehold decode`: prints the events of local trace files.

mod ctf;
mod format;
mod io_trace;
mod rocksdb;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use query_language::time::{IntegerUnit, Time, TimeError, parse_time};
use trace_kinds::io_trace::is_io_trace;
use trace_kinds::rocksdb::is_trace as is_rocksdb_trace;

use super::{CommandError, Context, Exit};
use format::Format;

/// Print the events of trace files, without a server
///
/// Accepts CTF trace folders, I/O and block cache traces of RocksDB, and I/O traces of a server.
/// The exit code is 1 if a trace is damaged or torn.
#[derive(Debug, Args)]
pub(super) struct Decode {
    /// Trace files, and folders with CTF traces
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print only events at or after TIME (CTF)
    ///
    /// TIME is RFC 3339 (2026-11-21T01:00:00Z), a date, a time of day on the day the trace begins,
    /// nanoseconds since 1970, or seconds since 1970 with a fraction.
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Time>,
    /// Print only events before TIME, exclusive (CTF)
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<Time>,
    /// Skip damaged packets instead of stopping at them (CTF)
    #[arg(long)]
    salvage: bool,
}

fn time(text: &str) -> Result<Time, TimeError> {
    parse_time(text, IntegerUnit::Nanoseconds)
}

impl Decode {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let format = if context.json() {
            Format::Ndjson
        } else {
            self.format
        };
        let mut exit = Exit::Done;
        let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) =
            self.paths.into_iter().partition(|path| ctf::is_trace(path));
        if !folders.is_empty() {
            let options = ctf::Options {
                from: self.from,
                to: self.to,
                salvage: self.salvage,
            };
            let is_whole = ctf::decode(context, &folders, format, options)?;
            exit = if is_whole {
                exit
            } else {
                Exit::NoMatchOrDamage
            };
        }
        for path in &files {
            let first = first_bytes(path)?;
            let whole = if is_rocksdb_trace(&first) {
                rocksdb::decode(context, path, format)?
            } else if is_io_trace(&first) {
                io_trace::decode(context, path, format)?
            } else {
                let what = "not a trace that decode knows; it reads folders of CTF traces, IO and \
                            block cache traces of RocksDB, and streams of a server's own I/O";
                return Err(CommandError::damage(path.display(), what));
            };
            exit = if whole { exit } else { Exit::NoMatchOrDamage };
        }
        Ok(exit)
    }
}

/// Bytes that tell what a file is.
const FIRST_BYTES: u64 = 64;

fn first_bytes(path: &Path) -> Result<Vec<u8>, CommandError> {
    let fault = |error| CommandError::io(path.display(), error);
    let file = File::open(path).map_err(fault)?;
    let mut first = Vec::new();
    file.take(FIRST_BYTES)
        .read_to_end(&mut first)
        .map_err(fault)?;
    Ok(first)
}
