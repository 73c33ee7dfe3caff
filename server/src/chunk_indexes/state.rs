//! Which storages have complete indexes.

use std::collections::{BTreeSet, HashMap, HashSet};

use parking_lot::Mutex;
use query_engine::LeafIndexOptions;
use serde::Serialize;
use storage_format::{LeafId, StorageId};
use tokio::sync::Notify;
use utoipa::ToSchema;

use super::counts::{EventCount, StorageCount};
use crate::config::QueryConfig;

/// Whether a finalized storage has its chunk indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IndexState {
    /// It has all of them.
    Complete,
    /// They are being made, or wait for their turn.
    InProgress,
    /// One could not be made; the server tries again.
    Failed,
}

/// Tracks which storages have complete indexes.
pub(crate) struct ChunkIndexes {
    pub(super) known: Mutex<Known>,
    pub(super) wake: Notify,
    /// Notified when somebody waits for the events of a storage.
    pub(super) count_wake: Notify,
    /// Notified when the events of a storage that is being written were counted.
    pub(super) counted: Notify,
    pub(super) options: LeafIndexOptions,
    pub(super) growth_bytes_min: u64,
}

/// What is known of the indexes of storages.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Finalized storages whose indexes are complete, or of which one could not be made.
    pub(super) settled: HashMap<StorageId, IndexState>,
    /// Storages that are next.
    pub(super) wanted: BTreeSet<StorageId>,
    /// Storages with an index that was found to be damaged.
    pub(super) damaged: HashSet<StorageId>,
    /// Events of finalized storages with complete indexes.
    pub(super) events: HashMap<StorageId, EventCount>,
    /// Storages whose packets somebody wants to be counted.
    pub(super) uncounted: BTreeSet<StorageId>,
    /// What is known of the events of the other storages.
    pub(super) counts: HashMap<StorageId, StorageCount>,
    /// Finalized storages with provenance that is in no bundle.
    pub(super) unbundled: HashSet<StorageId>,
    /// Leaves of which an index of damaged data was made since the server started or a verification
    /// found no damage. One from before is made again: the data may have been restored.
    of_damage: HashMap<StorageId, HashSet<LeafId>>,
}

impl Known {
    pub(super) fn is_complete(&self, id: StorageId) -> bool {
        self.settled.get(&id) == Some(&IndexState::Complete)
    }

    fn want(&mut self, id: StorageId) {
        if self.is_complete(id) {
            self.settled.remove(&id);
        }
        self.wanted.insert(id);
    }

    /// The indexes were looked at, and are complete unless one is missed meanwhile.
    pub(super) fn completed(&mut self, id: StorageId) {
        if self.wanted.contains(&id) {
            self.settled.remove(&id);
        } else {
            self.settled.insert(id, IndexState::Complete);
        }
    }

    /// The indexes of a finalized storage have so many events.
    pub(super) fn finalized(&mut self, id: StorageId, count: EventCount) {
        self.events.insert(id, count);
        self.counts.remove(&id);
    }

    /// An index of a leaf was made.
    pub(super) fn made(&mut self, id: StorageId, leaf: LeafId, is_of_damage: bool) {
        if is_of_damage {
            self.of_damage.entry(id).or_default().insert(leaf);
        } else if let Some(leaves) = self.of_damage.get_mut(&id) {
            leaves.remove(&leaf);
        }
    }

    /// Leaves of which an index of damaged data is used as it is.
    pub(super) fn of_damage(&self, id: StorageId) -> HashSet<LeafId> {
        self.of_damage.get(&id).cloned().unwrap_or_default()
    }

    /// Forgets what was deleted.
    pub(super) fn keep(&mut self, present: &HashSet<StorageId>) {
        self.settled.retain(|id, _| present.contains(id));
        self.unbundled.retain(|id| present.contains(id));
        self.events.retain(|id, _| present.contains(id));
        self.counts.retain(|id, _| present.contains(id));
        self.of_damage.retain(|id, _| present.contains(id));
    }

    pub(super) fn forget(&mut self, id: StorageId) {
        self.settled.remove(&id);
        self.wanted.remove(&id);
        self.damaged.remove(&id);
        self.unbundled.remove(&id);
        self.events.remove(&id);
        self.counts.remove(&id);
        self.uncounted.remove(&id);
        self.of_damage.remove(&id);
    }
}

impl ChunkIndexes {
    pub(crate) fn new(config: &QueryConfig) -> Self {
        Self {
            known: Mutex::default(),
            wake: Notify::new(),
            count_wake: Notify::new(),
            counted: Notify::new(),
            options: LeafIndexOptions {
                chunk_bytes: config.chunk_bytes,
                fields: config.index_fields.clone(),
            },
            growth_bytes_min: config.index_growth_bytes_min,
        }
    }

    /// Rebuilds the indexes of a storage because part of one is damaged.
    pub(crate) fn rebuild(&self, id: StorageId) {
        self.known.lock().damaged.insert(id);
        self.check(id);
    }

    /// Makes indexes of damaged data again, because the data of the storage is intact now.
    pub(crate) fn renew_those_of_damage(&self, id: StorageId) {
        let of_damage = self.known.lock().of_damage.remove(&id);
        if of_damage.is_some_and(|leaves| !leaves.is_empty()) {
            self.check(id);
        }
    }

    /// Lets provenance that was reported for a finalized storage be moved to its bundles, with what
    /// is reported in the next seconds.
    pub(crate) fn bundle_provenance(&self, id: StorageId) {
        self.known.lock().unbundled.insert(id);
    }

    /// Checks the indexes of a storage soon: it was finalized, or an index is missing.
    pub(crate) fn check(&self, id: StorageId) {
        self.known.lock().want(id);
        self.wake.notify_one();
    }

    /// Whether a finalized storage has its indexes.
    pub(crate) fn state_of(&self, id: StorageId) -> IndexState {
        let known = self.known.lock();
        let settled = known.settled.get(&id).copied();
        settled.unwrap_or(IndexState::InProgress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_complete_until_an_index_is_missed() {
        let id = StorageId::from_bytes([1; 16]);
        let indexes = ChunkIndexes::new(&QueryConfig::default());
        assert_eq!(indexes.state_of(id), IndexState::InProgress);
        indexes.known.lock().completed(id);
        assert_eq!(indexes.state_of(id), IndexState::Complete);
        indexes.rebuild(id);
        assert_eq!(indexes.state_of(id), IndexState::InProgress);
        // It was missed while the indexes were looked at.
        indexes.known.lock().completed(id);
        assert_eq!(indexes.state_of(id), IndexState::InProgress);
        assert_eq!(indexes.known.lock().wanted.pop_first(), Some(id));
        let failed = IndexState::Failed;
        indexes.known.lock().settled.insert(id, failed);
        indexes.check(id);
        assert_eq!(indexes.state_of(id), failed);
        indexes.bundle_provenance(id);
        indexes.known.lock().events.insert(
            id,
            EventCount {
                events: 7,
                uncounted_packets: Some(0),
            },
        );
        let mut known = indexes.known.lock();
        known.forget(id);
        let left = known.settled.len() + known.wanted.len();
        assert_eq!(left + known.damaged.len() + known.unbundled.len(), 0);
        assert!(known.events.is_empty());
    }
}
