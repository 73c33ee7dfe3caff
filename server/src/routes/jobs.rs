//! Jobs: listing, progress and cancellation.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderName, HeaderValue, StatusCode};
use uuid::Uuid;

use super::json::with_location;
use super::page::{Page, not_an_id};
use super::refusals::NotFound;
use crate::access::Caller;
use crate::app_state::AppState;
use crate::jobs::{JobDocument, JobHandle};
use crate::problem::Problem;

/// The job of a request.
pub(super) const TRACEHOLD_JOB: HeaderName = HeaderName::from_static("tracehold-job");

/// Lists running jobs and those that ended recently.
#[utoipa::path(
    get, operation_id = "list_jobs", path = "/jobs", tag = "jobs",
    responses((status = 200, body = Page<JobDocument>, description = "All jobs")),
)]
pub(super) async fn list(State(app): State<Arc<AppState>>) -> Json<Page<JobDocument>> {
    Json(Page {
        items: app.jobs.all(),
        next: None,
    })
}

/// Returns the state and progress of a job.
#[utoipa::path(
    get, operation_id = "get_job",
    path = "/jobs/{job}", tag = "jobs", params(("job" = String, Path)),
    responses(
        (status = 200, body = JobDocument, description = "The job"),
        NotFound,
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    Path(job): Path<String>,
) -> Result<Json<JobDocument>, Problem> {
    let id = job_id(&job)?;
    app.jobs.check_seen(id, &caller)?;
    Ok(Json(app.jobs.get(id)?))
}

/// Requests cancellation of a job, which stops at its next step. A job that has ended is not
/// changed.
#[utoipa::path(
    delete, operation_id = "cancel_job",
    path = "/jobs/{job}", tag = "jobs", params(("job" = String, Path)),
    responses(
        (status = 200, body = JobDocument, description = "The job"),
        NotFound,
    ),
)]
pub(super) async fn cancel(
    State(app): State<Arc<AppState>>,
    Path(job): Path<String>,
) -> Result<Json<JobDocument>, Problem> {
    Ok(Json(app.jobs.cancel(job_id(&job)?)?))
}

fn job_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_id",
            "an id in the path is invalid",
        )
        .detail(not_an_id("job", text))
        .cause("the id of a job is a UUID")
        .remedy("GET /api/v1/jobs lists all jobs")
    })
}

/// The header field that names a job.
pub(super) fn job_field(job: &JobHandle) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::try_from(job.id()).expect("ids of jobs are visible ASCII");
    (TRACEHOLD_JOB, value)
}

/// 202: the job continues, and `Location` is where to request its state.
pub(super) fn accepted(app: &AppState, job: &JobHandle) -> Result<Response, Problem> {
    let id = job.id();
    let document = app.jobs.get(job_id(&id)?)?;
    let mut response = (StatusCode::ACCEPTED, Json(document)).into_response();
    response.headers_mut().extend([job_field(job)]);
    Ok(with_location(response, format!("/api/v1/jobs/{id}")))
}
