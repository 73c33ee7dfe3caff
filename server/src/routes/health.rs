//! Health, readiness and metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{StatusCode, header};
use serde::Serialize;
use storage_core::RecoveryStatus;
use utoipa::ToSchema;

use super::refusals::ServiceUnavailable;
use crate::access::Caller;
use crate::app_state::AppState;
use crate::problem::Problem;

/// Failed storages that `/readyz` lists.
const LISTED_FAILURES_MAX: usize = 20;

/// Health of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `live`.
    status: &'static str,
    /// Ingest is stopped because the disk is low; reads continue.
    disk_low: bool,
}

/// Whether the server accepts requests, and what does not work.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Readiness {
    /// `ready`, or `degraded` while a storage is FAILED or poisoned, a task has ended, or the
    /// object store does not answer.
    status: &'static str,
    /// Ingest is stopped because the disk is low; reads continue.
    disk_low: bool,
    /// Free bytes of the data folder's file system, and all of its bytes. If the server has tokens,
    /// null without the token of a reader.
    disk_free_bytes: Option<u64>,
    disk_total_bytes: Option<u64>,
    /// Number of storages that a failed write or sync has made read-only since the start.
    poisoned_storages: u64,
    /// Tasks that should run and have ended: the log has the panic, and a restart starts them.
    ended_tasks: Vec<&'static str>,
    /// Why the object store does not answer as it must; null while it does, and without one. If
    /// the server has tokens, only that it fails without the token of a reader.
    object_store: Option<String>,
    /// Finalized storages that wait for their upload.
    waiting_uploads: u64,
    /// Number of FAILED storages.
    failed_storages: u64,
    /// The first of them. If the server has tokens, none without the token of a reader.
    failures: Vec<FailedStorage>,
}

/// A FAILED storage.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FailedStorage {
    /// Its id.
    storage: String,
    /// Why it failed.
    reason: String,
}

fn is_disk_low(app: &AppState) -> bool {
    app.engine.counters().disk_low.get() != 0
}

fn io_thread_failed(reason: String) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "io_thread_failed",
        "the server cannot write",
    )
    .detail(reason)
    .cause("the thread that writes all data files has ended; reads continue")
    .remedy("restart the server; what was acknowledged is durable")
}

/// Returns 200 while the process responds, and 503 when only a restart helps: the thread that
/// writes all data files has ended.
#[utoipa::path(
    get, operation_id = "get_livez", path = "/livez", tag = "health",
    responses(
        (status = 200, body = Health, description = "The process responds"),
        ServiceUnavailable,
    ),
)]
pub(super) async fn livez(State(app): State<Arc<AppState>>) -> Result<Json<Health>, Problem> {
    liveness(app.engine.failures(0).io_thread, is_disk_low(&app)).map(Json)
}

/// A server with a failing disk or FAILED storages lives: a restart would not mend them, and ends
/// what works.
fn liveness(io_thread: Option<String>, disk_low: bool) -> Result<Health, Problem> {
    match io_thread {
        Some(reason) => Err(io_thread_failed(reason)),
        None => Ok(Health {
            status: "live",
            disk_low,
        }),
    }
}

/// Returns 200 while the server accepts requests, and 503 during shutdown, when nothing can be
/// written, when the disk fails, and after the start until all storages are recovered.
#[utoipa::path(
    get, operation_id = "get_readyz", path = "/readyz", tag = "health",
    responses(
        (status = 200, body = Readiness, description = "The server accepts requests"),
        ServiceUnavailable,
    ),
)]
pub(super) async fn readyz(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Readiness>, Problem> {
    if app.is_draining() {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "the server is shutting down",
        )
        .cause("it received a request to stop")
        .remedy("retry when it is back")
        .retry_after(1));
    }
    let failures = app.engine.failures(LISTED_FAILURES_MAX);
    if let Some(reason) = failures.io_thread {
        return Err(io_thread_failed(reason));
    }
    if let Some(reason) = app.engine.disk_failure() {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "disk_failed",
            "the disk does not work",
        )
        .detail(reason)
        .cause(
            "a small write to the data folder is tried every storage.disk_probe_seconds, and the \
             last one failed or has not completed",
        )
        .remedy("examine the disk and the log of the kernel; what was acknowledged is durable")
        .retry_after(10));
    }
    // Rings of I/O traces are moved into storages that are ready.
    let of_rings = || app.io_trace.is_recovering().then(RecoveryStatus::default);
    if let Some(recovery) = app.engine.recovery().or_else(of_rings) {
        return Err(recovering(&recovery));
    }
    let poisoned_storages = app.engine.storage_counts().poisoned;
    let ended_tasks = app.background.ended();
    let store = app
        .tier
        .as_ref()
        .map(|tier| tier.status())
        .unwrap_or_default();
    let is_degraded = failures.storage_count > 0
        || poisoned_storages > 0
        || !ended_tasks.is_empty()
        || store.failure().is_some();
    let counters = app.engine.counters();
    let reads_all = app.access.reads_all(&caller);
    let listed = failures.storages.into_iter().filter(|_| reads_all);
    let for_readers = |bytes: u64| reads_all.then_some(bytes);
    Ok(Json(Readiness {
        status: if is_degraded { "degraded" } else { "ready" },
        disk_low: is_disk_low(&app),
        disk_free_bytes: for_readers(counters.disk_free_bytes.get()),
        disk_total_bytes: for_readers(counters.disk_total_bytes.get()),
        poisoned_storages,
        ended_tasks,
        object_store: store.failure().map(|reason| told(reason, reads_all)),
        waiting_uploads: store.waiting,
        failed_storages: failures.storage_count,
        failures: listed
            .map(|(id, reason)| FailedStorage {
                storage: id.to_string(),
                reason,
            })
            .collect(),
    }))
}

/// Why the object store fails, for whoever may know.
fn told(reason: String, reads_all: bool) -> String {
    if reads_all {
        reason
    } else {
        "it does not answer as it must".to_owned()
    }
}

fn recovering(recovery: &RecoveryStatus) -> Problem {
    let RecoveryStatus {
        storages,
        bytes_scanned,
        bytes_total,
    } = recovery;
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "recovering",
        "storages are being recovered",
    )
    .detail(format!(
        "{storages} storages are not ready; {bytes_scanned} of {bytes_total} bytes are scanned"
    ))
    .cause("the server started a moment ago and still scans data files; other storages are served")
    .remedy("wait; GET /api/v1/storages shows which storages are ready")
    .member("recovering_storages", *storages)
    .member("bytes_scanned", *bytes_scanned)
    .member("bytes_total", *bytes_total)
    .retry_after(1)
}

/// Returns all metrics for Prometheus.
#[utoipa::path(
    get, operation_id = "get_metrics", path = "/metrics", tag = "health",
    responses((status = 200, body = String, content_type = "text/plain",
         description = "In the text format of Prometheus")),
)]
pub(super) async fn metrics(State(app): State<Arc<AppState>>) -> Response {
    let mut text = app.metrics.render();
    // Updates the gauges of what has failed, and of what is being recovered.
    let _ = (app.engine.failures(0), app.engine.recovery());
    let _ = app.engine.disk_failure();
    crate::metrics::render_engine(app.engine.counters(), &mut text);
    crate::metrics::render_storages(&app.engine.storage_counts(), &mut text);
    crate::metrics::render_process(app.started.as_secs_f64(), &mut text);
    crate::metrics::render_recorder(&app.recorder, &mut text);
    if let Some(tier) = &app.tier {
        let (cached, status) = (app.engine.tiering().cached(), tier.status());
        let chains = tier.chains().map(|chains| &chains.counts);
        crate::metrics::render_tier((tier.requests(), &cached, &status), chains, &mut text);
    }
    crate::metrics::render_io_trace(&app.io_trace.status(), &mut text);
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        text,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_io_thread_has_ended_does_not_live() {
        assert_eq!(liveness(None, true).unwrap().status, "live");
        let dead = liveness(Some("it panicked".to_owned()), false).unwrap_err();
        assert_eq!(
            (dead.status().as_u16(), dead.code()),
            (503, "io_thread_failed")
        );
    }
}
