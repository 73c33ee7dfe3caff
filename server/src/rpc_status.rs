//! `google.rpc.Status`: how OTLP says why a request was refused, over HTTP and over gRPC.

use http::StatusCode;
use serde_json::json;
use trace_kinds::protobuf::{put_bytes, put_nonzero, put_number};

use crate::problem::Problem;

/// The types of the details, and the field that a violation names.
pub(crate) const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
const VIOLATED: &str = "resourceSpans";
/// When to retry if no better value is known.
const RETRY_SECONDS: u64 = 1;

/// A code of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    Ok = 0,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Code {
    /// The number on the wire.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// The code of a refusal of the server as a whole, by its HTTP status.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        match status.as_u16() {
            401 => Self::Unauthenticated,
            403 | 421 => Self::PermissionDenied,
            404 | 405 | 501 | 505 => Self::Unimplemented,
            408 | 409 | 503 | 507 => Self::Unavailable,
            429 => Self::ResourceExhausted,
            400..=499 => Self::InvalidArgument,
            _ => Self::Internal,
        }
    }
}

/// Why a request of spans was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcStatus {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// What is wrong with the request itself.
    pub(crate) violation: Option<Violation>,
    /// A sender may retry after this many seconds, and must not without.
    pub(crate) retry_after_seconds: Option<u64>,
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The path of the field, as JSON names it.
    field: String,
    description: String,
}

impl RpcStatus {
    /// A refusal that a retry does not change.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            violation: None,
            retry_after_seconds: None,
        }
    }

    /// The HTTP status and the status of a refusal of spans. Senders retry only after 429 and 503.
    pub(crate) fn of_spans(problem: &Problem) -> (StatusCode, Self) {
        let status = match problem.status() {
            // All of these can succeed later: space is freed, the failed recording ends, the server
            // returns.
            StatusCode::INSUFFICIENT_STORAGE
            | StatusCode::CONFLICT
            | StatusCode::NOT_FOUND
            // The body may arrive faster next time, and senders do not retry after 408.
            | StatusCode::REQUEST_TIMEOUT => StatusCode::SERVICE_UNAVAILABLE,
            status => status,
        };
        let code = match status {
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::FORBIDDEN => Code::PermissionDenied,
            StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
            StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
            status if status.is_client_error() => Code::InvalidArgument,
            _ => Code::Unknown,
        };
        let is_bad = status == StatusCode::BAD_REQUEST;
        let of_spans = Self {
            code,
            message: format!("{}: {}", problem.code(), problem.what()),
            violation: is_bad.then(|| Violation {
                field: problem.text_member("field").unwrap_or(VIOLATED).to_owned(),
                description: problem.what(),
            }),
            retry_after_seconds: retry_after(code, problem),
        };
        (status, of_spans)
    }

    /// The status of a refusal that applies to all routes.
    pub(crate) fn of_problem(problem: &Problem) -> Self {
        let code = Code::of_status(problem.status());
        Self {
            code,
            message: format!(
                "{}: {}; {}",
                problem.code(),
                problem.what(),
                problem.advice()
            ),
            violation: None,
            retry_after_seconds: retry_after(code, problem),
        }
    }

    /// The message without the time of a retry, which HTTP says in a field.
    pub(crate) fn for_http(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_number(&mut body, field::CODE, u64::from(self.code.number()));
        put_bytes(&mut body, field::MESSAGE, self.message.as_bytes());
        if let Some(violation) = &self.violation {
            put_bytes(&mut body, field::DETAILS, &bad_request(violation));
        }
        body
    }

    /// The complete message.
    pub(crate) fn to_protobuf(&self) -> Vec<u8> {
        let mut body = self.for_http();
        if let Some(seconds) = self.retry_after_seconds {
            let (mut delay, mut info) = (Vec::new(), Vec::new());
            put_nonzero(&mut delay, field::DURATION_SECONDS, seconds);
            put_bytes(&mut info, field::RETRY_DELAY, &delay);
            put_bytes(&mut body, field::DETAILS, &any(RETRY_INFO, &info));
        }
        body
    }

    /// As [`Self::for_http`], as JSON.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut body = json!({"code": self.code.number(), "message": self.message});
        if let Some(Violation { field, description }) = &self.violation {
            let violation = json!({"field": field, "description": description});
            body["details"] = json!([{"@type": BAD_REQUEST, "fieldViolations": [violation]}]);
        }
        body.to_string().into_bytes()
    }
}

fn retry_after(code: Code, problem: &Problem) -> Option<u64> {
    let is_retryable = matches!(code, Code::ResourceExhausted | Code::Unavailable);
    is_retryable.then(|| problem.retry_after_seconds().unwrap_or(RETRY_SECONDS))
}

/// A `google.rpc.BadRequest` with one violation.
fn bad_request(of: &Violation) -> Vec<u8> {
    let (mut violation, mut message) = (Vec::new(), Vec::new());
    let named = snake_case(&of.field);
    put_bytes(&mut violation, field::VIOLATION_FIELD, named.as_bytes());
    let description = of.description.as_bytes();
    put_bytes(&mut violation, field::VIOLATION_DESCRIPTION, description);
    put_bytes(&mut message, field::VIOLATIONS, &violation);
    any(BAD_REQUEST, &message)
}

/// A path as protobuf names its fields.
fn snake_case(path: &str) -> String {
    let mut named = String::with_capacity(path.len() + 8);
    for letter in path.chars() {
        if letter.is_ascii_uppercase() {
            named.push('_');
        }
        named.push(letter.to_ascii_lowercase());
    }
    named
}

fn any(kind: &str, message: &[u8]) -> Vec<u8> {
    let mut any = Vec::new();
    put_bytes(&mut any, field::ANY_TYPE_URL, kind.as_bytes());
    put_bytes(&mut any, field::ANY_VALUE, message);
    any
}

/// Field numbers.
mod field {
    /// Of `google.rpc.Status`.
    pub(super) const CODE: u32 = 1;
    pub(super) const MESSAGE: u32 = 2;
    pub(super) const DETAILS: u32 = 3;
    /// Of `google.rpc.BadRequest` and its `FieldViolation`.
    pub(super) const VIOLATIONS: u32 = 1;
    pub(super) const VIOLATION_FIELD: u32 = 1;
    pub(super) const VIOLATION_DESCRIPTION: u32 = 2;
    /// Of `google.rpc.RetryInfo`, and of `google.protobuf.Duration`.
    pub(super) const RETRY_DELAY: u32 = 1;
    pub(super) const DURATION_SECONDS: u32 = 1;
    /// Of `google.protobuf.Any`.
    pub(super) const ANY_TYPE_URL: u32 = 1;
    pub(super) const ANY_VALUE: u32 = 2;
}
