//! Agents, their trace metadata and their streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use ctf::Leniency;
use http::{HeaderMap, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use storage_core::{Agent, AgentSpec, LeafKey, StorageError, StreamActivity};
use storage_format::agent_file::StreamSpec;
use storage_format::{AgentId, Codec, LeafType, StreamId, is_reserved};
use utoipa::{IntoParams, ToSchema};

use super::json::{read_body, read_json};
use super::page::{Page, limit_of, query};
use super::refusals::{
    BadRequest, Conflict, NotFound, PayloadTooLarge, ServiceUnavailable, UnprocessableEntity,
};
use crate::access::Caller;
use crate::app_state::AppState;
use crate::plain_text::is_plain;
use crate::problem::Problem;

/// The description of an agent, as it registers.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AgentRegistration {
    /// Display name; the id by default.
    name: Option<String>,
    /// The machine it runs on.
    host: String,
    /// Other attributes.
    attributes: BTreeMap<String, String>,
}

/// An agent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentDocument {
    id: String,
    name: String,
    host: String,
    attributes: BTreeMap<String, String>,
    /// Sorted by id.
    streams: Vec<StreamDocument>,
    /// Whether the agent has trace metadata.
    has_metadata: bool,
    /// Bytes of its packets as stored, in all storages, as of a few seconds ago; null while they
    /// are not known, and for tokens that are limited to storages. Without a quota they are
    /// determined when somebody asks.
    stored_bytes: Option<u64>,
    /// As many may be stored; null for no limit.
    quota_bytes_max: Option<u64>,
    /// Whether the quota was set for this agent; otherwise it is that of the settings.
    has_own_quota: bool,
}

/// The quota of an agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotaRequest {
    /// Bytes of its packets as stored, in all storages; null for no limit.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required = true)]
    bytes_max: Option<u64>,
}

/// A stream of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StreamDocument {
    id: String,
    /// Kind of its packets.
    kind: String,
    /// What the index stores of its packets: `array` or `plain`.
    leaf: String,
    /// How its packets are stored: `zstd` or `none`.
    codec: String,
    /// What arrives and is lost, since the server started; null if nothing was pushed since, if
    /// very many streams are pushed, and for tokens that are limited to storages.
    activity: Option<ActivityDocument>,
}

/// What arrives in a stream, and what is lost of it, in all storages.
#[derive(Debug, Serialize, ToSchema)]
struct ActivityDocument {
    /// Packets that became durable; a packet that several recordings store counts in each.
    packets: u64,
    /// Their bytes as the agent sent them.
    bytes: u64,
    /// Their events, where packets give a number.
    events: u64,
    /// Packets that became durable per second over the last 30 s.
    packets_per_second: f64,
    /// Their bytes per second.
    bytes_per_second: f64,
    /// Their events per second.
    events_per_second: f64,
    /// Events that the producer lost, where packets give a number.
    lost_events: u64,
    /// Pushes that were refused because packets before them are missing.
    gaps: u64,
    /// Other pushes that were refused.
    refused_pushes: u64,
    /// Packets that were accepted and not written.
    failed_packets: u64,
    /// Droppable packets that were dropped.
    dropped_packets: u64,
    /// Bytes of these packets.
    dropped_bytes: u64,
}

impl From<StreamActivity> for ActivityDocument {
    fn from(activity: StreamActivity) -> Self {
        Self {
            packets: activity.packets,
            bytes: activity.bytes,
            events: activity.events,
            packets_per_second: activity.packets_per_second,
            bytes_per_second: activity.bytes_per_second,
            events_per_second: activity.events_per_second,
            lost_events: activity.lost_events,
            gaps: activity.gaps,
            refused_pushes: activity.refused_pushes,
            failed_packets: activity.failed_packets,
            dropped_packets: activity.dropped_packets,
            dropped_bytes: activity.dropped_bytes,
        }
    }
}

/// The declaration of a stream.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamDeclaration {
    /// `raw`, `ctf`, `dft`, `rocksdb-io`, `rocksdb-block-cache`, `otlp`, `io-trace` or
    /// `chrome`; it never changes.
    kind: String,
    /// `array` (the default: every packet can be found) or `plain` (totals only).
    leaf: Option<String>,
    /// `zstd` (the default) or `none`.
    codec: Option<String>,
}

/// Selection of agents.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AgentsQuery {
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// Maximum number of items, up to 1000; 100 by default.
    limit: Option<usize>,
}

impl StreamDocument {
    fn of(app: &AppState, agent: &AgentId, stream: &StreamSpec, caller: &Caller) -> Self {
        let activity = app.engine.stream_activity(agent, &stream.id);
        Self {
            id: stream.id.to_string(),
            kind: stream.kind.to_string(),
            leaf: stream.leaf_type.to_string(),
            codec: stream.codec.to_string(),
            activity: activity
                .filter(|_| caller.sees_all_storages())
                .map(ActivityDocument::from),
        }
    }
}

impl AgentDocument {
    pub(super) fn of(app: &AppState, agent: &Agent, caller: &Caller) -> Self {
        let id = &agent.spec.id;
        let usage = app.engine.quotas().of(id);
        let streams = agent.streams.iter();
        let streams = streams.map(|stream| StreamDocument::of(app, id, stream, caller));
        Self {
            id: agent.spec.id.to_string(),
            name: agent.spec.name.clone(),
            host: agent.spec.host.clone(),
            attributes: agent.spec.attributes.clone(),
            streams: streams.collect(),
            has_metadata: agent.metadata_checksum.is_some(),
            stored_bytes: usage.stored_bytes.filter(|_| caller.sees_all_storages()),
            quota_bytes_max: usage.bytes_max,
            has_own_quota: usage.is_own,
        }
    }
}

/// Registers an agent or updates its description.
#[utoipa::path(
    put, operation_id = "register_agent", path = "/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Chosen by the agent")),
    request_body = AgentRegistration,
    responses(
        (status = 200, body = AgentDocument, description = "The agent"),
        BadRequest,
    ),
)]
pub(super) async fn register(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<AgentDocument>, Problem> {
    let id: AgentId = agent.parse()?;
    let request: AgentRegistration = read_json(&app, &headers, body).await?;
    let texts = [request.name.as_deref(), Some(&*request.host)];
    if !texts.into_iter().flatten().all(is_plain) {
        return Err(agent_malformed());
    }
    let spec = AgentSpec {
        name: request.name.unwrap_or_else(|| id.to_string()),
        id,
        host: request.host,
        attributes: request.attributes,
    };
    let agent = app.engine.agents().register(spec).await?;
    Ok(Json(AgentDocument::of(&app, &agent, &caller)))
}

fn agent_malformed() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "agent_malformed",
        "the description of the agent is not allowed",
    )
    .cause(
        "its name or host has control characters or marks of direction, which forge lines of lists",
    )
    .remedy("send name and host as one line of text")
}

/// Lists agents, sorted by id.
#[utoipa::path(
    get, operation_id = "list_agents", path = "/agents", tag = "agents", params(AgentsQuery),
    responses((status = 200, body = Page<AgentDocument>, description = "A page of agents")),
)]
pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Json<Page<AgentDocument>>, Problem> {
    let parameters: AgentsQuery = query(&uri)?;
    app.engine.quotas().ask().await;
    let agents = app.engine.agents().all();
    let after = parameters.cursor.as_deref().unwrap_or("");
    let rest = agents
        .iter()
        .filter(|agent| agent.spec.id.as_str() > after && caller.sees_agent(&agent.spec.id));
    let limit = limit_of(parameters.limit)?;
    Ok(Json(Page::of(
        rest.map(|agent| AgentDocument::of(&app, agent, &caller)),
        limit,
        |agent| agent.id.clone(),
    )))
}

/// Returns one agent.
#[utoipa::path(
    get, operation_id = "get_agent", path = "/agents/{agent}", tag = "agents",
    params(("agent" = String, Path)),
    responses(
        (status = 200, body = AgentDocument, description = "The agent"),
        NotFound,
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
) -> Result<Json<AgentDocument>, Problem> {
    let agent = app.engine.agents().get(&agent.parse()?)?;
    app.engine.quotas().ask().await;
    Ok(Json(AgentDocument::of(&app, &agent, &caller)))
}

/// Deletes an agent with its streams and trace metadata, which finalized storages keep. It is
/// registered again when it comes back.
#[utoipa::path(
    delete, operation_id = "delete_agent", path = "/agents/{agent}", tag = "agents",
    params(("agent" = String, Path)),
    responses(
        (status = 204, description = "Deleted"),
        NotFound, Conflict, ServiceUnavailable,
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<AppState>>,
    Path(agent): Path<String>,
) -> Result<StatusCode, Problem> {
    let id: AgentId = agent.parse()?;
    app.engine.delete_agent(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives an agent a quota of its own.
#[utoipa::path(
    put, operation_id = "set_agent_quota", path = "/agents/{agent}/quota", tag = "agents",
    params(("agent" = String, Path)),
    request_body = QuotaRequest,
    responses(
        (status = 200, body = AgentDocument, description = "The agent"),
        BadRequest, NotFound,
    ),
)]
pub(super) async fn set_quota(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<AgentDocument>, Problem> {
    let id: AgentId = agent.parse()?;
    let request: QuotaRequest = read_json(&app, &headers, body).await?;
    app.engine
        .quotas()
        .set(&id, Some(request.bytes_max))
        .await?;
    let agent = app.engine.agents().get(&id)?;
    Ok(Json(AgentDocument::of(&app, &agent, &caller)))
}

/// Takes the own quota of an agent away: that of the settings applies again.
#[utoipa::path(
    delete, operation_id = "remove_agent_quota", path = "/agents/{agent}/quota", tag = "agents",
    params(("agent" = String, Path)),
    responses(
        (status = 204, description = "The agent has no quota of its own"),
        NotFound,
    ),
)]
pub(super) async fn remove_quota(
    State(app): State<Arc<AppState>>,
    Path(agent): Path<String>,
) -> Result<StatusCode, Problem> {
    app.engine.quotas().set(&agent.parse()?, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How trace metadata is stored.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct MetadataQuery {
    /// Store metadata that cannot be parsed, too. The packets of the agent's CTF streams are then
    /// stored as they are, and queries say why they are not decoded, until better metadata comes.
    #[serde(default)]
    allow_invalid: bool,
}

/// Replaces the trace metadata of an agent: TSDL (plain or packetized) or CTF 2.
#[utoipa::path(
    put, operation_id = "put_agent_metadata", path = "/agents/{agent}/metadata", tag = "agents",
    params(("agent" = String, Path), MetadataQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 204, description = "Stored"),
        NotFound, PayloadTooLarge, UnprocessableEntity,
    ),
)]
pub(super) async fn put_metadata(
    State(app): State<Arc<AppState>>,
    Path(agent): Path<String>,
    uri: Uri,
    body: Body,
) -> Result<StatusCode, Problem> {
    let id: AgentId = agent.parse()?;
    let MetadataQuery { allow_invalid } = query(&uri)?;
    app.engine.agents().get(&id)?;
    let text = read_body(body, app.config.http.metadata_bytes_max).await?;
    match ctf::parse_metadata_with(&text, Leniency::Lenient) {
        Err(error) if !allow_invalid => return Err(metadata_invalid(&error)),
        Ok(_) | Err(_) => {}
    }
    app.engine.agents().set_metadata(&id, text).await?;
    // What could not be decoded without this metadata may be decoded now: the next query tells.
    for storage in app.unreadable.storages() {
        let leaves = app.engine.reading().leaf_keys(storage).await;
        let has_agent = |(_, keys): &(_, Vec<LeafKey>)| keys.iter().any(|key| key.path.agent == id);
        if leaves.as_ref().is_ok_and(has_agent) {
            app.unreadable.forget(storage);
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The location of the error in trace metadata.
fn metadata_invalid(error: &ctf::MetadataError) -> Problem {
    let location = error.location();
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "metadata_invalid",
        "the trace metadata is invalid",
    )
    .detail(error.to_string())
    .cause("it is neither valid TSDL (plain or packetized) nor valid CTF 2 metadata")
    .remedy(
        "correct it at line and column, or store it with `?allow_invalid=true`; the previous \
         metadata remains in use",
    )
    .member("line", location.line)
    .member("column", location.column)
    .member("offset", location.offset)
}

/// Declares a stream; repeating the request changes nothing.
#[utoipa::path(
    put, operation_id = "declare_stream", path = "/agents/{agent}/streams/{stream}", tag = "agents",
    params(("agent" = String, Path), ("stream" = String, Path)),
    request_body = StreamDeclaration,
    responses(
        (status = 200, body = StreamDocument, description = "The stream"),
        NotFound, Conflict, UnprocessableEntity,
    ),
)]
pub(super) async fn declare_stream(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    Path((agent, stream)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<StreamDocument>, Problem> {
    let (agent, id): (AgentId, StreamId) = (agent.parse()?, stream.parse()?);
    let request: StreamDeclaration = read_json(&app, &headers, body).await?;
    let spec = StreamSpec {
        id,
        kind: parse_name(&request.kind)?,
        leaf_type: request
            .leaf
            .as_deref()
            .map_or(Ok(LeafType::Array), parse_name)?,
        codec: request
            .codec
            .as_deref()
            .map_or(Ok(Codec::Zstd), parse_name)?,
    };
    if is_reserved(spec.kind, spec.id.as_str()) {
        return Err(StorageError::StreamReserved(spec.id).into());
    }
    let stream: StreamSpec = app.engine.agents().declare_stream(&agent, spec).await?;
    Ok(Json(StreamDocument::of(&app, &agent, &stream, &caller)))
}

/// Parses the name of a kind, a leaf type or a codec.
pub(super) fn parse_name<W: std::str::FromStr<Err = storage_format::UnknownName>>(
    text: &str,
) -> Result<W, Problem> {
    text.parse().map_err(|error: storage_format::UnknownName| {
        Problem::new(StatusCode::BAD_REQUEST, "unknown_name", "unknown name")
            .detail(error.to_string())
            .cause("only names from a fixed list are valid")
            .remedy("use one of the names that detail lists")
    })
}
