use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::call::{Call, Client};
use crate::ClientError;

/// Parameters of an I/O trace; see `POST /api/v1/io-trace/start`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IoTraceStart {
    /// Name of the storage for the trace.
    pub name: String,
    /// `stop_at_limit` or `ring`.
    pub mode: String,
    /// Maximum bytes of packets; `None` for the server's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Sampling rate by operation: one in so many calls is recorded.
    pub operations: std::collections::BTreeMap<String, u32>,
    /// Sampling rate of file blocks: one in so many is recorded.
    pub blocks_one_in: u32,
    /// Only operations on these storages.
    pub storages: Vec<Uuid>,
}

/// The state of the server's I/O trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IoTraceStatus {
    /// `off`, `running` or `ended`.
    pub state: String,
    /// The storage of the running trace, or of the last one.
    #[serde(default)]
    pub storage: Option<Uuid>,
    /// Any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Client {
    /// Starts an I/O trace of the server.
    pub async fn start_io_trace(&self, start: &IoTraceStart) -> Result<IoTraceStatus, ClientError> {
        let url = self.server().api(&["io-trace", "start"]);
        self.json(Call::new(Method::POST, url).json(start)).await
    }

    /// Stops the trace. Returns when its storage is finalized.
    pub async fn stop_io_trace(&self) -> Result<IoTraceStatus, ClientError> {
        let url = self.server().api(&["io-trace", "stop"]);
        self.json(Call::new(Method::POST, url)).await
    }

    /// The state of the running trace, or the result of the last one.
    pub async fn io_trace(&self) -> Result<IoTraceStatus, ClientError> {
        let url = self.server().api(&["io-trace"]);
        self.json(Call::new(Method::GET, url)).await
    }
}
