//! All recordings and the buffer: where packets come in, and who wants them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use storage_core::{BytePermit, Engine, NewPacket, PendingPush, Push, Selection, StorageError};
use storage_format::{AgentId, StorageId, StreamId, StreamPosition};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::buffer::{Buffer, BufferStatus};
use crate::clock;
use crate::front::Front;
use crate::invocation::Waiting;
use crate::packet::Packet;
use crate::recording::{Arriving, Recording, end_of};
use crate::spec::{
    KEPT_VERSION, Kept, RecordingCounts, RecordingInfo, RecordingSpec, RecordingState,
};
use crate::triggers::{Look, LookRoom, Looks, look_at_all};
use crate::{ConfigError, RecordingError};

/// Bounds of all recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecorderConfig {
    /// Memory of the buffer, bytes.
    pub buffer_bytes_max: usize,
    /// Recordings that are not OFF.
    pub recordings_max: usize,
    /// Memory of spans that wait to be put together, a recording, bytes.
    pub waiting_bytes_max: usize,
    /// How long spans wait for others of their trace, ns.
    pub quiet_ns: i64,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        let waiting = Waiting::default();
        Self {
            buffer_bytes_max: 64 << 20,
            recordings_max: 16,
            waiting_bytes_max: waiting.bytes_max,
            quiet_ns: waiting.quiet_ns,
        }
    }
}

/// Recordings that ended and are still listed.
const ENDED_MAX: usize = 100;
/// The document in the data folder that describes the recordings.
const RECORDINGS_FILE: &str = "recordings.json";
/// Streams whose place is remembered.
const STREAMS_MAX: usize = 65_536;

/// The buffer and all recordings. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct Recorder {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) config: RecorderConfig,
    pub(crate) shared: Mutex<Shared>,
    pub(crate) looks: Looks,
    streams: Mutex<Fronts>,
    /// One writing of the file at a time.
    keeping: tokio::sync::Mutex<()>,
    tasks: Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
}

/// What a packet meets in one step: so that none falls between the buffer and a recording that
/// begins with what the buffer holds.
pub(crate) struct Shared {
    pub(crate) buffer: Buffer,
    /// All, in the order in which they were asked for.
    pub(crate) recordings: Vec<Arc<Recording>>,
}

type Fronts = HashMap<(AgentId, StreamId), Arc<tokio::sync::Mutex<Front>>>;

/// A recording that wants a packet.
struct Wanting {
    storage: StorageId,
    inbox: mpsc::Sender<Arriving>,
    permit: BytePermit,
}

/// A packet that a recording took, on its way to the disk.
#[derive(Debug)]
pub struct Recorded {
    /// The storage it goes to.
    pub storage: StorageId,
    /// Resolves when it is durable.
    pub pending: PendingPush,
    /// The packet came before: a storage that does not have it did not want it then.
    pub is_repeat: bool,
}

impl Recorder {
    /// Takes up the recordings that were kept: one that was on goes on, a scheduled one keeps its
    /// time.
    ///
    /// # Errors
    /// When the file of recordings cannot be read or understood.
    pub async fn start(engine: &Engine, config: RecorderConfig) -> Result<Self, RecordingError> {
        let (looks, in_line) = Looks::new(config.buffer_bytes_max);
        let recorder = Self {
            inner: Arc::new(Inner {
                engine: engine.clone(),
                config,
                looks,
                shared: Mutex::new(Shared {
                    buffer: Buffer::new(config.buffer_bytes_max),
                    recordings: Vec::new(),
                }),
                streams: Mutex::default(),
                keeping: tokio::sync::Mutex::default(),
                tasks: Mutex::default(),
                stopping: watch::Sender::new(false),
            }),
        };
        if let Some(text) = engine.documents().read(RECORDINGS_FILE).await? {
            let wrong = |problem: String| ConfigError::new("recordings.json", problem);
            let kept: Kept =
                serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
            if kept.version != KEPT_VERSION {
                let problem = format!("has version {}, this server reads 1", kept.version);
                return Err(wrong(problem).into());
            }
            for info in kept.recordings {
                recorder.adopt(info)?;
            }
        }
        let stopping = recorder.inner.stopping.subscribe();
        let looking = look_at_all(recorder.clone(), in_line, stopping);
        recorder.inner.tasks.lock().spawn(looking);
        Ok(recorder)
    }

    /// How long and in how much memory spans wait for others of their trace.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting {
            bytes_max: self.inner.config.waiting_bytes_max,
            quiet_ns: self.inner.config.quiet_ns,
            ..Waiting::default()
        }
    }

    fn adopt(&self, info: RecordingInfo) -> Result<(), ConfigError> {
        let recording = Arc::new(Recording::new(info)?);
        self.inner
            .shared
            .lock()
            .recordings
            .push(Arc::clone(&recording));
        if recording.state() != RecordingState::Off {
            self.spawn(recording);
        }
        Ok(())
    }

    fn spawn(&self, recording: Arc<Recording>) {
        let mut tasks = self.inner.tasks.lock();
        while tasks.try_join_next().is_some() {}
        let stopping = self.inner.stopping.subscribe();
        tasks.spawn(crate::task::live(self.clone(), recording, stopping));
    }

    /// Ends every task: what they hold is written, and they go on after the next start.
    pub async fn shutdown(&self) {
        self.inner.stopping.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.inner.tasks.lock());
        while tasks.join_next().await.is_some() {}
        self.keep_or_log().await;
    }

    /// Starts a recording, or schedules one.
    ///
    /// # Errors
    /// When it could not run, the storage is none that can be filled, or another recording fills
    /// it.
    pub async fn record(&self, spec: RecordingSpec) -> Result<RecordingInfo, RecordingError> {
        use storage_format::storage_file::StorageState;
        spec.check()?;
        let storage = self.inner.engine.storages().get(spec.storage)?;
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
        self.enter(&recording)?;
        if let Err(error) = self.keep().await {
            self.forget(recording.id);
            return Err(error.into());
        }
        self.spawn(Arc::clone(&recording));
        Ok(recording.info())
    }

    /// Puts a recording on the list, if there is room for it and its storage is free.
    fn enter(&self, recording: &Arc<Recording>) -> Result<(), RecordingError> {
        let mut shared = self.inner.shared.lock();
        let list = &mut shared.recordings;
        let active = list
            .iter()
            .filter(|each| each.state() != RecordingState::Off);
        let max = self.inner.config.recordings_max;
        if active.clone().count() >= max {
            return Err(RecordingError::TooMany { max });
        }
        let storage = recording.spec.storage;
        if let Some(other) = active.clone().find(|each| each.spec.storage == storage) {
            return Err(RecordingError::StorageTaken(other.id));
        }
        let ended = list
            .iter()
            .filter(|each| each.state() == RecordingState::Off)
            .count();
        if ended >= ENDED_MAX
            && let Some(at) = list
                .iter()
                .position(|each| each.state() == RecordingState::Off)
        {
            list.remove(at);
        }
        list.push(Arc::clone(recording));
        Ok(())
    }

    fn forget(&self, id: Uuid) {
        self.inner
            .shared
            .lock()
            .recordings
            .retain(|each| each.id != id);
    }

    /// All recordings, oldest first.
    #[must_use]
    pub fn recordings(&self) -> Vec<RecordingInfo> {
        let shared = self.inner.shared.lock();
        shared.recordings.iter().map(|each| each.info()).collect()
    }

    fn find(&self, id: Uuid) -> Result<Arc<Recording>, RecordingError> {
        let shared = self.inner.shared.lock();
        let found = shared.recordings.iter().find(|each| each.id == id);
        found.cloned().ok_or(RecordingError::NotFound(id))
    }

    /// A recording.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn recording(&self, id: Uuid) -> Result<RecordingInfo, RecordingError> {
        Ok(self.find(id)?.info())
    }

    /// Stops a recording and waits for its end: all it took is durable then. One that ended before
    /// is taken off the list.
    ///
    /// # Errors
    /// When there is none with this id, or the list cannot be kept.
    pub async fn stop(&self, id: Uuid) -> Result<RecordingInfo, RecordingError> {
        let recording = self.find(id)?;
        if recording.state() == RecordingState::Off {
            self.forget(id);
            self.keep().await?;
            return Ok(recording.info());
        }
        recording.stop.send_if_modified(|reason| match reason {
            Some(_) => false,
            none => {
                *none = Some("stopped as asked".to_owned());
                true
            }
        });
        // The task lets go of its receiver when all is done.
        recording.stop.closed().await;
        Ok(recording.info())
    }

    /// Writes the list of recordings.
    pub(crate) async fn keep(&self) -> Result<(), StorageError> {
        let _keeping = self.inner.keeping.lock().await;
        let kept = Kept {
            version: KEPT_VERSION,
            recordings: self.recordings(),
        };
        let text = serde_json::to_vec(&kept).map_err(|error| StorageError::Invalid {
            what: "recordings",
            problem: error.to_string(),
        })?;
        let documents = self.inner.engine.documents();
        documents.write(RECORDINGS_FILE, text.into()).await
    }

    pub(crate) async fn keep_or_log(&self) {
        if let Err(error) = self.keep().await {
            tracing::error!(%error, "the list of recordings cannot be kept");
        }
    }

    /// Takes a packet into the buffer, and gives it to the recordings that want it. Gives back what
    /// is on its way to their storages; nothing when no recording wrote the packet as it came, and
    /// nothing when its agent does not wait (`waits`), so that it may be dropped.
    ///
    /// # Errors
    /// When there is no room, a storage refused, or the packet came behind a gap; then it has to be
    /// sent again, and what took it before tells it from a new one by its position.
    pub async fn push(
        &self,
        packet: Packet,
        permit: BytePermit,
        waits: bool,
    ) -> Result<Vec<Recorded>, RecordingError> {
        match packet.position {
            None => self.hand_out(packet, permit, (waits, &[])).await,
            Some(position) => {
                let front = self.front(&packet);
                let mut front = front.lock().await;
                if front.is_there(position)? {
                    drop(front);
                    return self.repeat(&packet).await;
                }
                let there = self.there_before(&mut front, &packet, position).await?;
                let recorded = self.hand_out(packet, permit, (waits, &there)).await?;
                front.next = Some(position.next());
                Ok(recorded)
            }
        }
    }

    /// Asks the storages that are being filled for the receipts of a packet that came before. It
    /// goes through no chain again.
    async fn repeat(&self, packet: &Packet) -> Result<Vec<Recorded>, RecordingError> {
        self.repeat_in(&self.filled(), packet).await
    }

    async fn repeat_in(
        &self,
        storages: &[StorageId],
        packet: &Packet,
    ) -> Result<Vec<Recorded>, RecordingError> {
        let engine = &self.inner.engine;
        let position = packet.position.unwrap_or_default();
        let mut recorded = Vec::new();
        for &storage in storages {
            let payload = packet.payload.clone();
            let push = Push {
                agent: packet.agent.clone(),
                stream: packet.stream.clone(),
                packets: vec![NewPacket::new(position, payload, packet.facts)],
                permit: engine.budget().nothing(),
            };
            recorded.push(Recorded {
                storage,
                pending: engine.ingest().submit_repeat(storage, push).await?,
                is_repeat: true,
            });
        }
        Ok(recorded)
    }

    /// The storages that had this packet before the server started, or did not want it then. It
    /// goes through no chain of theirs again.
    async fn there_before(
        &self,
        front: &mut Front,
        packet: &Packet,
        position: StreamPosition,
    ) -> Result<Vec<StorageId>, RecordingError> {
        if front.is_unknown() {
            let mut before = Vec::new();
            for storage in self.filled() {
                let engine = &self.inner.engine;
                let next = engine
                    .ingest()
                    .next_position(storage, &packet.agent, &packet.stream);
                let next = next.await?;
                before.push((storage, next));
            }
            front.before = Some(before);
        }
        Ok(front.there_before(position))
    }

    fn front(&self, packet: &Packet) -> Arc<tokio::sync::Mutex<Front>> {
        let mut streams = self.inner.streams.lock();
        if streams.len() >= STREAMS_MAX {
            // Whose place is forgotten goes on wherever it sends next.
            streams.retain(|_, front| Arc::strong_count(front) > 1);
        }
        let key = (packet.agent.clone(), packet.stream.clone());
        Arc::clone(streams.entry(key).or_default())
    }

    /// A packet that was handed out could not be made durable: its stream goes on with it.
    pub async fn refused(&self, agent: &AgentId, stream: &StreamId, position: StreamPosition) {
        let key = (agent.clone(), stream.clone());
        let front = self.inner.streams.lock().get(&key).cloned();
        if let Some(front) = front {
            let mut front = front.lock().await;
            if front.next.is_some_and(|next| position < next) {
                front.next = Some(position);
            }
        }
    }

    /// Where a stream goes on: behind what came since the start, or else behind what the storages
    /// that are being filled have of it.
    ///
    /// # Errors
    /// When there is no such agent or stream, or a storage cannot be read.
    pub async fn next_position(
        &self,
        agent: &AgentId,
        stream: &StreamId,
    ) -> Result<StreamPosition, RecordingError> {
        let engine = &self.inner.engine;
        if engine.agents().get(agent)?.stream(stream).is_none() {
            return Err(StorageError::StreamNotFound {
                agent: agent.clone(),
                stream: stream.clone(),
            }
            .into());
        }
        let key = (agent.clone(), stream.clone());
        let front = self.inner.streams.lock().get(&key).cloned();
        if let Some(front) = front
            && let Some(next) = front.lock().await.next
        {
            return Ok(next);
        }
        let mut next = StreamPosition::default();
        for storage in self.filled() {
            next = next.max(
                engine
                    .ingest()
                    .next_position(storage, agent, stream)
                    .await?,
            );
        }
        Ok(next)
    }

    /// The storages that are being filled.
    fn filled(&self) -> Vec<StorageId> {
        let shared = self.inner.shared.lock();
        let on = (shared.recordings.iter()).filter(|each| each.inbox().is_some());
        on.map(|each| each.spec.storage).collect()
    }

    async fn hand_out(
        &self,
        packet: Packet,
        permit: BytePermit,
        (waits, there): (bool, &[StorageId]),
    ) -> Result<Vec<Recorded>, RecordingError> {
        let packet = Arc::new(packet);
        let look = self.inner.looks.room_for(&packet, &self.inner.shared).await;
        let wanting = self.meet(&packet, permit, look, there)?;
        let mut recorded = match there {
            [] => Vec::new(),
            there => self.repeat_in(there, &packet).await?,
        };
        let mut waiting = Vec::with_capacity(wanting.len());
        for Wanting {
            storage,
            inbox,
            permit,
        } in wanting
        {
            let (reply, answer) = oneshot::channel();
            let arriving = Arriving {
                packet: Arc::clone(&packet),
                permit,
                waits,
                reply,
            };
            // A recording that ended meanwhile does not want it any more.
            if inbox.send(arriving).await.is_ok() {
                waiting.push((storage, answer));
            }
        }
        let mut refused = None;
        for (storage, answer) in waiting {
            match answer.await {
                Ok(Ok(pending)) => recorded.extend((pending.into_iter()).map(|pending| Recorded {
                    storage,
                    pending,
                    is_repeat: false,
                })),
                Ok(Err(error)) => refused = Some(error),
                Err(_) => refused = Some(StorageError::Stopping),
            }
        }
        match refused {
            Some(error) => Err(error.into()),
            None => Ok(recorded),
        }
    }

    /// Puts the packet into the buffer, and in line for triggers; gives the ways to the recordings
    /// that want it, each with room for the packet. Nothing has changed when there is no room.
    fn meet(
        &self,
        packet: &Arc<Packet>,
        permit: BytePermit,
        look: Option<LookRoom>,
        there: &[StorageId],
    ) -> Result<Vec<Wanting>, RecordingError> {
        let budget = self.inner.engine.budget();
        let bytes = packet.payload.len() as u64;
        let mut permits = vec![permit];
        let mut shared = self.inner.shared.lock();
        let Shared { buffer, recordings } = &mut *shared;
        let wants = |each: &&Arc<Recording>| each.spec.wants(&packet.agent);
        let is_there = |each: &&Arc<Recording>| there.contains(&each.spec.storage);
        let wanting = recordings.iter().filter(wants);
        let ways: Vec<_> = (wanting.filter(|each| !is_there(each)))
            .filter_map(|each| Some((each.spec.storage, each.inbox()?)))
            .collect();
        for _ in 1..ways.len() {
            let more = budget.try_grow(bytes);
            permits.push(more.inspect_err(|_| budget.count_refusal())?);
        }
        let number = buffer.insert(packet, look.is_some());
        if let Some(room) = look {
            let armed = recordings
                .iter()
                .filter(wants)
                .filter(|each| each.is_armed());
            room.look(Look {
                packet: Arc::clone(packet),
                number,
                armed: armed.cloned().collect(),
            });
        }
        let ways = ways.into_iter().zip(permits);
        Ok(ways
            .map(|((storage, inbox), permit)| Wanting {
                storage,
                inbox,
                permit,
            })
            .collect())
    }

    /// What the buffer holds.
    #[must_use]
    pub fn buffer_status(&self) -> BufferStatus {
        self.inner.shared.lock().buffer.status()
    }

    /// The packets of the buffer that `selection` cannot rule out, in the order of their arrival.
    #[must_use]
    pub fn buffered(&self, selection: &Selection) -> Vec<Arc<Packet>> {
        self.inner.shared.lock().buffer.select(selection)
    }
}
