//! Tokens: who may do what.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode, Uri};
use query_language::time::rfc3339;
use serde::{Deserialize, Serialize};
use storage_format::{AgentId, StorageId};
use utoipa::ToSchema;

use super::json::read_json;
use super::page::{Page, query};
use super::refusals::{BadRequest, Conflict, NotFound, UnprocessableEntity};
use super::secret_lists::{ListQuery, created, expiry, page_of};
use crate::access::{Caller, NewToken, Role, Token, TokensError};
use crate::app_state::AppState;
use crate::clock::now_ns;
use crate::problem::Problem;

/// A token to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenCreation {
    /// For people: what it is for.
    name: String,
    role: Role,
    /// Only these agents; all by default. For the role `agent` only.
    #[serde(default)]
    agents: Vec<String>,
    /// Only these storages, by id; all by default.
    #[serde(default)]
    storages: Vec<String>,
    /// It expires after this time; never by default.
    #[serde(default)]
    expires_seconds: Option<u32>,
}

/// A token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TokenDocument {
    /// Names the token; not secret.
    id: String,
    name: String,
    role: Role,
    /// Only these agents, if any are listed.
    agents: Vec<String>,
    /// Only these storages, if any are listed.
    storages: Vec<String>,
    /// RFC 3339.
    created: String,
    expires: Option<String>,
    revoked: Option<String>,
    /// Whether it is accepted now.
    is_good: bool,
}

/// A new token.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NewTokenDocument {
    /// The secret to present, which is returned only here.
    token: String,
    #[serde(flatten)]
    document: TokenDocument,
}

impl From<&Token> for TokenDocument {
    fn from(token: &Token) -> Self {
        Self {
            id: token.id.clone(),
            name: token.name.clone(),
            role: token.role,
            agents: token.agents.iter().map(AgentId::to_string).collect(),
            storages: token.storages.iter().map(StorageId::to_string).collect(),
            created: rfc3339(token.created),
            expires: token.expires.map(rfc3339),
            revoked: token.revoked.map(rfc3339),
            is_good: token.is_good(now_ns()),
        }
    }
}

/// Creates a token. From the first one on, which must be an operator's, every request needs one.
#[utoipa::path(
    post, operation_id = "create_token", path = "/tokens", tag = "tokens",
    request_body = TokenCreation,
    responses(
        (status = 201, body = NewTokenDocument, description = "Created"),
        BadRequest, Conflict, UnprocessableEntity,
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let request: TokenCreation = read_json(&app, &headers, body).await?;
    let agents: Result<Vec<AgentId>, _> = request.agents.iter().map(|id| id.parse()).collect();
    let storages: Result<Vec<StorageId>, _> =
        request.storages.iter().map(|id| id.parse()).collect();
    if request.role == Role::Share {
        return Err(
            TokensError::Invalid("shares are made by POST /api/v1/storages/{id}/shares").into(),
        );
    }
    let new = NewToken {
        name: request.name,
        role: request.role,
        agents: agents?,
        storages: storages?,
        expires: request.expires_seconds.map(expiry),
    };
    let (token, secret) = app.access.create(&caller, new).await?;
    tracing::info!(token = token.id, role = ?token.role, "a token was created");
    let location = format!("/api/v1/tokens/{}", token.id);
    let document = NewTokenDocument {
        token: secret,
        document: TokenDocument::from(&*token),
    };
    Ok(created(document, location))
}

/// Lists tokens, sorted by id, without their secrets.
#[utoipa::path(
    get, operation_id = "list_tokens", path = "/tokens", tag = "tokens", params(ListQuery),
    responses(
        (status = 200, body = Page<TokenDocument>, description = "Tokens, by id"),
        BadRequest,
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    uri: Uri,
) -> Result<Json<Page<TokenDocument>>, Problem> {
    let asked: ListQuery = query(&uri)?;
    Ok(Json(page_of(app.access.tokens(), asked)?))
}

/// Revokes a token: it is refused from now on. Repeating the request changes nothing.
#[utoipa::path(
    delete, operation_id = "revoke_token", path = "/tokens/{token}", tag = "tokens",
    params(("token" = String, Path, description = "Its id")),
    responses(
        (status = 204, description = "Revoked"),
        NotFound,
    ),
)]
pub(super) async fn revoke(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    app.access.revoke(&id).await?;
    tracing::info!(token = id, "a token was revoked");
    Ok(StatusCode::NO_CONTENT)
}
