//! Taking over a storage that another node has written.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use storage_core::StorageError;
use storage_format::StorageId;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::jobs::{accepted, job_field};
use super::json::read_json;
use super::refusals::{BadRequest, Conflict, NotFound, ServiceUnavailable};
use super::tier::{no_store, store_failed};
use crate::app_state::AppState;
use crate::error::problem;
use crate::ingest::prefers_async;
use crate::jobs::{JobDocument, JobHandle, JobKind};
use crate::problem::Problem;
use crate::tier::{TakenOver, TakeoverError, Tier, take_over};

/// A request to take a storage over.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AdoptRequest {
    /// Also from a node that gives signs of life; and if no packet of the storage is in the object
    /// store, without its packets.
    #[serde(default)]
    force: bool,
}

/// Where a storage is after a takeover.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AdoptedDocument {
    /// `here`: it was here before. `sealed`: it is served from the object store. `written`: it is
    /// open here. `finalized`: its writer had ended it, and it is finalized here.
    state: &'static str,
    /// Packets that were read from its chain.
    packets: u64,
}

impl AdoptedDocument {
    fn of(taken: TakenOver) -> Self {
        let (state, packets) = match taken {
            TakenOver::Here => ("here", 0),
            TakenOver::Sealed => ("sealed", 0),
            TakenOver::Written(packets) => ("written", packets),
            TakenOver::Finalized(packets) => ("finalized", packets),
        };
        Self { state, packets }
    }
}

/// Makes this node the writer of a storage whose node is gone. With `durability = object` every
/// packet that was acknowledged is here afterwards, and the node before acknowledges nothing more.
/// Responds when that is done, or at once with `Prefer: respond-async`.
#[utoipa::path(
    post, operation_id = "adopt_storage", path = "/storages/{id}/adopt", tag = "storages",
    params(
        ("id" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    request_body = AdoptRequest,
    responses(
        (status = 200, body = AdoptedDocument, description = "Where the storage is now"),
        (status = 202, body = JobDocument, description = "In progress; see the job"),
        BadRequest, NotFound, Conflict, ServiceUnavailable,
    ),
)]
pub(super) async fn adopt(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let AdoptRequest { force } = read_json(&app, &headers, body).await?;
    let tier = app.tier.clone().ok_or_else(no_store)?;
    let job = app.jobs.start(JobKind::Tier, Some(id))?;
    let field = job_field(&job);
    let is_async = prefers_async(&headers);
    let answer = is_async.then(|| accepted(&app, &job)).transpose()?;
    let (done, outcome) = oneshot::channel();
    let work = Arc::clone(&app);
    // It goes on when the client hangs up: half a storage is of no use.
    app.jobs.detach(async move {
        // The job stores the outcome as well.
        let _ = done.send(run(&work, &tier, (id, force), job).await);
    });
    if let Some(answer) = answer {
        return Ok(answer);
    }
    let adopted = outcome
        .await
        .unwrap_or(Err(StorageError::Stopping.into()))?;
    let mut response = Json(adopted).into_response();
    response.headers_mut().extend([field]);
    Ok(response)
}

async fn run(
    app: &Arc<AppState>,
    tier: &Tier,
    (id, is_forced): (StorageId, bool),
    job: JobHandle,
) -> Result<AdoptedDocument, Problem> {
    // Cancelling the job ends it between two records.
    let progress = job.progress();
    let done = take_over(app, tier, id, is_forced, &progress).await;
    let done = done.map_err(refused);
    job.end(Some(id.to_string()), done.map(AdoptedDocument::of))
}

fn refused(error: TakeoverError) -> Problem {
    let detail = error.to_string();
    let conflict = |code, title| Problem::new(StatusCode::CONFLICT, code, title);
    match error {
        TakeoverError::Storage(error) => error.into(),
        TakeoverError::NoRoom { .. } => problem("disk_low")
            .detail(detail)
            .cause(
                "a takeover stores all packets of the storage on this node; it has taken nothing",
            )
            .remedy("free some space, or take it over on another node"),
        TakeoverError::Underway => problem("storage_taken_over").detail(detail).retry_after(1),
        TakeoverError::Store(_) => store_failed(detail),
        TakeoverError::Off => conflict("no_chains", "this node takes no storages over")
            .detail(detail)
            .cause("open storages can be taken over when their packets are in the object store")
            .remedy("set object_store.durability to \"object\" and start the server again"),
        TakeoverError::UnchainedWriterLives(_) => {
            conflict("writer_lives", "the writer of the storage lives")
                .detail(detail)
                .cause("its packets are not in the object store, so nothing keeps it from going on")
                .remedy("stop that node first, or push to it")
        }
        TakeoverError::WriterLives(_) => {
            conflict("writer_lives", "the writer of the storage lives")
                .detail(detail)
                .cause("it gave a sign of life within the last 30 s")
                .remedy("push to that node, or stop it; force takes the storage over all the same")
        }
        TakeoverError::NotChained(_) => conflict(
            "storage_not_chained",
            "the packets of the storage are nowhere else",
        )
        .detail(detail)
        .cause("its node has object_store.durability = \"local\"")
        .remedy(
            "start that node again; force makes the storage again without its packets, so \
                     that agents can go on",
        ),
        TakeoverError::Superseded(_) => {
            conflict("storage_superseded", "another node has the storage")
                .detail(detail)
                .cause("it was taken over by two nodes at once, and the other was faster")
                .remedy("push to that node")
        }
    }
}
