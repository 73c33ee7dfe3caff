use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::call::{Call, Client};
use super::jobs::Job;
use crate::ClientError;

/// Where a storage is in the object store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// `local`, `chained`, `uploaded`, `evicted` or `remote`.
    pub state: String,
    /// URL of the bucket.
    #[serde(default)]
    pub store: Option<String>,
    /// Bytes of its objects.
    #[serde(default)]
    pub bytes: u64,
    /// The bytes of these that are on the server.
    #[serde(default)]
    pub bytes_here: u64,
    /// What a verification has found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<Vec<String>>,
    /// Any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A node that shares the object store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub node: String,
    /// Where it is reached.
    pub url: String,
    /// `live` or `gone`.
    pub state: String,
    /// Version of its server.
    #[serde(default)]
    pub version: String,
    /// Storages that it has open.
    #[serde(default)]
    pub storages_open: u64,
    /// The newest of these.
    #[serde(default)]
    pub open: Vec<String>,
    /// Any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The nodes as a server lists them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nodes {
    /// The node that was asked.
    pub node: Option<String>,
    /// All nodes.
    pub nodes: Vec<Node>,
}

/// What became of a takeover.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Adopted {
    /// `here`, `sealed`, `written` or `finalized`.
    pub state: String,
    /// Packets that were read from the chain of the storage.
    pub packets: u64,
}

impl Client {
    /// Begins to make the server the writer of a storage whose node is gone.
    pub async fn adopt_storage(&self, id: Uuid, force: bool) -> Result<Job, ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "adopt"]);
        let call = Call::new(Method::POST, url).json(&json!({ "force": force }));
        self.json(call.header("prefer", "respond-async".to_owned()))
            .await
    }

    /// Begins to upload, evict, fetch or verify a storage in the object store.
    pub async fn tier_storage(&self, id: Uuid, action: &str) -> Result<Job, ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "tier"]);
        let call = Call::new(Method::POST, url).json(&json!({ "action": action }));
        self.json(call.header("prefer", "respond-async".to_owned()))
            .await
    }

    /// A client of the node that writes a storage: of this server, unless it says another one.
    pub async fn at_writer(self, id: Uuid) -> Result<Self, ClientError> {
        let url = self.server().api(&["storages", &id.to_string()]);
        let path = url.strip_prefix(&self.server().to_string());
        let path = path.unwrap_or_default().to_owned();
        let call = Call::new(Method::GET, url);
        let mut budget = self.retry_budget();
        let response = loop {
            match self.send_once(&call).await {
                Ok(response) => break response,
                // A push to this node makes it take the storage over, and reading does not.
                Err(failed) if failed.error.is_refused_as("writer_gone") => return Ok(self),
                Err(failed) => budget.wait(failed).await?,
            }
        };
        match response.url().as_str().strip_suffix(&path) {
            Some(base) => Ok(self.with_server(base.parse()?)),
            None => Ok(self),
        }
    }

    /// The nodes that share the object store.
    pub async fn nodes(&self) -> Result<Nodes, ClientError> {
        let url = self.server().api(&["nodes"]);
        self.json(Call::new(Method::GET, url)).await
    }
}
