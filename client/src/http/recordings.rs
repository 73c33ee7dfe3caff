use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::call::{Call, Client};
use crate::ClientError;

/// What is to be recorded; what is `None` or empty is left to the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewRecording {
    /// The storage to fill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Uuid>,
    /// Name of a storage that is made for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only what comes from these agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// The chain of processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<Value>,
    /// Starts so long from now.
    pub delay_seconds: u64,
    /// Lasts so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<u64>,
    /// Whether the storage is finalized at the end.
    pub auto_finalize: bool,
    /// Starts with an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<NewTrigger>,
}

/// The event that starts a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewTrigger {
    /// The query that it matches.
    pub query: String,
    /// How much of what came before is recorded too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_seconds: Option<u64>,
}

/// A recording as the server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Id, UUIDv7.
    pub id: Uuid,
    /// The storage it fills.
    pub storage: Uuid,
    /// SCHEDULED, ON or OFF.
    pub state: String,
    /// Why it ended.
    #[serde(default)]
    pub reason: Option<String>,
    /// When it starts or started, RFC 3339.
    #[serde(default)]
    pub started: Option<String>,
    /// What it took and wrote.
    #[serde(default)]
    pub counts: Map<String, Value>,
    /// Whatever else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Client {
    /// Starts a recording.
    ///
    /// # Errors
    /// When the server refuses it or cannot be reached.
    pub async fn start_recording(&self, new: &NewRecording) -> Result<Recording, ClientError> {
        let url = self.server().api(&["recordings"]);
        self.json(Call::new(Method::POST, url).json(new)).await
    }

    /// All recordings, oldest first.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn recordings(&self) -> Result<Vec<Recording>, ClientError> {
        self.list(&["recordings"], &[]).await
    }

    /// Stops a recording; answers when all it took is durable.
    ///
    /// # Errors
    /// When there is none with this id, or the server cannot be reached.
    pub async fn stop_recording(&self, id: Uuid) -> Result<Recording, ClientError> {
        let url = self.server().api(&["recordings", &id.to_string()]);
        self.json(Call::new(Method::DELETE, url)).await
    }
}
