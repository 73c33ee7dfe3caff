use bytes::Bytes;
use reqwest::{Method, Response};
use serde::Serialize;
use uuid::Uuid;

use super::call::{Call, Client, causes};
use crate::ClientError;

/// A query over a storage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QuerySpec {
    /// The expression; `None` matches all events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Only events that start at or after this time, in nanoseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    /// Only events that start before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
    /// Fields of the rows; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Return only the number of matching events.
    pub count: bool,
    /// Aggregate the matching events by this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
    /// `ndjson`, `csv`, `text`, `arrow`, `parquet` or `perfetto`.
    pub format: &'static str,
    /// Append a line that says what was ruled out and what was read.
    pub explain: bool,
}

/// A response that is being received.
#[derive(Debug)]
pub struct QueryRows {
    response: Response,
}

impl Client {
    /// Runs a query over a storage.
    pub async fn query(&self, storage: Uuid, spec: &QuerySpec) -> Result<QueryRows, ClientError> {
        let url = self
            .server()
            .api(&["storages", &storage.to_string(), "query"]);
        // A query has no side effects.
        let call = Call::new(Method::POST, url).json(spec).repeatable();
        Ok(QueryRows {
            response: self.send(call).await?,
        })
    }
}

impl QueryRows {
    /// The number of matching events, if the server knew it when it sent the headers.
    pub fn matched(&self) -> Option<u64> {
        let matched = self.response.headers().get("tracehold-matched")?;
        matched.to_str().ok()?.parse().ok()
    }

    /// The next bytes; `None` if the response is complete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let url = self.response.url().to_string();
        let chunk = self.response.chunk().await;
        chunk.map_err(|error| ClientError::Transport {
            method: "POST".to_owned(),
            url,
            what: format!(
                "the response was interrupted, so rows are missing: {}",
                causes(&error)
            ),
        })
    }
}
