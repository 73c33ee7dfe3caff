use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
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

/// A type of labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelType {
    /// Its name.
    pub name: String,
    /// Type of the values: `boolean`, `number`, `date`, `string` or `time_frame`.
    pub value_type: String,
    /// Whether a storage may have several values of it.
    pub several: bool,
    /// Number of storages that have it.
    pub storages: u64,
    /// Its values.
    pub values: Vec<LabelTypeValue>,
    /// Any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A value that storages have, or that is suggested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelTypeValue {
    /// The value.
    pub value: Value,
    /// Number of storages that have it.
    pub storages: u64,
    /// Any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Client {
    /// All label types with their values.
    pub async fn label_types(&self) -> Result<Vec<LabelType>, ClientError> {
        self.list(&["label-types"], &[]).await
    }

    /// Declares a label type; what is not given is that of the existing type.
    pub async fn declare_label_type(
        &self,
        name: &str,
        (value_type, several): (Option<&str>, Option<bool>),
    ) -> Result<LabelType, ClientError> {
        let url = self.server().api(&["label-types", name]);
        let mut declaration = Map::new();
        declaration.extend(value_type.map(|it| ("value_type".to_owned(), it.into())));
        declaration.extend(several.map(|it| ("several".to_owned(), it.into())));
        let call = Call::new(Method::PUT, url).json(&Value::Object(declaration));
        self.json(call.repeatable()).await
    }

    /// Deletes a label type. While storages have it that is refused, unless `remove`.
    pub async fn delete_label_type(&self, name: &str, remove: bool) -> Result<(), ClientError> {
        let url = self.server().api(&["label-types", name]);
        let url = with_query(url, &[("remove", remove.then_some("true"))]);
        self.done(Call::new(Method::DELETE, url)).await
    }

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
