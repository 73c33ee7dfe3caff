use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::call::{Call, Client};
use super::jobs::Job;
use super::problem::Problem;
use crate::ClientError;

/// A new storage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewStorage {
    /// Display name; need not be unique.
    pub name: String,
    /// Description.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Labels: type to value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether to open it.
    pub open: bool,
}

/// A storage as the server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// Id, UUIDv7.
    pub id: Uuid,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// State, in upper case.
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
    /// Any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Which storages to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageFilter {
    /// Only this state.
    pub state: Option<String>,
    /// Only with this label: `type`, `type:value`, or a comparison.
    pub label: Option<String>,
    /// Only with this name.
    pub name: Option<String>,
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    /// The damage found.
    #[serde(default)]
    pub damage: Vec<Damage>,
    /// Packets that are missing, at most.
    #[serde(default)]
    pub missing_packets: u64,
    /// What is missing.
    #[serde(default)]
    pub missing: Vec<Missing>,
    /// Why it is not known what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_unknown: Option<String>,
    /// What a repair does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<RepairResult>,
    /// Whatever else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Packets that are missing: they were acknowledged, and their bytes are damaged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Missing {
    /// First number.
    pub first: u64,
    /// Last number.
    pub last: u64,
    /// Name of the damaged file.
    pub file: String,
    /// Where the damage begins.
    pub offset: u64,
    /// Damaged bytes.
    pub length: u64,
    /// The leaf, if it is known.
    #[serde(default)]
    pub leaf: Option<String>,
}

/// What a repair does, or has done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepairResult {
    /// Whether there is anything to repair.
    pub needed: bool,
    /// Whether the storage was repaired.
    pub repaired: bool,
    /// Packets that are copied to a new data file.
    pub copied_packets: u64,
    /// Bytes of these packets.
    pub copied_bytes: u64,
}

/// Damage in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Damage {
    /// Name of the file.
    pub file: String,
    /// Offset in the file, if known.
    #[serde(default)]
    pub offset: Option<u64>,
    /// What is damaged.
    pub what: String,
}

impl Client {
    /// Creates a storage. `key` makes the call idempotent.
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

    /// The id of the storage with the given id, or with a name that is unique, for a push. If the
    /// storage cannot be looked at now, the push itself waits: it may have to be the reason why
    /// another node takes the storage over.
    pub async fn find_storage_to_fill(&self, text: &str) -> Result<Uuid, ClientError> {
        let Ok(id) = text.parse::<Uuid>() else {
            return Ok(self.find_storage(text).await?.id);
        };
        let url = self.server().api(&["storages", &id.to_string()]);
        match self.send_once(&Call::new(Method::GET, url)).await {
            Err(failed) if failed.reason.is_none() => Err(failed.error),
            Ok(_) | Err(_) => Ok(id),
        }
    }

    /// The storage with the given id, or with a name that is unique.
    pub async fn find_storage(&self, text: &str) -> Result<Storage, ClientError> {
        if let Ok(id) = text.parse() {
            return self.storage(id).await;
        }
        let filter = StorageFilter {
            name: Some(text.to_owned()),
            ..StorageFilter::default()
        };
        let mut found = self.storages(&filter).await?;
        // The server's filter may match more than equal names.
        found.retain(|storage| storage.name == text);
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(ClientError::Refused(Box::new(Problem {
                status: 404,
                code: "storage_not_found".to_owned(),
                detail: format!("no storage is named {text:?} on {}", self.server()),
                remedy: "list the storages with `tracehold storage list`".to_owned(),
                ..Problem::default()
            }))),
            count => Err(ClientError::input(format!(
                "{count} storages are named {text:?}; use one of their ids: {}",
                found
                    .iter()
                    .map(|s| s.id.to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
        }
    }

    /// The status of a storage: writer state, queues, losses, rates.
    pub async fn storage_status(&self, id: Uuid) -> Result<Map<String, Value>, ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "status"]);
        self.json(Call::new(Method::GET, url)).await
    }

    /// Opens a created storage for writing.
    pub async fn open_storage(&self, id: Uuid) -> Result<Storage, ClientError> {
        self.move_storage(id, "open").await
    }

    /// Finalizes a storage. Returns when everything is on disk.
    pub async fn finalize_storage(&self, id: Uuid) -> Result<Storage, ClientError> {
        match self.move_storage(id, "finalize").await {
            Err(error @ ClientError::Transport { .. }) => {
                // The storage may have been finalized although the response was lost.
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

    /// Deletes a storage and all its files; one whose labels are lost only `without_labels`.
    pub async fn delete_storage(&self, id: Uuid, without_labels: bool) -> Result<(), ClientError> {
        let mut url = self.server().api(&["storages", &id.to_string()]);
        if without_labels {
            url.push_str("?without_labels=true");
        }
        self.done(Call::new(Method::DELETE, url)).await
    }

    /// Starts a copy of a storage and returns the job.
    pub async fn copy_storage(&self, id: Uuid, request: &Value) -> Result<Job, ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "copy"]);
        let call = Call::new(Method::POST, url).json(request);
        self.json(call.header("prefer", "respond-async".to_owned()))
            .await
    }

    /// Starts a verification of a storage, or the step `plan` or `confirm` of a repair, and returns
    /// the job.
    pub async fn verify_storage(&self, id: Uuid, repair: Option<&str>) -> Result<Job, ClientError> {
        let mut url = self.server().api(&["storages", &id.to_string(), "verify"]);
        if let Some(step) = repair {
            url.push_str("?repair=");
            url.push_str(step);
        }
        let call = Call::new(Method::POST, url).header("prefer", "respond-async".to_owned());
        self.json(call).await
    }
}
