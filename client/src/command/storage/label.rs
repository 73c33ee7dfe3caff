use clap::Args;
use io_analysis::TextTable;
use serde_json::Value;

use super::super::listing::Listing;
use super::super::{CommandError, Context, Exit};
use crate::http::Client;

#[derive(Debug, Args)]
pub(super) struct Label {
    /// Storage, by ID or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// Labels to add
    #[arg(value_name = "TYPE=VALUE", value_parser = type_and_value)]
    labels: Vec<(String, String)>,
    /// Remove a label, or only one of its values; may be repeated
    #[arg(long, value_name = "TYPE[=VALUE]")]
    remove: Vec<String>,
    #[command(flatten)]
    listing: Listing,
}

/// A label from the command line.
pub(super) fn type_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected TYPE=VALUE".to_owned()),
    }
}

impl Label {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        let id = client.find_storage(&self.storage).await?.id;
        for text in &self.remove {
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (text.as_str(), None),
            };
            client.remove_label(id, name, value).await?;
        }
        for (name, value) in &self.labels {
            client.add_label(id, name, value).await?;
        }
        let labels = client.labels(id).await?;
        self.listing.print(context, &labels, || {
            let mut table = TextTable::new(["TYPE", "VALUE"]);
            for label in &labels {
                for value in &label.values {
                    let text = match value {
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    };
                    table.row([label.name.clone(), text]);
                }
            }
            table
        })?;
        Ok(Exit::Done)
    }
}
