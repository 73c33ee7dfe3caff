//! The nodes that share a bucket, as their heartbeats tell.
//!
//! Each run of a node writes `n/<node>/<boot>` every few seconds. Others compare when the *store*
//! wrote it with when the store wrote their own, so that no clock of a node matters. Heartbeats say
//! where nodes are and which caches to ask first. Nothing is safe because of them: the chain of a
//! storage alone decides who may write to it.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use storage_format::StorageId;
use uuid::Uuid;

use crate::{Bucket, Listed, NodeName, TierError};

/// How often a node writes its heartbeat.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// A node whose heartbeat is older than our own by more is gone.
pub const GONE_AFTER: Duration = Duration::from_secs(30);
/// Heartbeats that old are removed by [`Nodes::sweep`].
const SWEPT_AFTER: Duration = Duration::from_secs(24 * 3600);
/// The longest heartbeat that is read.
const HEARTBEAT_BYTES_MAX: u64 = 16 << 10;
/// Nodes that are read; what a list has more is skipped.
const NODES_MAX: usize = 1024;
/// Heartbeats that are fetched at once.
const READ_AHEAD: usize = 16;
const FOLDER: &str = "n";

/// What a node tells of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeName,
    /// This run of it.
    pub boot: Uuid,
    /// Where other nodes and clients reach it.
    pub url: String,
    /// Its version of Tracehold.
    pub version: String,
    /// Its own time, ns since the epoch: for people, not for decisions.
    pub time: i64,
    /// Storages that it has open.
    pub storages_open: u64,
    /// Ids of the newest of these, for people; none from earlier versions.
    #[serde(default)]
    pub open: Vec<String>,
    /// Bytes that are free on its disk.
    pub bytes_free: u64,
}

impl Heartbeat {
    fn key(&self) -> String {
        key(&self.node, self.boot)
    }

    /// Writes it, over the one before of this run.
    ///
    /// # Errors
    /// When it is too long, or the store does not take it.
    pub async fn write(&self, bucket: &Bucket) -> Result<(), TierError> {
        let body = serde_json::to_vec(self)
            .map_err(|error| TierError::Settings(format!("no heartbeat: {error}")))?;
        if body.len() as u64 > HEARTBEAT_BYTES_MAX {
            let url = &self.url;
            let problem = format!("the URL of this node is too long for a heartbeat: {url}");
            return Err(TierError::Settings(problem));
        }
        bucket.put(&self.key(), body.into()).await
    }
}

fn key(node: &NodeName, boot: Uuid) -> String {
    format!("{FOLDER}/{node}/{boot}")
}

/// Writes heartbeats until the future is dropped. A failure is logged, and the next one follows.
pub async fn beat(bucket: &Bucket, mut heartbeat: impl FnMut() -> Heartbeat + Send) {
    let mut ticks = tokio::time::interval(HEARTBEAT_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = heartbeat().write(bucket).await {
            tracing::warn!(%error, "other nodes may take this one for gone");
        }
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its last heartbeat.
    pub heartbeat: Heartbeat,
    /// How much older it is than our own.
    pub age: Duration,
    /// Whether it is too old.
    pub is_gone: bool,
    /// Whether another run with the same name lives: two machines are configured as one node.
    pub is_ambiguous: bool,
}

/// The nodes of a bucket, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    nodes: Vec<Node>,
}

impl Nodes {
    /// Reads the heartbeats. `own` is this run; before its first heartbeat is in the list, the
    /// newest of all heartbeats takes the place of its own.
    ///
    /// # Errors
    /// When the store does not answer. What cannot be read as a heartbeat is logged and skipped.
    pub async fn live(bucket: &Bucket, own: (&NodeName, Uuid)) -> Result<Self, TierError> {
        let (runs, now) = runs(bucket, own).await?;
        let mut latest = BTreeMap::<NodeName, (Run, bool)>::new();
        for run in runs {
            let lives = age(now, run.modified) <= GONE_AFTER;
            match latest.get_mut(&run.node) {
                None => {
                    latest.insert(run.node.clone(), (run, false));
                }
                Some((newest, is_ambiguous)) => {
                    let both = lives && age(now, newest.modified) <= GONE_AFTER;
                    *is_ambiguous |= both;
                    if run.modified > newest.modified {
                        *newest = run;
                    }
                }
            }
        }
        let mut read = futures_util::stream::iter(latest.into_values())
            .map(|(run, is_ambiguous)| async move {
                let heartbeat = read(bucket, &run).await?;
                let age = age(now, run.modified);
                Ok::<_, TierError>(heartbeat.map(|heartbeat| Node {
                    heartbeat,
                    age,
                    is_gone: age > GONE_AFTER,
                    is_ambiguous,
                }))
            })
            .buffered(READ_AHEAD);
        let mut nodes = Vec::new();
        while let Some(node) = read.next().await {
            nodes.extend(node?);
        }
        Ok(Self { nodes })
    }

    /// Removes heartbeats of runs that have been gone for a day. Returns how many.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn sweep(bucket: &Bucket, own: (&NodeName, Uuid)) -> Result<u64, TierError> {
        let (runs, now) = runs(bucket, own).await?;
        let mut removed = 0;
        for run in runs {
            if age(now, run.modified) > SWEPT_AFTER {
                bucket.delete(&key(&run.node, run.boot)).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// All nodes, also those that are gone, by name.
    #[must_use]
    pub fn all(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this name.
    #[must_use]
    pub fn find(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.iter().find(|node| node.heartbeat.node == *name)
    }

    /// The nodes that live, in the order in which they are asked for the storage. Each node has its
    /// own score for each storage, so a node that comes or goes moves only the storages that it
    /// gets or had.
    #[must_use]
    pub fn rank(&self, storage: StorageId) -> Vec<&Node> {
        let mut ranked: Vec<_> = self.nodes.iter().filter(|node| !node.is_gone).collect();
        ranked.sort_by_cached_key(|node| Reverse(score(storage, &node.heartbeat.node)));
        ranked
    }
}

/// How much a node is wanted for a storage. Part of how nodes of different versions agree: it never
/// changes.
fn score(storage: StorageId, node: &NodeName) -> u64 {
    let bytes = storage.as_bytes().iter().chain(node.as_str().as_bytes());
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    // The last bytes have moved only the low bits so far.
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let hash = (hash ^ (hash >> 29)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    hash ^ (hash >> 32)
}

/// One run of a node, from the list.
#[derive(Debug)]
struct Run {
    node: NodeName,
    boot: Uuid,
    modified: i64,
}

impl Run {
    fn of(listed: &Listed) -> Option<Self> {
        let name = listed.key.strip_prefix(FOLDER)?.strip_prefix('/')?;
        let (node, boot) = name.split_once('/')?;
        Some(Self {
            node: NodeName::new(node).ok()?,
            boot: boot.parse().ok()?,
            modified: listed.modified,
        })
    }
}

/// The runs in the list, and when the store wrote our own heartbeat.
async fn runs(
    bucket: &Bucket,
    (name, boot): (&NodeName, Uuid),
) -> Result<(Vec<Run>, i64), TierError> {
    let mut listed = bucket.list(FOLDER);
    let mut runs = Vec::new();
    while let Some(object) = listed.next().await {
        let object = object?;
        match Run::of(&object) {
            Some(run) if runs.len() < NODES_MAX => runs.push(run),
            Some(_) => {
                let count = NODES_MAX;
                tracing::warn!(count, "the other heartbeats are skipped: remove old ones");
                break;
            }
            None => tracing::warn!(key = %object.key, "this is not the key of a heartbeat"),
        }
    }
    let own = runs
        .iter()
        .find(|run| run.node == *name && run.boot == boot);
    let newest = runs.iter().map(|run| run.modified).max();
    let now = own.map(|run| run.modified).or(newest).unwrap_or(0);
    Ok((runs, now))
}

/// A heartbeat that is younger than our own has no age.
fn age(now: i64, modified: i64) -> Duration {
    let age = now.saturating_sub(modified);
    Duration::from_nanos(u64::try_from(age).unwrap_or(0))
}

async fn read(bucket: &Bucket, run: &Run) -> Result<Option<Heartbeat>, TierError> {
    let key = key(&run.node, run.boot);
    let body = match bucket.get_at_most(&key, HEARTBEAT_BYTES_MAX).await {
        Ok(body) => body,
        Err(error @ TierError::Damaged { .. }) => {
            tracing::warn!(%error, "a node is skipped");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(body.and_then(|body| parse(&key, run, &body)))
}

fn parse(key: &str, run: &Run, body: &Bytes) -> Option<Heartbeat> {
    match serde_json::from_slice::<Heartbeat>(body) {
        Ok(heartbeat) if heartbeat.node == run.node && heartbeat.boot == run.boot => {
            Some(heartbeat)
        }
        Ok(heartbeat) => {
            tracing::warn!(key, node = %heartbeat.node, "a heartbeat has the key of another");
            None
        }
        Err(error) => {
            tracing::warn!(key, %error, "this is not a heartbeat");
            None
        }
    }
}
