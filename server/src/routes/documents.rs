//! Pages for people, and the description of the API for programs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::header;

use crate::app_state::AppState;

/// The description of every path, made from the code.
#[utoipa::path(
    get, path = "/openapi.json", tag = "documents",
    responses((status = 200, body = Object, description = "OpenAPI 3.1")),
)]
pub(super) async fn openapi(State(app): State<Arc<AppState>>) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        app.openapi.clone(),
    )
        .into_response()
}

/// The same description to read.
#[utoipa::path(
    get, path = "/docs", tag = "documents",
    responses((status = 200, body = String, content_type = "text/html")),
)]
pub(super) async fn docs() -> Response {
    page(include_str!("pages/docs.html"))
}

/// What the server is and how it is doing.
#[utoipa::path(
    get, path = "/", tag = "documents",
    responses((status = 200, body = String, content_type = "text/html")),
)]
pub(super) async fn index() -> Response {
    page(include_str!("pages/index.html"))
}

/// A page of our own: nothing from elsewhere, and no inline code but what it brings itself.
fn page(html: &'static str) -> Response {
    let policy = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; \
                  script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                  frame-ancestors 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(html)).into_response()
}
