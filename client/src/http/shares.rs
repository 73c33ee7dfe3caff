use reqwest::Method;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::call::{Call, Client};
use crate::ClientError;

/// A share to create.
#[derive(Debug, Clone, Serialize)]
pub struct NewShare {
    /// What it is for.
    pub name: String,
    /// It expires after this time.
    pub expires_seconds: u64,
}

/// A share, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Share {
    /// Names the share; not secret.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// The storage.
    pub storage: String,
    /// RFC 3339.
    pub created: String,
    /// RFC 3339.
    pub expires: Option<String>,
    /// RFC 3339, if it was revoked.
    pub revoked: Option<String>,
    /// Whether it is accepted now.
    pub is_good: bool,
}

/// A new share with its URL.
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedShare {
    /// The path with the secret.
    pub path: String,
    /// The rest.
    #[serde(flatten)]
    pub document: Share,
}

impl Client {
    /// Creates a URL of a storage. It is not sent again if no response arrives: nobody would know
    /// the first one.
    pub async fn create_share(
        &self,
        storage: Uuid,
        new: &NewShare,
    ) -> Result<CreatedShare, ClientError> {
        let url = self
            .server()
            .api(&["storages", &storage.to_string(), "shares"]);
        self.json(Call::new(Method::POST, url).json(new)).await
    }

    /// All shares of a storage, without their secrets.
    pub async fn shares(&self, storage: Uuid) -> Result<Vec<Share>, ClientError> {
        self.list(&["storages", &storage.to_string(), "shares"], &[])
            .await
    }

    /// Revokes a share.
    pub async fn revoke_share(&self, storage: Uuid, share: &str) -> Result<(), ClientError> {
        let url = self
            .server()
            .api(&["storages", &storage.to_string(), "shares", share]);
        self.done(Call::new(Method::DELETE, url)).await
    }
}
