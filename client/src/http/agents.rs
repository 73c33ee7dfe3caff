use std::collections::BTreeMap;

use bytes::Bytes;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::call::{Call, Client, Content};
use crate::ClientError;

/// The properties of an agent at registration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AgentSpec {
    /// Display name.
    pub name: String,
    /// Host that the traces come from.
    pub host: String,
    /// Further attributes.
    pub attributes: BTreeMap<String, String>,
}

/// An agent as the server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Id.
    pub id: String,
    /// Its streams.
    #[serde(default)]
    pub streams: Vec<Stream>,
    /// Whether the server has its trace metadata.
    #[serde(default)]
    pub has_metadata: bool,
    /// Bytes of its packets as stored, in all storages; `None` while they are not known.
    #[serde(default)]
    pub stored_bytes: Option<u64>,
    /// As many may be stored; `None` for no limit.
    #[serde(default)]
    pub quota_bytes_max: Option<u64>,
    /// Whether the quota was set for this agent.
    #[serde(default)]
    pub has_own_quota: bool,
    /// Name, host, attributes and any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A declared stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Id.
    pub id: String,
    /// Kind of its packets.
    pub kind: String,
    /// Any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The declaration of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamSpec {
    /// Kind of its packets; it never changes.
    pub kind: String,
    /// Leaf type; `None` for the server's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf: Option<String>,
    /// Codec on disk; `None` for the server's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
}

impl Client {
    /// Registers an agent, or updates its properties.
    pub async fn register_agent(&self, agent: &str, spec: &AgentSpec) -> Result<(), ClientError> {
        let url = self.server().api(&["agents", agent]);
        self.done(Call::new(Method::PUT, url).json(spec)).await
    }

    /// All agents.
    pub async fn agents(&self) -> Result<Vec<Agent>, ClientError> {
        self.list(&["agents"], &[]).await
    }

    /// Deletes an agent with its streams and trace metadata.
    pub async fn delete_agent(&self, agent: &str) -> Result<(), ClientError> {
        let url = self.server().api(&["agents", agent]);
        self.done(Call::new(Method::DELETE, url)).await
    }

    /// Gives an agent a quota of its own: bytes of its packets as stored, or `None` for no limit.
    pub async fn set_agent_quota(
        &self,
        agent: &str,
        bytes_max: Option<u64>,
    ) -> Result<(), ClientError> {
        let url = self.server().api(&["agents", agent, "quota"]);
        let quota = serde_json::json!({ "bytes_max": bytes_max });
        self.done(Call::new(Method::PUT, url).json(&quota)).await
    }

    /// Lets the quota of the settings apply to an agent again.
    pub async fn remove_agent_quota(&self, agent: &str) -> Result<(), ClientError> {
        let url = self.server().api(&["agents", agent, "quota"]);
        self.done(Call::new(Method::DELETE, url)).await
    }

    /// Replaces the trace metadata of an agent. With `allow_invalid`, the server also stores what
    /// it cannot parse.
    pub async fn set_agent_metadata(
        &self,
        agent: &str,
        text: Bytes,
        allow_invalid: bool,
    ) -> Result<(), ClientError> {
        let mut url = self.server().api(&["agents", agent, "metadata"]);
        if allow_invalid {
            url.push_str("?allow_invalid=true");
        }
        let mut call = Call::new(Method::PUT, url);
        call.content = Some(Content {
            content_type: "application/octet-stream",
            chunks: vec![text],
        });
        self.done(call).await
    }

    /// Declares a stream. Repeating a declaration has no effect.
    pub async fn declare_stream(
        &self,
        agent: &str,
        stream: &str,
        spec: &StreamSpec,
    ) -> Result<(), ClientError> {
        let url = self.server().api(&["agents", agent, "streams", stream]);
        self.done(Call::new(Method::PUT, url).json(spec)).await
    }
}
