use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use uuid::Uuid;

use super::table::Table;
use super::{CommandError, Context, Exit};
use crate::ClientError;
use crate::http::{NewRecording, NewTrigger, Recording};

/// Start, stop and list recordings of what arrives at the server
#[derive(Debug, Args)]
pub(super) struct Record {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start a recording, now, later, or with an event
    Start(Start),
    /// Stop recordings; what they took is on disk then
    Stop {
        /// Ids of recordings
        #[arg(required = true, value_name = "ID")]
        recordings: Vec<Uuid>,
    },
    /// List recordings, also those that ended
    List,
}

#[derive(Debug, Args)]
struct Start {
    /// Storage to fill; a new one is made without it
    #[arg(long, value_name = "ID|NAME")]
    storage: Option<String>,
    /// Name of the new storage
    #[arg(long, conflicts_with = "storage")]
    name: Option<String>,
    /// Only what comes from this agent; may be repeated
    #[arg(long = "agent", value_name = "AGENT")]
    agents: Vec<String>,
    /// File with the chain of processors as JSON
    #[arg(long, value_name = "FILE")]
    processors: Option<PathBuf>,
    /// Start so many seconds from now
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    delay: u64,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Finalize the storage at the end
    #[arg(long)]
    auto_finalize: bool,
    /// Start with the first event that matches
    #[arg(long, value_name = "EXPR")]
    trigger: Option<String>,
    /// Record so many seconds before the trigger too; all that is buffered without it
    #[arg(long, value_name = "SECONDS", requires = "trigger")]
    before: Option<u64>,
}

impl Record {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let client = context.client()?;
        context.block_on(async {
            match self.action {
                Action::Start(start) => {
                    let storage = match &start.storage {
                        Some(text) => Some(client.find_storage(text).await?.id),
                        None => None,
                    };
                    let new = start.recording(storage)?;
                    print_one(context, &client.start_recording(&new).await?)
                }
                Action::Stop { recordings } => {
                    for id in recordings {
                        print_one(context, &client.stop_recording(id).await?)?;
                    }
                    Ok(Exit::Done)
                }
                Action::List => print_list(context, &client.recordings().await?),
            }
        })
    }
}

impl Start {
    fn recording(self, storage: Option<Uuid>) -> Result<NewRecording, CommandError> {
        let processors = self.processors.map(|path| read_json(&path)).transpose()?;
        Ok(NewRecording {
            storage,
            name: self.name,
            agents: self.agents,
            processors,
            delay_seconds: self.delay,
            duration_seconds: self.duration,
            auto_finalize: self.auto_finalize,
            trigger: self.trigger.map(|query| NewTrigger {
                query,
                before_seconds: self.before,
            }),
        })
    }
}

pub(super) fn read_json(path: &std::path::Path) -> Result<Value, ClientError> {
    let wrong = |what: String| ClientError::input(format!("{}: {what}", path.display()));
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
}

/// The id first, so that a script can cut it off.
fn print_one(context: &Context, recording: &Recording) -> Result<Exit, CommandError> {
    if context.json() {
        context.document(recording)?
    } else {
        let reason = recording.reason.as_deref().unwrap_or_default();
        let line = format!(
            "{} {} {} {reason}",
            recording.id, recording.state, recording.storage
        );
        context.line(line.trim_end())?;
    }
    Ok(Exit::Done)
}

fn print_list(context: &Context, recordings: &[Recording]) -> Result<Exit, CommandError> {
    if context.json() {
        context.document(&json!({ "items": recordings, "next": null }))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["id", "state", "packets", "storage", "started", "reason"]);
    for recording in recordings {
        let packets = recording.counts.get("packets").and_then(Value::as_u64);
        table.row(vec![
            recording.id.to_string(),
            recording.state.clone(),
            packets.unwrap_or(0).to_string(),
            recording.storage.to_string(),
            recording.started.clone().unwrap_or_default(),
            recording.reason.clone().unwrap_or_default(),
        ]);
    }
    table.write(&mut *context.out())?;
    Ok(Exit::Done)
}
