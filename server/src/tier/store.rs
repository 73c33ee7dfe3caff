//! The object store, as a node uses it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use object_tier::{Bucket, NodeName, Reader, Requests, TierError};
use parking_lot::Mutex;
use storage_core::{Engine, StorageError};
use storage_format::StorageId;
use tokio::sync::watch;

use super::chains::{ChainReplica, Chains, Known, Pace};
use super::nodes::{self, NodeDocument};
use super::source;
use crate::config::{Config, Durability, ObjectStoreConfig};
use crate::provenance::Provenances;

/// The object store, as this node uses it.
pub(crate) struct Tier {
    pub(crate) config: ObjectStoreConfig,
    pub(super) bucket: Bucket,
    pub(super) reader: Reader,
    /// The URL of the bucket, without credentials.
    pub(super) store: String,
    /// The name of this node.
    pub(crate) node: String,
    /// Where others reach it.
    pub(crate) url: String,
    pub(super) status: Mutex<Status>,
    /// Ids that were looked for and are nowhere.
    pub(super) unknown: Mutex<HashMap<StorageId, Instant>>,
    /// One look-up of a storage at a time.
    pub(super) adopting: tokio::sync::Mutex<()>,
    /// One upload at a time: it is parallel in itself, and has a journal.
    pub(super) uploading: tokio::sync::Mutex<()>,
    /// Storages that are taken over at this moment.
    pub(super) taking: Mutex<HashSet<StorageId>>,
    /// Storages of which this node owns the chain, and lacks packets.
    pub(super) lost: Mutex<Vec<StorageId>>,
    /// Outdated copies are set aside by one at a time.
    pub(super) replacing: tokio::sync::Mutex<()>,
    /// Storages that are deleted at this moment.
    pub(super) being_deleted: Mutex<HashSet<StorageId>>,
    /// Storages of the store that could not be served, and since when they are not tried again.
    pub(super) refused: Mutex<HashMap<StorageId, Instant>>,
    /// Storages that another node has sealed with other files.
    pub(super) superseded: Mutex<HashSet<StorageId>>,
    /// The document of deletions is changed by one at a time.
    pub(super) deleting: tokio::sync::Mutex<()>,
    /// Held while labels are changed here and in the store.
    pub(super) labelling: tokio::sync::Mutex<()>,
    pub(super) nodes: nodes::Nodes,
    /// With `durability = "object"`, since the engine is there.
    pub(super) chains: OnceLock<Arc<Chains>>,
    known: OnceLock<Known>,
    /// Counts the reasons to begin the next rounds now.
    pub(super) wake: watch::Sender<u64>,
}

/// How the store does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    /// Why the last round of each work failed, if it did.
    failures: BTreeMap<&'static str, String>,
    /// Storages that wait for their upload.
    pub(crate) waiting: u64,
    /// Copies of storages that other nodes have instead, which nobody has deleted.
    pub(crate) superseded: u64,
}

impl Status {
    /// Why the store does not answer as it must, if it does not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failures.values().next().cloned()
    }
}

/// Why the store cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[error("[object_store]: {0}")]
pub struct StoreError(String);

impl Tier {
    /// The store of the settings; `None` if there is none. Nothing is asked of it yet.
    pub(crate) fn open(
        config: &Config,
        address: std::net::SocketAddr,
    ) -> Result<Option<Arc<Self>>, StoreError> {
        let settings = &config.object_store;
        if !settings.is_on() {
            return Ok(None);
        }
        #[cfg(feature = "fault-points")]
        object_tier::fault_points::on_point(storage_core::fault_points::reach);
        let store = settings
            .store()
            .map_err(|error| StoreError(settings_wrong(&error)))?;
        let bucket = store
            .open()
            .map_err(|error| StoreError(settings_wrong(&error)))?;
        let scheme = if config.is_encrypted() {
            "https"
        } else {
            "http"
        };
        let given = |text: &str, otherwise: String| match text {
            "" => otherwise,
            text => text.trim_end_matches('/').to_owned(),
        };
        let node = given(
            &settings.node,
            format!("{}-{}", host_name(), address.port()),
        );
        let name = NodeName::new(&node).map_err(|error| StoreError(settings_wrong(&error)))?;
        let nodes = nodes::Nodes::new(name);
        Ok(Some(Arc::new(Self {
            reader: Reader::new(bucket.clone()),
            bucket,
            store: settings.url.clone(),
            node,
            url: given(&settings.node_url, format!("{scheme}://{address}")),
            config: settings.clone(),
            status: Mutex::default(),
            unknown: Mutex::default(),
            adopting: tokio::sync::Mutex::default(),
            uploading: tokio::sync::Mutex::default(),
            taking: Mutex::default(),
            lost: Mutex::default(),
            replacing: tokio::sync::Mutex::default(),
            being_deleted: Mutex::default(),
            refused: Mutex::default(),
            superseded: Mutex::default(),
            deleting: tokio::sync::Mutex::default(),
            labelling: tokio::sync::Mutex::default(),
            nodes,
            chains: OnceLock::new(),
            known: OnceLock::new(),
            wake: watch::Sender::new(0),
        })))
    }

    /// Learns what the data folder knows of chains, and sets aside what a crash left incomplete,
    /// before anything is served.
    ///
    /// # Errors
    /// When the data folder cannot be read or written, or storages with chains are open and this
    /// node would acknowledge packets without them.
    pub(crate) async fn learn(&self, engine: &Engine) -> Result<(), StoreError> {
        let is_local = self.config.durability == Durability::Local;
        let known = Known::load(engine, !is_local).await.map_err(unknown)?;
        known.set_aside_incomplete().await.map_err(unknown)?;
        if is_local {
            refuse_chains(&known.open().await, "durability is local")?;
        }
        // There is one engine.
        let _ = self.known.set(known);
        Ok(())
    }

    /// Lets the engine fetch absent bytes.
    pub(crate) fn serve(&self, engine: &Engine, provenances: &Arc<Provenances>) {
        let source = source::Source {
            reader: self.reader.clone(),
            patience: Duration::from_secs(self.config.request_seconds.saturating_mul(2)),
        };
        let ahead_bytes_max = self.config.read_ahead_bytes_max;
        engine
            .tiering()
            .set_source(Arc::new(source), ahead_bytes_max);
        if self.config.durability == Durability::Object
            && let Some(known) = self.known.get()
        {
            let place = (&self.bucket, self.nodes.name());
            let pace = Pace {
                interval: Duration::from_millis(self.config.append_interval_ms),
                patience: Duration::from_secs(self.config.request_seconds),
            };
            let chains = Chains::new(place, (engine, known), provenances, pace, self.wake.clone());
            engine.set_replica(Arc::new(ChainReplica(Arc::clone(&chains))));
            // There is one engine.
            let _ = self.chains.set(chains);
        }
    }

    /// The chains of the storages that are written here, if they have any.
    pub(crate) fn chains(&self) -> Option<&Arc<Chains>> {
        self.chains.get()
    }

    pub(crate) fn status(&self) -> Status {
        let mut status = self.status.lock().clone();
        if let Some(failure) = self.chains().and_then(|chains| chains.failure()) {
            status.failures.insert("packets", failure);
        }
        status
    }

    /// What was asked of the store.
    pub(crate) fn requests(&self) -> &Requests {
        self.bucket.requests()
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// The nodes that were seen in the last round; those that live, in the order of a storage, if
    /// one is given.
    pub(crate) fn nodes(&self, storage: Option<StorageId>) -> Vec<NodeDocument> {
        self.nodes.documents(storage)
    }

    /// Begins the next round now.
    pub(crate) fn wake(&self) {
        self.wake
            .send_modify(|reasons| *reasons = reasons.wrapping_add(1));
    }

    /// Notes how a round of some work has ended.
    pub(super) fn note(&self, work: &'static str, ended: Result<(), TierError>) {
        let mut status = self.status.lock();
        let was_failing = !status.failures.is_empty();
        match ended {
            Ok(()) => {
                status.failures.remove(work);
                if was_failing && status.failures.is_empty() {
                    tracing::info!("the object store answers again");
                }
            }
            Err(error) => {
                if !was_failing {
                    tracing::warn!(
                        %error, work,
                        "the object store does not answer as it must; uploads wait, and what is \
                         here is served"
                    );
                }
                status.failures.insert(work, error.to_string());
            }
        }
    }
}

/// Refuses to run without the chains of open storages: packets would be acknowledged that nobody
/// has who takes them over.
fn refuse_chains(open: &[StorageId], why: &str) -> Result<(), StoreError> {
    let Some(first) = open.first() else {
        return Ok(());
    };
    let count = open.len();
    Err(StoreError(format!(
        "{why}, and {count} open storages have chains ({first}): finalize them first, with \
         durability = \"object\" and the store, because another node may take them over"
    )))
}

fn settings_wrong(error: &impl std::fmt::Display) -> String {
    format!("{error}; correct the section, or remove its url to run without")
}

/// Why a server does not know whether open storages have chains.
fn unknown(error: StorageError) -> StoreError {
    StoreError(format!(
        "it is not known which open storages have chains: {error}; start with durability = \
         \"object\", or remove the file if durability was always \"local\""
    ))
}

/// As [`Tier::learn`], for a server without an object store.
///
/// # Errors
/// When storages with chains are open, or the data folder cannot be read.
pub(crate) async fn check_no_chains(engine: &Engine) -> Result<(), StoreError> {
    let open = Known::open_without_store(engine).await;
    let open = open.map_err(unknown)?;
    refuse_chains(&open, "url is empty")
}

fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name: String = name.chars().filter(|letter| plain(*letter)).collect();
    match name.trim_start_matches('.') {
        "" => "node".to_owned(),
        name => name.chars().take(48).collect(),
    }
}
