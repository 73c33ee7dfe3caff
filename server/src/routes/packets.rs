//! Packets: pushing, the next position of a stream, and reading.

use std::sync::Arc;
use storage_format::StreamPosition;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode};

use storage_format::StorageId;

use super::refusals::{
    BadRequest, Conflict, InsufficientStorage, NotFound, PayloadTooLarge, RangeNotSatisfiable,
    ServiceUnavailable, TooManyRequests, UnprocessableEntity, UnsupportedMediaType,
};
use crate::app_state::AppState;
use crate::ingest::Target;
use crate::problem::Problem;
use crate::range::{Content, Resource, respond};
use crate::receipts::{Receipts, ReceiptsDocument};

pub(super) const NEXT_SEQUENCE: HeaderName = HeaderName::from_static("tracehold-next-sequence");
pub(super) const EPOCH: HeaderName = HeaderName::from_static("tracehold-epoch");

/// Pushes packets into a storage: one (`application/octet-stream`, with its position in header
/// fields) or many (`application/vnd.tracehold.packets`). Responds when all packets are durable.
#[utoipa::path(
    post, operation_id = "push_packets",
    path = "/storages/{id}/agents/{agent}/streams/{stream}/packets", tag = "packets",
    params(
        ("id" = String, Path), ("agent" = String, Path), ("stream" = String, Path),
        ("Tracehold-Epoch" = Option<u64>, Header, description = "Of a single packet"),
        ("Tracehold-Sequence" = Option<u64>, Header, description = "Of a single packet"),
        ("Content-Encoding" = Option<String>, Header, description = "gzip or zstd"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    request_body(content(
        (Vec<u8> = "application/octet-stream"),
        (Vec<u8> = "application/vnd.tracehold.packets"),
    )),
    responses(
        (status = 200, body = ReceiptsDocument, description = "All packets are durable"),
        (status = 202, body = ReceiptsDocument, description = "Accepted, not durable yet"),
        BadRequest, NotFound, Conflict,
        PayloadTooLarge, UnsupportedMediaType, UnprocessableEntity,
        TooManyRequests, ServiceUnavailable,
        InsufficientStorage,
    ),
)]
pub(super) async fn push(
    State(app): State<Arc<AppState>>,
    Path((id, agent, stream)): Path<(String, String, String)>,
    request: Request,
) -> Result<Receipts, Problem> {
    let target = Target {
        storage: id.parse()?,
        agent: agent.parse()?,
        stream: stream.parse()?,
    };
    let (head, body) = request.into_parts();
    let pushed = app.pusher.push(target.clone(), &head, body).await;
    pushed.inspect_err(|problem| {
        let Target { agent, stream, .. } = &target;
        app.pusher.refused(agent, stream, problem);
    })
}

/// Returns the next position of a stream in a storage: epoch and sequence, both 0 for an empty
/// stream.
#[utoipa::path(
    head, operation_id = "get_next_position",
    path = "/storages/{id}/agents/{agent}/streams/{stream}/packets", tag = "packets",
    params(("id" = String, Path), ("agent" = String, Path), ("stream" = String, Path)),
    responses(
        (status = 200, description = "The position is in the header fields", headers(
            ("Tracehold-Epoch" = u64), ("Tracehold-Next-Sequence" = u64),
        )),
        NotFound,
    ),
)]
pub(super) async fn next_sequence(
    State(app): State<Arc<AppState>>,
    Path((id, agent, stream)): Path<(String, String, String)>,
) -> Result<Response, Problem> {
    let (id, agent, stream) = (id.parse()?, agent.parse()?, stream.parse()?);
    let next = app
        .engine
        .ingest()
        .next_position(id, &agent, &stream)
        .await?;
    app.wait_chained(id, (agent, stream), next).await?;
    Ok((StatusCode::OK, position_fields(next)).into_response())
}

/// The header fields with the next position of a stream.
pub(super) fn position_fields(next: StreamPosition) -> [(HeaderName, HeaderValue); 2] {
    [
        (EPOCH, HeaderValue::from(next.epoch)),
        (NEXT_SEQUENCE, HeaderValue::from(next.sequence)),
    ]
}

/// Returns one packet as the agent sent it; byte ranges are supported.
#[utoipa::path(
    get, operation_id = "read_packet", path = "/storages/{id}/packets/{number}", tag = "packets",
    params(
        ("id" = String, Path), ("number" = u64, Path),
        ("Range" = Option<String>, Header, description = "As in RFC 9110"),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream",
         description = "All bytes"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream",
         description = "The requested ranges"),
        NotFound, RangeNotSatisfiable,
    ),
)]
pub(super) async fn read(
    State(app): State<Arc<AppState>>,
    Path((id, number)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let number: u64 = number.parse().map_err(|_| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_number",
            "the packet number is invalid",
        )
        .detail("packet numbers are decimal numbers from 0")
        .cause("the last part of the path is not a number")
        .remedy("GET /api/v1/storages/{id}/descriptors lists the numbers")
    })?;
    let packet = app.engine.reading().read_packet(id, number).await?;
    // A numbered packet never changes.
    let resource = Resource::new(
        Content::Memory(packet),
        &format!("{id}-{number}"),
        None,
        true,
    );
    let (method, headers) = (request.method(), request.headers());
    Ok(respond(method, headers, &resource, &app.buffers, None).await)
}
