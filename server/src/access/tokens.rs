//! All tokens of a server: in memory, and in one document of the data folder.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use storage_core::{Documents, StorageError};
use thiserror::Error;
use tokio::sync::watch;

use super::admitted_end::Ended;
use super::caller::Caller;
use super::token::{NewToken, Role, Secret, Token, Why};
use crate::clock::now_ns;
use crate::config::TOKENS_FILE as DOCUMENT;
use crate::plain_text::is_plain;
use crate::secrets::NoRandomness;

/// Tokens that a server keeps, with those that are revoked or expired.
const TOKENS_MAX: usize = 4096;
/// Length of a name.
const NAME_BYTES_MAX: usize = 255;
/// Agents or storages in the scope of a token.
const SCOPE_MAX: usize = 1024;

/// Why the tokens cannot be used or changed.
#[derive(Debug, Error)]
pub enum TokensError {
    /// The document cannot be decoded. Nobody could be refused or let in by it.
    #[error(
        "{DOCUMENT} in the data folder is damaged: {0}; restore it from a backup, or remove it and \
         create new tokens with `traceholdd token create`"
    )]
    Damaged(String),
    /// There are too many.
    #[error("there are {TOKENS_MAX} tokens, with those that are revoked or expired")]
    TooMany,
    /// The first token could not create others.
    #[error("the first token must be an operator's: no other could create the next one")]
    FirstNotOperator,
    /// What is requested is no token.
    #[error("the token is invalid: {0}")]
    Invalid(&'static str),
    /// There is no token with this id.
    #[error("no token has the id {0:?}")]
    NotFound(String),
    /// Who asked for the change is no longer admitted.
    #[error("the request is no longer admitted: {0}")]
    Ended(#[from] Ended),
    /// No secret can be made.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The document cannot be read or written.
    #[error(transparent)]
    Storage(StorageError),
}

impl From<StorageError> for TokensError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Damaged { source, .. } => Self::Damaged(source.to_string()),
            error => Self::Storage(error),
        }
    }
}

/// The document.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenList {
    version: Version,
    #[serde(with = "shared")]
    tokens: Vec<Arc<Token>>,
}

/// Tokens are shared with the requests that present them, and written as what they are.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::Token;

    pub(super) fn serialize<S: Serializer>(
        tokens: &[Arc<Token>],
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_seq(tokens.iter().map(|token| &**token))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Arc<Token>>, D::Error> {
        let tokens = Vec::<Token>::deserialize(from)?;
        Ok(tokens.into_iter().map(Arc::new).collect())
    }
}

/// The version of the document; another one is refused.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
enum Version {
    #[default]
    #[serde(rename = "1")]
    One,
}

impl TokenList {
    /// Reads the document; none is a list without tokens.
    pub(super) fn parse(document: Option<&[u8]>) -> Result<Self, TokensError> {
        let Some(document) = document else {
            return Ok(Self::default());
        };
        let list = serde_json::from_slice(document);
        list.map_err(|error| TokensError::Damaged(error.to_string()))
    }

    pub(super) fn to_document(&self) -> Bytes {
        let text = serde_json::to_vec_pretty(self);
        text.expect("tokens can be written as JSON").into()
    }

    /// Whether it has a token: then nobody comes in without one. Tokens that are revoked count, so
    /// that revoking the last one does not open the server.
    pub(super) fn is_closed(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Adds a token, and returns it with the text for its owner. The first one must be an
    /// operator's, unless there are operators without a token.
    pub(super) fn create(
        &mut self,
        new: NewToken,
        now: i64,
        has_other_operators: bool,
    ) -> Result<(Arc<Token>, String), TokensError> {
        let is_name =
            !new.name.is_empty() && new.name.len() <= NAME_BYTES_MAX && is_plain(&new.name);
        let problem = if !is_name {
            Some(
                "its name must have 1 to 255 bytes, without control characters or marks of direction",
            )
        } else if new.agents.len() > SCOPE_MAX || new.storages.len() > SCOPE_MAX {
            Some("its scope lists more than 1024 agents or storages")
        } else if !new.agents.is_empty() && new.role != Role::Agent {
            Some("only tokens with the role agent can be limited to agents")
        } else if new.role == Role::Share && (new.storages.len() != 1 || new.expires.is_none()) {
            Some("a share is of one storage, and expires")
        } else if new.expires.is_some_and(|expires| expires <= now) {
            Some("it has expired already")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(TokensError::Invalid(problem));
        }
        if self.tokens.len() >= TOKENS_MAX {
            // The owners of other tokens learn that theirs have ended.
            self.tokens
                .retain(|token| token.role != Role::Share || token.is_good(now));
        }
        if self.tokens.len() >= TOKENS_MAX {
            return Err(TokensError::TooMany);
        }
        let (token, text) = Token::new(new, now)?;
        let is_first = !self.is_closed() && !has_other_operators;
        if is_first && (token.role != Role::Operator || token.is_scoped()) {
            return Err(TokensError::FirstNotOperator);
        }
        let token = Arc::new(token);
        self.tokens.push(Arc::clone(&token));
        Ok((token, text))
    }

    /// Whether a caller that was admitted still is.
    fn still_admits(&self, caller: &Caller, now: i64) -> Result<(), Ended> {
        match caller {
            Caller::Anyone if self.is_closed() => Err(Ended::NoToken),
            // The proxy and its users are settings.
            Caller::Anyone | Caller::User(_) => Ok(()),
            Caller::Token(known) => {
                let token = self.tokens.iter().find(|token| token.id == known.id);
                let token = token.ok_or(Ended::Token(Why::Unknown))?;
                token.check_time(now).map_err(Ended::Token)
            }
        }
    }

    fn revoke(&mut self, id: &str, now: i64) -> Result<(), TokensError> {
        let token = self.tokens.iter_mut().find(|token| token.id == id);
        let token = token.ok_or_else(|| TokensError::NotFound(id.to_owned()))?;
        if token.revoked.is_none() {
            Arc::make_mut(token).revoked = Some(now);
        }
        Ok(())
    }

    fn find(&self, secret: &Secret, now: i64) -> Result<Arc<Token>, Why> {
        let token = self.tokens.iter().find(|token| token.id == secret.id);
        let token = token.ok_or(Why::Unknown)?;
        token.check(secret, now).map(|()| Arc::clone(token))
    }
}

/// The tokens of a running server.
pub(super) struct Tokens {
    list: RwLock<TokenList>,
    documents: Documents,
    /// Held while the document is replaced.
    changing: tokio::sync::Mutex<()>,
    /// Number of changes.
    changed: watch::Sender<u64>,
}

impl Tokens {
    pub(super) async fn load(documents: &Documents) -> Result<Self, TokensError> {
        let document = documents.read(DOCUMENT).await?;
        Ok(Self {
            list: RwLock::new(TokenList::parse(document.as_deref())?),
            documents: documents.clone(),
            changing: tokio::sync::Mutex::default(),
            changed: watch::Sender::new(0),
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.list.read().is_closed()
    }

    pub(super) fn find(&self, secret: &Secret) -> Result<Arc<Token>, Why> {
        self.list.read().find(secret, now_ns())
    }

    /// All tokens, the oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Token>> {
        self.list.read().tokens.clone()
    }

    /// Number of changes: what was true of a caller is true as long as it stays the same.
    pub(super) fn change_count(&self) -> u64 {
        *self.changed.borrow()
    }

    /// Waits until there were more changes than `count`.
    pub(super) async fn changed_since(&self, count: u64) {
        let mut changes = self.changed.subscribe();
        // The sender lives as long as this.
        let _ = changes.wait_for(|changes| *changes != count).await;
    }

    /// Whether a caller that was admitted still is.
    pub(super) fn still_admits(&self, caller: &Caller) -> Result<(), Ended> {
        self.list.read().still_admits(caller, now_ns())
    }

    /// Creates a token for `caller`. It is accepted once it is durable.
    pub(super) async fn create(
        &self,
        caller: &Caller,
        new: NewToken,
        has_other_operators: bool,
    ) -> Result<(Arc<Token>, String), TokensError> {
        self.change(|list| {
            // Two may have come to an open server, and the other one was first.
            list.still_admits(caller, now_ns())?;
            list.create(new, now_ns(), has_other_operators)
        })
        .await
    }

    /// Revokes a token. It is refused before this returns.
    pub(super) async fn revoke(&self, id: &str) -> Result<(), TokensError> {
        self.change(|list| list.revoke(id, now_ns())).await
    }

    async fn change<T>(
        &self,
        change: impl FnOnce(&mut TokenList) -> Result<T, TokensError>,
    ) -> Result<T, TokensError> {
        let _changing = self.changing.lock().await;
        let mut next = self.list.read().clone();
        let result = change(&mut next)?;
        self.documents.write(DOCUMENT, next.to_document()).await?;
        *self.list.write() = next;
        self.changed
            .send_modify(|changes| *changes = changes.wrapping_add(1));
        Ok(result)
    }
}
