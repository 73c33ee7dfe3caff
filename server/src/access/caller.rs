//! Who sent a request, and what they may know of.

use std::sync::Arc;

use storage_format::{AgentId, StorageId};

use super::proxy::User;
use super::token::Token;

/// Who sent a request.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// Somebody, on a server without tokens.
    Anyone,
    /// The owner of a token.
    Token(Arc<Token>),
    /// Somebody whom a proxy has authenticated.
    User(Arc<User>),
}

impl Caller {
    /// When the token of the caller expires, if it does: nanoseconds since the epoch.
    pub(crate) fn expires(&self) -> Option<i64> {
        match self {
            Self::Anyone | Self::User(_) => None,
            Self::Token(token) => token.expires,
        }
    }

    /// Whether the caller may know of this storage.
    pub(crate) fn sees_storage(&self, id: StorageId) -> bool {
        match self {
            Self::Anyone | Self::User(_) => true,
            Self::Token(token) => token.storages.is_empty() || token.storages.contains(&id),
        }
    }

    /// Whether the caller is limited to some agents or storages.
    pub(crate) fn is_scoped(&self) -> bool {
        match self {
            Self::Anyone | Self::User(_) => false,
            Self::Token(token) => token.is_scoped(),
        }
    }

    /// Whether the caller is not limited to some storages, and may know what all of them have.
    pub(crate) fn sees_all_storages(&self) -> bool {
        match self {
            Self::Anyone | Self::User(_) => true,
            Self::Token(token) => token.storages.is_empty(),
        }
    }

    /// Whether the caller may know of this agent. A token that is limited to storages alone has no
    /// agents.
    pub(crate) fn sees_agent(&self, id: &AgentId) -> bool {
        match self {
            Self::Anyone | Self::User(_) => true,
            Self::Token(token) => !token.is_scoped() || token.agents.contains(id),
        }
    }
}
