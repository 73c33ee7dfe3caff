//! Where storages are in the object store, and moving them there and back.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri};
use object_tier::{Heads, Seal, verify_storage};
use query_language::time::rfc3339;
use serde::{Deserialize, Serialize};
use storage_core::{Progress, StorageError, TierInfo};
use storage_format::StorageId;
use utoipa::{IntoParams, ToSchema};

use super::jobs::{accepted, job_field};
use super::json::read_json;
use super::page::query;
use super::refusals::{BadRequest, Conflict, NotFound, ServiceUnavailable};
use crate::app_state::AppState;
use crate::ingest::prefers_async;
use crate::jobs::{JobDocument, JobHandle, JobKind};
use crate::problem::Problem;
use crate::tier::{NodeDocument, Tier, UploadError, upload};

/// Where a storage is in the object store.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct TierDocument {
    /// `local`: only here. `chained`: its packets are in the store before they are acknowledged.
    /// `uploaded`: here and in the store. `evicted`: its data files are in the
    /// store, and here as far as they were read. `remote`: as evicted, and it came from the store.
    state: &'static str,
    /// URL of the bucket; null if it is only here.
    store: Option<String>,
    /// When it was sealed there, RFC 3339.
    sealed: Option<String>,
    /// Bytes of its objects, without the small files in one object.
    bytes: u64,
    /// The bytes of these that are here.
    bytes_here: u64,
    /// Problems that a verification has found; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    problems: Option<Vec<String>>,
}

impl TierDocument {
    pub(super) fn of(known: Option<&TierInfo>, is_chained: bool) -> Self {
        let Some(known) = known else {
            return Self {
                state: if is_chained { "chained" } else { "local" },
                store: None,
                sealed: None,
                bytes: 0,
                bytes_here: 0,
                problems: None,
            };
        };
        let file = &known.file;
        Self {
            state: match (file.is_evicted, file.is_own) {
                (false, _) => "uploaded",
                (true, true) => "evicted",
                (true, false) => "remote",
            },
            store: Some(file.store.clone()),
            sealed: Some(rfc3339(file.sealed)),
            bytes: file.bytes(),
            bytes_here: known.here,
            problems: None,
        }
    }
}

/// What to do with a storage and the object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum TierAction {
    /// Upload it, whatever the policy says.
    Upload,
    /// Give the space of its data files back.
    Evict,
    /// Fetch all of its bytes and keep them.
    Fetch,
    /// Read all of its objects and compare them with their checksums.
    Verify,
}

/// A request to move a storage.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TierRequest {
    action: TierAction,
}

/// Uploads, evicts, fetches or verifies a storage in the object store. Responds when that is done,
/// or at once with `Prefer: respond-async`.
#[utoipa::path(
    post, operation_id = "tier_storage", path = "/storages/{id}/tier", tag = "storages",
    params(
        ("id" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    request_body = TierRequest,
    responses(
        (status = 200, body = TierDocument, description = "Where the storage is now"),
        (status = 202, body = JobDocument, description = "In progress; see the job"),
        BadRequest, NotFound, Conflict, ServiceUnavailable,
    ),
)]
pub(super) async fn change(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let TierRequest { action } = read_json(&app, &headers, body).await?;
    app.engine.storages().get(id)?;
    let tier = app.tier.clone().ok_or_else(no_store)?;
    let job = app.jobs.start(JobKind::Tier, Some(id))?;
    let field = job_field(&job);
    if prefers_async(&headers) {
        let answer = accepted(&app, &job)?;
        let work = Arc::clone(&app);
        app.jobs.detach(async move {
            // The job stores the outcome.
            let _ = run(&work, &tier, (id, action), job).await;
        });
        return Ok(answer);
    }
    let mut response = Json(run(&app, &tier, (id, action), job).await?).into_response();
    response.headers_mut().extend([field]);
    Ok(response)
}

async fn run(
    app: &Arc<AppState>,
    tier: &Tier,
    (id, action): (StorageId, TierAction),
    job: JobHandle,
) -> Result<TierDocument, Problem> {
    let progress = job.progress();
    let done = tokio::select! {
        done = act(app, tier, (id, action), &progress) => done,
        () = job.cancelled() => Err(StorageError::Cancelled.into()),
    };
    job.end(Some(id.to_string()), done)
}

async fn act(
    app: &Arc<AppState>,
    tier: &Tier,
    (id, action): (StorageId, TierAction),
    progress: &Progress,
) -> Result<TierDocument, Problem> {
    let tiering = app.engine.tiering();
    let mut problems = None;
    match action {
        TierAction::Upload if tiering.info(id)?.is_none() => {
            upload(app, tier, id, progress)
                .await
                .map_err(refused_upload)?;
        }
        TierAction::Upload => {}
        TierAction::Evict => {
            tiering.evict(id).await?;
            app.open_files.close(id);
        }
        TierAction::Fetch => {
            tiering.fetch(id, progress).await?;
            app.open_files.close(id);
        }
        TierAction::Verify => problems = Some(verify(tier, id, progress).await?),
    }
    let known = tiering.info(id)?;
    Ok(TierDocument {
        problems,
        ..TierDocument::of(known.as_ref(), false)
    })
}

async fn verify(tier: &Tier, id: StorageId, progress: &Progress) -> Result<Vec<String>, Problem> {
    let unavailable = |error: object_tier::TierError| store_failed(error.to_string());
    let seal = Seal::get(tier.bucket(), id).await.map_err(unavailable)?;
    let Some(seal) = seal else {
        return Ok(vec![
            "the object store has no seal of the storage".to_owned(),
        ]);
    };
    progress.begin(seal.files.iter().map(|file| file.length).sum());
    let heads = Heads::get(tier.bucket(), &seal)
        .await
        .map_err(unavailable)?;
    let on_bytes = |bytes| progress.add(bytes);
    verify_storage(tier.bucket(), &seal, &heads, on_bytes)
        .await
        .map_err(unavailable)
}

fn refused_upload(error: UploadError) -> Problem {
    match error {
        UploadError::Storage(error) => error.into(),
        UploadError::Store(error) => store_failed(error.to_string()),
        UploadError::Superseded(..) | UploadError::NotOwner(..) => Problem::new(
            StatusCode::CONFLICT,
            "storage_superseded",
            "another node has sealed the storage",
        )
        .detail(error.to_string())
        .cause("the storage was imported or finalized twice, with different files")
        .remedy("compare both; delete the one here to serve the one in the store"),
    }
}

pub(super) fn store_failed(detail: String) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "object_store_unavailable",
        "the object store did not do what was asked",
    )
    .detail(detail)
    .cause("it does not answer, or refuses")
    .remedy("send the request again after Retry-After; GET /readyz says whether the store answers")
    .retry_after(1)
}

pub(super) fn no_store() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "no_object_store",
        "this server has no object store",
    )
    .cause("object_store.url is empty")
    .remedy("set [object_store] in the configuration and start the server again")
}

/// The nodes that share the object store.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NodesDocument {
    /// The node that answers; null without an object store.
    node: Option<String>,
    /// All of them, by name; with `storage` those that live, in the order of the storage.
    nodes: Vec<NodeDocument>,
}

impl NodesDocument {
    pub(super) fn of(app: &AppState, storage: Option<StorageId>) -> Self {
        let tier = app.tier.as_ref();
        Self {
            node: tier.map(|tier| tier.node.clone()),
            nodes: tier.map(|tier| tier.nodes(storage)).unwrap_or_default(),
        }
    }
}

/// Which nodes are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct NodesQuery {
    /// Only nodes that live, in the order in which they should be asked for this storage: whoever
    /// asks them in this order finds its bytes in the cache of the first.
    #[param(pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
    storage: Option<String>,
}

/// Lists the nodes that share the object store, as they were seen a moment ago; none without one.
#[utoipa::path(
    get, operation_id = "list_nodes", path = "/nodes", tag = "health",
    params(NodesQuery),
    responses(
        (status = 200, body = NodesDocument, description = "The nodes"),
        BadRequest,
    ),
)]
pub(super) async fn nodes(
    State(app): State<Arc<AppState>>,
    uri: Uri,
) -> Result<Json<NodesDocument>, Problem> {
    let NodesQuery { storage } = query(&uri)?;
    let storage = storage.map(|id| id.parse()).transpose()?;
    Ok(Json(NodesDocument::of(&app, storage)))
}
