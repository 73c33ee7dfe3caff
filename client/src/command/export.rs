use std::path::PathBuf;

use clap::{Args, ValueEnum};
use io_analysis::bytes_text;
use query_engine::derived_note;
use tokio::runtime::Runtime;

use super::context::counted;
use super::{CommandError, Context, Exit};
use crate::export::{
    ExportOptions, ExportReport, Fidelity, FolderSource, PacketSource, ServerSource, SpanForm,
    export,
};
use crate::http::{Retry, StorageUrl};

/// Streams of other kinds that are named in a note.
const NAMED_MAX: usize = 8;

/// Export what was pushed into a finalized storage as files, with their original bytes
///
/// DFTracer, Chrome, RocksDB and raw files get the names under which they were pushed, in a folder
/// per agent; CTF traces are folders. OpenTelemetry spans that programs sent are written as JSON
/// lines or protobuf.
/// The exit code is 1 if packets are missing or damaged; all others are written.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// Storage to export, by ID or name
    #[arg(
        long,
        value_name = "ID|NAME",
        required_unless_present = "dir",
        conflicts_with = "dir"
    )]
    storage: Option<String>,
    /// Export the storage in this directory, which `mount` or `download` wrote
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// What to export
    #[arg(long, value_enum, default_value_t = Format::Files)]
    format: Format,
    /// Form of OpenTelemetry spans; without it, files that were pushed are written as they were,
    /// and spans that programs sent as JSON
    #[arg(long, value_enum, value_name = "FORM")]
    otlp: Option<Spans>,
    /// Export only the streams of this agent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Export only streams with this name
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Also export derived streams (clones, spans, exceptions and aggregates)
    #[arg(long)]
    derived: bool,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// Output directory; created if it does not exist
    #[arg(value_name = "OUTPUT-DIR")]
    folder: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Every stream as the files that were pushed
    Files,
    /// Only CTF traces: one folder per agent, readable by Babeltrace and `tracehold decode`
    Ctf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Spans {
    /// One request as JSON per line
    Json,
    /// Requests as protobuf, each after its length (4 bytes, big-endian)
    Protobuf,
}

impl Export {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        // Drives the client's connections, so it must outlive them.
        let runtime = Runtime::new().map_err(|error| CommandError::io("async runtime", error))?;
        let source = self.source(context, &runtime)?;
        let options = ExportOptions {
            agent: self.agent,
            stream: self.stream,
            ctf_only: self.format == Format::Ctf,
            derived: self.derived,
            spans: self.otlp.map(|form| match form {
                Spans::Json => SpanForm::JsonLines,
                Spans::Protobuf => SpanForm::Protobuf,
            }),
            force: self.force,
        };
        let report = export(&*source, &self.folder, &options)?;
        print(context, &report)?;
        let is_whole = report.is_complete() && !report.files.is_empty();
        Ok(Exit::of_integrity(is_whole))
    }

    fn source(
        &self,
        context: &Context,
        runtime: &Runtime,
    ) -> Result<Box<dyn PacketSource>, CommandError> {
        if let Some(folder) = &self.dir {
            let source = FolderSource::open(folder, runtime.handle(), |origin| {
                context.client_of_folder(origin, Retry::persistent())
            })?;
            if let Some(origin) = source.needed_server() {
                context.note_of_withheld(origin)?;
            }
            return Ok(Box::new(source));
        }
        let client = context.persistent_client()?;
        let wanted = self.storage.as_deref().unwrap_or_default();
        let storage = StorageUrl {
            server: client.server().clone(),
            id: runtime.block_on(client.find_storage(wanted))?.id,
        };
        let handle = runtime.handle().clone();
        Ok(Box::new(ServerSource::new(client, storage, handle)))
    }
}

fn print(context: &Context, report: &ExportReport) -> Result<(), CommandError> {
    context.print(report, || {
        let mut text = String::new();
        for trace in &report.traces {
            text.push_str(&format!("{}\n", trace.display()));
        }
        let is_in_trace = |path: &PathBuf| {
            let mut traces = report.traces.iter();
            traces.any(|trace| path.parent() == Some(trace))
        };
        let files = report.files.iter().map(|file| &file.path);
        for path in files.filter(|path| !is_in_trace(path)) {
            text.push_str(&format!("{}\n", path.display()));
        }
        text.push_str(&format!(
            "{}, {}, {}, {} ({})",
            counted(report.traces.len() as u64, "trace"),
            counted(report.files.len() as u64, "file"),
            counted(report.streams, "stream"),
            counted(report.packets, "packet"),
            bytes_text(report.bytes)
        ));
        text
    })?;
    for file in &report.files {
        if let Some(note) = &file.note {
            let word = match file.fidelity {
                Fidelity::Incomplete => "incomplete",
                _ => "note",
            };
            context.note(format!("{word}: {}: {note}", file.path.display()));
        }
    }
    if report.other_streams > 0 {
        context.note(left_out(report));
    }
    let derived = usize::try_from(report.derived_streams).unwrap_or(usize::MAX);
    if let Some(note) = derived_note(derived) {
        context.note(note);
    }
    Ok(())
}

/// Names the streams that are not exported.
fn left_out(report: &ExportReport) -> String {
    let named = report.left_out.iter().take(NAMED_MAX);
    let mut names: Vec<String> = named
        .map(|other| format!("{}/{} ({})", other.agent, other.stream, other.kind))
        .collect();
    if report.left_out.len() > NAMED_MAX {
        names.push("…".to_owned());
    }
    format!(
        "tracehold: {} of other kinds not exported: {}; `tracehold download` copies all files of \
         the storage",
        counted(report.other_streams, "stream"),
        names.join(", ")
    )
}
