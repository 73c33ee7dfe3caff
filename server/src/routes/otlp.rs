//! OTLP/HTTP: spans of OpenTelemetry.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderValue, StatusCode, Version, header};
use serde_json::json;
use trace_kinds::protobuf::{put_bytes, put_number};

use crate::access::Caller;
use crate::app_state::AppState;
use crate::grpc::{self, Compression};
use crate::ingest::{ContentEncoding, ExportOutcome, IngestError, OtlpEncoding, prefers_async};
use crate::problem::Problem;
use crate::rpc_status::{Code, RpcStatus};

/// Why spans are rejected, as text for people.
const INVALID: &str = "spans whose trace id is not 16 bytes, whose span id is not 8, or whose id \
                       is all zero cannot be stored";
const NOT_RECORDED: &str = "no recording accepts these spans, so they are not stored: start one \
                            with `tracehold record start`, or set recording.standing = true";

const REFUSED: &str = "these spans could not be stored, or not in every recording, after other \
                       spans of the request were; do not send the request again, because those \
                       would be stored twice; the log of the server has the reason";

/// Accepts an `ExportTraceServiceRequest` in protobuf or JSON, optionally compressed with gzip or
/// zstd. Responds when the spans are durable in every recording that accepts them. Responses have
/// the encoding of the request: an `ExportTraceServiceResponse` or a `google.rpc.Status`.
#[utoipa::path(
    post, operation_id = "export_spans", path = "/v1/traces", tag = "packets",
    params(
        ("Content-Encoding" = Option<String>, Header, description = "gzip or zstd"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    request_body(content(
        (Vec<u8> = "application/x-protobuf"),
        (serde_json::Value = "application/json"),
    )),
    responses(
        (status = 200, description = "Accepted, except the spans that `partial_success` counts"),
        (status = 400, description = "Invalid; a retry cannot succeed"),
        (status = 413, description = "Too large, possibly only after decompression"),
        (status = 415, description = "Neither protobuf nor JSON, or an unknown content encoding"),
        (status = 429, description = "Busy; retry after Retry-After"),
        (status = 503, description = "Cannot be stored now; retry after Retry-After"),
    ),
)]
pub(super) async fn traces(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body): (_, Body) = request.into_parts();
    let Some(encoding) = OtlpEncoding::of(&head.headers) else {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "media_type_unsupported",
            "the media type is not supported",
        )
        .cause("Content-Type is neither application/x-protobuf nor application/json")
        .remedy("use the OTLP exporter over HTTP, with protobuf or JSON"));
    };
    let accepted = async {
        let coding = ContentEncoding::of(&head.headers)?;
        let waits = !prefers_async(&head.headers);
        let sender = (&caller, waits, &head.extensions);
        app.traces.accept(encoding, coding, sender, body).await
    };
    match accepted.await {
        Ok(outcome) => {
            let body = partial_success(encoding, outcome);
            let mut response = respond(encoding, StatusCode::OK, body);
            if prefers_async(&head.headers) {
                // OTLP does not define 202.
                let applied = HeaderValue::from_static("respond-async");
                response.headers_mut().insert("preference-applied", applied);
            }
            Ok(response)
        }
        Err(problem) => {
            app.metrics.refused(problem.code());
            Ok(refusal(encoding, &problem))
        }
    }
}

fn respond(encoding: OtlpEncoding, status: StatusCode, body: Vec<u8>) -> Response {
    let media_type = match encoding {
        OtlpEncoding::Protobuf => HeaderValue::from_static("application/x-protobuf"),
        OtlpEncoding::Json => HeaderValue::from_static("application/json"),
    };
    (status, [(header::CONTENT_TYPE, media_type)], body).into_response()
}

/// The message of a response: empty if nothing was rejected.
fn partial_success(encoding: OtlpEncoding, outcome: ExportOutcome) -> Vec<u8> {
    let reasons: Vec<String> = [
        (outcome.rejected, INVALID),
        (outcome.unrecorded, NOT_RECORDED),
        (outcome.refused, REFUSED),
    ]
    .iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, reason)| format!("{count}: {reason}"))
    .collect();
    let message = reasons.join("; ");
    let counts = [outcome.rejected, outcome.unrecorded, outcome.refused];
    match (encoding, counts.into_iter().fold(0, u64::saturating_add)) {
        (OtlpEncoding::Protobuf, 0) => Vec::new(),
        (OtlpEncoding::Json, 0) => b"{}".to_vec(),
        (OtlpEncoding::Protobuf, rejected) => {
            let mut partial = Vec::new();
            put_number(&mut partial, field::REJECTED_SPANS, rejected);
            put_bytes(&mut partial, field::ERROR_MESSAGE, message.as_bytes());
            let mut body = Vec::new();
            put_bytes(&mut body, field::PARTIAL_SUCCESS, &partial);
            body
        }
        (OtlpEncoding::Json, rejected) => json!({"partialSuccess": {
            "rejectedSpans": rejected.to_string(),
            "errorMessage": message,
        }})
        .to_string()
        .into_bytes(),
    }
}

/// A refusal as OTLP defines it. A sender retries only after 429 and 503.
fn refusal(encoding: OtlpEncoding, problem: &Problem) -> Response {
    let (status, of_spans) = RpcStatus::of_spans(problem);
    let body = match encoding {
        OtlpEncoding::Protobuf => of_spans.for_http(),
        OtlpEncoding::Json => of_spans.to_json(),
    };
    let mut response = respond(encoding, status, body);
    if let Some(seconds) = of_spans.retry_after_seconds {
        let seconds = HeaderValue::from(seconds);
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    log_failure(status, problem);
    response
}

/// Logs a refusal that is not the sender's doing.
fn log_failure(status: StatusCode, problem: &Problem) {
    if status.is_server_error() {
        tracing::error!(
            code = problem.code(),
            what = problem.what(),
            "a request of spans failed; the sender will retry"
        );
    }
}

/// Metrics and logs of OpenTelemetry, which nothing here stores.
pub(super) async fn other_signal() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "signal_unsupported",
        "only traces are stored",
    )
    .cause("the request contains metrics, logs or profiles of OpenTelemetry")
    .remedy(
        "switch their exporters off (OTEL_METRICS_EXPORTER=none, OTEL_LOGS_EXPORTER=none), or send \
         them to another server",
    )
}

/// `TraceService/Export` of OTLP/gRPC: as [`traces`], with the message in the frame of gRPC.
pub(super) async fn export(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    if head.version < Version::HTTP_2 || !grpc::is_grpc(&head.headers) {
        return Problem::new(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "not_grpc",
            "the request is not gRPC",
        )
        .cause("gRPC needs HTTP/2 and a Content-Type of application/grpc")
        .remedy("use a gRPC exporter, or send OTLP over HTTP to /v1/traces")
        .into_response();
    }
    let Ok(timeout) = grpc::timeout_of(&head.headers) else {
        let malformed = "grpc-timeout is not a number of at most eight digits and a unit";
        return grpc::refusal(&RpcStatus::new(Code::InvalidArgument, malformed));
    };
    let called = call(&app, &caller, &head, body);
    let outcome = match timeout {
        None => called.await,
        Some(timeout) => match tokio::time::timeout(timeout, called).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let late = "the deadline of the call passed before the spans were durable";
                Err(CallError::Status(RpcStatus::new(
                    Code::DeadlineExceeded,
                    late,
                )))
            }
        },
    };
    match outcome {
        Ok(outcome) => grpc::reply(&partial_success(OtlpEncoding::Protobuf, outcome)),
        Err(CallError::Status(status)) => grpc::refusal(&status),
        Err(CallError::Problem(problem)) => {
            app.metrics.refused(problem.code());
            let (status, of_spans) = RpcStatus::of_spans(&problem);
            log_failure(status, &problem);
            grpc::refusal(&of_spans)
        }
    }
}

/// Why a call was refused.
enum CallError {
    Status(RpcStatus),
    Problem(Problem),
}

impl From<IngestError> for CallError {
    fn from(error: IngestError) -> Self {
        Self::Problem(error.into())
    }
}

impl From<Problem> for CallError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

async fn call(
    app: &AppState,
    caller: &Caller,
    head: &Parts,
    body: Body,
) -> Result<ExportOutcome, CallError> {
    let headers = &head.headers;
    let (compression, message) = grpc::open(body).await.map_err(IngestError::of_body)?;
    let coding = match compression {
        Compression::No => ContentEncoding::Identity,
        Compression::AsNamed => {
            let name = headers.get("grpc-encoding").map(HeaderValue::as_bytes);
            match ContentEncoding::named(name.unwrap_or(b"identity")) {
                Some(ContentEncoding::Identity) => {
                    let unnamed = "the message is compressed, and grpc-encoding names no encoding";
                    let status = RpcStatus::new(Code::Internal, unnamed);
                    return Err(CallError::Status(status));
                }
                Some(coding) => coding,
                None => {
                    let unknown = "the encoding in grpc-encoding is neither gzip nor zstd";
                    let status = RpcStatus::new(Code::Unimplemented, unknown);
                    return Err(CallError::Status(status));
                }
            }
        }
    };
    let waits = !prefers_async(headers);
    let accepted = app.traces.accept(
        OtlpEncoding::Protobuf,
        coding,
        (caller, waits, &head.extensions),
        message,
    );
    Ok(accepted.await?)
}

/// Field numbers of the messages of answers.
mod field {
    /// Of `ExportTraceServiceResponse`.
    pub(super) const PARTIAL_SUCCESS: u32 = 1;
    /// Of `ExportTracePartialSuccess`.
    pub(super) const REJECTED_SPANS: u32 = 1;
    pub(super) const ERROR_MESSAGE: u32 = 2;
}

#[cfg(test)]
mod tests {
    use recording::RecordingError;
    use storage_core::StorageError;
    use trace_kinds::otlp::Counted;

    use super::*;
    use crate::rpc_status::BAD_REQUEST;

    /// The response to a sender of spans: status, gRPC code, and whether it may retry.
    async fn check(problem: Problem, status: u16, code: u8, is_retried: bool) {
        let is_bad = status == 400;
        for encoding in [OtlpEncoding::Protobuf, OtlpEncoding::Json] {
            let response = refusal(encoding, &problem);
            assert_eq!(response.status(), status, "{}", problem.code());
            let after = response.headers().get(header::RETRY_AFTER);
            assert_eq!(after.is_some(), is_retried, "{}", problem.code());
            // Senders decide by the status alone.
            assert_eq!([429, 502, 503, 504].contains(&status), is_retried);
            let kind = response.headers()[header::CONTENT_TYPE].clone();
            let body = axum::body::to_bytes(response.into_body(), 10_000);
            let body = body.await.unwrap();
            match encoding {
                OtlpEncoding::Protobuf => {
                    assert_eq!(kind, "application/x-protobuf");
                    // A google.rpc.Status: a code, and a message with its length.
                    assert_eq!(body[..3], [0x08, code, 0x12]);
                    let length = usize::from(body[3] & 0x7f) | (usize::from(body[4]) << 7);
                    let (from, length) = match body[3] & 0x80 {
                        0 => (4, usize::from(body[3])),
                        _ => (5, length),
                    };
                    std::str::from_utf8(&body[from..from + length]).unwrap();
                    let details = &body[from + length..];
                    assert_eq!(details.first(), (status == 400).then_some(&0x1a));
                    let names = |text: &str| {
                        details
                            .windows(text.len())
                            .any(|part| part == text.as_bytes())
                    };
                    assert_eq!(names(BAD_REQUEST), status == 400);
                }
                OtlpEncoding::Json => {
                    assert_eq!(kind, "application/json");
                    let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
                    assert_eq!(status["code"], code);
                    assert!(status["message"].is_string());
                    let details = &status["details"][0];
                    assert_eq!(details["@type"] == BAD_REQUEST, code == 3 && is_bad);
                }
            }
        }
    }

    #[tokio::test]
    async fn only_retryable_refusals_request_a_retry() {
        let storage = storage_format::StorageId::from_bytes([1; 16]);
        let low = StorageError::DiskLow {
            free_bytes: 1,
            limit_bytes: 2,
        };
        let full = StorageError::DiskFull { path: "x".into() };
        let failed = StorageError::Failed {
            storage,
            reason: "a sync failed".to_owned(),
        };
        let large = IngestError::TooLarge {
            what: "packet",
            max: 1,
        };
        let wrong = IngestError::Request {
            what: "no message".to_owned(),
            field: None,
        };
        let (counted, max) = (Counted::Spans, 1);
        let many = IngestError::TooMany { counted, max };
        for (problem, status, code, is_retried) in [
            (StorageError::Busy { max: 1 }.into(), 429, 8, true),
            (
                StorageError::ShareUsed {
                    of: "one agent",
                    max: 1,
                }
                .into(),
                429,
                8,
                true,
            ),
            (low.into(), 503, 14, true),
            (full.into(), 503, 14, true),
            (failed.into(), 503, 14, true),
            (StorageError::Stopping.into(), 503, 14, true),
            (StorageError::EarlierRefused.into(), 503, 14, true),
            (StorageError::StorageNotFound(storage).into(), 503, 14, true),
            (
                RecordingError::Storage(StorageError::Busy { max: 1 }).into(),
                429,
                8,
                true,
            ),
            (large.into(), 413, 3, false),
            (many.into(), 413, 3, false),
            (wrong.into(), 400, 3, false),
            (IngestError::EncodingUnsupported.into(), 415, 3, false),
        ] {
            check(problem, status, code, is_retried).await;
        }
    }
}
