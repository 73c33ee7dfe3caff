//! Who owns a storage whose packets are on the disk of one node.
//!
//! With `durability = local` there is no chain. `s/<storage>/owner` is created with the storage and
//! never changes: a push that reaches another node is sent to the URL in it, or to the URL in the
//! heartbeat of the node, which may have moved.

use serde::{Deserialize, Serialize};
use storage_format::StorageId;
use uuid::Uuid;

use crate::{Bucket, Creation, NodeName, TierError, nonce::nonce};

/// The longest owner that is read.
const OWNER_BYTES_MAX: u64 = 16 << 10;

/// The node on whose disk a storage is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalOwner {
    /// The node.
    pub node: NodeName,
    /// Where it was when it created the storage.
    pub url: String,
    /// Random, so that two creations differ.
    pub nonce: Uuid,
}

impl LocalOwner {
    /// This node, for a new storage.
    #[must_use]
    pub fn new(node: &NodeName, url: &str) -> Self {
        Self {
            node: node.clone(),
            url: url.to_owned(),
            nonce: nonce(),
        }
    }

    /// Claims a new storage.
    ///
    /// # Errors
    /// `Superseded` when another node, or another creation, has the storage. Otherwise when the
    /// store does not answer; the same owner may then claim it again.
    pub async fn claim(&self, bucket: &Bucket, storage: StorageId) -> Result<(), TierError> {
        let body = serde_json::to_vec(self)
            .map_err(|error| TierError::Settings(format!("no owner: {error}")))?;
        let key = key(storage);
        match bucket.create(&key, body.into()).await? {
            Creation::Made => Ok(()),
            Creation::Exists(found) => {
                let owner = parse(&key, &found)?;
                Err(TierError::Superseded {
                    storage: storage.to_string(),
                    reason: format!("node {} created it; push to {}", owner.node, owner.url),
                })
            }
        }
    }

    /// The owner of a storage, if it has one of this kind.
    ///
    /// # Errors
    /// When the store does not answer, or the object is damaged.
    pub async fn of(bucket: &Bucket, storage: StorageId) -> Result<Option<Self>, TierError> {
        let key = key(storage);
        let body = bucket.get_at_most(&key, OWNER_BYTES_MAX).await?;
        body.map(|body| parse(&key, &body)).transpose()
    }
}

fn key(storage: StorageId) -> String {
    format!("s/{storage}/owner")
}

fn parse(key: &str, body: &[u8]) -> Result<LocalOwner, TierError> {
    serde_json::from_slice(body).map_err(|error| {
        let advice = "remove it if no node has the storage";
        TierError::damaged(key, format!("it is not an owner ({error}); {advice}"))
    })
}
