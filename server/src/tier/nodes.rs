//! The nodes that share the store, and which of them writes a storage.

use std::cmp::Reverse;
use std::collections::HashSet;

use object_tier::{
    Bucket, Heartbeat, LocalOwner, NodeName, Nodes as Heartbeats, TierError, chain, is_gone,
};
use parking_lot::Mutex;
use serde::Serialize;
use storage_format::StorageId;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::clock;

/// Open storages that a heartbeat names.
const OPEN_MAX: usize = 200;

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
    /// The newest of these, at most 200.
    open: Vec<String>,
    /// Bytes that are free on its disk.
    bytes_free: u64,
}

/// Ids of the newest storages, the newest first: as many as a heartbeat has room for.
fn newest(storages: &HashSet<StorageId>) -> Vec<String> {
    let mut ids: Vec<StorageId> = storages.iter().copied().collect();
    ids.sort_by_key(|id| Reverse(*id));
    ids.iter().take(OPEN_MAX).map(ToString::to_string).collect()
}

/// Where the writer of a storage is.
pub(super) enum Writer {
    /// Nobody has claimed the storage.
    Nobody,
    /// This node, which does not have it: it was deleted.
    This,
    /// Another node, here.
    At(String),
    /// This node, which owns its chain and does not have it: its disk was lost.
    Lost,
    /// Another node that gives no sign of life.
    Gone {
        /// Its name.
        node: String,
        /// Whether the packets are in the object store.
        is_chained: bool,
    },
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

    /// The name of this node.
    pub(super) fn name(&self) -> &NodeName {
        &self.name
    }

    /// Whether another server that lives has the name of this node.
    pub(super) fn is_ambiguous(&self) -> bool {
        let latest = self.latest.lock();
        latest
            .find(&self.name)
            .is_some_and(|node| node.is_ambiguous)
    }

    /// Whether a node gave a sign of life a moment ago.
    pub(super) fn is_live(&self, node: &NodeName) -> bool {
        let latest = self.latest.lock();
        latest.find(node).is_some_and(|node| !node.is_gone)
    }

    /// Tells the others that this node lives, and what it writes; learns who else lives.
    pub(super) async fn give_sign(
        &self,
        (bucket, url): (&Bucket, &str),
        (written, is_chained): (HashSet<StorageId>, bool),
        bytes_free: u64,
    ) -> Result<(), TierError> {
        let heartbeat = Heartbeat {
            node: self.name.clone(),
            boot: self.boot,
            url: url.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: clock::now_ns(),
            storages_open: written.len() as u64,
            open: newest(&written),
            bytes_free,
        };
        heartbeat.write(bucket).await?;
        let heartbeats = Heartbeats::live(bucket, (&self.name, self.boot)).await?;
        *self.latest.lock() = heartbeats;
        self.claimed.lock().retain(|id| written.contains(id));
        for id in written {
            if !self.claimed.lock().contains(&id)
                && self.claim((bucket, url), id, is_chained).await?
            {
                self.claimed.lock().insert(id);
            }
        }
        Ok(())
    }

    /// Notes in the store that a storage is written here; whether it is.
    async fn claim(
        &self,
        (bucket, url): (&Bucket, &str),
        id: StorageId,
        is_chained: bool,
    ) -> Result<bool, TierError> {
        if let Some(owner) = LocalOwner::of(bucket, id).await? {
            // Whoever claimed it first, the chain says who has it now.
            if owner.node == self.name || is_chained {
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
        let owner = LocalOwner::new(&self.name, url);
        match owner.claim(bucket, id).await {
            Ok(()) => Ok(true),
            // The next round looks who it is.
            Err(TierError::Superseded { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where a storage is written that is not here.
    pub(super) async fn writer(&self, bucket: &Bucket, id: StorageId) -> Result<Writer, TierError> {
        // Who took a storage over is in its chain; the claim stays as it was made first.
        let (chained, claimed, is_gone) = tokio::try_join!(
            chain::last_owner(bucket, id),
            LocalOwner::of(bucket, id),
            is_gone(bucket, id)
        )?;
        // Its owners stay in the store.
        if is_gone {
            return Ok(Writer::Nobody);
        }
        let claimed_url = claimed.as_ref().map(|owner| owner.url.clone());
        let claimed = claimed.map(|owner| owner.node);
        let is_chained = chained.is_some();
        let is_moved = chained
            .as_ref()
            .is_some_and(|owner| Some(&owner.node) != claimed.as_ref());
        let Some(node) = chained.map(|owner| owner.node).or(claimed) else {
            return Ok(Writer::Nobody);
        };
        if node == self.name {
            return Ok(if is_chained {
                Writer::Lost
            } else {
                Writer::This
            });
        }
        let latest = self.latest.lock();
        let url = claimed_url.filter(|_| !is_moved);
        Ok(match (latest.find(&node), url) {
            // It may have another address since.
            (Some(found), _) if !found.is_gone => Writer::At(found.heartbeat.url.clone()),
            (None, Some(url)) => Writer::At(url),
            (Some(_), _) | (None, None) => Writer::Gone {
                node: node.to_string(),
                is_chained,
            },
        })
    }

    /// All nodes that were seen; for a storage, those that live in the order in which they should
    /// be asked for it, so that its bytes are in the cache of one.
    pub(super) fn documents(&self, storage: Option<StorageId>) -> Vec<NodeDocument> {
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
            open: node.heartbeat.open.clone(),
            bytes_free: node.heartbeat.bytes_free,
        };
        match storage {
            Some(storage) => latest.rank(storage).into_iter().map(document).collect(),
            None => latest.all().iter().map(document).collect(),
        }
    }
}
