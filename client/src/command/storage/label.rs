use clap::Args;
use serde_json::{Value, json};

use super::super::table::Table;
use super::super::{CommandError, Context, Exit};
use super::label as type_and_value;
use crate::http::Client;

#[derive(Debug, Args)]
pub(super) struct Label {
    /// Id or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// Labels to give
    #[arg(value_name = "TYPE=VALUE", value_parser = type_and_value)]
    labels: Vec<(String, String)>,
    /// Label to take away, all its values or one; may be repeated
    #[arg(long, value_name = "TYPE[=VALUE]")]
    remove: Vec<String>,
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
        if context.json() {
            context.document(&json!({ "items": labels, "next": null }))?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(&["type", "value"]);
        for label in labels {
            for value in label.values {
                let text = match value {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                table.row(vec![label.name.clone(), text]);
            }
        }
        table.write(&mut *context.out())?;
        Ok(Exit::Done)
    }
}
