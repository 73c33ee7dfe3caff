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
    /// Name of the label type.
    #[serde(rename = "type")]
    pub name: String,
    /// Type of the values: `boolean`, `number`, `date`, `string` or `time_frame`.
    pub value_type: String,
    /// Whether the server sets it, so that it cannot be changed.
    #[serde(default)]
    pub told: bool,
    /// The values.
    pub values: Vec<Value>,
}

impl Client {
    /// The labels of a storage, including those that the server sets.
    pub async fn labels(&self, id: Uuid) -> Result<Vec<Label>, ClientError> {
        self.list(&["storages", &id.to_string(), "labels"], &[])
            .await
    }

    /// Adds a label to a storage. It replaces the existing value unless the type allows several.
    pub async fn add_label(&self, id: Uuid, name: &str, value: &str) -> Result<(), ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "labels"]);
        let label = json!({ "type": name, "value": value });
        self.done(Call::new(Method::POST, url).json(&label).repeatable())
            .await
    }

    /// Removes a label from a storage, or one of its values.
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
