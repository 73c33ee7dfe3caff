use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::call::{Call, Client};
use super::jobs::Job;
use super::problem::Problem;
use crate::ClientError;

/// What a new storage shall be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewStorage {
    /// Name for people; need not be unique.
    pub name: String,
    /// Longer text for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Labels, type to value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether it takes packets at once.
    pub open: bool,
}

/// A storage as the server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// Id, UUIDv7.
    pub id: Uuid,
    /// Name for people.
    #[serde(default)]
    pub name: String,
    /// State, upper case.
    pub state: String,
    /// Bytes on disk.
    #[serde(default)]
    pub bytes: u64,
    /// Packets written.
    #[serde(default)]
    pub packets: u64,
    /// When it was created, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Whatever else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Which storages to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageFilter {
    /// Only this state.
    pub state: Option<String>,
    /// Only with this label, `type` or `type:value`.
    pub label: Option<String>,
    /// Only with this name.
    pub name: Option<String>,
}

/// What a storage was found to be when all of it was read again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Files read.
    #[serde(default)]
    pub files: u64,
    /// Packets read.
    #[serde(default)]
    pub packets: u64,
    /// Bytes read.
    #[serde(default)]
    pub bytes: u64,
    /// What is damaged; empty when nothing is.
    #[serde(default)]
    pub damage: Vec<Damage>,
    /// Whatever else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// One damaged place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Damage {
    /// Name of the file.
    pub file: String,
    /// Offset in it, where one is known.
    #[serde(default)]
    pub offset: Option<u64>,
    /// What is wrong there.
    pub what: String,
}

impl Client {
    /// Creates a storage. `key` makes a repetition of the same call harmless.
    pub async fn create_storage(
        &self,
        new: &NewStorage,
        key: Uuid,
    ) -> Result<Storage, ClientError> {
        let call = Call::new(Method::POST, self.server().api(&["storages"]))
            .json(new)
            .header("idempotency-key", key.to_string())
            .repeatable();
        self.json(call).await
    }

    /// All storages that match the filter.
    pub async fn storages(&self, filter: &StorageFilter) -> Result<Vec<Storage>, ClientError> {
        let filter = [
            ("state", filter.state.as_deref()),
            ("label", filter.label.as_deref()),
            ("name", filter.name.as_deref()),
        ];
        self.list(&["storages"], &filter).await
    }

    /// One storage.
    pub async fn storage(&self, id: Uuid) -> Result<Storage, ClientError> {
        let url = self.server().api(&["storages", &id.to_string()]);
        self.json(Call::new(Method::GET, url)).await
    }

    /// The storage that `text` means: its id, or a name that only one storage has.
    pub async fn find_storage(&self, text: &str) -> Result<Storage, ClientError> {
        if let Ok(id) = text.parse() {
            return self.storage(id).await;
        }
        let filter = StorageFilter {
            name: Some(text.to_owned()),
            ..StorageFilter::default()
        };
        let mut found = self.storages(&filter).await?;
        // The server's filter may be broader than equality.
        found.retain(|storage| storage.name == text);
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(ClientError::Refused(Box::new(Problem {
                status: 404,
                code: "storage_not_found".to_owned(),
                detail: format!("no storage is named {text:?} on {}", self.server()),
                remedy: "`tracehold storage list` shows all".to_owned(),
                ..Problem::default()
            }))),
            count => Err(ClientError::input(format!(
                "{count} storages are named {text:?}; name one by its id: {}",
                found
                    .iter()
                    .map(|s| s.id.to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
        }
    }

    /// What a storage is doing: write status, queues, losses, rates.
    pub async fn storage_status(&self, id: Uuid) -> Result<Map<String, Value>, ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "status"]);
        self.json(Call::new(Method::GET, url)).await
    }

    /// Makes a created storage take packets.
    pub async fn open_storage(&self, id: Uuid) -> Result<Storage, ClientError> {
        self.move_storage(id, "open").await
    }

    /// Ends writing: drains, syncs, publishes. Answers when all is on disk.
    pub async fn finalize_storage(&self, id: Uuid) -> Result<Storage, ClientError> {
        match self.move_storage(id, "finalize").await {
            Err(error @ ClientError::Transport { .. }) => {
                // It may have happened although the answer was lost.
                let storage = self.storage(id).await?;
                if storage.state == "FINALIZED" {
                    Ok(storage)
                } else {
                    Err(error)
                }
            }
            done => done,
        }
    }

    async fn move_storage(&self, id: Uuid, verb: &str) -> Result<Storage, ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), verb]);
        self.done(Call::new(Method::POST, url)).await?;
        self.storage(id).await
    }

    /// Deletes a storage with all its files.
    pub async fn delete_storage(&self, id: Uuid) -> Result<(), ClientError> {
        let url = self.server().api(&["storages", &id.to_string()]);
        self.done(Call::new(Method::DELETE, url)).await
    }

    /// Has the server copy what `wanted` names of a storage; gives the job that does it.
    pub async fn copy_storage(&self, id: Uuid, wanted: &Value) -> Result<Job, ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "copy"]);
        let call = Call::new(Method::POST, url).json(wanted);
        self.json(call.header("prefer", "respond-async".to_owned()))
            .await
    }

    /// Has the server read everything again; gives the job that does it.
    pub async fn verify_storage(&self, id: Uuid) -> Result<Job, ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "verify"]);
        let call = Call::new(Method::POST, url).header("prefer", "respond-async".to_owned());
        self.json(call).await
    }
}
