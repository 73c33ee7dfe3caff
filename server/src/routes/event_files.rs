//! Files of events, for programs that read Parquet at a URL.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{HeaderValue, header};
use storage_core::StorageError;
use storage_format::{Kind, StorageId};
use trace_kinds::has_events;

use super::query::SKIPPED;
use super::refusals::{Conflict, NotFound, PreconditionFailed, RangeNotSatisfiable};
use crate::app_state::AppState;
use crate::problem::Problem;
use crate::range::respond;

const PARQUET: HeaderValue = HeaderValue::from_static("application/vnd.apache.parquet");

/// Returns all events of a kind of a finalized storage as a Parquet file, or ranges of it.
///
/// The first request makes the file, and waits until it was made; later ones read it.
#[utoipa::path(
    get, operation_id = "read_events", path = "/storage/{id}/events/{table}", tag = "files",
    params(
        ("id" = String, Path),
        ("table" = String, Path, description = "`KIND.parquet`, such as `dft.parquet`"),
        ("Range" = Option<String>, Header, description = "As in RFC 9110"),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/vnd.apache.parquet",
         description = "All bytes. The rows are in order of time; the footer has what could not be \
            read under the key `tracehold.skipped`",
         headers(("Tracehold-Skipped" = u64, description = "Number of records and packets that \
            could not be read"))),
        (status = 206, body = Vec<u8>, content_type = "application/vnd.apache.parquet",
         description = "The requested ranges"),
        (status = 304, description = "If-None-Match or If-Modified-Since matched"),
        (status = 507, body = crate::problem::ProblemDocument,
         content_type = "application/problem+json",
         description = "events_too_long: there is no room for the file"),
        Conflict, NotFound, PreconditionFailed, RangeNotSatisfiable,
    ),
)]
pub(super) async fn read(
    State(app): State<Arc<AppState>>,
    Path((id, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let kind = name.strip_suffix(".parquet");
    let kind = kind.and_then(|kind| kind.parse::<Kind>().ok());
    let Some(kind) = kind.filter(|kind| has_events(*kind)) else {
        let name: String = name.chars().take(64).collect();
        let storage = app.engine.storages().get(id)?.id;
        let name = format!("events/{name}");
        return Err(StorageError::FileNotFound { storage, name }.into());
    };
    let file = app.event_files.get((id, kind)).await?;
    let (method, headers) = (request.method(), request.headers());
    let files = request.extensions().get();
    let mut response = respond(method, headers, &file.resource, &app.buffers, files).await;
    let fields = response.headers_mut();
    let octets = fields.get(header::CONTENT_TYPE);
    if octets.is_some_and(|kind| kind == "application/octet-stream") {
        fields.insert(header::CONTENT_TYPE, PARQUET);
    }
    fields.insert(SKIPPED, file.skipped.into());
    Ok(response)
}
