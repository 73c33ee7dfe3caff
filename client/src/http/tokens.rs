use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::call::{Call, Client};
use crate::ClientError;

/// A token to create.
#[derive(Debug, Clone, Serialize)]
pub struct NewToken {
    /// What it is for.
    pub name: String,
    /// `agent`, `reader` or `operator`.
    pub role: String,
    /// Only these agents, if any are listed.
    pub agents: Vec<String>,
    /// Only these storages, if any are listed.
    pub storages: Vec<String>,
    /// It expires after this time.
    pub expires_seconds: Option<u64>,
}

/// A token, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Token {
    /// Names the token; not secret.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// `agent`, `reader` or `operator`.
    pub role: String,
    /// Only these agents, if any are listed.
    pub agents: Vec<String>,
    /// Only these storages, if any are listed.
    pub storages: Vec<String>,
    /// RFC 3339.
    pub created: String,
    /// RFC 3339, if it expires.
    pub expires: Option<String>,
    /// RFC 3339, if it was revoked.
    pub revoked: Option<String>,
    /// Whether it is accepted now.
    pub is_good: bool,
}

/// A new token with its secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedToken {
    /// The secret to present.
    pub token: String,
    /// The rest.
    #[serde(flatten)]
    pub document: Token,
}

impl Client {
    /// Creates a token. It is not sent again if no response arrives: nobody would know the first
    /// one.
    pub async fn create_token(&self, new: &NewToken) -> Result<CreatedToken, ClientError> {
        let url = self.server().api(&["tokens"]);
        self.json(Call::new(Method::POST, url).json(new)).await
    }

    /// All tokens, without their secrets.
    pub async fn tokens(&self) -> Result<Vec<Token>, ClientError> {
        self.list(&["tokens"], &[]).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &str) -> Result<(), ClientError> {
        let url = self.server().api(&["tokens", id]);
        self.done(Call::new(Method::DELETE, url)).await
    }
}
