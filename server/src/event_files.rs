//! Files of events of finalized storages: made by the first request for one, and kept for the
//! others until their space is needed.

mod queue;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;
use storage_core::{Engine, EventFile, EventFileInfo, StorageError};
use storage_format::{Kind, StorageId};
use tokio::sync::watch;

use self::queue::Queue;
use crate::connection::Stage;
use crate::jobs::{JobKind, Jobs};
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::query::{EventsError, Queries};
use crate::range::{Content, RangeFile, Resource};

/// Files that stay open between requests; beyond it, all are closed.
const OPEN_MAX: usize = 64;

/// A file: the storage, and the kind of its events.
type Key = (StorageId, Kind);

/// An open file.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) resource: Resource,
    /// Number of parts of the storage that could not be read.
    pub(crate) skipped: u64,
}

impl From<EventFile> for Served {
    fn from(file: EventFile) -> Self {
        let etag = format!("{:08x}-{:x}", file.checksum, file.length);
        let content = Content::File {
            file: Arc::new(RangeFile::new(file.file, file.tag, file.checked)),
            length: file.length,
        };
        Self {
            // It may be made again, and then have other bytes.
            resource: Resource::new(content, &etag, file.modified, false),
            skipped: file.skipped,
        }
    }
}

/// The files of events of all storages.
pub(crate) struct EventTables {
    engine: Engine,
    queries: Arc<Queries>,
    jobs: Arc<Jobs>,
    metrics: Arc<Metrics>,
    /// Bytes of all files together.
    bytes_max: u64,
    state: Mutex<State>,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct State {
    open: HashMap<Key, Arc<Served>>,
    /// Files that were made since the server started.
    made: HashSet<Key>,
    /// When each file was used last, in numbers of uses.
    used: HashMap<Key, u64>,
    uses: u64,
    /// Files that would be longer than all together may be.
    too_long: HashSet<Key>,
    /// How often a file was forgotten: one that was opened before may be a removed one.
    forgotten: u64,
}

impl State {
    fn forget(&mut self, key: &Key) {
        self.forgotten += 1;
        self.open.remove(key);
        self.made.remove(key);
        self.used.remove(key);
        self.too_long.remove(key);
    }
}

impl EventTables {
    pub(crate) fn new(
        engine: Engine,
        (queries, jobs): (Arc<Queries>, Arc<Jobs>),
        metrics: Arc<Metrics>,
        (bytes_max, stage): (u64, watch::Receiver<Stage>),
    ) -> Arc<Self> {
        let waiting = metrics.queries.event_files_waiting.clone();
        Arc::new(Self {
            engine,
            queries,
            jobs,
            metrics,
            bytes_max,
            state: Mutex::default(),
            queue: Queue::new(stage, waiting),
        })
    }

    /// The file with the events of a kind of a finalized storage. If there is none, it is made by a
    /// job that goes on when the client hangs up, and all who ask for it wait until it was.
    ///
    /// # Errors
    /// When the storage is not finalized, has no such events, or the file cannot be made.
    pub(crate) async fn get(self: &Arc<Self>, key: Key) -> Result<Arc<Served>, Problem> {
        // One that was just made may have been evicted for another.
        for _ in 0..3 {
            if let Some(file) = self.open(key).await? {
                return Ok(file);
            }
            let tables = Arc::clone(self);
            let make = || async move { tables.make(key).await };
            let mut outcome = self.queue.join(&self.jobs, key, make)?;
            let made = outcome.wait_for(Option::is_some).await;
            let made = made.map_err(|_| StorageError::Stopping)?.clone();
            made.unwrap_or(Ok(()))?;
        }
        Err(no_room(self.bytes_max))
    }

    /// The file as it is; `None` if it has to be made.
    async fn open(&self, key: Key) -> Result<Option<Arc<Served>>, Problem> {
        let (id, kind) = key;
        // A storage that was deleted has none.
        self.engine.storages().get(id)?;
        let (is_damaged, forgotten) = {
            let mut state = self.state.lock();
            state.uses += 1;
            let uses = state.uses;
            state.used.insert(key, uses);
            let is_damaged = match state.open.get(&key) {
                Some(open) if !open.resource.is_damaged() => return Ok(Some(Arc::clone(open))),
                Some(_) => {
                    state.forget(&key);
                    true
                }
                None => false,
            };
            (is_damaged, state.forgotten)
        };
        if is_damaged {
            self.engine.event_files().remove(id, kind).await?;
            return Ok(None);
        }
        let Some(file) = self.engine.event_files().open(id, kind).await? else {
            return Ok(None);
        };
        self.keep(key, Arc::new(file.into()), forgotten)
    }

    /// Keeps a file open that was opened when files had been `forgotten` so often; `None` if it has
    /// to be made again.
    fn keep(
        &self,
        key: Key,
        file: Arc<Served>,
        forgotten: u64,
    ) -> Result<Option<Arc<Served>>, Problem> {
        let mut state = self.state.lock();
        // What could not be read before the server started, or before a verification found nothing,
        // may have been restored since.
        if file.skipped > 0 && !state.made.contains(&key) {
            return Ok(None);
        }
        // It, or another file, was removed meanwhile. It is what it was, but not kept; of a storage
        // that was deleted there is none.
        if state.forgotten != forgotten {
            self.engine.storages().get(key.0)?;
            return Ok(Some(file));
        }
        if state.open.len() >= OPEN_MAX {
            state.open.clear();
        }
        state.open.insert(key, Arc::clone(&file));
        Ok(Some(file))
    }

    async fn make(&self, key: Key) -> Result<(), Problem> {
        if self.open(key).await?.is_some() {
            return Ok(());
        }
        // The storage does not change, and writing it until it is too long takes long.
        if self.state.lock().too_long.contains(&key) {
            return Err(no_room(self.bytes_max));
        }
        let (id, kind) = key;
        let reading = self.engine.reading();
        let of_kind = reading.leaves_among(id, |_, path| path.kind == kind);
        if of_kind.await?.leaves.is_empty() {
            // Without a job: anybody may ask for a file that there cannot be.
            return Err(problem(key, EventsError::NoStream(kind)));
        }
        let job = self.jobs.start(JobKind::Events, Some(id))?;
        let making = self.queries.make_events(key, &job, self.bytes_max);
        let made = making.await;
        if matches!(made, Err(EventsError::TooLong(_))) {
            self.state.lock().too_long.insert(key);
        }
        job.end(None, made.map_err(|error| problem(key, error)))?;
        self.state.lock().made.insert(key);
        self.evict(key).await;
        Ok(())
    }

    /// Removes the files that were used least recently until all together have no more bytes than
    /// they may; the one that was just made stays.
    async fn evict(&self, kept: Key) {
        let files = self.engine.event_files();
        let mut all = match files.list().await {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "the files of events cannot be listed; none is removed");
                return;
            }
        };
        let mut bytes = bytes_of(&all);
        {
            let state = self.state.lock();
            let used = |key: &Key| state.used.get(key).copied().unwrap_or(0);
            all.sort_by_key(|file| used(&(file.storage, file.kind)));
        }
        for file in all {
            let key = (file.storage, file.kind);
            if bytes <= self.bytes_max {
                break;
            }
            if key != kept {
                self.state.lock().forget(&key);
                let (storage, kind) = key;
                let removed = files.remove(storage, kind).await;
                // It may have been opened before it was removed.
                self.state.lock().forget(&key);
                match removed {
                    Ok(()) | Err(StorageError::StorageNotFound(_)) => {
                        bytes = bytes.saturating_sub(file.length);
                    }
                    // The next one makes room instead.
                    Err(error) => {
                        tracing::warn!(%storage, %kind, %error, "cannot remove a file of events");
                    }
                }
            }
        }
        self.show_bytes(bytes);
    }

    fn show_bytes(&self, bytes: u64) {
        let gauge = &self.metrics.queries.event_files_bytes;
        gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts the bytes of all files for the metrics: after the start, and when files have gone
    /// with their storages.
    pub(crate) async fn count_bytes(&self) {
        // When it cannot be counted, the server is stopping.
        if let Ok(all) = self.engine.event_files().list().await {
            self.show_bytes(bytes_of(&all));
        }
    }

    /// Closes the files of a storage that was deleted.
    pub(crate) async fn close(&self, id: StorageId) {
        self.forget(id);
        self.count_bytes().await;
    }

    /// Lets the files be made again that were made while a part of the storage could not be read:
    /// a verification has read all of it.
    pub(crate) fn renew_those_of_damage(&self, id: StorageId) {
        self.forget(id);
    }

    fn forget(&self, id: StorageId) {
        let mut state = self.state.lock();
        for kind in Kind::ALL {
            state.forget(&(id, *kind));
        }
    }
}

fn bytes_of(files: &[EventFileInfo]) -> u64 {
    let lengths = files.iter().map(|file| file.length);
    lengths.fold(0, u64::saturating_add)
}

fn problem((id, kind): Key, error: EventsError) -> Problem {
    match error {
        EventsError::Answer(error) => error.into(),
        EventsError::TooLong(bytes_max) => no_room(bytes_max),
        EventsError::NoStream(_) => StorageError::FileNotFound {
            storage: id,
            name: format!("events/{kind}.parquet"),
        }
        .into(),
    }
}

fn no_room(bytes_max: u64) -> Problem {
    Problem::new(
        StatusCode::INSUFFICIENT_STORAGE,
        "events_too_long",
        "there is no room for the file of events",
    )
    .detail(format!(
        "all files of events together may have {bytes_max} bytes (query.event_files_bytes_max)"
    ))
    .cause("the events of this kind are too many, or others are asked for at the same time")
    .remedy("raise the limit, or query a part: POST /api/v1/storages/{id}/query, format parquet")
}
