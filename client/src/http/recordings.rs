use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::call::{Call, Client};
use crate::ClientError;

/// A new recording. The server chooses what is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewRecording {
    /// The storage to record into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Uuid>,
    /// Name of a new storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only packets of these agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// The chain of processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<Value>,
    /// Delay before the start.
    pub delay_seconds: u64,
    /// Maximum duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<u64>,
    /// Whether to finalize the storage at the end.
    pub auto_finalize: bool,
    /// Event that starts the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<NewTrigger>,
}

/// The event that starts a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewTrigger {
    /// Query that matches it.
    pub query: String,
    /// How much from before the event is also recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_seconds: Option<u64>,
}

/// A recording as the server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Id, UUIDv7.
    pub id: Uuid,
    /// The storage that it writes.
    pub storage: Uuid,
    /// SCHEDULED, ON, SUSPENDED or OFF.
    pub state: String,
    /// Whether the server began it by itself.
    #[serde(default)]
    pub standing: bool,
    /// Why it ended.
    #[serde(default)]
    pub reason: Option<String>,
    /// Start time, RFC 3339.
    #[serde(default)]
    pub started: Option<String>,
    /// Counts of accepted and written packets and events.
    #[serde(default)]
    pub counts: Map<String, Value>,
    /// Any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Client {
    /// How much the buffer contains, and how much it has evicted.
    ///
    /// # Errors
    /// If the server is unreachable.
    pub async fn buffer(&self) -> Result<Map<String, Value>, ClientError> {
        self.json(Call::new(Method::GET, self.server().api(&["buffer"])))
            .await
    }

    /// Copies packets from the buffer into a storage. What the answer counts is durable.
    ///
    /// # Errors
    /// If the server refuses it or is unreachable.
    pub async fn copy_buffer(&self, request: &Value) -> Result<Value, ClientError> {
        let url = self.server().api(&["buffer", "copy"]);
        self.json(Call::new(Method::POST, url).json(request)).await
    }

    /// Starts a recording.
    ///
    /// # Errors
    /// If the server refuses it or is unreachable.
    pub async fn start_recording(&self, new: &NewRecording) -> Result<Recording, ClientError> {
        let url = self.server().api(&["recordings"]);
        self.json(Call::new(Method::POST, url).json(new)).await
    }

    /// All recordings, oldest first.
    ///
    /// # Errors
    /// If the server is unreachable.
    pub async fn recordings(&self) -> Result<Vec<Recording>, ClientError> {
        self.list(&["recordings"], &[]).await
    }

    /// Stops a recording. Returns when everything it accepted is durable.
    ///
    /// # Errors
    /// If there is no such recording, or the server is unreachable.
    pub async fn stop_recording(&self, id: Uuid) -> Result<Recording, ClientError> {
        let url = self.server().api(&["recordings", &id.to_string()]);
        self.json(Call::new(Method::DELETE, url)).await
    }
}
