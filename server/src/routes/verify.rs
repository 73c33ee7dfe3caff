//! Verification of a storage: all of it read again.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use serde::Serialize;
use storage_core::{StorageError, VerifyReport};
use storage_format::StorageId;
use utoipa::ToSchema;

use super::jobs::{accepted, job_field};
use super::refusals::{Conflict, NotFound};
use crate::app_state::AppState;
use crate::ingest::prefers_async;
use crate::jobs::{JobDocument, JobKind, Running};
use crate::problem::Problem;

/// What a verification found.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct VerifyDocument {
    /// Files read.
    files: u64,
    /// Packets read.
    packets: u64,
    /// Bytes read.
    bytes: u64,
    /// Everything that is damaged; empty when nothing is.
    damage: Vec<DamageDocument>,
}

/// One damaged place.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DamageDocument {
    /// Name of the file.
    file: String,
    /// Offset in it.
    offset: u64,
    /// What is wrong there.
    what: String,
}

impl From<VerifyReport> for VerifyDocument {
    fn from(report: VerifyReport) -> Self {
        let damage = report.damage.into_iter().map(|damage| DamageDocument {
            file: damage.file,
            offset: damage.offset,
            what: damage.what,
        });
        Self {
            files: report.files,
            packets: report.packets,
            bytes: report.bytes,
            damage: damage.collect(),
        }
    }
}

/// Reads every byte of a storage again and names file and offset of what is damaged. Answers at the
/// end, or with `Prefer: respond-async` at once: then the job has the answer.
#[utoipa::path(
    post, path = "/storages/{id}/verify", tag = "storages",
    params(
        ("id" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    responses(
        (status = 200, body = VerifyDocument),
        (status = 202, body = JobDocument, description = "At work; ask for the job"),
        NotFound, Conflict,
    ),
)]
pub(super) async fn verify(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    app.engine.storages().get(id)?;
    let job = app.jobs.start(JobKind::Verify, Some(id))?;
    if prefers_async(&headers) {
        let accepted = accepted(&app, &job)?;
        let work = Arc::clone(&app);
        app.jobs.detach(async move {
            // The job keeps the outcome.
            let _ = run(&work, id, job).await;
        });
        return Ok(accepted);
    }
    let field = job_field(&job);
    // When the client goes away this future is dropped, and the job is cancelled with it.
    let mut response = Json(run(&app, id, job).await?).into_response();
    response.headers_mut().extend([field]);
    Ok(response)
}

async fn run(app: &AppState, id: StorageId, job: Running) -> Result<VerifyDocument, Problem> {
    let verified = match app.engine.reading().verify(id, job.progress()).await {
        Ok(report) if report.is_cancelled => Err(StorageError::Cancelled.into()),
        Ok(report) => Ok(report.into()),
        Err(error) => Err(error.into()),
    };
    job.end(None, verified)
}
