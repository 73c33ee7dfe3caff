//! OTLP/HTTP: spans of OpenTelemetry, as its specification says.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::app_state::AppState;
use crate::ingest::{Form, Taken, prefers_async};
use crate::problem::Problem;

/// Why spans are rejected, for people.
const REJECTED: &str = "spans whose trace id is not 16 bytes, whose span id is not 8, or whose id \
                        is all zero cannot be kept";
/// `Retry-After` where nothing better is known, seconds.
const RETRY_SECONDS: u64 = 1;

/// Takes an `ExportTraceServiceRequest`, in protobuf or JSON, plain, gzip or zstd. Answers when it
/// is durable in every recording that wants it. Answers and refusals are in the form of the
/// request: an `ExportTraceServiceResponse` or a `google.rpc.Status`.
#[utoipa::path(
    post, path = "/v1/traces", tag = "packets",
    params(
        ("Content-Encoding" = Option<String>, Header, description = "gzip or zstd"),
        ("Prefer" = Option<String>, Header, description = "respond-async: do not wait for the disk"),
    ),
    request_body(content(
        (Vec<u8> = "application/x-protobuf"),
        (serde_json::Value = "application/json"),
    )),
    responses(
        (status = 200, description = "Taken, but for the spans that `partial_success` counts"),
        (status = 400, description = "It can never be taken"),
        (status = 413, description = "It is too large, or would be after decompression"),
        (status = 415, description = "Neither protobuf nor JSON, or in an unknown encoding"),
        (status = 429, description = "Busy; send it again after Retry-After"),
        (status = 503, description = "Cannot be kept now; send it again after Retry-After"),
    ),
)]
pub(super) async fn traces(
    State(app): State<Arc<AppState>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body): (_, Body) = request.into_parts();
    let Some(form) = Form::of(&head.headers) else {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "media_type_unsupported",
            "the media type is not supported",
        )
        .cause("Content-Type is neither application/x-protobuf nor application/json")
        .remedy("use the OTLP exporter over HTTP, with protobuf or JSON"));
    };
    match app.traces.take(form, &head.headers, body).await {
        Ok(taken) => {
            let mut response = success(form, taken);
            if prefers_async(&head.headers) {
                // OTLP knows no 202.
                let applied = HeaderValue::from_static("respond-async");
                response.headers_mut().insert("preference-applied", applied);
            }
            Ok(response)
        }
        Err(problem) => {
            app.metrics.refused(problem.code());
            Ok(refusal(form, &problem))
        }
    }
}

fn respond(form: Form, status: StatusCode, body: Vec<u8>) -> Response {
    let media_type = match form {
        Form::Protobuf => HeaderValue::from_static("application/x-protobuf"),
        Form::Json => HeaderValue::from_static("application/json"),
    };
    (status, [(header::CONTENT_TYPE, media_type)], body).into_response()
}

fn success(form: Form, taken: Taken) -> Response {
    let body = match (form, taken.rejected) {
        (Form::Protobuf, 0) => Vec::new(),
        (Form::Json, 0) => b"{}".to_vec(),
        (Form::Protobuf, rejected) => {
            let mut partial = vec![0x08];
            put_varint(&mut partial, rejected);
            put_text(&mut partial, 0x12, REJECTED);
            let mut body = vec![0x0a];
            put_varint(&mut body, partial.len() as u64);
            body.extend_from_slice(&partial);
            body
        }
        (Form::Json, rejected) => json!({"partialSuccess": {
            "rejectedSpans": rejected.to_string(),
            "errorMessage": REJECTED,
        }})
        .to_string()
        .into_bytes(),
    };
    respond(form, StatusCode::OK, body)
}

/// A refusal as OTLP has it. What may be sent again is told by 429 and 503 alone.
fn refusal(form: Form, problem: &Problem) -> Response {
    let status = match problem.status() {
        // Space comes back, a recording that failed is over, the server comes back.
        StatusCode::INSUFFICIENT_STORAGE | StatusCode::CONFLICT | StatusCode::NOT_FOUND => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        status => status,
    };
    // Codes of gRPC: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE, UNKNOWN.
    let code: u8 = match status {
        StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::SERVICE_UNAVAILABLE => 14,
        status if status.is_client_error() => 3,
        _ => 2,
    };
    let message = format!("{}: {}", problem.code(), problem.what());
    let body = match form {
        Form::Protobuf => {
            let mut body = vec![0x08, code];
            put_text(&mut body, 0x12, &message);
            body
        }
        Form::Json => json!({"code": code, "message": message})
            .to_string()
            .into_bytes(),
    };
    let mut response = respond(form, status, body);
    if matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    ) {
        let seconds = problem.retry_after_seconds().unwrap_or(RETRY_SECONDS);
        let seconds = HeaderValue::from(seconds);
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    if status.is_server_error() {
        tracing::error!(
            code = problem.code(),
            what = problem.what(),
            "spans were refused"
        );
    }
    response
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_text(out: &mut Vec<u8>, key: u8, text: &str) {
    out.push(key);
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}
