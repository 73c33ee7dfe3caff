use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::call::{Call, Client};
use super::server_url::with_query;
use crate::ClientError;

/// A label of a storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Label {
    /// Name of its type.
    #[serde(rename = "type")]
    pub name: String,
    /// What its values are: `boolean`, `number`, `date`, `string` or `time_frame`.
    pub value_type: String,
    /// Whether the server tells it, so that it cannot be changed.
    #[serde(default)]
    pub told: bool,
    /// Its values.
    pub values: Vec<Value>,
}

impl Client {
    /// The labels of a storage, also those that the server tells.
    pub async fn labels(&self, id: Uuid) -> Result<Vec<Label>, ClientError> {
        self.list(&["storages", &id.to_string(), "labels"], &[])
            .await
    }

    /// Gives a storage a label; beside those of the same type where there may be several.
    pub async fn add_label(&self, id: Uuid, name: &str, value: &str) -> Result<(), ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "labels"]);
        let told = json!({ "type": name, "value": value });
        self.done(Call::new(Method::POST, url).json(&told).repeatable())
            .await
    }

    /// Takes a label from a storage, or one value of it.
    pub async fn remove_label(
        &self,
        id: Uuid,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), ClientError> {
        let url = self
            .server()
            .api(&["storages", &id.to_string(), "labels", name]);
        let url = with_query(url, &[("value", value)]);
        self.done(Call::new(Method::DELETE, url)).await
    }
}
