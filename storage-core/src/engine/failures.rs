//! What has failed, for health checks and metrics.

use std::collections::BTreeMap;

use storage_format::{StorageId, storage_file::StorageState};

use super::Engine;

/// What has failed in an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failures {
    /// Failed storages with their reasons, sorted by id; not more than requested.
    pub storages: Vec<(StorageId, String)>,
    /// Number of all failed storages.
    pub storage_count: u64,
    /// Why the I/O thread ended, when it ended unexpectedly: nothing can be written until the
    /// server restarts.
    pub io_thread: Option<String>,
}

/// Numbers of storages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageCounts {
    /// By state, as the API names it; RECOVERING are those that are not recovered yet.
    pub by_state: BTreeMap<&'static str, u64>,
    /// Storages whose writing has failed since the start.
    pub poisoned: u64,
    /// Finalized storages of which damage was found since the start.
    pub damaged: u64,
}

/// All states, so that each has a number.
const STATES: [&str; 7] = [
    "CREATED",
    "OPEN",
    "RECORDING",
    "FINALIZING",
    "FINALIZED",
    "FAILED",
    "RECOVERING",
];

impl Engine {
    /// How many storages are in which state.
    #[must_use]
    pub fn storage_counts(&self) -> StorageCounts {
        let mut counts = StorageCounts {
            by_state: STATES.map(|state| (state, 0)).into(),
            poisoned: 0,
            damaged: 0,
        };
        for storage in self.inner.storages.registry.all() {
            let state = match storage.state() {
                _ if !storage.readiness.is_ready() => "RECOVERING",
                StorageState::Created => "CREATED",
                StorageState::Open => "OPEN",
                StorageState::Recording => "RECORDING",
                StorageState::Finalizing => "FINALIZING",
                StorageState::Finalized => "FINALIZED",
                StorageState::Failed => "FAILED",
            };
            let count = counts.by_state.entry(state).or_default();
            *count = count.saturating_add(1);
            let is_poisoned = u64::from(storage.poison.is_set());
            counts.poisoned = counts.poisoned.saturating_add(is_poisoned);
            let is_damaged = u64::from(storage.checked.are_damaged());
            counts.damaged = counts.damaged.saturating_add(is_damaged);
        }
        counts
    }

    /// What has failed, with the reasons of at most `max` storages; updates the gauges of the
    /// counters.
    #[must_use]
    pub fn failures(&self, max: usize) -> Failures {
        let storages = self.inner.storages.registry.all();
        let mut failed: Vec<_> = storages
            .iter()
            .filter(|storage| storage.state() == StorageState::Failed)
            .collect();
        let storage_count = failed.len() as u64;
        failed.sort_by_key(|storage| storage.id);
        failed.truncate(max);
        let io_thread = self.inner.services.io_thread.failure();
        let counters = self.counters();
        counters.failed_storages.set(storage_count);
        counters
            .io_thread_failed
            .set(u64::from(io_thread.is_some()));
        let reason = |storage: &crate::storage::Storage| {
            let failure = storage.info().failure;
            failure.unwrap_or_else(|| "the reason is not known".into())
        };
        Failures {
            storages: failed.iter().map(|&s| (s.id, reason(s))).collect(),
            storage_count,
            io_thread,
        }
    }
}
