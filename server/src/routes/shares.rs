//! Shares: URLs that give access to one storage without a token, until they expire.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode, Uri};
use query_language::time::rfc3339;
use serde::{Deserialize, Serialize};
use storage_format::StorageId;
use utoipa::ToSchema;

use super::json::read_json;
use super::page::{Page, query};
use super::refusals::{BadRequest, Conflict, NotFound, UnprocessableEntity};
use super::secret_lists::{ListQuery, created, expiry, page_of};
use crate::access::{Caller, NewToken, Role, Token, share};
use crate::app_state::AppState;
use crate::clock::now_ns;
use crate::problem::Problem;

/// A share to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShareCreation {
    /// For people: what it is for.
    #[serde(default = "unnamed")]
    name: String,
    /// It expires after this time.
    expires_seconds: u32,
}

fn unnamed() -> String {
    "share".to_owned()
}

/// A share, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ShareDocument {
    /// Names the share; not secret.
    id: String,
    name: String,
    storage: String,
    /// RFC 3339.
    created: String,
    expires: Option<String>,
    revoked: Option<String>,
    /// Whether it is accepted now.
    is_good: bool,
}

/// A new share.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NewShareDocument {
    /// The path with the secret, which is returned only here: what the server has of the storage is
    /// below it, as `PATH/api/v1/storages/…` and `PATH/storage/…`.
    path: String,
    #[serde(flatten)]
    document: ShareDocument,
}

impl From<&Token> for ShareDocument {
    fn from(share: &Token) -> Self {
        let storage = share.storages.first();
        Self {
            id: share.id.clone(),
            name: share.name.clone(),
            storage: storage.map(StorageId::to_string).unwrap_or_default(),
            created: rfc3339(share.created),
            expires: share.expires.map(rfc3339),
            revoked: share.revoked.map(rfc3339),
            is_good: share.is_good(now_ns()),
        }
    }
}

fn is_of(share: &Token, storage: StorageId) -> bool {
    share.role == Role::Share && share.storages == [storage]
}

/// Creates a URL that gives access to the storage without a token: to read, query and export it.
#[utoipa::path(
    post, operation_id = "create_share", path = "/storages/{id}/shares", tag = "tokens",
    params(("id" = String, Path)),
    request_body = ShareCreation,
    responses(
        (status = 201, body = NewShareDocument, description = "Created"),
        BadRequest, NotFound, Conflict, UnprocessableEntity,
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    app.engine.storages().get(id)?;
    let request: ShareCreation = read_json(&app, &headers, body).await?;
    let new = NewToken {
        name: request.name,
        role: Role::Share,
        agents: Vec::new(),
        storages: vec![id],
        expires: Some(expiry(request.expires_seconds)),
    };
    let (share, secret) = app.access.create(&caller, new).await?;
    tracing::info!(share = share.id, storage = %id, "a storage was shared");
    let location = format!("/api/v1/storages/{id}/shares/{}", share.id);
    let document = NewShareDocument {
        path: share::path_of(&secret),
        document: ShareDocument::from(&*share),
    };
    Ok(created(document, location))
}

/// Lists the shares of a storage, sorted by id, without their secrets.
#[utoipa::path(
    get, operation_id = "list_shares", path = "/storages/{id}/shares", tag = "tokens",
    params(("id" = String, Path), ListQuery),
    responses(
        (status = 200, body = Page<ShareDocument>, description = "Shares, by id"),
        BadRequest, NotFound,
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<Page<ShareDocument>>, Problem> {
    let id: StorageId = id.parse()?;
    let asked: ListQuery = query(&uri)?;
    app.engine.storages().get(id)?;
    let mut shares = app.access.tokens();
    shares.retain(|share| is_of(share, id));
    Ok(Json(page_of(shares, asked)?))
}

/// Revokes a share: its URL is refused from now on. Repeating the request changes nothing.
#[utoipa::path(
    delete, operation_id = "revoke_share", path = "/storages/{id}/shares/{share}", tag = "tokens",
    params(("id" = String, Path), ("share" = String, Path, description = "Its id")),
    responses(
        (status = 204, description = "Revoked"),
        BadRequest, NotFound,
    ),
)]
pub(super) async fn revoke(
    State(app): State<Arc<AppState>>,
    Path((id, share)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let id: StorageId = id.parse()?;
    let all = app.access.tokens();
    let known = all
        .iter()
        .any(|known| known.id == share && is_of(known, id));
    if !known {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "share_not_found",
            "the storage has no such share",
        )
        .cause("shares are named by their id")
        .remedy("GET /api/v1/storages/{id}/shares lists them"));
    }
    app.access.revoke(&share).await?;
    tracing::info!(share, storage = %id, "a share was revoked");
    Ok(StatusCode::NO_CONTENT)
}
