//! Pages for people, and the OpenAPI document.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::header;

use crate::app_state::AppState;

/// Returns the OpenAPI document, which is generated from the code.
#[utoipa::path(
    get, operation_id = "get_openapi", path = "/openapi.json", tag = "documents",
    responses((status = 200, body = Object, description = "OpenAPI 3.1")),
)]
pub(super) async fn openapi(State(app): State<Arc<AppState>>) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        app.openapi.clone(),
    )
        .into_response()
}

/// Shows the OpenAPI document as a page.
#[utoipa::path(
    get, operation_id = "get_docs_page", path = "/docs", tag = "documents",
    responses((status = 200, body = String, content_type = "text/html", description = "The page")),
)]
pub(super) async fn docs() -> Response {
    page(include_str!("pages/docs.html"))
}

/// Shows the status of the server as a page.
#[utoipa::path(
    get, operation_id = "get_index_page", path = "/", tag = "documents",
    responses((status = 200, body = String, content_type = "text/html", description = "The page")),
)]
pub(super) async fn index() -> Response {
    page(include_str!("pages/index.html"))
}

/// A page without external resources and without inline code except its own.
fn page(html: &'static str) -> Response {
    let policy = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; \
                  script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                  frame-ancestors 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(html)).into_response()
}
