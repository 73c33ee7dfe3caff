use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::call::{Call, Client};
use super::problem::Problem;
use crate::ClientError;

/// A job of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Id, UUIDv7.
    pub id: Uuid,
    /// `verify`, `export`, `import` or `copy`.
    pub kind: String,
    /// `RUNNING`, `DONE`, `FAILED` or `CANCELLED`.
    pub state: String,
    /// Bytes processed so far.
    #[serde(default)]
    pub bytes_done: u64,
    /// Bytes to process, if known.
    #[serde(default)]
    pub bytes_total: Option<u64>,
    /// The result of a job that is DONE.
    #[serde(default)]
    pub result: Option<Value>,
    /// Why a job is FAILED.
    #[serde(default)]
    pub problem: Option<Value>,
    /// Any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Job {
    /// The result of a job that has ended, or its error.
    pub fn outcome(self) -> Result<Value, ClientError> {
        if self.state == "DONE" {
            return Ok(self.result.unwrap_or(Value::Null));
        }
        let text = |name: &str| {
            let problem = self.problem.as_ref()?;
            problem.get(name)?.as_str().map(str::to_owned)
        };
        let status = self
            .problem
            .as_ref()
            .and_then(|problem| problem.get("status")?.as_u64());
        Err(ClientError::Refused(Box::new(Problem {
            status: status
                .and_then(|status| status.try_into().ok())
                .unwrap_or(409),
            code: text("code").unwrap_or_else(|| "job_cancelled".to_owned()),
            detail: text("detail").unwrap_or_else(|| "the job was cancelled".to_owned()),
            ..Problem::default()
        })))
    }

    /// Whether the job is still running.
    pub fn is_running(&self) -> bool {
        self.state == "RUNNING"
    }
}

impl Client {
    /// All running jobs and the most recent ended ones.
    pub async fn jobs(&self) -> Result<Vec<Job>, ClientError> {
        self.list(&["jobs"], &[]).await
    }

    /// One job.
    pub async fn job(&self, id: Uuid) -> Result<Job, ClientError> {
        let url = self.server().api(&["jobs", &id.to_string()]);
        self.json(Call::new(Method::GET, url)).await
    }

    /// Cancels a job.
    pub async fn cancel_job(&self, id: Uuid) -> Result<Job, ClientError> {
        let url = self.server().api(&["jobs", &id.to_string()]);
        self.json(Call::new(Method::DELETE, url)).await
    }
}
