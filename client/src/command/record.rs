use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use io_analysis::TextTable;
use serde_json::Value;
use uuid::Uuid;

use super::listing::Listing;
use super::{CommandError, Context, Exit};
use crate::ClientError;
use crate::http::{Client, NewRecording, NewTrigger, Recording};

/// Start, stop and list recordings of incoming packets
#[derive(Debug, Args)]
pub(super) struct Record {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start a recording: now, after a delay, or at an event
    Start(Start),
    /// Stop recordings; returns when everything they accepted is on disk
    Stop {
        /// Recordings to stop, by ID, or by the ID or name of the storage that they write
        #[arg(required = true, value_name = "ID|STORAGE")]
        recordings: Vec<String>,
    },
    /// List all recordings, including those that have ended
    List(Listing),
}

#[derive(Debug, Args)]
struct Start {
    /// Storage to record into, by ID or name [default: a new storage]
    #[arg(long, value_name = "ID|NAME")]
    storage: Option<String>,
    /// Name of the new storage
    #[arg(long, conflicts_with = "storage")]
    name: Option<String>,
    /// Record only packets of this agent; may be repeated
    #[arg(long = "agent", value_name = "AGENT")]
    agents: Vec<String>,
    /// JSON file with the chain of processors
    #[arg(long, value_name = "FILE")]
    processors: Option<PathBuf>,
    /// Wait this long before starting
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    delay: u64,
    /// Stop after this long
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Finalize the storage when the recording ends
    #[arg(long)]
    auto_finalize: bool,
    /// Start at the first event that matches this query
    #[arg(long, value_name = "EXPR")]
    trigger: Option<String>,
    /// Also record this much from before the trigger [default: everything in the buffer]
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
                    print_recording(context, &client.start_recording(&new).await?)?;
                }
                Action::Stop { recordings } => {
                    for text in recordings {
                        for id in find_recordings(&client, &text).await? {
                            print_recording(context, &client.stop_recording(id).await?)?;
                        }
                    }
                }
                Action::List(listing) => print_list(context, listing, &client.recordings().await?)?,
            }
            Ok(Exit::Done)
        })
    }
}

/// The recording with this id, or those that write the storage with this id or name.
async fn find_recordings(client: &Client, text: &str) -> Result<Vec<Uuid>, CommandError> {
    let recordings = client.recordings().await?;
    let ids = |is_meant: &dyn Fn(&Recording) -> bool| -> Vec<Uuid> {
        let meant = recordings.iter().filter(|recording| is_meant(recording));
        meant.map(|recording| recording.id).collect()
    };
    let id: Option<Uuid> = text.parse().ok();
    let found = ids(&|recording| Some(recording.id) == id);
    if !found.is_empty() {
        return Ok(found);
    }
    let storage = client.find_storage(text).await?.id;
    let found = ids(&|recording| recording.storage == storage && recording.state != "OFF");
    if found.is_empty() {
        return Err(CommandError::usage(format!(
            "no recording writes the storage {text:?}; `tracehold record list` lists them"
        )));
    }
    Ok(found)
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

pub(super) fn read_json(path: &Path) -> Result<Value, ClientError> {
    let invalid = |what: String| ClientError::input(format!("{}: {what}", path.display()));
    let text = std::fs::read(path).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))
}

/// Why it ended, or why it is there without a request.
fn reason_of(recording: &Recording) -> String {
    match &recording.reason {
        Some(reason) => reason.clone(),
        None if recording.standing => "the standing recording of the server".to_owned(),
        None => String::new(),
    }
}

/// Prints the ID first, so that a script can cut it off.
fn print_recording(context: &Context, recording: &Recording) -> Result<(), CommandError> {
    context.print(recording, || {
        let reason = recording.reason.as_deref().unwrap_or_default();
        let (id, state, storage) = (&recording.id, &recording.state, &recording.storage);
        let line = format!("{id} {state} {storage} {reason}");
        line.trim_end().to_owned()
    })
}

fn print_list(
    context: &Context,
    listing: Listing,
    recordings: &[Recording],
) -> Result<(), CommandError> {
    listing.print(context, recordings, || {
        let mut table = TextTable::new(["ID", "STATE", "PACKETS", "STORAGE", "STARTED", "REASON"]);
        for recording in recordings {
            let packets = recording.counts.get("packets").and_then(Value::as_u64);
            table.row([
                recording.id.to_string(),
                recording.state.clone(),
                packets.unwrap_or(0).to_string(),
                recording.storage.to_string(),
                recording.started.clone().unwrap_or_default(),
                reason_of(recording),
            ]);
        }
        table
    })
}
