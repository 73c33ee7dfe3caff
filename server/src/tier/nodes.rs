//! The nodes that share the store, and which of them writes a storage.

use std::collections::HashSet;

use object_tier::{Bucket, Heartbeat, LocalOwner, NodeName, Nodes as Heartbeats, TierError};
use parking_lot::Mutex;
use serde::Serialize;
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Tier, uploads::now_ns};
use crate::app_state::AppState;
use crate::clock;

/// A node.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct NodeDocument {
    /// Its name.
    node: String,
    /// Where it is reached.
    url: String,
    /// `live`, or `gone` if its last sign of life is too old; `ambiguous` if two servers that live
    /// have this name.
    state: &'static str,
    /// How much older its last sign of life is than that of the node that was asked, seconds.
    age_seconds: u64,
    /// Version of its server.
    version: String,
    /// Storages that it has open.
    storages_open: u64,
    /// Bytes that are free on its disk.
    bytes_free: u64,
}

/// Where the writer of a storage is.
pub(super) enum Writer {
    /// Nobody has claimed the storage.
    Nobody,
    /// This node, which does not have it: it was deleted.
    This,
    /// Another node, here.
    At(String),
    /// Another node that gives no sign of life.
    Gone(String),
}

/// What is known of the nodes.
pub(super) struct Nodes {
    name: NodeName,
    /// This run of the server.
    boot: Uuid,
    latest: Mutex<Heartbeats>,
    /// Storages that are written here, and that the store knows to be.
    claimed: Mutex<HashSet<StorageId>>,
}

impl Nodes {
    pub(super) fn new(name: NodeName) -> Self {
        Self {
            name,
            boot: clock::new_id(),
            latest: Mutex::default(),
            claimed: Mutex::default(),
        }
    }

    /// Tells the others that this node lives, and what it writes; learns who else lives.
    pub(super) async fn give_sign(&self, app: &AppState, tier: &Tier) -> Result<(), TierError> {
        let written = written(app);
        let heartbeat = Heartbeat {
            node: self.name.clone(),
            boot: self.boot,
            url: tier.url.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: now_ns(),
            storages_open: written.len() as u64,
            bytes_free: app.engine.counters().disk_free_bytes.get(),
        };
        heartbeat.write(&tier.bucket).await?;
        let heartbeats = Heartbeats::live(&tier.bucket, (&self.name, self.boot)).await?;
        *self.latest.lock() = heartbeats;
        self.claimed.lock().retain(|id| written.contains(id));
        for id in written {
            if !self.claimed.lock().contains(&id) && self.claim(tier, id).await? {
                self.claimed.lock().insert(id);
            }
        }
        Ok(())
    }

    /// Notes in the store that a storage is written here; whether it is.
    async fn claim(&self, tier: &Tier, id: StorageId) -> Result<bool, TierError> {
        if let Some(owner) = LocalOwner::of(&tier.bucket, id).await? {
            if owner.node == self.name {
                return Ok(true);
            }
            tracing::error!(
                storage = %id, owner = %owner.node,
                "the storage is written here, and node {} has claimed it: two servers use copies of \
                 one data folder, or a name was changed. Pushes to other nodes are sent there",
                owner.node
            );
            return Ok(true);
        }
        let owner = LocalOwner::new(&self.name, &tier.url);
        match owner.claim(&tier.bucket, id).await {
            Ok(()) => Ok(true),
            // The next round looks who it is.
            Err(TierError::Superseded { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where a storage is written that is not here.
    pub(super) async fn writer(&self, bucket: &Bucket, id: StorageId) -> Result<Writer, TierError> {
        let Some(owner) = LocalOwner::of(bucket, id).await? else {
            return Ok(Writer::Nobody);
        };
        if owner.node == self.name {
            return Ok(Writer::This);
        }
        let latest = self.latest.lock();
        Ok(match latest.find(&owner.node) {
            Some(node) if node.is_gone => Writer::Gone(owner.node.to_string()),
            // It may have another address since.
            Some(node) => Writer::At(node.heartbeat.url.clone()),
            None => Writer::At(owner.url),
        })
    }

    /// All nodes that were seen.
    pub(super) fn documents(&self) -> Vec<NodeDocument> {
        let latest = self.latest.lock();
        let document = |node: &object_tier::Node| NodeDocument {
            node: node.heartbeat.node.to_string(),
            url: node.heartbeat.url.clone(),
            state: match (node.is_gone, node.is_ambiguous) {
                (true, _) => "gone",
                (false, true) => "ambiguous",
                (false, false) => "live",
            },
            age_seconds: node.age.as_secs(),
            version: node.heartbeat.version.clone(),
            storages_open: node.heartbeat.storages_open,
            bytes_free: node.heartbeat.bytes_free,
        };
        latest.all().iter().map(document).collect()
    }
}

/// The storages that are written here.
fn written(app: &AppState) -> HashSet<StorageId> {
    let all = app
        .engine
        .storages()
        .list(&storage_core::StorageFilter::default());
    let written = all.into_iter().filter(|info| {
        matches!(
            info.state,
            StorageState::Created
                | StorageState::Open
                | StorageState::Recording
                | StorageState::Finalizing
        )
    });
    written.map(|info| info.id).collect()
}
