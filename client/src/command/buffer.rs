//! `tracehold buffer`: the most recent packets of all agents, in the server's memory.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::context::counted;
use super::copied_events::CopiedEvents;
use super::{CommandError, Context, Exit};

/// Show the buffer of the most recent packets, or copy packets from it into a storage
#[derive(Debug, Args)]
pub(super) struct Buffer {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show how much the buffer contains, and how much it has evicted
    Show,
    /// Copy packets from the buffer into a storage
    Copy(Copy),
}

#[derive(Debug, Args)]
struct Copy {
    /// Open storage to copy into, by ID or name [default: a new storage]
    #[arg(long, value_name = "ID|NAME", conflicts_with = "name")]
    storage: Option<String>,
    /// Name of the new storage
    #[arg(long)]
    name: Option<String>,
    /// Copy only packets of this agent; may be repeated
    #[arg(long = "agent", value_name = "AGENT")]
    agents: Vec<String>,
    #[command(flatten)]
    events: CopiedEvents,
    /// Finalize the storage afterwards
    #[arg(long)]
    finalize: bool,
}

impl Buffer {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let client = context.client()?;
        context.block_on(async {
            match self.action {
                Action::Show => {
                    let buffer = client.buffer().await?;
                    if context.json() {
                        context.document(&buffer)?;
                    } else {
                        context.print_fields(buffer.iter())?;
                    }
                }
                Action::Copy(copy) => {
                    let storage = match &copy.storage {
                        Some(text) => Some(client.find_storage(text).await?.id),
                        None => None,
                    };
                    let mut request = copy.request()?;
                    if let Some(id) = storage {
                        request.insert("storage".to_owned(), id.to_string().into());
                    }
                    let copied = client.copy_buffer(&Value::Object(request)).await?;
                    context.print(&copied, || {
                        let storage = copied["storage"].as_str().unwrap_or_default();
                        let packets = copied["written_packets"].as_u64().unwrap_or_default();
                        format!("{} copied to {storage}", counted(packets, "packet"))
                    })?;
                }
            }
            Ok(Exit::Done)
        })
    }
}

impl Copy {
    /// The request, without the target.
    fn request(self) -> Result<Map<String, Value>, CommandError> {
        let mut request = Map::new();
        self.events.add_to(&mut request)?;
        request.extend(self.name.map(|name| ("name".to_owned(), name.into())));
        request.insert("agents".to_owned(), self.agents.into());
        request.insert("auto_finalize".to_owned(), self.finalize.into());
        Ok(request)
    }
}
