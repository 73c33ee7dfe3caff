use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use http_body::Body as _;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Body, Method};
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
    /// Which of `from` and `to` were written without a unit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bare_times: Vec<&'static str>,
    /// Fields of the rows; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Return only the number of matching events.
    pub count: bool,
    /// Return the fields of the matching events by kind.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub list_fields: bool,
    /// Group the matching events by these fields, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
    /// What is computed of each group, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<String>,
    /// Group by intervals of this length, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// Estimate numbers of events in these intervals.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimate: bool,
    /// Group by the power of two below this field, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<String>,
    /// Order by these fields or columns, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_by: Option<String>,
    /// The most rows or groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Rows or groups that are omitted at the beginning.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// `ndjson`, `csv`, `text`, `arrow`, `parquet`, `perfetto` or `chrome`.
    pub format: &'static str,
    /// Append a line that says what was ruled out and what was read.
    pub explain: bool,
    /// Refuse instead of skipping what cannot be read.
    pub strict: bool,
    /// Read derived streams, too.
    pub derived: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A response that is being received.
#[derive(Debug)]
pub struct QueryRows {
    url: String,
    headers: HeaderMap,
    body: Body,
    trailers: HeaderMap,
}

/// What the server skipped because it cannot read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkippedData {
    /// Number of records, packets and other parts.
    pub parts: u64,
    /// Which, and why; some of the reasons if there are many.
    pub reasons: Vec<String>,
}

impl Client {
    /// Runs a query over a storage.
    pub async fn query(&self, storage: Uuid, spec: &QuerySpec) -> Result<QueryRows, ClientError> {
        let url = self
            .server()
            .api(&["storages", &storage.to_string(), "query"]);
        // A query has no side effects.
        let call = Call::new(Method::POST, url.clone()).json(spec).repeatable();
        // What was skipped is known only at the end.
        let call = call.header("te", "trailers".to_owned());
        let call = call.header("connection", "TE".to_owned());
        let response: http::Response<Body> = self.send(call).await?.into();
        let (parts, body) = response.into_parts();
        Ok(QueryRows {
            url,
            headers: parts.headers,
            body,
            trailers: HeaderMap::new(),
        })
    }
}

impl QueryRows {
    /// The number of matching events, if the server knew it when it sent the headers.
    pub fn matched(&self) -> Option<u64> {
        let matched = self.headers.get("tracehold-matched")?;
        matched.to_str().ok()?.parse().ok()
    }

    /// The number of rows, once the response is complete; `None` if the server does not say.
    pub fn rows(&self) -> Option<u64> {
        let rows = self.field("tracehold-rows")?;
        rows.to_str().ok()?.parse().ok()
    }

    /// What a reader of the result must know, once the response is complete.
    pub fn notes(&self) -> Vec<String> {
        let notes = self.field("tracehold-notes");
        let notes = notes.and_then(|json| serde_json::from_slice(json.as_bytes()).ok());
        notes.unwrap_or_default()
    }

    /// A field of the trailer, or else of the header.
    fn field(&self, name: &str) -> Option<&HeaderValue> {
        self.trailers.get(name).or_else(|| self.headers.get(name))
    }

    /// What was skipped, once the response is complete; `None` if the server, or a proxy before
    /// it, does not say.
    pub fn skipped(&self) -> Option<SkippedData> {
        let parts = self
            .field("tracehold-skipped")?
            .to_str()
            .ok()?
            .parse()
            .ok()?;
        let reasons = self.field("tracehold-skipped-reasons");
        let reasons = reasons.and_then(|json| serde_json::from_slice(json.as_bytes()).ok());
        Some(SkippedData {
            parts,
            reasons: reasons.unwrap_or_default(),
        })
    }

    /// The next bytes; `None` if the response is complete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let body = &mut self.body;
            let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| ClientError::Transport {
                method: "POST".to_owned(),
                url: self.url.clone(),
                what: format!(
                    "the response was interrupted, so rows are missing: {}",
                    causes(&error)
                ),
            })?;
            match frame.into_data() {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(frame) => self
                    .trailers
                    .extend(frame.into_trailers().unwrap_or_default()),
            }
        }
    }
}
