//! Health, readiness and metrics.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

use super::refusals::ServiceUnavailable;
use crate::app_state::AppState;
use crate::problem::Problem;

/// Health of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `live` or `ready`.
    status: &'static str,
    /// Ingest is stopped because the disk is low; reads continue.
    disk_low: bool,
}

fn health(app: &AppState, status: &'static str) -> Json<Health> {
    Json(Health {
        status,
        disk_low: app.engine.counters().disk_low.get() != 0,
    })
}

/// Returns 200 while the process responds.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, body = Health)))]
pub(super) async fn livez(State(app): State<Arc<AppState>>) -> Json<Health> {
    health(&app, "live")
}

/// Returns 200 while the server accepts requests, and 503 during shutdown.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, body = Health),
        ServiceUnavailable,
    ),
)]
pub(super) async fn readyz(State(app): State<Arc<AppState>>) -> Result<Json<Health>, Problem> {
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
    Ok(health(&app, "ready"))
}

/// Returns all metrics for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, body = String, content_type = "text/plain")),
)]
pub(super) async fn metrics(State(app): State<Arc<AppState>>) -> Response {
    let mut text = app.metrics.render();
    crate::metrics::render_engine(app.engine.counters(), &mut text);
    crate::metrics::render_recorder(&app.recorder, &mut text);
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
