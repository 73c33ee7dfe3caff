//! Recordings, the buffer, and packets pushed without a storage.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri};
use query_language::time::rfc3339;
use recording::{
    BufferStatus, Copied, CopySpec, Instant, ProcessorConfig, RecordingCounts, RecordingError,
    RecordingInfo, RecordingSpec, RecordingState, Trigger, default_chain,
};
use serde::{Deserialize, Serialize};
use storage_core::NewStorage;
use storage_format::{AgentId, StorageId, StreamId};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::json::{read_json, with_location};
use super::packets::position_fields;
use super::page::{Page, limit_of, not_an_id, query};
use super::refusals::{
    BadRequest, Conflict, InsufficientStorage, NotFound, PayloadTooLarge, TooManyRequests,
    UnprocessableEntity, UnsupportedMediaType,
};
use crate::app_state::AppState;
use crate::problem::Problem;
use crate::receipts::{Receipts, ReceiptsDocument};

/// A recording to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordingStart {
    /// Id of the target storage; a new storage by default.
    #[schema(value_type = Option<String>)]
    storage: Option<StorageId>,
    /// Name of the new storage.
    name: Option<String>,
    /// Only packets of these agents; all by default.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    agents: Vec<AgentId>,
    /// The chain of processors, `{type, …}` each; the default chain by default.
    #[serde(default = "default_chain")]
    #[schema(value_type = Vec<Object>)]
    processors: Vec<ProcessorConfig>,
    /// Delay of the start, in seconds.
    #[serde(default)]
    delay_seconds: u64,
    /// Duration in seconds; until it is stopped by default.
    duration_seconds: Option<u64>,
    /// Finalize the storage at the end.
    #[serde(default)]
    auto_finalize: bool,
    /// `{query, before_seconds}`: start with the first matching event.
    #[schema(value_type = Option<Object>)]
    trigger: Option<Trigger>,
}

/// A recording.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RecordingDocument {
    id: String,
    storage: String,
    /// Empty: all agents.
    #[schema(value_type = Vec<String>)]
    agents: Vec<AgentId>,
    #[schema(value_type = Vec<Object>)]
    processors: Vec<ProcessorConfig>,
    /// `SCHEDULED`, `ON`, `SUSPENDED` or `OFF`.
    #[schema(value_type = String)]
    state: RecordingState,
    duration_seconds: Option<u64>,
    auto_finalize: bool,
    #[schema(value_type = Option<Object>)]
    trigger: Option<Trigger>,
    /// Whether it is a part of the standing recording, which the server begins by itself.
    standing: bool,
    /// RFC 3339.
    created: Option<String>,
    /// When it starts or started.
    started: Option<String>,
    /// When it ends or ended.
    ended: Option<String>,
    /// Why it ended.
    reason: Option<String>,
    /// What it received and wrote.
    #[schema(value_type = Object)]
    counts: RecordingCounts,
}

impl From<RecordingInfo> for RecordingDocument {
    fn from(info: RecordingInfo) -> Self {
        Self {
            id: info.id.to_string(),
            storage: info.spec.storage.to_string(),
            agents: info.spec.agents,
            processors: info.spec.processors,
            state: info.state,
            duration_seconds: info.spec.duration_seconds,
            auto_finalize: info.spec.auto_finalize,
            trigger: info.spec.trigger,
            standing: info.spec.standing,
            created: Some(rfc3339(info.created)),
            started: info.started.map(rfc3339),
            ended: info.ended.map(rfc3339),
            reason: info.reason,
            counts: info.counts,
        }
    }
}

/// Selection of recordings.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RecordingsQuery {
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// Maximum number of items, up to 1000; 100 by default.
    limit: Option<usize>,
}

/// The given storage, or a new one.
async fn storage_for(
    app: &AppState,
    request: Option<StorageId>,
    name: Option<String>,
) -> Result<StorageId, Problem> {
    match (request, name) {
        (Some(storage), None) => Ok(storage),
        (None, name) => {
            let new = NewStorage {
                name: name.unwrap_or_else(|| "recording".to_owned()),
                ..NewStorage::default()
            };
            Ok(app.engine.storages().create(new).await?.0.id)
        }
        (Some(_), Some(_)) => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "recording_invalid",
            "the recording request is invalid",
        )
        .cause("both `storage` and `name` are given, but only a new storage is named")
        .remedy("omit one of them")),
    }
}

/// Starts a recording: now, after a delay, or with an event.
#[utoipa::path(
    post, operation_id = "start_recording", path = "/recordings", tag = "recordings",
    request_body = RecordingStart,
    responses(
        (status = 201, body = RecordingDocument, description = "The recording"),
        BadRequest, NotFound, Conflict,
    ),
)]
pub(super) async fn start(
    State(app): State<Arc<AppState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let request: RecordingStart = read_json(&app, &headers, body).await?;
    let mut spec = RecordingSpec {
        storage: request.storage.unwrap_or(StorageId::from_bytes([0; 16])),
        agents: request.agents,
        processors: request.processors,
        delay_seconds: request.delay_seconds,
        duration_seconds: request.duration_seconds,
        auto_finalize: request.auto_finalize,
        trigger: request.trigger,
        standing: false,
    };
    // Validated before a storage is created for it.
    spec.check().map_err(RecordingError::from)?;
    spec.storage = storage_for(&app, request.storage, request.name).await?;
    let info = app.recorder.record(spec).await?;
    let location = format!("/api/v1/recordings/{}", info.id);
    let document = Json(RecordingDocument::from(info));
    let response = (StatusCode::CREATED, document).into_response();
    Ok(with_location(response, location))
}

/// Lists recordings, oldest first, including up to a hundred that have ended.
#[utoipa::path(
    get, operation_id = "list_recordings",
    path = "/recordings", tag = "recordings", params(RecordingsQuery),
    responses((status = 200, body = Page<RecordingDocument>, description = "A page of recordings")),
)]
pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    uri: Uri,
) -> Result<Json<Page<RecordingDocument>>, Problem> {
    let parameters: RecordingsQuery = query(&uri)?;
    let limit = limit_of(parameters.limit)?;
    let after = parameters.cursor.unwrap_or_default();
    let all = app
        .recorder
        .recordings()
        .into_iter()
        .map(RecordingDocument::from);
    let items = all.filter(|each| each.id > after);
    Ok(Json(Page::of(items, limit, |each| each.id.clone())))
}

fn recording_id(text: &str) -> Result<Uuid, Problem> {
    Uuid::try_parse(text).map_err(|_| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_id",
            "an id in the path is invalid",
        )
        .detail(not_an_id("recording", text))
        .cause("the id of a recording is a UUID")
        .remedy("GET /api/v1/recordings lists all recordings")
    })
}

/// Returns one recording.
#[utoipa::path(
    get, operation_id = "get_recording",
    path = "/recordings/{id}", tag = "recordings", params(("id" = String, Path)),
    responses(
        (status = 200, body = RecordingDocument, description = "The recording"),
        NotFound,
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Result<Json<RecordingDocument>, Problem> {
    Ok(Json(app.recorder.recording(recording_id(&id)?)?.into()))
}

/// Stops a recording; responds when everything it received is durable. A recording that had ended
/// before is removed from the list.
#[utoipa::path(
    delete, operation_id = "stop_recording",
    path = "/recordings/{id}", tag = "recordings", params(("id" = String, Path)),
    responses(
        (status = 200, body = RecordingDocument, description = "The recording"),
        NotFound,
    ),
)]
pub(super) async fn stop(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Result<Json<RecordingDocument>, Problem> {
    Ok(Json(app.recorder.stop(recording_id(&id)?).await?.into()))
}

/// What to copy from the buffer, and the target.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BufferCopy {
    /// Id of the target storage; a new storage by default.
    #[schema(value_type = Option<String>)]
    storage: Option<StorageId>,
    /// Name of the new storage.
    name: Option<String>,
    /// Only packets of these agents.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    agents: Vec<AgentId>,
    /// Only packets that can contain events at or after this time: RFC 3339 or nanoseconds since
    /// the epoch.
    #[schema(value_type = Option<String>)]
    from: Option<Instant>,
    /// Only packets that can contain events before this time.
    #[schema(value_type = Option<String>)]
    to: Option<Instant>,
    /// Only what matches.
    query: Option<String>,
    /// The chain of processors; a saver by default.
    #[schema(value_type = Option<Vec<Object>>)]
    processors: Option<Vec<ProcessorConfig>>,
    /// Finalize the storage after the copy.
    #[serde(default)]
    auto_finalize: bool,
}

/// The result of a copy.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CopyDocument {
    storage: String,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    copied: Copied,
}

/// Copies packets from the buffer into a new or open storage, through processors. Everything that
/// the response counts is durable.
#[utoipa::path(
    post, operation_id = "copy_buffer", path = "/buffer/copy", tag = "recordings",
    request_body = BufferCopy,
    responses(
        (status = 200, body = CopyDocument, description = "What was copied"),
        BadRequest, NotFound, Conflict,
    ),
)]
pub(super) async fn copy_buffer(
    State(app): State<Arc<AppState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<CopyDocument>, Problem> {
    let request: BufferCopy = read_json(&app, &headers, body).await?;
    let mut spec = CopySpec {
        storage: request.storage.unwrap_or(StorageId::from_bytes([0; 16])),
        agents: request.agents,
        from: request.from,
        to: request.to,
        query: request.query,
        processors: request
            .processors
            .unwrap_or_else(|| vec![ProcessorConfig::Saver { kinds: None }]),
        auto_finalize: request.auto_finalize,
    };
    spec.check().map_err(RecordingError::from)?;
    spec.storage = storage_for(&app, request.storage, request.name).await?;
    let storage = spec.storage.to_string();
    let copied = app.recorder.copy_buffer(spec).await?;
    Ok(Json(CopyDocument { storage, copied }))
}

/// The content of the buffer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BufferDocument {
    packets: u64,
    bytes: u64,
    bytes_max: u64,
    /// Packets evicted since the server started.
    evicted: u64,
}

/// Returns the size of the buffer.
#[utoipa::path(
    get, operation_id = "get_buffer", path = "/buffer", tag = "recordings",
    responses((status = 200, body = BufferDocument, description = "The size of the buffer")),
)]
pub(super) async fn buffer(State(app): State<Arc<AppState>>) -> Json<BufferDocument> {
    let BufferStatus {
        packets,
        bytes,
        bytes_max,
        evicted,
    } = app.recorder.buffer_status();
    Json(BufferDocument {
        packets,
        bytes,
        bytes_max,
        evicted,
    })
}

/// Pushes packets into the buffer and to the recordings that accept them. A packet has a receipt
/// for each storage that it was written to.
#[utoipa::path(
    post, operation_id = "push_buffer_packets",
    path = "/agents/{agent}/streams/{stream}/packets", tag = "packets",
    params(
        ("agent" = String, Path), ("stream" = String, Path),
        ("Tracehold-Epoch" = Option<u64>, Header, description = "Of a single packet"),
        ("Tracehold-Sequence" = Option<u64>, Header, description = "Of a single packet"),
        ("Content-Encoding" = Option<String>, Header, description = "gzip or zstd"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    request_body(content(
        (Vec<u8> = "application/octet-stream"),
        (Vec<u8> = "application/vnd.tracehold.packets"),
    )),
    responses(
        (status = 200, body = ReceiptsDocument, description = "Durable in every recording"),
        (status = 202, body = ReceiptsDocument, description = "Accepted, not durable yet"),
        BadRequest, NotFound, Conflict,
        PayloadTooLarge, UnsupportedMediaType, UnprocessableEntity, TooManyRequests,
        InsufficientStorage,
    ),
)]
pub(super) async fn push(
    State(app): State<Arc<AppState>>,
    Path((agent, stream)): Path<(String, String)>,
    request: Request,
) -> Result<Receipts, Problem> {
    let (agent, stream): (AgentId, StreamId) = (agent.parse()?, stream.parse()?);
    let (head, body) = request.into_parts();
    let (pusher, target) = (&app.pusher, (agent.clone(), stream.clone()));
    let pushed = pusher.fan_out(&app.recorder, target, &head, body).await;
    pushed.inspect_err(|problem| pusher.refused(&agent, &stream, problem))
}

/// Returns the next position of a stream: after the packets acknowledged since the server started,
/// or else after those in a storage that is being recorded.
#[utoipa::path(
    head, operation_id = "get_next_buffer_position",
    path = "/agents/{agent}/streams/{stream}/packets", tag = "packets",
    params(("agent" = String, Path), ("stream" = String, Path)),
    responses(
        (status = 200, description = "The position is in the header fields", headers(
            ("Tracehold-Epoch" = u64), ("Tracehold-Next-Sequence" = u64),
        )),
        NotFound,
    ),
)]
pub(super) async fn next_sequence(
    State(app): State<Arc<AppState>>,
    Path((agent, stream)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let (agent, stream) = (agent.parse()?, stream.parse()?);
    let (next, stored) = app.recorder.next_position(&agent, &stream).await?;
    for (storage, next) in stored {
        let key = (agent.clone(), stream.clone());
        app.wait_chained(storage, key, next).await?;
    }
    Ok((StatusCode::OK, position_fields(next)).into_response())
}
