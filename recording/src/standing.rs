//! The standing recording: keeps all spans that arrive, in one storage after another, and deletes
//! the oldest of these storages when they are too old or too large together.
//!
//! A storage begins with the first span of a period, so that a server without spans makes none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use storage_core::clock::{CLOCKS_SET_NS, ClockWatch, now_ns, since_boot, wall_ns};
use storage_core::{Engine, StorageError, StorageInfo};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::RecordingError;
use crate::recording::Recording;
use crate::registry::Registry;
use crate::spec::RecordingState;
use crate::standing_config::StandingConfig;

/// The document in the data folder that lists the storages of the standing recording.
const STANDING_FILE: &str = "standing_storages.json";
const STANDING_VERSION: u32 = 1;
/// A storage has at most this share of the bytes of all, so that deleting one makes room.
const STORAGE_SHARE: u64 = 8;
/// The interval at which periods, sizes and ages are checked.
const CHECK: Duration = Duration::from_secs(1);
/// The time until a storage is created again after that failed, ns.
const RETRY_NS: i64 = 10_000_000_000;
const NS: i64 = 1_000_000_000;
/// The label that readers leave; all others protect a storage from deletion.
const READERS: &str = "explored_by";

/// The storages of the standing recording, oldest first.
#[derive(Debug, Serialize, Deserialize)]
struct StandingFile {
    version: u32,
    storages: Vec<StorageId>,
}

/// The recording of the current period.
struct Current {
    recording: Arc<Recording>,
    /// The end of the period, ns since the epoch.
    until: i64,
    is_full: AtomicBool,
    /// Stopped by request: nothing is recorded in the rest of the period.
    is_stopped: AtomicBool,
}

impl Current {
    fn new(recording: Arc<Recording>, until: i64) -> Self {
        Self {
            recording,
            until,
            is_full: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        }
    }

    fn is_over(&self, now: i64) -> bool {
        now >= self.until || self.is_full.load(Ordering::Relaxed)
    }

    /// Whether no other recording has to begin.
    fn is_valid(&self, now: i64) -> bool {
        let is_on = || self.recording.inbox().is_some();
        !self.is_over(now) && (self.is_stopped.load(Ordering::Relaxed) || is_on())
    }
}

/// The state of the standing recording.
#[derive(Default)]
pub(crate) struct Standing {
    current: Mutex<Option<Arc<Current>>>,
    /// Its storages, oldest first; locked by whoever begins a recording or changes the list.
    pub(crate) storages: tokio::sync::Mutex<Vec<StorageId>>,
    /// The next attempt after a failure, ns since the epoch.
    retry: Mutex<i64>,
}

impl Standing {
    /// Whether this is the recording of the current period: the one before it may still write.
    pub(crate) fn is_current(&self, recording: &Recording) -> bool {
        let current = self.current.lock();
        (current.as_ref()).is_some_and(|current| current.recording.id == recording.id)
    }

    /// The recording of the current period.
    pub(crate) fn recording(&self) -> Option<Arc<Recording>> {
        let current = self.current.lock();
        (current.as_ref()).map(|current| Arc::clone(&current.recording))
    }

    /// Reads the list of storages, and continues the latest recording of the last run.
    pub(crate) async fn load(
        &self,
        registry: &Registry,
        recordings: &[Arc<Recording>],
    ) -> Result<(), RecordingError> {
        let mut storages = read_storages(&registry.engine).await?;
        // A damaged list lacks the storages that are being filled.
        let unlisted: Vec<StorageId> = (registry.standing_recordings().iter())
            .map(|recording| recording.spec.storage)
            .filter(|storage| !storages.contains(storage))
            .collect();
        if !unlisted.is_empty() {
            storages.extend(unlisted);
            save_or_log(&registry.engine, &storages).await;
        }
        *self.storages.lock().await = storages;
        let is_running =
            |each: &&Arc<Recording>| each.spec.standing && each.state() != RecordingState::Off;
        if let Some(config) = registry.config.standing
            && let Some(latest) = recordings.iter().rfind(is_running)
        {
            let until = config.period_of(latest.created).1;
            *self.current.lock() = Some(Arc::new(Current::new(Arc::clone(latest), until)));
        }
        Ok(())
    }

    /// Notes that a recording is stopped by request.
    pub(crate) fn note_stop(&self, recording: &Recording) {
        if let Some(current) = &*self.current.lock()
            && current.recording.id == recording.id
        {
            current.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn needs_recording(&self, now: i64) -> bool {
        let current = self.current.lock();
        !(current.as_ref()).is_some_and(|current| current.is_valid(now))
            && now >= *self.retry.lock()
    }

    /// Tries to begin only after a while.
    pub(crate) fn retry_after(&self, now: i64) {
        *self.retry.lock() = now.saturating_add(RETRY_NS);
    }

    /// Makes this the recording that accepts spans, and ends the one before.
    pub(crate) fn follow_with(&self, recording: Arc<Recording>, until: i64) {
        let next = Arc::new(Current::new(recording, until));
        let before = self.current.lock().replace(next);
        if let Some(before) = before {
            end(&before.recording);
        }
    }

    /// Ends the recording of a period that is over.
    fn end_current(&self, now: i64) {
        let mut current = self.current.lock();
        if let Some(ended) = current.take_if(|current| current.is_over(now)) {
            end(&ended.recording);
        }
    }
}

/// Ends a recording; its task finalizes the storage.
fn end(recording: &Recording) {
    recording.stop.send_if_modified(|reason| {
        let is_first = reason.is_none();
        reason.get_or_insert_with(|| "its period is over".to_owned());
        is_first
    });
}

/// Reads the list of storages. A damaged list is set aside, and is empty.
async fn read_storages(engine: &Engine) -> Result<Vec<StorageId>, StorageError> {
    let documents = engine.documents();
    let text = match documents.read(STANDING_FILE).await {
        Ok(None) => return Ok(Vec::new()),
        Ok(Some(text)) => Some(text),
        Err(error) if error.is_loss() => None,
        Err(error) => return Err(error),
    };
    match text.map(|text| serde_json::from_slice::<StandingFile>(&text)) {
        Some(Ok(file)) if file.version == STANDING_VERSION => Ok(file.storages),
        _ => {
            let path = documents.set_aside(STANDING_FILE).await?;
            tracing::error!(
                path = %path.display(),
                "the list of storages of the standing recording cannot be read and was set aside; \
                 only the storage being filled is listed again: delete the earlier ones by hand \
                 when they are too old"
            );
            Ok(Vec::new())
        }
    }
}

async fn save_or_log(engine: &Engine, storages: &[StorageId]) {
    if let Err(error) = save_storages(engine, storages).await {
        // Storages that do not exist are ignored, and the next change saves it again.
        tracing::warn!(%error, "the list of storages of the standing recording was not saved");
    }
}

/// Writes the list of storages.
pub(crate) async fn save_storages(
    engine: &Engine,
    storages: &[StorageId],
) -> Result<(), StorageError> {
    let file = StandingFile {
        version: STANDING_VERSION,
        storages: storages.to_vec(),
    };
    let text = serde_json::to_vec(&file).map_err(|error| StorageError::Invalid {
        what: "storages of the standing recording",
        problem: error.to_string(),
    })?;
    engine.documents().write(STANDING_FILE, text.into()).await
}

/// Ends periods and deletes old storages, until the server stops.
pub(crate) async fn maintain(
    standing: Arc<Standing>,
    registry: Arc<Registry>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut ticks = interval(CHECK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch: Option<ClockWatch> = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        let (wall, since_boot) = (wall_ns(), since_boot());
        let watch = watch.get_or_insert_with(|| ClockWatch::new(wall, since_boot));
        let has_ages = watch.is_trusted(wall, since_boot);
        check(&standing, &registry, now_ns(), has_ages).await;
    }
}

async fn check(standing: &Standing, registry: &Registry, now: i64, has_ages: bool) {
    match registry.config.standing {
        Some(config) => {
            standing.end_current(now);
            let now = has_ages.then_some(now);
            keep_bounds(standing, registry, &config, now).await;
        }
        // It was on in the last run.
        None => {
            for recording in registry.standing_recordings() {
                end(&recording);
            }
        }
    }
}

/// Finalizes what an interrupted end left open, and deletes what is beyond the bounds. Without
/// `now` nothing is too old: a clock that was set to a later year would make everything so.
async fn keep_bounds(
    standing: &Standing,
    registry: &Registry,
    config: &StandingConfig,
    now: Option<i64>,
) {
    let engine = &registry.engine;
    let mut list = standing.storages.lock().await;
    let recorded: Vec<StorageId> = (registry.standing_recordings().iter())
        .map(|recording| recording.spec.storage)
        .collect();
    let mut found = Vec::with_capacity(list.len());
    for &id in &*list {
        if let Ok(info) = engine.storages().get(id) {
            found.push(info);
        }
    }
    if let Some(current) = &*standing.current.lock()
        && let Some(info) = (found.iter()).find(|info| info.id == current.recording.spec.storage)
        && bytes_of(info) > config.bytes_max / STORAGE_SHARE
    {
        current.is_full.store(true, Ordering::Relaxed);
    }
    let mut sum: u64 = (found.iter().filter(|info| !is_protected(info)))
        .map(bytes_of)
        .fold(0, u64::saturating_add);
    let mut left = Vec::with_capacity(found.len());
    let mut open = Vec::new();
    for info in found {
        let id = info.id;
        let is_recovered = engine.storages().check_recovered(id).is_ok();
        if !is_recovered || recorded.contains(&id) || is_protected(&info) {
            left.push(id);
            continue;
        }
        let is_old = is_too_old(&info, now, config.age_seconds_max);
        let is_beyond = is_old || sum > config.bytes_max || info.totals.packets == 0;
        match info.state {
            // The totals of a finalized storage are exact; one that was never opened is empty.
            StorageState::Finalized if !is_beyond => {}
            StorageState::Finalized | StorageState::Created => {
                let is_deleted = delete(engine, &info, is_old).await;
                sum = sum.saturating_sub(bytes_of(&info));
                if is_deleted {
                    continue;
                }
            }
            StorageState::Open if !engine.is_disk_low() => open.push(id),
            _ => {}
        }
        left.push(id);
    }
    if left != *list {
        *list = left;
        save_or_log(engine, &list).await;
    }
    // A finalization may take long, and the next recording may have to begin meanwhile.
    drop(list);
    for storage in open {
        if let Err(error) = engine.storages().finalize(storage).await {
            tracing::warn!(
                %error, %storage,
                "a storage of the standing recording was not finalized; it is tried again"
            );
        }
    }
}

async fn delete(engine: &Engine, info: &StorageInfo, is_old: bool) -> bool {
    let (storage, name, bytes) = (info.id, &info.name, bytes_of(info));
    match engine.storages().delete(storage).await {
        Ok(()) => {
            tracing::info!(
                %storage, name, bytes, is_too_old = is_old,
                "deleted a storage of the standing recording"
            );
            true
        }
        Err(error) => {
            tracing::warn!(
                %error, %storage, name,
                "a storage of the standing recording was not deleted"
            );
            false
        }
    }
}

/// Whether a storage was finalized too long ago. Without `now` no age is known.
fn is_too_old(info: &StorageInfo, now: Option<i64>, age_seconds_max: u64) -> bool {
    let age_max = i64::try_from(age_seconds_max).unwrap_or(i64::MAX);
    let age = now.zip(info.finalized.filter(|at| *at >= CLOCKS_SET_NS));
    age.is_some_and(|(now, finalized)| now.saturating_sub(finalized) > age_max.saturating_mul(NS))
}

/// Whether a person has labelled the storage.
fn is_protected(info: &StorageInfo) -> bool {
    info.labels.keys().any(|label| label != READERS)
}

/// Bytes on disk, as far as they are known.
fn bytes_of(info: &StorageInfo) -> u64 {
    let files = info.files.iter().map(|file| file.length);
    files
        .fold(0, u64::saturating_add)
        .max(info.totals.stored_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use storage_format::storage_file::Totals;

    use super::*;

    #[test]
    fn an_age_counts_only_while_the_clock_is_trusted() {
        let finalized = |finalized| StorageInfo {
            id: StorageId::from_bytes([1; 16]),
            name: String::new(),
            description: String::new(),
            state: StorageState::Finalized,
            labels: BTreeMap::new(),
            created: 0,
            opened: None,
            finalized,
            server_version: String::new(),
            idempotency_key: None,
            failure: None,
            totals: Totals::default(),
            files: Vec::new(),
        };
        let set = CLOCKS_SET_NS;
        for (now, end, expected) in [
            (Some(set + 10 * NS), Some(set), false),
            (Some(set + 10 * NS + 1), Some(set), true),
            (Some(i64::MAX), Some(set), true),
            (None, Some(set), false),
            (Some(i64::MAX), None, false),
            (Some(0), Some(set), false),
            // The clock was not set when the storage was finalized.
            (Some(i64::MAX), Some(set - 1), false),
        ] {
            let found = is_too_old(&finalized(end), now, 10);
            assert_eq!(found, expected, "{now:?} {end:?}");
        }
        assert!(!is_too_old(&finalized(Some(set)), Some(i64::MAX), u64::MAX));
    }
}
