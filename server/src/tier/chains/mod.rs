//! Chains of the storages that are written here.
//!
//! With `durability = "object"` a packet is in the object store before it is acknowledged, so that
//! it survives this machine. It goes to the disk first; from there the task of its storage
//! ([`appending`]) reads what is new, in the order of each stream, and appends it to the chain of
//! the storage (`object_tier::chain`), one record at a time. A push waits until a record has its
//! packets. When another node has taken the storage over, the chain says so, nothing is
//! acknowledged any more, and the copy here is set aside.

mod appending;
mod gathering;
mod known;
mod opening;
mod rebuilding;
mod record;
mod storage_chain;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_tier::chain::{Chain, Claimant};
use object_tier::{Bucket, NodeName};
use parking_lot::Mutex;
use storage_core::{Engine, Replica, Replicated, StorageError};
use storage_format::chain_payload::ChainedProvenance;
use storage_format::data_file::LeafPath;
use storage_format::storage_file::StorageState;
use storage_format::{AgentId, LeafId, StorageId, StreamId};
use tokio::sync::watch;

use crate::provenance::Provenances;
pub(crate) use known::Known;
pub(crate) use rebuilding::{RebuildError, rebuild};
pub(crate) use record::sections;
use storage_chain::{Ending, Failure, StorageChain};

/// A stream of a storage.
type StreamKey = (AgentId, StreamId);

/// What was appended to all chains.
#[derive(Debug, Default)]
pub(crate) struct ChainCounts {
    pub(crate) records: AtomicU64,
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl ChainCounts {
    fn add(&self, packets: u64, bytes: u64) {
        self.records.fetch_add(1, Ordering::Relaxed);
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A storage whose copy here is of no use any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outdated {
    pub(crate) id: StorageId,
    /// Whether this node still owns it, and lacks packets of its chain.
    pub(crate) is_owned: bool,
    pub(crate) reason: String,
}

/// How chains are appended to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Time between the beginnings of two records of a storage, unless there is much to append.
    pub(crate) interval: Duration,
    /// How long a push waits for its record.
    pub(crate) patience: Duration,
}

/// The chains of the storages that are written here.
#[derive(Debug)]
pub(crate) struct Chains {
    bucket: Bucket,
    claimant: Claimant,
    known: Known,
    engine: Engine,
    provenances: Arc<Provenances>,
    pace: Pace,
    chains: Mutex<HashMap<StorageId, Arc<StorageChain>>>,
    /// Storages that are made again from their chains.
    rebuilding: Mutex<HashSet<StorageId>>,
    outdated: Mutex<Vec<Outdated>>,
    /// Storages whose copies here were given up, because they were damaged.
    given_up: Mutex<HashSet<StorageId>>,
    /// Counts the reasons to begin the next round of the node now.
    wake: watch::Sender<u64>,
    /// Why the store did not do what was asked last, if it did not.
    failure: Mutex<Option<String>>,
    pub(crate) counts: ChainCounts,
}

impl Chains {
    pub(crate) fn new(
        (bucket, node): (&Bucket, &NodeName),
        (engine, known): (&Engine, &Known),
        provenances: &Arc<Provenances>,
        pace: Pace,
        wake: watch::Sender<u64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            bucket: bucket.clone(),
            claimant: Claimant {
                node: node.clone(),
                identity: known.identity(),
            },
            known: known.clone(),
            engine: engine.clone(),
            provenances: Arc::clone(provenances),
            pace,
            chains: Mutex::default(),
            rebuilding: Mutex::default(),
            outdated: Mutex::default(),
            given_up: Mutex::default(),
            wake,
            failure: Mutex::default(),
            counts: ChainCounts::default(),
        })
    }

    /// Begins the task of a storage, if there is none; otherwise it looks whether the storage or
    /// its agents are described in another way.
    pub(crate) fn begin(self: &Arc<Self>, id: StorageId) {
        if !self.is_rebuilding(id) {
            self.of(id).redescribe();
        }
    }

    /// Looks again who owns the storages that are written here.
    pub(crate) fn doubt_all(self: &Arc<Self>) {
        let open: Vec<_> = {
            let chains = self.chains.lock();
            let open = chains.iter().filter(|(_, chain)| chain.is_open());
            open.map(|(id, _)| *id).collect()
        };
        open.into_iter().for_each(|id| self.doubt(id));
    }

    /// Looks again who owns a storage: its task begins anew. Pushes that wait go on waiting.
    pub(crate) fn doubt(self: &Arc<Self>, id: StorageId) {
        if let Some(chain) = self.chains.lock().get(&id).cloned() {
            chain.stop();
            chain.doubt();
            let task = appending::run(Arc::clone(self), Arc::clone(&chain), None);
            chain.keep(tokio::spawn(task).abort_handle());
        }
    }

    fn of(self: &Arc<Self>, id: StorageId) -> Arc<StorageChain> {
        let mut chains = self.chains.lock();
        let chain = chains.entry(id).or_insert_with(|| {
            let chain = Arc::new(StorageChain::new(id));
            let task = appending::run(Arc::clone(self), Arc::clone(&chain), None);
            chain.keep(tokio::spawn(task).abort_handle());
            chain
        });
        Arc::clone(chain)
    }

    /// Goes on with a chain that was taken over, of which all packets are here up to `reached`.
    fn continue_with(
        self: &Arc<Self>,
        id: StorageId,
        chain: Option<Chain>,
        reached: HashMap<StreamKey, u64>,
    ) {
        let shared = Arc::new(StorageChain::new(id));
        shared.open(reached, Vec::new());
        match chain {
            Some(chain) => {
                let task = appending::run(Arc::clone(self), Arc::clone(&shared), Some(chain));
                shared.keep(tokio::spawn(task).abort_handle());
            }
            None => shared.close(),
        }
        if let Some(before) = self.chains.lock().insert(id, shared) {
            before.stop();
        }
    }

    /// Whether pushes to a storage may be answered by what is here: not before its chain is open.
    pub(crate) async fn is_open(self: &Arc<Self>, id: StorageId) -> bool {
        !self.is_rebuilding(id) && self.of(id).opened(self.pace.patience).await
    }

    /// This node, as owner of chains.
    pub(crate) fn claimant(&self) -> &Claimant {
        &self.claimant
    }

    /// What the data folder knows of chains.
    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    /// Whether a storage is made again from its chain at this moment.
    pub(crate) fn is_rebuilding(&self, id: StorageId) -> bool {
        self.rebuilding.lock().contains(&id)
    }

    /// Waits until the chain of a storage has the provenance of packets that is stored here.
    ///
    /// # Errors
    /// When another node has the storage, its chain is closed, or the store does not answer.
    pub(crate) async fn report(
        self: &Arc<Self>,
        id: StorageId,
        stream: StreamKey,
        provenance: ChainedProvenance,
    ) -> Result<(), StorageError> {
        let chain = self.of(id);
        let reported = chain.report(stream, provenance);
        let waited = tokio::time::timeout(self.pace.patience, reported).await;
        waited.unwrap_or_else(|_| Err(self.not_taken(id)))
    }

    /// Gives the copies up that are damaged here, once each: everything that was acknowledged is in
    /// their chains, and they are made again from there.
    pub(crate) async fn give_up_failed(self: &Arc<Self>) {
        for id in self.known.open().await {
            let Ok(info) = self.engine.storages().get(id) else {
                continue;
            };
            if info.state == StorageState::Failed && self.given_up.lock().insert(id) {
                let reason = info.failure.unwrap_or_default();
                let chain = self.of(id);
                chain.stop();
                chain.end(Ending::Lacking(reason.clone()));
                self.note_outdated(Outdated {
                    id,
                    is_owned: true,
                    reason,
                });
            }
        }
    }

    /// Whether a storage has a chain, and this node owns it.
    pub(crate) fn has(&self, id: StorageId) -> bool {
        let chains = self.chains.lock();
        chains.get(&id).is_some_and(|chain| chain.is_owned())
    }

    /// Whether the copy of a storage that is here is still of no use.
    pub(crate) fn is_outdated(&self, id: StorageId) -> bool {
        let chains = self.chains.lock();
        chains.get(&id).is_some_and(|chain| chain.has_ended())
    }

    /// Ends the task of a storage that is deleted, or was set aside.
    pub(crate) fn forget(&self, id: StorageId) {
        if let Some(chain) = self.chains.lock().remove(&id) {
            chain.end(Ending::Deleted);
            chain.stop();
        }
    }

    /// Ends all tasks, because the server stops.
    pub(crate) fn stop(&self) {
        for (_, chain) in self.chains.lock().drain() {
            chain.stop();
        }
    }

    /// The storages whose copies here are of no use any more, once each.
    pub(crate) fn take_outdated(&self) -> Vec<Outdated> {
        std::mem::take(&mut *self.outdated.lock())
    }

    fn note_outdated(&self, outdated: Outdated) {
        self.outdated.lock().push(outdated);
        self.wake
            .send_modify(|reasons| *reasons = reasons.wrapping_add(1));
    }

    /// Notes whether the store did what was asked for a storage.
    fn note(&self, of: &StorageChain, failure: Option<Failure>) {
        let before = of.failure();
        of.note(failure.clone());
        if let Some(failure) = failure.as_ref().filter(|failure| failure.is_lasting) {
            if before.is_none_or(|before| before.reason != failure.reason) {
                tracing::error!(
                    storage = %of.id, error = failure.reason,
                    "packets for a storage are not acknowledged, because its chain is damaged"
                );
            }
            return;
        }
        let mut noted = self.failure.lock();
        if let (None, Some(failure)) = (&*noted, &failure) {
            tracing::warn!(
                storage = %of.id, error = failure.reason,
                "the object store takes no packets; nothing is acknowledged until it does"
            );
        }
        if noted.is_some() && failure.is_none() {
            tracing::info!("the object store takes packets again");
        }
        *noted = failure.map(|failure| failure.reason);
    }

    /// Why the chain of a storage is not appended to, if it is not.
    pub(crate) fn failure_of(&self, id: StorageId) -> Option<String> {
        let chain = self.chains.lock().get(&id).cloned();
        chain
            .and_then(|chain| chain.failure())
            .map(|failure| failure.reason)
    }

    /// Ends the chain of a storage that is to be deleted, so that nobody appends to it afterwards.
    /// One that is damaged needs no end: nobody can open it.
    ///
    /// # Errors
    /// When another node has the storage, or the store does not answer.
    pub(crate) async fn close_for_deletion(
        self: &Arc<Self>,
        id: StorageId,
    ) -> Result<(), StorageError> {
        let chain = self.of(id);
        match tokio::time::timeout(self.pace.patience, chain.closed()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) if chain.failure().is_some_and(|failure| failure.is_lasting) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.not_taken(id)),
        }
    }

    fn not_taken(&self, storage: StorageId) -> StorageError {
        let seconds = self.pace.patience.as_secs();
        let said = self.failure_of(storage);
        StorageError::NotReplicated {
            storage,
            reason: said
                .unwrap_or_else(|| format!("the object store has not answered within {seconds} s")),
        }
    }

    /// Why the store does not take packets, if it does not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}

/// The chains, as the engine sees them.
#[derive(Debug)]
pub(crate) struct ChainReplica(pub(crate) Arc<Chains>);

impl Replica for ChainReplica {
    fn written(&self, storage: StorageId, leaf: LeafId, path: &LeafPath) {
        if !self.0.is_rebuilding(storage) {
            let key = (path.agent.clone(), path.stream.clone());
            self.0.of(storage).grow(key, leaf);
        }
    }

    fn wait(
        &self,
        storage: StorageId,
        agent: &AgentId,
        stream: &StreamId,
        number: u64,
    ) -> Replicated {
        let (chains, key) = (Arc::clone(&self.0), (agent.clone(), stream.clone()));
        Replicated::by(async move {
            if chains.is_rebuilding(storage) {
                return Ok(());
            }
            let patience = chains.pace.patience;
            let chain = chains.of(storage);
            let waited = tokio::time::timeout(patience, chain.reached(&key, number)).await;
            waited.unwrap_or_else(|_| {
                let refused = chains.not_taken(storage);
                // A store that does not even refuse is noticed here first.
                let failure = chain.failure().unwrap_or_else(|| Failure {
                    reason: refused.to_string(),
                    is_lasting: false,
                });
                chains.note(&chain, Some(failure));
                Err(refused)
            })
        })
    }

    fn close(&self, storage: StorageId) -> Replicated {
        let chains = Arc::clone(&self.0);
        Replicated::by(async move {
            if chains.is_rebuilding(storage) {
                return Ok(());
            }
            let chain = chains.of(storage);
            chain.closed().await
        })
    }
}
