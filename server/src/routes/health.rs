//! Whether the server lives, whether it is ready, and what it counts.

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

/// Health in a word.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `live` or `ready`.
    status: &'static str,
    /// Ingest is stopped because the disk is low; reading goes on.
    disk_low: bool,
}

fn health(app: &AppState, status: &'static str) -> Json<Health> {
    Json(Health {
        status,
        disk_low: app.engine.counters().disk_low.get() != 0,
    })
}

/// The process lives and answers.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, body = Health)))]
pub(super) async fn livez(State(app): State<Arc<AppState>>) -> Json<Health> {
    health(&app, "live")
}

/// The server takes requests; not any more once it was told to end.
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
            "the server is stopping",
        )
        .cause("it was told to end")
        .remedy("ask again when it is back")
        .retry_after(1));
    }
    Ok(health(&app, "ready"))
}

/// Everything counted, for Prometheus.
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
