//! Who the server takes the caller for.

use axum::Json;
use axum::extract::Extension;
use query_language::time::rfc3339;
use serde::Serialize;
use storage_format::{AgentId, StorageId};
use utoipa::ToSchema;

use crate::access::{Caller, Role};

/// Who sent the request, and what they may do.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallerDocument {
    /// The name of the token, or of the user that a proxy names; null on a server without tokens.
    name: Option<String>,
    /// At least one. Whoever reaches a server without tokens is an operator.
    roles: Vec<Role>,
    /// Only these agents, if any are listed.
    agents: Vec<String>,
    /// Only these storages, if any are listed.
    storages: Vec<String>,
    /// When the token expires, RFC 3339; null if it does not.
    expires: Option<String>,
}

impl From<&Caller> for CallerDocument {
    fn from(caller: &Caller) -> Self {
        let (name, roles) = match caller {
            Caller::Anyone => (None, vec![Role::Operator]),
            Caller::User(user) => (Some(user.name.clone()), user.roles.clone()),
            Caller::Token(token) => {
                return Self {
                    name: Some(token.name.clone()),
                    roles: vec![token.role],
                    agents: token.agents.iter().map(AgentId::to_string).collect(),
                    storages: token.storages.iter().map(StorageId::to_string).collect(),
                    expires: token.expires.map(rfc3339),
                };
            }
        };
        Self {
            name,
            roles,
            agents: Vec::new(),
            storages: Vec::new(),
            expires: None,
        }
    }
}

/// Says who the caller is: the token or the user, its roles, and what it is limited to.
#[utoipa::path(
    get, operation_id = "get_caller", path = "/caller", tag = "tokens",
    responses((status = 200, body = CallerDocument, description = "The caller")),
)]
pub(super) async fn show(Extension(caller): Extension<Caller>) -> Json<CallerDocument> {
    Json(CallerDocument::from(&caller))
}
