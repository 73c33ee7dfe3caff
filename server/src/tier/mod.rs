//! Storages in the object store: uploads, evictions, storages of other nodes, and the other nodes.
//!
//! Everything here is off without `[object_store]`. Ingest needs none of it: without the store,
//! uploads wait, storages that are here are served, and `/readyz` says so.

mod adopting;
mod deletions;
mod eviction;
mod labels;
mod locating;
mod nodes;
mod rounds;
mod source;
mod uploads;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use object_tier::{Bucket, NodeName, Reader, Requests, TierError};
use parking_lot::Mutex;
use storage_core::Engine;
use storage_format::StorageId;
use tokio::sync::Notify;

use crate::config::{Config, ObjectStoreConfig};

pub(crate) use deletions::forget_everywhere;
pub(crate) use locating::{Located, locate};
pub(crate) use nodes::NodeDocument;
pub(crate) use rounds::maintain;
pub(crate) use uploads::{UploadError, upload};

/// The object store, as this node uses it.
pub(crate) struct Tier {
    pub(crate) config: ObjectStoreConfig,
    bucket: Bucket,
    reader: Reader,
    /// The URL of the bucket, without credentials.
    store: String,
    /// The name of this node.
    pub(crate) node: String,
    /// Where others reach it.
    pub(crate) url: String,
    status: Mutex<Status>,
    /// Ids that were looked for and are nowhere.
    unknown: Mutex<HashMap<StorageId, Instant>>,
    /// One look-up of a storage at a time.
    adopting: tokio::sync::Mutex<()>,
    /// The document of deletions is changed by one at a time.
    deleting: tokio::sync::Mutex<()>,
    nodes: nodes::Nodes,
    wake: Notify,
}

/// How the store does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    /// Why the last round failed, if it did.
    pub(crate) failure: Option<String>,
    /// Storages that wait for their upload.
    pub(crate) waiting: u64,
}

/// Why the store cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[error("[object_store]: {0}; correct the section, or remove its url to run without")]
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
        let store = settings.store().map_err(StoreError)?;
        let bucket = store
            .open()
            .map_err(|error| StoreError(error.to_string()))?;
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
        let name = NodeName::new(&node).map_err(|error| StoreError(error.to_string()))?;
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
            deleting: tokio::sync::Mutex::default(),
            nodes,
            wake: Notify::new(),
        })))
    }

    /// Lets the engine fetch absent bytes.
    pub(crate) fn serve(&self, engine: &Engine) {
        let source = source::Source(self.reader.clone());
        engine.tiering().set_source(Arc::new(source));
    }

    pub(crate) fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// What was asked of the store.
    pub(crate) fn requests(&self) -> &Requests {
        self.bucket.requests()
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// The nodes that were seen in the last round.
    pub(crate) fn nodes(&self) -> Vec<NodeDocument> {
        self.nodes.documents()
    }

    /// Begins the next round now.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn note_failure(&self, error: &TierError) {
        let mut status = self.status.lock();
        if status.failure.is_none() {
            tracing::warn!(
                %error,
                "the object store does not answer as it must; uploads wait, and what is here is \
                 served"
            );
        }
        status.failure = Some(error.to_string());
    }

    fn note_success(&self) {
        if self.status.lock().failure.take().is_some() {
            tracing::info!("the object store answers again");
        }
    }
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
