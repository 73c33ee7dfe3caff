//! Verification: a storage is re-read completely.

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
use crate::jobs::{JobDocument, JobHandle, JobKind};
use crate::problem::Problem;

/// The result of a verification.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct VerifyDocument {
    /// Number of files read.
    files: u64,
    /// Number of packets read.
    packets: u64,
    /// Number of bytes read.
    bytes: u64,
    /// All damage that was found; empty if there is none.
    damage: Vec<DamageDocument>,
}

/// A damaged location.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DamageDocument {
    /// Name of the file.
    file: String,
    /// Offset in the file.
    offset: u64,
    /// What is damaged.
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

/// Re-reads every byte of a storage and reports file and offset of all damage. Responds at the end,
/// or at once with `Prefer: respond-async`; the result is then in the job.
#[utoipa::path(
    post, operation_id = "verify_storage", path = "/storages/{id}/verify", tag = "storages",
    params(
        ("id" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    responses(
        (status = 200, body = VerifyDocument, description = "What was verified, and all damage"),
        (status = 202, body = JobDocument, description = "In progress; see the job"),
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
    app.engine.storages().check_recovered(id)?;
    let job = app.jobs.start(JobKind::Verify, Some(id))?;
    if prefers_async(&headers) {
        let accepted = accepted(&app, &job)?;
        let work = Arc::clone(&app);
        app.jobs.detach(async move {
            // The job stores the outcome.
            let _ = run(&work, id, job).await;
        });
        return Ok(accepted);
    }
    let field = job_field(&job);
    // If the client disconnects, this future is dropped, which cancels the job.
    let mut response = Json(run(&app, id, job).await?).into_response();
    response.headers_mut().extend([field]);
    Ok(response)
}

async fn run(app: &AppState, id: StorageId, job: JobHandle) -> Result<VerifyDocument, Problem> {
    let verified = match app.engine.reading().verify(id, job.progress()).await {
        Ok(report) if report.is_cancelled => Err(StorageError::Cancelled.into()),
        Ok(report) => Ok(report.into()),
        Err(error) => Err(error.into()),
    };
    job.end(None, verified)
}
