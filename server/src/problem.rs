//! Refusals of requests: problem documents (RFC 9457) with stable codes.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::receipts::Receipts;

/// Media type of a problem document.
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A refusal. The gate renders the document, because only the gate knows the request id.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: Cow<'static, str>,
    cause: Cow<'static, str>,
    remedy: Cow<'static, str>,
    retry_after_seconds: Option<u64>,
    closes: bool,
    members: Map<String, Value>,
    /// The receipts of packets before the refused one.
    receipts: Option<Arc<Receipts>>,
}

/// The document as clients receive it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemDocument<'a> {
    /// URN of the code.
    #[serde(rename = "type")]
    #[schema(rename = "type", value_type = String)]
    kind: String,
    /// Title, the same for every problem with this code.
    #[schema(value_type = String)]
    title: &'a str,
    /// HTTP status.
    status: u16,
    /// Stable name of the problem.
    #[schema(value_type = String)]
    code: &'a str,
    /// What is wrong with this request.
    #[schema(value_type = String)]
    detail: &'a str,
    /// Why this is a problem.
    #[schema(value_type = String)]
    cause: &'a str,
    /// What to do.
    #[schema(value_type = String)]
    remedy: &'a str,
    /// Request id, as in `X-Request-Id` and in the server's log.
    #[schema(value_type = String)]
    instance: &'a str,
    /// Additional members of some codes, such as `receipts` or `expected_sequence`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    members: &'a Map<String, Value>,
}

impl Problem {
    /// A refusal with `status`, a stable `code`, and the `title` that belongs to the code.
    pub(crate) fn new(status: StatusCode, code: &'static str, title: &'static str) -> Self {
        Self(Box::new(Parts {
            status,
            code,
            title,
            detail: Cow::Borrowed(title),
            cause: Cow::Borrowed(""),
            remedy: Cow::Borrowed(""),
            retry_after_seconds: None,
            closes: false,
            members: Map::new(),
            receipts: None,
        }))
    }

    /// What is wrong with this request.
    pub(crate) fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// Why this is a problem.
    pub(crate) fn cause(mut self, cause: impl Into<Cow<'static, str>>) -> Self {
        self.0.cause = cause.into();
        self
    }

    /// What to do.
    pub(crate) fn remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.0.remedy = remedy.into();
        self
    }

    /// Sends `Retry-After`.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after_seconds = Some(seconds);
        self
    }

    /// Closes the connection after the response: the start of the next request is unknown, or the
    /// server should not wait for it.
    pub(crate) fn closing(mut self) -> Self {
        self.0.closes = true;
        self
    }

    /// Adds a member to the document.
    pub(crate) fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.members.insert(name.to_owned(), value.into());
        self
    }

    /// Adds the receipts of packets before the refused one as the member `receipts`.
    pub(crate) fn receipts(mut self, receipts: Receipts) -> Self {
        self.0.receipts = Some(Arc::new(receipts));
        self
    }

    /// A member that is text.
    pub(crate) fn text_member(&self, name: &str) -> Option<&str> {
        self.0.members.get(name)?.as_str()
    }

    /// Value of `Retry-After`.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.0.retry_after_seconds
    }

    /// HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Stable name of the problem.
    pub(crate) fn code(&self) -> &'static str {
        self.0.code
    }

    /// Detail and cause, for the log.
    pub(crate) fn what(&self) -> String {
        format!("{}: {}", self.0.detail, self.0.cause)
    }

    /// What to do.
    pub(crate) fn advice(&self) -> &str {
        &self.0.remedy
    }

    /// The document for request `instance`, without receipts.
    pub(crate) fn document(&self, instance: &str) -> Vec<u8> {
        let parts = &*self.0;
        let document = ProblemDocument {
            kind: format!("urn:tracehold:problem:{}", parts.code),
            title: parts.title,
            status: parts.status.as_u16(),
            code: parts.code,
            detail: &parts.detail,
            cause: &parts.cause,
            remedy: &parts.remedy,
            instance,
            members: &parts.members,
        };
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// Fills `response` with the document for request `instance`; other header fields are retained.
    pub(crate) fn render(&self, instance: &str, response: &mut Response) {
        let parts = &*self.0;
        let mut body = self.document(instance);
        let body = match &parts.receipts {
            Some(receipts) if body.pop() == Some(b'}') => {
                body.extend_from_slice(b",\"receipts\":");
                Arc::clone(receipts).body(body, b"}".to_vec())
            }
            _ => Body::from(body),
        };
        *response.status_mut() = parts.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.remove(header::CONTENT_LENGTH);
        if let Some(seconds) = parts.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if parts.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        *response.body_mut() = body;
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.0.status;
        response.extensions_mut().insert(self);
        response
    }
}
