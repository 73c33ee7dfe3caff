//! Retention: finalized storages that are too old, or too large together, are deleted.
//!
//! What is deleted is decided by a pure function, so that a request can show it before it happens.
//! Storages with a legal hold stay, and so do those of the standing recording, which has bounds of
//! its own, and those that a job reads.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use storage_core::clock::{CLOCKS_SET_NS, ClockWatch, since_boot};
use storage_core::{LabelFilter, StorageError, StorageFilter, StorageInfo, is_held};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;

use crate::app_state::AppState;
use crate::clock;
use crate::config::RetentionConfig;

const NS: i64 = 1_000_000_000;

/// The bounds of finalized storages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Time after finalization; `None` is any.
    pub(crate) age_seconds_max: Option<u64>,
    /// Stored bytes of all storages that the policy may delete; `None` is any number.
    pub(crate) bytes_max: Option<u64>,
    /// Only storages with this label.
    pub(crate) label: Option<String>,
}

impl From<&RetentionConfig> for Policy {
    fn from(config: &RetentionConfig) -> Self {
        let bound = |value: u64| (value > 0).then_some(value);
        Self {
            age_seconds_max: bound(config.age_seconds_max),
            bytes_max: bound(config.bytes_max),
            label: Some(config.label.clone()).filter(|label| !label.is_empty()),
        }
    }
}

impl Policy {
    /// Whether it deletes anything at all.
    fn is_on(&self) -> bool {
        self.age_seconds_max.is_some() || self.bytes_max.is_some()
    }

    /// What of it holds now: after a jump of the clock no age counts.
    pub(crate) fn with_ages(&self, are_trusted: bool) -> Self {
        Self {
            age_seconds_max: self.age_seconds_max.filter(|_| are_trusted),
            ..self.clone()
        }
    }
}

/// Why a storage is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It was finalized too long ago.
    Age,
    /// All storages together have too many bytes, and it is the oldest.
    Bytes,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Bytes => "bytes",
        }
    }
}

/// A storage that is deleted.
#[derive(Debug, Clone)]
pub(crate) struct Deletion {
    pub(crate) storage: StorageInfo,
    pub(crate) reason: Reason,
}

/// What a policy deletes now.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Oldest first.
    pub(crate) deletions: Vec<Deletion>,
    /// Storages that it would consider, were it not for their legal hold.
    pub(crate) held: u64,
}

/// Bytes of the files of a finalized storage.
pub(crate) fn bytes_of(storage: &StorageInfo) -> u64 {
    let files = storage.files.iter().map(|file| file.length);
    files.fold(0, u64::saturating_add)
}

/// What `policy` deletes of the storages of this server now.
pub(crate) async fn plan(app: &AppState, policy: &Policy) -> Plan {
    let mut excepted: HashSet<StorageId> = app.recorder.standing_storages().await;
    excepted.extend(app.jobs.storages());
    let filter = StorageFilter {
        state: Some(StorageState::Finalized),
        labels: policy
            .label
            .iter()
            .map(|text| LabelFilter::parse(text))
            .collect(),
        ..StorageFilter::default()
    };
    let storages = app.engine.storages().list(&filter);
    decide(policy, storages, &excepted, clock::now_ns())
}

fn decide(
    policy: &Policy,
    storages: Vec<StorageInfo>,
    excepted: &HashSet<StorageId>,
    now: i64,
) -> Plan {
    let (held, mut left): (Vec<_>, Vec<_>) = storages
        .into_iter()
        .filter(|storage| !excepted.contains(&storage.id))
        .partition(is_held);
    // Of a machine whose clock was not set, the time is not known.
    let finalized = |storage: &StorageInfo| {
        let known = storage.finalized.filter(|at| *at >= CLOCKS_SET_NS);
        known.unwrap_or(now)
    };
    left.sort_by_key(|storage| (finalized(storage), storage.id));
    let age_max = policy.age_seconds_max.map(|seconds| {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        seconds.saturating_mul(NS)
    });
    let mut bytes = left.iter().map(bytes_of).fold(0, u64::saturating_add);
    let mut deletions = Vec::new();
    for storage in left {
        let age = now.saturating_sub(finalized(&storage));
        let reason = if age_max.is_some_and(|max| age > max) {
            Reason::Age
        } else if policy.bytes_max.is_some_and(|max| bytes > max) {
            Reason::Bytes
        } else {
            continue;
        };
        bytes = bytes.saturating_sub(bytes_of(&storage));
        deletions.push(Deletion { storage, reason });
    }
    Plan {
        deletions,
        held: held.len() as u64,
    }
}

/// Deletes what the policy of the settings deletes, again and again, until the server stops.
pub(crate) async fn enforce(app: Arc<AppState>) {
    let config = &app.config.retention;
    let policy = Policy::from(config);
    if !policy.is_on() {
        return app.draining().await;
    }
    let mut watch = ClockWatch::new(clock::now_ns(), since_boot());
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(config.check_seconds)) => {}
            () = app.draining() => return,
        }
        let are_trusted = watch.is_trusted(clock::now_ns(), since_boot());
        app.ages_trusted.store(are_trusted, Ordering::Relaxed);
        delete_planned(&app, &policy.with_ages(are_trusted)).await;
    }
}

/// Deletes what a policy deletes. A deletion can take long, and meanwhile a job may begin to read
/// the next storage, or somebody takes its label away: what is next is decided after each.
async fn delete_planned(app: &AppState, policy: &Policy) {
    let mut left_alone = HashSet::new();
    while !app.is_draining() {
        let mut planned = plan(app, policy).await.deletions.into_iter();
        let next = planned.find(|deletion| !left_alone.contains(&deletion.storage.id));
        let Some(deletion) = next else {
            return;
        };
        let id = deletion.storage.id;
        if !delete(app, deletion).await {
            left_alone.insert(id);
        }
        tokio::task::yield_now().await;
    }
}

/// Returns whether the storage is deleted.
async fn delete(app: &AppState, Deletion { storage, reason }: Deletion) -> bool {
    let (id, bytes) = (storage.id, bytes_of(&storage));
    match app.engine.storages().delete(id).await {
        Ok(()) => {
            app.open_files.close(id);
            app.unreadable.forget(id);
            app.metrics.retention.deleted(bytes);
            tracing::info!(
                storage = %id, name = storage.name, reason = reason.name(), bytes,
                "retention has deleted a storage"
            );
            return true;
        }
        // Somebody was faster.
        Err(StorageError::Held { .. } | StorageError::StorageNotFound(_)) => {}
        Err(error) => {
            app.metrics.retention.failed();
            tracing::warn!(%error, storage = %id, "retention cannot delete a storage");
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use storage_format::paths::FileRole;
    use storage_format::storage_file::{FileEntry, Totals};

    use super::*;

    const NOW: i64 = CLOCKS_SET_NS + 1_000 * NS;

    fn storage(number: u8, age_seconds: i64, bytes: u64, labels: &[&str]) -> StorageInfo {
        let labels = labels
            .iter()
            .map(|name| ((*name).to_owned(), "x".to_owned()));
        StorageInfo {
            id: StorageId::from_bytes([number; 16]),
            name: String::new(),
            description: String::new(),
            state: StorageState::Finalized,
            labels: labels.collect(),
            created: 0,
            opened: None,
            finalized: Some(NOW - age_seconds * NS),
            server_version: String::new(),
            idempotency_key: None,
            failure: None,
            totals: Totals::default(),
            files: vec![FileEntry {
                name: String::new(),
                role: FileRole::Data,
                length: bytes,
                checksum: 0,
            }],
        }
    }

    #[test]
    fn the_oldest_are_deleted_until_the_bounds_hold() {
        let storages = || {
            vec![
                storage(1, 10, 100, &[]),
                storage(2, 30, 100, &["legal_hold"]),
                storage(3, 20, 100, &[]),
                storage(4, 40, 100, &[]),
                // Its machine did not know the time.
                storage(5, 2_000, 100, &[]),
            ]
        };
        let excepted = HashSet::from([StorageId::from_bytes([4; 16])]);
        for (age, bytes, expected) in [
            (None, None, vec![]),
            (Some(15), None, vec![(3, Reason::Age)]),
            (None, Some(299), vec![(3, Reason::Bytes)]),
            (None, Some(300), vec![]),
            (
                Some(15),
                Some(199),
                vec![(3, Reason::Age), (1, Reason::Bytes)],
            ),
            (
                None,
                Some(99),
                vec![(3, Reason::Bytes), (1, Reason::Bytes), (5, Reason::Bytes)],
            ),
        ] {
            let policy = Policy {
                age_seconds_max: age,
                bytes_max: bytes,
                label: None,
            };
            let plan = decide(&policy, storages(), &excepted, NOW);
            let found: Vec<_> = plan
                .deletions
                .iter()
                .map(|deletion| (deletion.storage.id.as_bytes()[0], deletion.reason))
                .collect();
            assert_eq!(found, expected, "{policy:?}");
            assert_eq!(plan.held, 1);
        }
    }
    #[test]
    fn after_a_jump_of_the_clock_only_bytes_count() {
        let policy = Policy {
            age_seconds_max: Some(15),
            bytes_max: Some(1_000),
            label: Some("a".to_owned()),
        };
        assert_eq!(policy.with_ages(true), policy);
        let left = policy.with_ages(false);
        assert_eq!((left.age_seconds_max, left.bytes_max), (None, Some(1_000)));
        assert_eq!(left.label, policy.label);
    }
}
