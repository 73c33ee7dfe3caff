use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::call::{Call, Client};
use crate::ClientError;

/// What is to be traced of the server's own I/O; see `POST /api/v1/io-trace/start`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IoTraceStart {
    /// Name of the storage that the trace goes to.
    pub name: String,
    /// `stop_at_limit` or `ring`.
    pub mode: String,
    /// Bytes of packets at most; without it, what the server allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Of an operation, one in so many is recorded.
    pub operations: std::collections::BTreeMap<String, u32>,
    /// Of the stretches of files, one in so many is recorded.
    pub blocks_one_in: u32,
    /// Only what happens in these storages.
    pub storages: Vec<Uuid>,
}

/// How the trace of the server's own I/O stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IoTraceStatus {
    /// `off`, `running` or `ended`.
    pub state: String,
    /// The storage of the trace that runs, or of the last one.
    #[serde(default)]
    pub storage: Option<Uuid>,
    /// Whatever else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Client {
    /// Starts to trace the server's own I/O.
    pub async fn start_io_trace(&self, start: &IoTraceStart) -> Result<IoTraceStatus, ClientError> {
        let url = self.server().api(&["io-trace", "start"]);
        self.json(Call::new(Method::POST, url).json(start)).await
    }

    /// Stops the trace; answers when its storage is finalized.
    pub async fn stop_io_trace(&self) -> Result<IoTraceStatus, ClientError> {
        let url = self.server().api(&["io-trace", "stop"]);
        self.json(Call::new(Method::POST, url)).await
    }

    /// How the trace that runs stands, or how the last one ended.
    pub async fn io_trace(&self) -> Result<IoTraceStatus, ClientError> {
        let url = self.server().api(&["io-trace"]);
        self.json(Call::new(Method::GET, url)).await
    }
}
