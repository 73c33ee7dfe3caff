//! Copying a selection of a storage into another.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use recording::{Instant, ProcessorConfig, RecordingError, StorageCopySpec, check_copy};
use serde::{Deserialize, Serialize};
use storage_core::{CopyListener, CopyReport, CopySelection, Declaring, LeafBases, NewStorage};
use storage_format::data_file::LeafPath;
use storage_format::{AgentId, Kind, StorageId, StreamId, StreamNames};
use tokio::sync::mpsc;
use trace_kinds::StreamContext;
use utoipa::ToSchema;

use super::instant;
use super::jobs::{accepted, job_field};
use super::json::read_json;
use super::page::malformed;
use super::refusals::{BadRequest, Conflict, NotFound};
use crate::app_state::AppState;
use crate::error::problem;
use crate::ingest::prefers_async;
use crate::jobs::{JobDocument, JobHandle, JobKind};
use crate::problem::Problem;
use crate::query::{declarations, is_of_packets, time_bases};

/// Maximum number of copied packets whose provenance has yet to be recorded.
const COPIED_WAITING_MAX: usize = 1024;

/// A selection to copy, and its target.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StorageCopy {
    /// Id of the target storage; a new storage by default.
    #[schema(value_type = Option<String>)]
    storage: Option<StorageId>,
    /// Name of the new storage; that of the source by default.
    name: Option<String>,
    /// Only packets of these agents.
    #[schema(value_type = Vec<String>)]
    agents: Vec<AgentId>,
    /// Only packets of streams with these ids.
    #[schema(value_type = Vec<String>)]
    streams: Vec<StreamId>,
    /// Only packets of these kinds.
    kinds: Vec<String>,
    /// Copy derived streams, too, which repeat events of their sources. Streams that `streams`
    /// names are copied anyway.
    derived: bool,
    /// Only packets that can contain events at or after this time: RFC 3339 or nanoseconds since
    /// the epoch.
    #[schema(value_type = Option<String>)]
    from: Option<Instant>,
    /// Only packets that can contain events before this time.
    #[schema(value_type = Option<String>)]
    to: Option<Instant>,
    /// Only what matches: matching spans of packets of spans, and complete packets of other kinds.
    query: Option<String>,
    /// The chain of processors; packets are copied unchanged by default.
    #[schema(value_type = Option<Vec<Object>>)]
    processors: Option<Vec<ProcessorConfig>>,
    /// Finalize the target after the copy.
    auto_finalize: bool,
    /// Copy from a damaged storage, too, without what is behind the damage.
    allow_incomplete: bool,
}

/// The result of a copy.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StorageCopyDocument {
    /// The target storage.
    storage: String,
    packets: u64,
    /// Bytes of the packets as the agents sent them.
    bytes: u64,
    /// Why packets of the source may not be in the copy: it is damaged, and what is behind the
    /// damage is not known, or nobody knows what is missing since it was repaired.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<String>,
    /// Number of packets that are missing in the source since it was repaired, at most.
    missing_packets: u64,
}

/// A copy to carry out.
struct CopyPlan {
    source: StorageId,
    /// `None`: a new storage with this name.
    target: Option<StorageId>,
    name: String,
    selection: CopySelection,
    /// As in [`StorageCopySpec`]; set when the copy begins.
    contexts: HashMap<(AgentId, StreamId), StreamContext>,
    query: Option<String>,
    processors: Option<Vec<ProcessorConfig>>,
    auto_finalize: bool,
}

impl CopyPlan {
    /// Whether the selection depends on the times of packets.
    fn depends_on_times(&self) -> bool {
        let selection = &self.selection;
        selection.from.is_some() || selection.to.is_some() || self.has_chain()
    }

    fn has_chain(&self) -> bool {
        self.query.is_some() || self.processors.is_some()
    }
}

/// Copies a selection of the packets of a storage into a new or an open one. Responds when all
/// counted packets are durable, or at once with `Prefer: respond-async`; the result is then in the
/// job.
///
/// If the copy fails, a new storage is deleted; an open one retains the packets copied before.
#[utoipa::path(
    post, operation_id = "copy_storage", path = "/storages/{id}/copy", tag = "storages",
    params(
        ("id" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    request_body = StorageCopy,
    responses(
        (status = 200, body = StorageCopyDocument, description = "What was copied"),
        (status = 202, body = JobDocument, description = "In progress; see the job"),
        BadRequest, NotFound, Conflict,
    ),
)]
pub(super) async fn copy(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let source: StorageId = id.parse()?;
    let info = app.engine.storages().get(source)?;
    app.engine.storages().check_recovered(source)?;
    let request: StorageCopy = read_json(&app, &headers, body).await?;
    let kinds = request.kinds.iter().map(|kind| {
        kind.parse::<Kind>()
            .map_err(|error| malformed(format!("kinds: {error}")))
    });
    let (from, to) = instant::time_range(request.from.as_ref(), request.to.as_ref())?;
    check_agents(&app, source, &request.agents).await?;
    let excluded = if request.derived || !request.streams.is_empty() {
        HashSet::new()
    } else {
        derived_streams(&app, source).await?
    };
    let plan = CopyPlan {
        source,
        target: request.storage,
        name: request.name.unwrap_or(info.name),
        selection: CopySelection {
            kinds: kinds.collect::<Result<_, _>>()?,
            from,
            to,
            agents: request.agents.into_iter().collect(),
            streams: request.streams.into_iter().collect(),
            excluded,
            // Set when the copy begins.
            bases: LeafBases::default(),
            declaring: Declaring::default(),
            is_incomplete_allowed: request.allow_incomplete,
        },
        contexts: HashMap::new(),
        query: request.query,
        processors: request.processors,
        auto_finalize: request.auto_finalize,
    };
    let processors = plan.processors.clone().unwrap_or_else(saver_chain);
    check_copy(plan.query.as_ref(), &processors).map_err(RecordingError::from)?;
    let job = app.jobs.start(JobKind::Copy, Some(source))?;
    if prefers_async(&headers) {
        let accepted = accepted(&app, &job)?;
        let work = Arc::clone(&app);
        app.jobs.detach(async move {
            // The job stores the outcome.
            let _ = run(&work, plan, job).await;
        });
        return Ok(accepted);
    }
    let field = job_field(&job);
    let mut response = Json(run(&app, plan, job).await?).into_response();
    response.headers_mut().extend([field]);
    Ok(response)
}

/// Refuses agents that the storage has no packets of: a copy without them would look complete.
async fn check_agents(
    app: &AppState,
    source: StorageId,
    agents: &[AgentId],
) -> Result<(), Problem> {
    if agents.is_empty() {
        return Ok(());
    }
    let leaves = app.engine.reading().leaves(source).await?.leaves;
    let known: HashSet<&AgentId> = leaves.iter().map(|leaf| &leaf.path.agent).collect();
    match agents.iter().find(|agent| !known.contains(agent)) {
        None => Ok(()),
        Some(unknown) => Err(problem("agent_not_found")
            .detail(format!("the storage has no packets of agent {unknown}"))
            .cause("agents selects those whose packets are copied")
            .remedy("GET /api/v1/storages/{id}/descriptors lists packets with their agents")),
    }
}

/// The derived streams of a storage.
async fn derived_streams(
    app: &AppState,
    source: StorageId,
) -> Result<HashSet<(AgentId, StreamId)>, Problem> {
    let leaves = app.engine.reading().leaves(source).await?.leaves;
    let names: StreamNames = leaves.iter().map(|leaf| &leaf.path).collect();
    let paths = leaves.iter().map(|leaf| &leaf.path);
    let derived = paths.filter(|path| names.has_source_of(path.kind, &path.agent, &path.stream));
    Ok(derived
        .map(|path| (path.agent.clone(), path.stream.clone()))
        .collect())
}

async fn run(
    app: &AppState,
    plan: CopyPlan,
    job: JobHandle,
) -> Result<StorageCopyDocument, Problem> {
    let copied = Box::pin(fill(app, plan, &job)).await;
    job.end(None, copied)
}

async fn fill(
    app: &AppState,
    mut plan: CopyPlan,
    job: &JobHandle,
) -> Result<StorageCopyDocument, Problem> {
    let engine = &app.engine;
    let mut incomplete = engine.storages().unknown(plan.source)?;
    let missing_packets = engine.storages().missing_packets(plan.source)?;
    if plan.depends_on_times() {
        let selection = &plan.selection;
        let includes =
            |path: &LeafPath| selection.includes_stream(&path.agent, &path.stream, path.kind);
        let has_chain = plan.has_chain();
        if let Some(query) = &plan.query {
            let is_found = is_of_packets(engine, plan.source, query, includes).await?;
            incomplete = incomplete.or_else(|| (!is_found).then(|| SLICES_MISSED.to_owned()));
        }
        let bases = time_bases(engine, plan.source, includes).await?;
        let declared = declarations(engine, plan.source, has_chain, includes).await?;
        plan.selection.bases = bases;
        for (stream, declared) in declared {
            if has_chain {
                plan.contexts.insert(stream.clone(), declared.context);
            }
            plan.selection.declaring.insert(stream, declared.packets);
        }
    }
    let target = match plan.target {
        Some(target) => target,
        None => {
            let new = NewStorage {
                name: plan.name.clone(),
                ..NewStorage::default()
            };
            let (made, _) = engine.storages().create(new).await?;
            engine.storages().open(made.id).await?.id
        }
    };
    let (is_made, is_finalized) = (plan.target.is_none(), plan.auto_finalize);
    let copied = match Box::pin(run_copy(app, plan, target, job)).await {
        Ok(copied) if is_finalized => {
            let finalized = engine.storages().finalize(target).await;
            finalized.map(|_| copied).map_err(RecordingError::from)
        }
        copied => copied,
    };
    match copied {
        Ok(copied) => Ok(StorageCopyDocument {
            storage: target.to_string(),
            packets: copied.packets,
            bytes: copied.bytes,
            incomplete,
            missing_packets,
        }),
        Err(error) => {
            if is_made {
                // The client gets the first error.
                let _ = engine.storages().delete(target).await;
            }
            Err(error.into())
        }
    }
}

/// Why a copy may lack packets although all of the storage could be read.
const SLICES_MISSED: &str = "slices of Chrome traces that begin in one packet and end in another \
                            have no duration in a copy: packets whose slices match by their \
                            duration may be missing";

fn saver_chain() -> Vec<ProcessorConfig> {
    vec![ProcessorConfig::Saver { kinds: None }]
}

/// Copies packets, unchanged or through a chain, and records their provenance.
async fn run_copy(
    app: &AppState,
    plan: CopyPlan,
    target: StorageId,
    job: &JobHandle,
) -> Result<CopyReport, RecordingError> {
    let (listener, copied) = mpsc::channel(COPIED_WAITING_MAX);
    let storages = (plan.source, target);
    let copy = copy_packets(app, plan, target, job, listener);
    let store = app.provenances.store_copies(&app.engine, storages, copied);
    let (copied, stored) = tokio::join!(copy, store);
    if let Err(error) = stored {
        // The packets are stored, and provenance is derived.
        tracing::warn!(storage = %target, %error, "cannot store the provenance of a copy");
    }
    // A reader may have cached the previous file.
    app.open_files.close(target);
    copied
}

async fn copy_packets(
    app: &AppState,
    plan: CopyPlan,
    target: StorageId,
    job: &JobHandle,
    listener: CopyListener,
) -> Result<CopyReport, RecordingError> {
    let progress = job.progress();
    let listener = Some(listener);
    if !plan.has_chain() {
        let (source, selection) = (plan.source, &plan.selection);
        let copied = app
            .engine
            .transfer()
            .copy(source, target, selection, &progress, listener);
        return Ok(copied.await?);
    }
    let spec = StorageCopySpec {
        source: plan.source,
        target,
        selection: plan.selection,
        contexts: plan.contexts,
        query: plan.query,
        processors: plan.processors.unwrap_or_else(saver_chain),
    };
    let copied = app.recorder.copy_storage(&spec, &progress, listener);
    copied.await
}
