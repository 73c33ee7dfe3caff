//! Copying a selection of a storage into another.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use recording::{ProcessorConfig, RecordingError, StorageCopySpec, check_copy};
use serde::{Deserialize, Serialize};
use storage_core::{CopyListener, CopyReport, CopySelection, LeafBases, NewStorage};
use storage_format::data_file::LeafPath;
use storage_format::{AgentId, Kind, StorageId, StreamId};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::instant;
use super::jobs::{accepted, job_field};
use super::json::read_json;
use super::page::malformed;
use super::refusals::{BadRequest, Conflict, NotFound};
use crate::app_state::AppState;
use crate::ingest::prefers_async;
use crate::jobs::{JobDocument, JobKind, Running};
use crate::problem::Problem;
use crate::query::time_bases;

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
    /// Only packets that can contain events at or after this time: RFC 3339 or nanoseconds since
    /// the epoch.
    from: Option<String>,
    /// Only packets that can contain events before this time.
    to: Option<String>,
    /// Only what matches: matching spans of packets of spans, and complete packets of other kinds.
    query: Option<String>,
    /// The chain of processors; packets are copied unchanged by default.
    #[schema(value_type = Option<Vec<Object>>)]
    processors: Option<Vec<ProcessorConfig>>,
    /// Finalize the target after the copy.
    auto_finalize: bool,
}

/// The result of a copy.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StorageCopyDocument {
    /// The target storage.
    storage: String,
    packets: u64,
    /// Bytes of the packets as the agents sent them.
    bytes: u64,
}

/// A copy to carry out.
struct Wanted {
    source: StorageId,
    /// `None`: a new storage with this name.
    target: Option<StorageId>,
    name: String,
    selection: CopySelection,
    query: Option<String>,
    processors: Option<Vec<ProcessorConfig>>,
    auto_finalize: bool,
}

impl Wanted {
    /// Whether the selection depends on the times of packets.
    fn looks_at_times(&self) -> bool {
        let selection = &self.selection;
        selection.from.is_some() || selection.to.is_some() || self.goes_through_a_chain()
    }

    fn goes_through_a_chain(&self) -> bool {
        self.query.is_some() || self.processors.is_some()
    }
}

/// Copies a selection of the packets of a storage into a new or an open one. Responds when all
/// counted packets are durable, or at once with `Prefer: respond-async`; the result is then in the
/// job.
///
/// If the copy fails, a new storage is deleted; an open one retains the packets copied before.
#[utoipa::path(
    post, path = "/storages/{id}/copy", tag = "storages",
    params(
        ("id" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    request_body = StorageCopy,
    responses(
        (status = 200, body = StorageCopyDocument),
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
    let told: StorageCopy = read_json(&app, &headers, body).await?;
    let kinds = told.kinds.iter().map(|kind| {
        kind.parse::<Kind>()
            .map_err(|error| malformed(format!("kinds: {error}")))
    });
    let instant =
        |name: &str, text: Option<&String>| text.map(|text| instant::parse(text, name)).transpose();
    let wanted = Wanted {
        source,
        target: told.storage,
        name: told.name.unwrap_or(info.name),
        selection: CopySelection {
            kinds: kinds.collect::<Result<_, _>>()?,
            from: instant("from", told.from.as_ref())?,
            to: instant("to", told.to.as_ref())?,
            agents: told.agents.into_iter().collect(),
            streams: told.streams.into_iter().collect(),
            // Set when the copy begins.
            bases: LeafBases::default(),
        },
        query: told.query,
        processors: told.processors,
        auto_finalize: told.auto_finalize,
    };
    let processors = wanted.processors.clone().unwrap_or_else(saver);
    check_copy(wanted.query.as_ref(), &processors).map_err(RecordingError::from)?;
    let job = app.jobs.start(JobKind::Copy, Some(source))?;
    if prefers_async(&headers) {
        let accepted = accepted(&app, &job)?;
        let work = Arc::clone(&app);
        app.jobs.detach(async move {
            // The job stores the outcome.
            let _ = run(&work, wanted, job).await;
        });
        return Ok(accepted);
    }
    let field = job_field(&job);
    let mut response = Json(run(&app, wanted, job).await?).into_response();
    response.headers_mut().extend([field]);
    Ok(response)
}

async fn run(app: &AppState, wanted: Wanted, job: Running) -> Result<StorageCopyDocument, Problem> {
    let copied = fill(app, wanted, &job).await;
    job.end(None, copied)
}

async fn fill(
    app: &AppState,
    mut wanted: Wanted,
    job: &Running,
) -> Result<StorageCopyDocument, Problem> {
    let engine = &app.engine;
    if wanted.looks_at_times() {
        let selection = &wanted.selection;
        let takes = |path: &LeafPath| selection.takes_stream(&path.agent, &path.stream, path.kind);
        wanted.selection.bases = time_bases(engine, wanted.source, takes).await?;
    }
    let target = match wanted.target {
        Some(target) => target,
        None => {
            let new = NewStorage {
                name: wanted.name.clone(),
                ..NewStorage::default()
            };
            let (made, _) = engine.storages().create(new).await?;
            engine.storages().open(made.id).await?.id
        }
    };
    let (is_made, is_finalized) = (wanted.target.is_none(), wanted.auto_finalize);
    let copied = match run_copy(app, wanted, target, job).await {
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
        }),
        Err(error) => {
            if is_made {
                // The client is told about the first error.
                let _ = engine.storages().delete(target).await;
            }
            Err(error.into())
        }
    }
}

fn saver() -> Vec<ProcessorConfig> {
    vec![ProcessorConfig::Saver { kinds: None }]
}

/// Copies packets, unchanged or through a chain, and records their provenance.
async fn run_copy(
    app: &AppState,
    wanted: Wanted,
    target: StorageId,
    job: &Running,
) -> Result<CopyReport, RecordingError> {
    let (listener, copied) = mpsc::channel(COPIED_WAITING_MAX);
    let storages = (wanted.source, target);
    let copy = copy_packets(app, wanted, target, job, listener);
    let keep = app.provenances.keep_copies(&app.engine, storages, copied);
    let (copied, kept) = tokio::join!(copy, keep);
    if let Err(error) = kept {
        // The packets are stored, and provenance is derived.
        tracing::warn!(storage = %target, %error, "cannot store the provenance of a copy");
    }
    // A reader may have cached the previous file.
    app.open_files.forget(target);
    copied
}

async fn copy_packets(
    app: &AppState,
    wanted: Wanted,
    target: StorageId,
    job: &Running,
    listener: CopyListener,
) -> Result<CopyReport, RecordingError> {
    let progress = job.progress();
    let listener = Some(listener);
    if !wanted.goes_through_a_chain() {
        let (source, selection) = (wanted.source, &wanted.selection);
        let copied = app
            .engine
            .transfer()
            .copy(source, target, selection, &progress, listener);
        return Ok(copied.await?);
    }
    let spec = StorageCopySpec {
        source: wanted.source,
        target,
        selection: wanted.selection,
        query: wanted.query,
        processors: wanted.processors.unwrap_or_else(saver),
    };
    let copied = app.recorder.copy_storage(&spec, &progress, listener);
    copied.await
}
