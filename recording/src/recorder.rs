//! The recorder: starts, lists and stops recordings.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use storage_core::{Engine, Selection, StorageError};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::RecordingError;
use crate::buffer::BufferStatus;
use crate::clock;
use crate::next_position::NextPositions;
use crate::packet::Packet;
use crate::recording::{Recording, end_of};
use crate::registry::{RecorderConfig, Registry};
use crate::spec::{RecordingCounts, RecordingInfo, RecordingSpec, RecordingState};
use crate::standing::{self, Standing};
use crate::task;
use crate::trigger_queue::{self, TriggerQueue};

/// The buffer and all recordings. Clones are handles to the same recorder.
#[derive(Clone)]
pub struct Recorder {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) registry: Arc<Registry>,
    pub(crate) trigger_queue: TriggerQueue,
    pub(crate) positions: NextPositions,
    pub(crate) standing: Arc<Standing>,
    tasks: Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
}

impl Recorder {
    /// Resumes the recordings of the last run: one that was on continues, a scheduled one retains
    /// its time.
    ///
    /// # Errors
    /// When the file of recordings cannot be read or decoded.
    pub async fn start(engine: &Engine, config: RecorderConfig) -> Result<Self, RecordingError> {
        let (trigger_queue, queued) = TriggerQueue::new(config.buffer_bytes_max);
        let recorder = Self {
            inner: Arc::new(Inner {
                registry: Arc::new(Registry::new(engine, config)),
                trigger_queue,
                positions: NextPositions::default(),
                standing: Arc::default(),
                tasks: Mutex::default(),
                stopping: watch::Sender::new(false),
            }),
        };
        let loaded = recorder.inner.registry.load().await?;
        let inner = &recorder.inner;
        inner.standing.load(&inner.registry, &loaded).await?;
        for recording in loaded {
            if recording.state() != RecordingState::Off {
                drop(recorder.spawn(recording));
            }
        }
        let registry = Arc::clone(&recorder.inner.registry);
        let stopping = recorder.inner.stopping.subscribe();
        let matching = trigger_queue::match_all(registry, queued, stopping);
        inner.tasks.lock().spawn(matching);
        let maintaining = standing::maintain(
            Arc::clone(&inner.standing),
            Arc::clone(&inner.registry),
            inner.stopping.subscribe(),
        );
        inner.tasks.lock().spawn(maintaining);
        Ok(recorder)
    }

    /// Starts the task of a recording. The receiver gets a message when it accepts packets.
    fn spawn(&self, recording: Arc<Recording>) -> oneshot::Receiver<Result<(), RecordingError>> {
        let mut tasks = self.inner.tasks.lock();
        while tasks.try_join_next().is_some() {}
        let registry = Arc::clone(&self.inner.registry);
        let stopping = self.inner.stopping.subscribe();
        let (begun, begins) = oneshot::channel();
        tasks.spawn(task::run(registry, recording, stopping, begun));
        begins
    }

    /// Ends every task: its recording writes what it has in memory, and resumes after the next
    /// start.
    pub async fn shutdown(&self) {
        self.inner.stopping.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.inner.tasks.lock());
        while tasks.join_next().await.is_some() {}
        self.inner.registry.save_or_log().await;
    }

    /// Schedules a recording, or starts one and waits until it accepts packets.
    ///
    /// # Errors
    /// When the spec is invalid, the storage cannot be filled, or another recording fills it.
    pub async fn record(&self, spec: RecordingSpec) -> Result<RecordingInfo, RecordingError> {
        spec.check()?;
        let registry = &self.inner.registry;
        let storage = registry.engine.storages().get(spec.storage)?;
        registry.engine.storages().check_recovered(spec.storage)?;
        if !matches!(storage.state, StorageState::Created | StorageState::Open) {
            return Err(StorageError::WrongState {
                storage: storage.id,
                state: storage.state,
                action: "a recording",
                needed: "CREATED or OPEN",
            }
            .into());
        }
        let now = storage_core::clock::now_ns();
        let start = end_of(now, spec.delay_seconds);
        let is_immediate = spec.trigger.is_none() && spec.delay_seconds == 0;
        let recording = Arc::new(Recording::new(RecordingInfo {
            id: clock::new_id(),
            state: RecordingState::Scheduled,
            created: now,
            started: spec.trigger.is_none().then_some(start),
            ended: None,
            reason: None,
            counts: RecordingCounts::default(),
            spec,
        })?);
        registry.add(&recording)?;
        if let Err(error) = registry.save().await {
            registry.remove(recording.id);
            return Err(error.into());
        }
        storage_core::fault_point!(async "recording.listed");
        let begins = self.spawn(Arc::clone(&recording));
        // Packets that follow the response are recorded. A task that ends before it begins was
        // stopped.
        if is_immediate && let Ok(begun) = begins.await {
            begun?;
        }
        Ok(recording.info())
    }

    /// The storages of the standing recording, which deletes them by its own bounds.
    pub async fn standing_storages(&self) -> HashSet<StorageId> {
        let storages = self.inner.standing.storages.lock().await;
        storages.iter().copied().collect()
    }

    /// All recordings, oldest first.
    #[must_use]
    pub fn recordings(&self) -> Vec<RecordingInfo> {
        self.inner.registry.infos()
    }

    /// A recording.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn recording(&self, id: Uuid) -> Result<RecordingInfo, RecordingError> {
        Ok(self.inner.registry.find(id)?.info())
    }

    /// Stops a recording and waits until all that it accepted is durable. A recording that is OFF
    /// already is removed from the list.
    ///
    /// # Errors
    /// When there is none with this id, its storage is not recovered yet, or the list cannot be
    /// saved.
    pub async fn stop(&self, id: Uuid) -> Result<RecordingInfo, RecordingError> {
        let registry = &self.inner.registry;
        let recording = registry.find(id)?;
        if recording.state() == RecordingState::Off {
            registry.forget(id).await?;
            return Ok(recording.info());
        }
        // Its task waits for the storage before it does anything else.
        let storages = registry.engine.storages();
        storages.check_recovered(recording.spec.storage)?;
        self.inner.standing.note_stop(&recording);
        recording.stop.send_if_modified(|reason| match reason {
            Some(_) => false,
            none => {
                *none = Some("stopped by request".to_owned());
                true
            }
        });
        // The task drops its receiver when all is done.
        recording.stop.closed().await;
        Ok(recording.info())
    }

    /// The contents of the buffer in numbers.
    #[must_use]
    pub fn buffer_status(&self) -> BufferStatus {
        self.inner.registry.shared.lock().buffer.status()
    }

    /// The packets of the buffer that `selection` cannot rule out, in the order of their arrival.
    #[must_use]
    pub fn buffered(&self, selection: &Selection) -> Vec<Arc<Packet>> {
        self.inner.registry.shared.lock().buffer.select(selection)
    }
}
