//! `tracehold io-trace`: the server's trace of its I/O.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use trace_kinds::io_trace::{metadata, tsdl};

use super::analyze::stored::StoredPackets;
use super::{CommandError, Context, Exit};
use crate::http::{IoTraceStart, IoTraceStatus};

/// Record the server's I/O, and export recorded traces
#[derive(Debug, Args)]
pub(super) struct IoTrace {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start an I/O trace; it is written to a new storage
    Start(Start),
    /// Stop the running trace and finalize its storage
    Stop,
    /// Show the state of the running trace, or the result of the last one
    Show,
    /// Export a trace as a CTF trace folder
    Export(Export),
}

#[derive(Debug, Args)]
struct Start {
    /// Name of the new storage
    #[arg(long, value_name = "NAME", default_value = "io-trace")]
    name: String,
    /// Retain only the most recent operations, in segments on disk, until the trace is stopped
    #[arg(long)]
    ring: bool,
    /// Maximum size of the trace in bytes
    #[arg(long, value_name = "BYTES")]
    bytes_max: Option<u64>,
    /// Record one in N calls of the operation NAME, or none if N is 0; may be repeated
    ///
    /// All calls of other operations are recorded.
    #[arg(long = "operation", value_name = "NAME=N", value_parser = rate)]
    operations: Vec<(String, u32)>,
    /// Record only operations that start in a sample of one in N 64 KiB blocks of all files
    #[arg(long, value_name = "N", default_value_t = 1)]
    blocks_one_in: u32,
    /// Record only operations on this storage; may be repeated
    #[arg(long = "storage", value_name = "ID|NAME")]
    storages: Vec<String>,
}

#[derive(Debug, Args)]
struct Export {
    /// Storage that contains the trace
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// Output directory; must not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Metadata format
    #[arg(long, value_enum, default_value_t = Dialect::Tsdl)]
    metadata: Dialect,
}

/// Both formats describe the same packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dialect {
    /// CTF 1.8, supported by all readers
    Tsdl,
    /// CTF 2, for Babeltrace 2.1 and later
    Ctf2,
}

fn rate(text: &str) -> Result<(String, u32), String> {
    let (name, one_in) = text.split_once('=').ok_or("expected NAME=N")?;
    let one_in = one_in
        .parse()
        .map_err(|error| format!("{one_in}: {error}"))?;
    Ok((name.to_owned(), one_in))
}

impl IoTrace {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        match self.action {
            Action::Export(export) => export.run(context),
            Action::Start(start) => {
                let client = context.client()?;
                let status = context.block_on(async {
                    let mut storages = Vec::new();
                    for storage in &start.storages {
                        storages.push(client.find_storage(storage).await?.id);
                    }
                    let operations: BTreeMap<_, _> = start.operations.into_iter().collect();
                    let mode = if start.ring { "ring" } else { "stop_at_limit" };
                    let request = IoTraceStart {
                        name: start.name,
                        mode: mode.to_owned(),
                        bytes_max: start.bytes_max,
                        operations,
                        blocks_one_in: start.blocks_one_in,
                        storages,
                    };
                    Ok(client.start_io_trace(&request).await?)
                })?;
                print(context, &status)
            }
            Action::Stop => {
                let client = context.client()?;
                let status = context.block_on(async { Ok(client.stop_io_trace().await?) })?;
                print(context, &status)
            }
            Action::Show => {
                let client = context.client()?;
                let status = context.block_on(async { Ok(client.io_trace().await?) })?;
                print(context, &status)
            }
        }
    }
}

fn print(context: &Context, status: &IoTraceStatus) -> Result<Exit, CommandError> {
    if context.json() {
        context.document(status)?;
    } else {
        let id = status.storage.map(|id| id.to_string()).unwrap_or_default();
        context.line(format!("{id} {}", status.state).trim_start())?;
        context.print_fields(status.more.iter())?;
    }
    let error = status.more.get("error");
    Ok(Exit::of_integrity(error.is_none_or(Value::is_null)))
}

impl Export {
    fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let mut packets = StoredPackets::open(context, &self.storage, None, None)?;
        packets.retain_server_io();
        if packets.is_empty() {
            context.note("the storage contains no I/O trace of a server");
            return Ok(Exit::NoMatchOrDamage);
        }
        let at = |path: &PathBuf| {
            let path = path.display().to_string();
            move |error| CommandError::io(path, error)
        };
        std::fs::create_dir(&self.folder).map_err(at(&self.folder))?;
        let path = self.folder.join("metadata");
        let text = match self.metadata {
            Dialect::Tsdl => tsdl().into_bytes(),
            Dialect::Ctf2 => metadata(),
        };
        std::fs::write(&path, text).map_err(at(&path))?;
        let path = self.folder.join("stream");
        let mut file = File::create(&path).map_err(at(&path))?;
        while let Some((_, _, bytes)) = packets.next_packet()? {
            file.write_all(&bytes).map_err(at(&path))?;
        }
        Ok(Exit::Done)
    }
}
