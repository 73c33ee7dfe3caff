//! Finalizations: jobs that the next start of the server continues.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use storage_format::StorageId;
use storage_format::storage_file::StorageState;

use super::jobs::{accepted, job_field};
use super::refusals::Conflict;
use super::storages::StorageDocument;
use crate::app_state::AppState;
use crate::ingest::prefers_async;
use crate::jobs::{JobDocument, JobHandle, JobKind};
use crate::problem::Problem;

/// Finalizes a storage: drains, arranges, syncs and publishes it. Responds when it is complete on
/// disk, or at once with `Prefer: respond-async`. Cancelling the job opens the storage again.
#[utoipa::path(
    post, operation_id = "finalize_storage", path = "/storages/{id}/finalize", tag = "storages",
    params(
        ("id" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    responses(
        (status = 200, body = StorageDocument, description = "The storage"),
        (status = 202, body = JobDocument, description = "In progress; see the job"),
        Conflict,
    ),
)]
pub(super) async fn finalize(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    app.engine.storages().get(id)?;
    app.engine.storages().check_recovered(id)?;
    let job = begin(&app, id);
    let field = job.as_ref().map(job_field);
    let answer = match &job {
        Some(job) if prefers_async(&headers) => Some(accepted(&app, job)?),
        _ => None,
    };
    if let Some(answer) = answer {
        let work = Arc::clone(&app);
        app.jobs.detach(async move {
            // The job stores the outcome.
            let _ = run(&work, id, job).await;
        });
        return Ok(answer);
    }
    let mut response = Json(run(&app, id, job).await?).into_response();
    response.headers_mut().extend(field);
    Ok(response)
}

/// Continues the finalizations that were running when the server ended, each when its storage is
/// recovered.
pub(crate) fn resume_finalizations(app: &Arc<AppState>) {
    for id in app.engine.storages().interrupted_finalizations() {
        let work = Arc::clone(app);
        app.jobs.detach(async move {
            if !is_still_interrupted(&work, id).await {
                return;
            }
            tracing::info!(storage = %id, "continuing an interrupted finalization");
            let job = begin(&work, id);
            if let Err(problem) = run(&work, id, job).await {
                tracing::error!(
                    storage = %id, error = problem.what(),
                    "an interrupted finalization has ended; finalize the storage again"
                );
            }
        });
    }
}

/// Waits until a storage is recovered; whether its finalization has to be continued.
async fn is_still_interrupted(app: &AppState, id: StorageId) -> bool {
    let storages = app.engine.storages();
    tokio::select! {
        biased;
        // The next start continues it.
        () = app.draining() => false,
        recovered = storages.recovered(id) => {
            let state = storages.get(id).map(|storage| storage.state);
            // It may have failed, or have been deleted.
            recovered.is_ok() && matches!(state, Ok(StorageState::Finalizing))
        }
    }
}

/// The job of a finalization. A storage is finalized without one when too many jobs run.
fn begin(app: &AppState, id: StorageId) -> Option<JobHandle> {
    app.jobs.start(JobKind::Finalize, Some(id)).ok()
}

async fn run(
    app: &AppState,
    id: StorageId,
    job: Option<JobHandle>,
) -> Result<StorageDocument, Problem> {
    let progress = job.as_ref().map(JobHandle::progress).unwrap_or_default();
    let finalized = app.engine.storages().finalize_with(id, progress).await;
    let finalized = match finalized {
        Ok(info) => {
            app.indexes.check(id);
            Ok(info.into())
        }
        Err(error) => Err(error.into()),
    };
    match job {
        Some(job) => job.end(None, finalized),
        None => finalized,
    }
}
