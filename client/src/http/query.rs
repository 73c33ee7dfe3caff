use bytes::Bytes;
use reqwest::{Method, Response};
use serde::Serialize;
use uuid::Uuid;

use super::call::{Call, Client, causes};
use crate::ClientError;

/// What is requested of a storage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QuerySpec {
    /// Which events; all without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Only events that start at or after this time, in nanoseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    /// Only events that start before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
    /// Fields of the rows, instead of all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Only the number of matching events.
    pub count: bool,
    /// What the matching events add up to, by the values of this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
    /// `ndjson`, `csv`, `text`, `arrow`, `parquet` or `perfetto`.
    pub format: &'static str,
    /// Tell in a last line what was ruled out and what was read.
    pub explain: bool,
}

/// An answer on its way here.
#[derive(Debug)]
pub struct QueryRows {
    response: Response,
}

impl Client {
    /// Asks a storage for events.
    pub async fn query(&self, storage: Uuid, spec: &QuerySpec) -> Result<QueryRows, ClientError> {
        let url = self
            .server()
            .api(&["storages", &storage.to_string(), "query"]);
        // Asking twice changes nothing.
        let call = Call::new(Method::POST, url).json(spec).repeatable();
        Ok(QueryRows {
            response: self.send(call).await?,
        })
    }
}

impl QueryRows {
    /// How many events match, where the server knew that before it began to answer.
    pub fn matched(&self) -> Option<u64> {
        let matched = self.response.headers().get("tracehold-matched")?;
        matched.to_str().ok()?.parse().ok()
    }

    /// The next bytes; `None` when the answer is complete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let url = self.response.url().to_string();
        let chunk = self.response.chunk().await;
        chunk.map_err(|error| ClientError::Transport {
            method: "POST".to_owned(),
            url,
            what: format!(
                "the answer broke off, so rows are missing: {}",
                causes(&error)
            ),
        })
    }
}
