use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::super::record::read_json;
use super::super::{CommandError, Context, Exit};
use super::jobs::watch;
use crate::http::Client;

#[derive(Debug, Args)]
pub(super) struct Copy {
    /// Storage to copy from: id or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// Open storage to write into: id or name; a new one is made when it is left out
    #[arg(long, value_name = "ID|NAME", conflicts_with = "name")]
    to_storage: Option<String>,
    /// Name of the storage that is made
    #[arg(long)]
    name: Option<String>,
    /// Only packets of this agent; may be repeated
    #[arg(long = "agent", value_name = "AGENT")]
    agents: Vec<String>,
    /// Only packets of streams with this id; may be repeated
    #[arg(long = "stream", value_name = "STREAM")]
    streams: Vec<String>,
    /// Only packets of this kind; may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only packets that may hold something from here on
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only packets that may hold something before this
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Only what matches; of packets of spans a part
    #[arg(long, value_name = "EXPR")]
    query: Option<String>,
    /// File with the chain of processors as JSON, through which packets go
    #[arg(long, value_name = "FILE")]
    processors: Option<PathBuf>,
    /// Finalize the storage then
    #[arg(long)]
    finalize: bool,
}

impl Copy {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        let source = client.find_storage(&self.storage).await?.id;
        let mut wanted = Map::new();
        if let Some(text) = &self.to_storage {
            let target = client.find_storage(text).await?.id;
            wanted.insert("storage".to_owned(), target.to_string().into());
        }
        let texts = [
            ("name", self.name),
            ("from", self.from),
            ("to", self.to),
            ("query", self.query),
        ];
        for (name, text) in texts {
            wanted.extend(text.map(|text| (name.to_owned(), text.into())));
        }
        let lists = [
            ("agents", self.agents),
            ("streams", self.streams),
            ("kinds", self.kinds),
        ];
        for (name, list) in lists {
            wanted.insert(name.to_owned(), list.into());
        }
        if let Some(path) = &self.processors {
            wanted.insert("processors".to_owned(), read_json(path)?);
        }
        wanted.insert("auto_finalize".to_owned(), self.finalize.into());
        let job = client.copy_storage(source, &Value::Object(wanted)).await?;
        let copied = watch(context, client, job).await?;
        if context.json() {
            context.document(&copied)?;
        } else {
            let storage = copied["storage"].as_str().unwrap_or_default();
            let packets = &copied["packets"];
            context.line(format!("{storage} has {packets} packets more"))?;
        }
        Ok(Exit::Done)
    }
}
