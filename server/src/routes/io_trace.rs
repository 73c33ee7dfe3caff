//! Tracing of the server's I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use io_trace::{Operation, Settings};
use query_language::time::rfc3339;
use serde::{Deserialize, Serialize};
use storage_format::StorageId;
use utoipa::ToSchema;

use super::json::read_json;
use super::refusals::BadRequest;
use crate::app_state::AppState;
use crate::io_trace::{IoTraceError, Mode, NAME, Status, TraceRequest};
use crate::problem::{Problem, ProblemDocument};

/// What to trace. All members are optional.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct IoTraceStart {
    /// Name of the storage of the trace.
    name: String,
    /// `stop_at_limit`: the trace ends at its limit. `ring`: the latest operations overwrite the
    /// oldest; they are in the storage after the trace is stopped or the server restarts.
    mode: String,
    /// Maximum number of bytes; by default the configured limit.
    bytes_max: Option<u64>,
    /// Sampling per operation: record one in this many; 0 records none. All others are recorded.
    /// Operations: `open`, `read`, `write`, `sync`, `sync_folder`, `allocate`, `set_length`,
    /// `close`, `rename`, `unlink`, `lookup`.
    operations: BTreeMap<String, u32>,
    /// Sampling of files: record one in this many ranges of 64 KiB, with everything that begins in
    /// them.
    blocks_one_in: u32,
    /// Only operations on these storages.
    storages: Vec<String>,
}

impl Default for IoTraceStart {
    fn default() -> Self {
        Self {
            name: NAME.to_owned(),
            mode: Mode::default().name().to_owned(),
            bytes_max: None,
            operations: BTreeMap::new(),
            blocks_one_in: 1,
            storages: Vec::new(),
        }
    }
}

impl TryFrom<IoTraceStart> for TraceRequest {
    type Error = IoTraceError;

    fn try_from(start: IoTraceStart) -> Result<Self, IoTraceError> {
        let invalid = |problem: String| IoTraceError::Invalid { problem };
        let mode = Mode::ALL.into_iter().find(|mode| mode.name() == start.mode);
        let mode = mode.ok_or_else(|| {
            invalid(format!(
                "mode {:?} is not stop_at_limit or ring",
                start.mode
            ))
        })?;
        let mut settings = Settings {
            blocks_one_in: start.blocks_one_in,
            ..Settings::default()
        };
        for (name, one_in) in &start.operations {
            let operation = Operation::from_name(name)
                .ok_or_else(|| invalid(format!("{name:?} is not an operation")))?;
            settings.one_in[operation as usize] = *one_in;
        }
        let storages: Result<Vec<StorageId>, _> =
            start.storages.iter().map(|id| id.parse()).collect();
        Ok(Self {
            name: start.name,
            mode,
            bytes_max: start.bytes_max,
            settings,
            storages: storages?,
        })
    }
}

/// Status of the trace of the server's I/O.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct IoTraceDocument {
    /// `off`, `running` or `ended`.
    state: &'static str,
    /// The storage of the running or last trace.
    storage: Option<String>,
    /// `stop_at_limit` or `ring`.
    mode: &'static str,
    bytes_max: u64,
    /// Bytes of packets so far.
    bytes: u64,
    packets: u64,
    /// Recorded operations.
    recorded: u64,
    /// Operations dropped because the buffer of their thread was full.
    dropped: u64,
    dropped_by_operation: BTreeMap<String, u64>,
    /// Operations recorded and later overwritten (ring).
    overwritten: u64,
    /// RFC 3339.
    started: Option<String>,
    ended: Option<String>,
    /// Why the trace ended: `stopped`, `limit`, `shutdown` or `failed`.
    reason: Option<&'static str>,
    /// Why the storage of the trace is incomplete.
    error: Option<String>,
}

impl From<Status> for IoTraceDocument {
    fn from(status: Status) -> Self {
        Self {
            state: status.state.name(),
            storage: status.storage.map(|id| id.to_string()),
            mode: status.mode.name(),
            bytes_max: status.bytes_max,
            bytes: status.bytes,
            packets: status.packets,
            recorded: status.drained.recorded,
            dropped: status.drained.dropped_total(),
            dropped_by_operation: status.dropped_by_operation(),
            overwritten: status.overwritten,
            started: status.started.map(rfc3339),
            ended: status.ended.map(rfc3339),
            reason: status.reason.map(|reason| reason.name()),
            error: status.error,
        }
    }
}

impl From<IoTraceError> for Problem {
    fn from(error: IoTraceError) -> Self {
        let detail = error.to_string();
        let problem = match error {
            IoTraceError::Storage(error) => return error.into(),
            IoTraceError::Running { storage } => Self::new(
                StatusCode::CONFLICT,
                "io_trace_running",
                "an I/O trace is already running",
            )
            .cause("at most one trace runs at a time")
            .remedy("stop it with POST /api/v1/io-trace/stop")
            .member("storage", storage.to_string()),
            IoTraceError::Off => Self::new(
                StatusCode::CONFLICT,
                "io_trace_off",
                "no I/O trace is running",
            )
            .cause("none was started, or it ended at its limit")
            .remedy("GET /api/v1/io-trace shows the last one; start another"),
            IoTraceError::Invalid { .. } => Self::new(
                StatusCode::BAD_REQUEST,
                "io_trace_invalid",
                "the trace request is invalid",
            )
            .cause("a value in the request is invalid")
            .remedy("GET /openapi.json describes the request"),
        };
        problem.detail(detail)
    }
}

/// Starts tracing the server's I/O into a new storage.
#[utoipa::path(
    post, operation_id = "start_io_trace",
    path = "/io-trace/start", tag = "io-trace", request_body = IoTraceStart,
    responses(
        (status = 200, body = IoTraceDocument, description = "The status of the trace"),
        BadRequest,
        (status = 404, description = "A storage to trace does not exist",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "A trace is running",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn start(
    State(app): State<Arc<AppState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<IoTraceDocument>, Problem> {
    let start: IoTraceStart = read_json(&app, &headers, body).await?;
    Ok(Json(app.io_trace.start(start.try_into()?).await?.into()))
}

/// Stops the trace and finalizes its storage; responds when the storage is durable.
#[utoipa::path(
    post, operation_id = "stop_io_trace", path = "/io-trace/stop", tag = "io-trace",
    responses(
        (status = 200, body = IoTraceDocument, description = "The status of the trace"),
        (status = 409, description = "No trace is running",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn stop(
    State(app): State<Arc<AppState>>,
) -> Result<Json<IoTraceDocument>, Problem> {
    Ok(Json(app.io_trace.stop().await?.into()))
}

/// Returns the status of the running or last trace.
#[utoipa::path(
    get, operation_id = "get_io_trace", path = "/io-trace", tag = "io-trace",
    responses((status = 200, body = IoTraceDocument, description = "The status of the trace")),
)]
pub(super) async fn show(State(app): State<Arc<AppState>>) -> Json<IoTraceDocument> {
    Json(app.io_trace.status().into())
}
