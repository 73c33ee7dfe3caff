//! `tracehold io-trace`: the server's trace of its own I/O.

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

/// Trace the server's own I/O
#[derive(Debug, Args)]
pub(super) struct IoTrace {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start a trace, into a storage of its own
    Start(Start),
    /// Stop it and finalize its storage
    Stop,
    /// Show how the trace that runs stands, or how the last one ended
    Show,
    /// Write the trace in a storage as a folder that CTF readers open
    Export(Export),
}

#[derive(Debug, Args)]
struct Start {
    /// Name of the storage
    #[arg(long, value_name = "NAME", default_value = "io-trace")]
    name: String,
    /// Keep the latest operations in memory, and write them when it is stopped
    #[arg(long)]
    ring: bool,
    /// Bytes of packets at most
    #[arg(long, value_name = "BYTES")]
    bytes_max: Option<u64>,
    /// Record one in N of an operation, 0 for none; may be repeated. Those not named are recorded
    #[arg(long = "operation", value_name = "NAME=N", value_parser = rate)]
    operations: Vec<(String, u32)>,
    /// Record one in N stretches of 64 KiB of all files, with everything that begins in it
    #[arg(long, value_name = "N", default_value_t = 1)]
    blocks_one_in: u32,
    /// Record only what happens in this storage; may be repeated
    #[arg(long = "storage", value_name = "ID|NAME")]
    storages: Vec<String>,
}

#[derive(Debug, Args)]
struct Export {
    /// The storage of the trace
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// Folder to write; must not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Dialect of the metadata
    #[arg(long, value_enum, default_value_t = Dialect::Tsdl)]
    metadata: Dialect,
}

/// Both describe the same packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dialect {
    /// CTF 1.8, which every reader knows
    Tsdl,
    /// CTF 2, for Babeltrace 2.1 and later
    Ctf2,
}

fn rate(text: &str) -> Result<(String, u32), String> {
    let (name, one_in) = text.split_once('=').ok_or("a rate is written NAME=N")?;
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
                    let wanted = IoTraceStart {
                        name: start.name,
                        mode: mode.to_owned(),
                        bytes_max: start.bytes_max,
                        operations,
                        blocks_one_in: start.blocks_one_in,
                        storages,
                    };
                    Ok(client.start_io_trace(&wanted).await?)
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
        for (name, value) in &status.more {
            let text = match value {
                Value::Null => continue,
                Value::Object(object) if object.is_empty() => continue,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            context.line(format!("{:<22}{text}", name.replace('_', " ")))?;
        }
    }
    let failed = status
        .more
        .get("error")
        .is_some_and(|error| !error.is_null());
    Ok(if failed {
        Exit::NoMatchOrDamage
    } else {
        Exit::Done
    })
}

impl Export {
    fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let mut packets = StoredPackets::open(context, &self.storage, None, None)?;
        packets.retain_server_io();
        if packets.is_empty() {
            context.note("the storage holds no trace of a server's own I/O");
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
