//! Retention: finalized storages that are too old, or too large together, are deleted.
//!
//! What is deleted is decided by a pure function, so that a request can show it before it happens.
//! Storages with a legal hold stay, and so do those of the standing recording, which has bounds of
//! its own, and those that a job reads.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use storage_core::clock::{CLOCKS_SET_NS, ClockWatch, since_boot, wall_ns};
use storage_core::{LabelFilter, StorageError, StorageFilter, StorageInfo, is_held};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;

use crate::app_state::AppState;
use crate::config::RetentionConfig;
use crate::tier::forget_everywhere;

const NS: i64 = 1_000_000_000;
/// A plan is good for this long: what it considered may change.
const PLAN_LASTS: Duration = Duration::from_secs(10);

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

/// What `policy` deletes of the storages of this server if it is `now`, ns.
pub(crate) async fn plan(app: &AppState, policy: &Policy, now: i64) -> Plan {
    let excepted = excepted(app).await;
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
    decide(policy, storages, &excepted, now)
}

/// The storages that no policy deletes now.
async fn excepted(app: &AppState) -> HashSet<StorageId> {
    let mut excepted: HashSet<StorageId> = app.recorder.standing_storages().await;
    excepted.extend(app.jobs.storages());
    excepted
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

/// The wall clock, and whether ages may be computed with it.
struct Ages<R> {
    watch: ClockWatch,
    /// Reads the wall clock, ns, and the time since boot.
    read: R,
}

impl<R: Fn() -> (i64, Duration)> Ages<R> {
    fn new(read: R) -> Self {
        let (wall, since_boot) = read();
        let watch = ClockWatch::new(wall, since_boot);
        Self { watch, read }
    }

    /// The time now, and whether it is trusted: of one reading, so that no age is computed with a
    /// time that was not judged.
    fn now(&mut self) -> (i64, bool) {
        let (wall, since_boot) = (self.read)();
        (wall, self.watch.is_trusted(wall, since_boot))
    }
}

/// Deletes what the policy of the settings deletes, again and again, until the server stops.
pub(crate) async fn enforce(app: Arc<AppState>) {
    let config = &app.config.retention;
    let policy = Policy::from(config);
    if !policy.is_on() {
        return app.draining().await;
    }
    let mut ages = Ages::new(|| (wall_ns(), since_boot()));
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(config.check_seconds)) => {}
            () = app.draining() => return,
        }
        let Round { plans, deleted } = delete_planned(&app, &policy, &mut ages, PLAN_LASTS).await;
        tracing::debug!(plans, deleted, "retention has checked the storages");
    }
}

/// What happened at one check.
#[derive(Debug, Default, PartialEq, Eq)]
struct Round {
    plans: u64,
    deleted: u64,
}

/// Deletes what a policy deletes. A deletion can take long, and meanwhile the clock may jump, a job
/// may begin to read the next storage, or somebody takes its label away: each is looked at again
/// before it is deleted, and there is another plan when something in it is no longer true.
async fn delete_planned(
    app: &Arc<AppState>,
    policy: &Policy,
    ages: &mut Ages<impl Fn() -> (i64, Duration)>,
    plan_lasts: Duration,
) -> Round {
    let mut round = Round::default();
    let mut left_alone = HashSet::new();
    while !app.is_draining() {
        let (now, are_trusted) = ages.now();
        app.ages_trusted.store(are_trusted, Ordering::Relaxed);
        let mut planned = plan(app, &policy.with_ages(are_trusted), now)
            .await
            .deletions;
        let made = Instant::now();
        planned.retain(|deletion| !left_alone.contains(&deletion.storage.id));
        round.plans += 1;
        if planned.is_empty() {
            break;
        }
        for (number, deletion) in planned.into_iter().enumerate() {
            // The first one is deleted however slow the server is, or there would be no end.
            let is_recent = number == 0 || made.elapsed() < plan_lasts;
            let is_current = is_recent && ages.now().1 == are_trusted;
            if !is_current || app.is_draining() || !is_unchanged(app, &deletion.storage).await {
                break;
            }
            let id = deletion.storage.id;
            if delete(app, deletion).await {
                round.deleted += 1;
            } else {
                left_alone.insert(id);
            }
            tokio::task::yield_now().await;
        }
    }
    round
}

/// Whether what decided about a storage is still true: its state, its labels, and that nobody needs
/// it.
async fn is_unchanged(app: &AppState, planned: &StorageInfo) -> bool {
    let Ok(storage) = app.engine.storages().get(planned.id) else {
        return false;
    };
    storage.state == planned.state
        && storage.labels == planned.labels
        && !excepted(app).await.contains(&planned.id)
}

/// Returns whether the storage is deleted.
async fn delete(app: &Arc<AppState>, Deletion { storage, reason }: Deletion) -> bool {
    let (id, bytes) = (storage.id, bytes_of(&storage));
    let deleted = app.engine.storages().delete(id);
    match forget_everywhere(app, id, deleted).await {
        Ok(()) => {
            app.open_files.close(id);
            app.event_files.close(id).await;
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
mod tests;
