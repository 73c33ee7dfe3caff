use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::table::bytes_text;
use super::{CommandError, Context, Exit};
use crate::export::{ExportFilter, export_ctf};
use crate::http::StorageUrl;

/// Give back the traces of a finalized storage, with the original bytes
#[derive(Debug, Args)]
pub(super) struct Export {
    /// Storage, by id or name
    #[arg(long, value_name = "ID|NAME")]
    storage: String,
    /// What the traces become
    #[arg(long, value_enum, default_value_t = Format::Ctf)]
    format: Format,
    /// Only the trace of this agent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Only streams of this name
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Folder for the traces; made when it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A folder for each agent, as Babeltrace and `tracehold decode` read it
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
        // Nothing is told by the exit code, too.
        let exit = if report.traces.is_empty() {
            Exit::NoMatchOrDamage
        } else {
            Exit::Done
        };
        if context.json() {
            context.document(&report)?;
            return Ok(exit);
        }
        for trace in &report.traces {
            context.line(trace.display().to_string())?;
        }
        context.line(format!(
            "{} traces, {} streams, {} packets ({})",
            report.traces.len(),
            report.streams,
            report.packets,
            bytes_text(report.bytes)
        ))?;
        Ok(exit)
    }
}
