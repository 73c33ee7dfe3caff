use clap::Args;
use serde_json::{Map, Value};

use super::super::context::counted;
use super::super::copied_events::CopiedEvents;
use super::super::{CommandError, Context, Exit};
use super::jobs::watch;
use crate::http::Client;

#[derive(Debug, Args)]
pub(super) struct Copy {
    /// Storage to copy from, by ID or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// Open storage to copy into, by ID or name [default: a new storage]
    #[arg(long, value_name = "ID|NAME", conflicts_with = "name")]
    to_storage: Option<String>,
    /// Name of the new storage
    #[arg(long)]
    name: Option<String>,
    /// Copy only packets of this agent; may be repeated
    #[arg(long = "agent", value_name = "AGENT")]
    agents: Vec<String>,
    /// Copy only packets of streams with this ID; may be repeated
    #[arg(long = "stream", value_name = "STREAM")]
    streams: Vec<String>,
    /// Copy only packets of this kind; may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Copy derived streams, too (clones, spans, exceptions, aggregates)
    #[arg(long)]
    derived: bool,
    #[command(flatten)]
    events: CopiedEvents,
    /// Finalize the new storage afterwards
    #[arg(long)]
    finalize: bool,
    /// Copy from a damaged storage, too, without what is behind the damage; the exit code is 1 then
    #[arg(long)]
    allow_incomplete: bool,
}

impl Copy {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        let source = client.find_storage(&self.storage).await?.id;
        let mut request = Map::new();
        if let Some(text) = &self.to_storage {
            let target = client.find_storage(text).await?.id;
            request.insert("storage".to_owned(), target.to_string().into());
        }
        self.events.add_to(&mut request)?;
        request.extend(self.name.map(|name| ("name".to_owned(), name.into())));
        let lists = [
            ("agents", self.agents),
            ("streams", self.streams),
            ("kinds", self.kinds),
        ];
        for (name, list) in lists {
            request.insert(name.to_owned(), list.into());
        }
        request.insert("derived".to_owned(), self.derived.into());
        request.insert("auto_finalize".to_owned(), self.finalize.into());
        if self.allow_incomplete {
            request.insert("allow_incomplete".to_owned(), true.into());
        }
        let is_selection = ["from", "to", "query", "processors"]
            .iter()
            .any(|name| request.contains_key(*name))
            || lists_name_some(&request);
        let job = client.copy_storage(source, &Value::Object(request)).await?;
        let copied = watch(context, client, job, "waiting for the copy").await?;
        context.print(&copied, || {
            let storage = copied["storage"].as_str().unwrap_or_default();
            let packets = copied["packets"].as_u64().unwrap_or_default();
            format!("{} copied to {storage}", counted(packets, "packet"))
        })?;
        let incomplete = copied["incomplete"].as_str();
        if let Some(reason) = incomplete {
            context.note(format!(
                "the copy lacks what is behind a damage of the source, or missing in it: {reason}"
            ));
        }
        let missing = copied["missing_packets"].as_u64().unwrap_or_default();
        if missing > 0 {
            let missing = counted(missing, "packet");
            context.note(format!(
                "up to {missing} of the source are missing since it was repaired"
            ));
        }
        // Of an empty storage as a whole, nothing is all of it.
        let is_empty = copied["packets"] == 0 && is_selection;
        if is_empty {
            context.note("no packet of the source is selected: nothing was copied");
        }
        let is_whole = incomplete.is_none() && missing == 0;
        Ok(Exit::of_integrity(is_whole && !is_empty))
    }
}

/// Whether only some agents, streams or kinds are copied.
fn lists_name_some(request: &Map<String, Value>) -> bool {
    let list = |name: &&str| request.get(*name).and_then(Value::as_array);
    let mut lists = ["agents", "streams", "kinds"].iter().filter_map(list);
    lists.any(|list| !list.is_empty())
}
