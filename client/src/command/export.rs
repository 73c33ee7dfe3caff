use std::path::PathBuf;

use clap::{Args, ValueEnum};
use io_analysis::bytes_text;

use super::context::counted;
use super::{CommandError, Context, Exit};
use crate::export::{ExportFilter, export_ctf};
use crate::http::StorageUrl;

/// Export the traces of a finalized storage, with their original bytes
#[derive(Debug, Args)]
pub(super) struct Export {
    /// Storage to export, by ID or name
    #[arg(long, value_name = "ID|NAME")]
    storage: String,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Ctf)]
    format: Format,
    /// Export only the trace of this agent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Export only streams with this name
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Output directory; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One CTF trace folder per agent, readable by Babeltrace and `tracehold decode`
    Ctf,
}

impl Export {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let client = context.persistent_client()?;
        let filter = ExportFilter {
            agent: self.agent,
            stream: self.stream,
        };
        let report = context.block_on(async {
            let storage = StorageUrl {
                server: client.server().clone(),
                id: client.find_storage(&self.storage).await?.id,
            };
            match self.format {
                Format::Ctf => Ok(export_ctf(&client, &storage, &self.folder, &filter).await?),
            }
        })?;
        context.print(&report, || {
            let traces = report.traces.iter();
            let mut text: String = traces
                .map(|trace| format!("{}\n", trace.display()))
                .collect();
            text.push_str(&format!(
                "{}, {}, {} ({})",
                counted(report.traces.len() as u64, "trace"),
                counted(report.streams, "stream"),
                counted(report.packets, "packet"),
                bytes_text(report.bytes)
            ));
            text
        })?;
        if report.other_streams > 0 {
            context.note(format!(
                "tracehold: {} of other kinds not exported; `tracehold download` copies all files \
                 of the storage",
                counted(report.other_streams, "stream")
            ));
        }
        Ok(Exit::of_match(!report.traces.is_empty()))
    }
}
