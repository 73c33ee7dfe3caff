//! The buffer and the list of recordings, which the API, the tasks and the triggers share.

use std::sync::Arc;

use parking_lot::Mutex;
use storage_core::{Engine, StorageError};
use storage_format::StorageId;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::RecordingError;
use crate::buffer::Buffer;
use crate::chain::Chain;
use crate::config::ProcessorConfig;
use crate::error::ConfigError;
use crate::invocation::Waiting;
use crate::memory::ChainMemory;
use crate::recording::Recording;
use crate::spec::{RECORDINGS_VERSION, RecordingInfo, RecordingState, RecordingsFile};
use crate::standing_config::StandingConfig;

/// Chains that work on long packets at the same time. Each takes several times the packet, and the
/// allocator keeps some of it for each thread that ever worked.
const WORKING_MAX: usize = 4;

/// The document in the data folder that contains the recordings.
const RECORDINGS_FILE: &str = "recordings.json";
/// Recordings in state OFF that stay on the list.
const OFF_MAX: usize = 100;

/// Bounds of all recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecorderConfig {
    /// Memory of the buffer, bytes.
    pub buffer_bytes_max: usize,
    /// Recordings that are not OFF.
    pub recordings_max: usize,
    /// Memory of what all chains collect, and of derived packets that are not durable yet, bytes.
    pub waiting_bytes_max: usize,
    /// How long spans wait for others of their trace, ns.
    pub quiet_ns: i64,
    /// The standing recording, unless it is off.
    pub standing: Option<StandingConfig>,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        let waiting = Waiting::default();
        Self {
            buffer_bytes_max: 64 << 20,
            recordings_max: 16,
            waiting_bytes_max: waiting.bytes_max,
            quiet_ns: waiting.quiet_ns,
            standing: Some(StandingConfig::default()),
        }
    }
}

/// See [`Shared`].
pub(crate) struct Registry {
    pub(crate) engine: Engine,
    pub(crate) config: RecorderConfig,
    pub(crate) shared: Mutex<Shared>,
    /// The memory of all chains.
    pub(crate) chain_memory: Arc<ChainMemory>,
    /// Lets [`WORKING_MAX`] chains work on long packets at the same time.
    pub(crate) working: Arc<Semaphore>,
    /// Serializes writers of the file.
    saving: tokio::sync::Mutex<()>,
}

/// What changes in one step when a packet arrives, so that no packet is lost between the buffer
/// and a recording that begins with the contents of the buffer.
pub(crate) struct Shared {
    pub(crate) buffer: Buffer,
    /// All recordings, oldest first.
    pub(crate) recordings: Vec<Arc<Recording>>,
}

impl Registry {
    pub(crate) fn new(engine: &Engine, config: RecorderConfig) -> Self {
        Self {
            engine: engine.clone(),
            shared: Mutex::new(Shared {
                buffer: Buffer::new(config.buffer_bytes_max),
                recordings: Vec::new(),
            }),
            chain_memory: ChainMemory::new(config.waiting_bytes_max),
            working: Arc::new(Semaphore::new(WORKING_MAX)),
            config,
            saving: tokio::sync::Mutex::default(),
        }
    }

    /// How long and in how much memory spans wait for others of their trace.
    /// Compiles a chain, which shares the memory of all.
    pub(crate) fn chain(&self, processors: &[ProcessorConfig]) -> Result<Chain, ConfigError> {
        Ok(Chain::new(processors, self.waiting())?.within(&self.chain_memory))
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            bytes_max: self.config.waiting_bytes_max,
            quiet_ns: self.config.quiet_ns,
            ..Waiting::default()
        }
    }

    /// Reads the file of recordings and adds them all to the list. A damaged file is set aside: it
    /// must not prevent the server from starting.
    pub(crate) async fn load(&self) -> Result<Vec<Arc<Recording>>, RecordingError> {
        let documents = self.engine.documents();
        let text = match documents.read(RECORDINGS_FILE).await {
            Ok(None) => return Ok(Vec::new()),
            Ok(Some(text)) => Ok(text),
            Err(error) if error.is_loss() => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        let invalid = |problem: String| ConfigError::new(RECORDINGS_FILE, problem);
        let parse =
            |text: Vec<u8>| serde_json::from_slice(&text).map_err(|error| error.to_string());
        let file: RecordingsFile = match text.and_then(parse) {
            Ok(file) => file,
            Err(error) => {
                let path = documents.set_aside(RECORDINGS_FILE).await?;
                tracing::error!(
                    %error,
                    path = %path.display(),
                    "the list of recordings is damaged and was set aside; the server starts \
                     without recordings: repair the file and restart with it under its name, or \
                     start the recordings again; their storages can be finalized"
                );
                return Ok(Vec::new());
            }
        };
        if file.version != RECORDINGS_VERSION {
            let problem = format!(
                "has version {}, this server reads version {RECORDINGS_VERSION}",
                file.version
            );
            return Err(invalid(problem).into());
        }
        let recordings = file.recordings.into_iter();
        let recordings: Vec<Arc<Recording>> = recordings
            .map(|info| Recording::new(info).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let mut shared = self.shared.lock();
        shared.recordings.extend(recordings.iter().cloned());
        Ok(recordings)
    }

    /// Writes the file of recordings.
    pub(crate) async fn save(&self) -> Result<(), StorageError> {
        let _saving = self.saving.lock().await;
        self.write(self.infos()).await
    }

    /// Takes a recording off the list, in the file first: when that fails, it stays on the list.
    pub(crate) async fn forget(&self, id: Uuid) -> Result<(), StorageError> {
        let _saving = self.saving.lock().await;
        let mut left = self.infos();
        left.retain(|each| each.id != id);
        self.write(left).await?;
        self.remove(id);
        Ok(())
    }

    /// Writes these recordings to the file; the caller holds `saving`.
    async fn write(&self, mut recordings: Vec<RecordingInfo>) -> Result<(), StorageError> {
        for recording in &mut recordings {
            if recording.state == RecordingState::Suspended {
                recording.state = RecordingState::On;
            }
        }
        let file = RecordingsFile {
            version: RECORDINGS_VERSION,
            recordings,
        };
        let text = serde_json::to_vec(&file).map_err(|error| StorageError::Invalid {
            what: "recordings",
            problem: error.to_string(),
        })?;
        let documents = self.engine.documents();
        storage_core::fault_point!(async "recordings.saving");
        documents.write(RECORDINGS_FILE, text.into()).await?;
        storage_core::fault_point!(async "recordings.saved");
        Ok(())
    }

    pub(crate) async fn save_or_log(&self) {
        if let Err(error) = self.save().await {
            tracing::error!(
                %error,
                "the list of recordings was not saved; changes since the last save are lost if the \
                 server ends now"
            );
        }
    }

    /// Adds a recording, if there are not too many and no other one fills its storage.
    pub(crate) fn add(&self, recording: &Arc<Recording>) -> Result<(), RecordingError> {
        let mut shared = self.shared.lock();
        let list = &mut shared.recordings;
        let is_off = |each: &Arc<Recording>| each.state() == RecordingState::Off;
        let active = list.iter().filter(|each| !is_off(each));
        let max = self.config.recordings_max;
        let requested = active.clone().filter(|each| !each.spec.standing).count();
        if requested >= max && !recording.spec.standing {
            return Err(RecordingError::TooMany { max });
        }
        let storage = recording.spec.storage;
        if let Some(other) = active.clone().find(|each| each.spec.storage == storage) {
            return Err(RecordingError::StorageTaken(other.id));
        }
        if list.iter().filter(|each| is_off(each)).count() >= OFF_MAX
            && let Some(oldest) = list.iter().position(is_off)
        {
            list.remove(oldest);
        }
        list.push(Arc::clone(recording));
        Ok(())
    }

    /// Takes a recording off the list.
    pub(crate) fn remove(&self, id: Uuid) {
        self.shared.lock().recordings.retain(|each| each.id != id);
    }

    pub(crate) fn find(&self, id: Uuid) -> Result<Arc<Recording>, RecordingError> {
        let shared = self.shared.lock();
        let found = shared.recordings.iter().find(|each| each.id == id);
        found.cloned().ok_or(RecordingError::NotFound(id))
    }

    /// All recordings, oldest first.
    pub(crate) fn infos(&self) -> Vec<RecordingInfo> {
        let shared = self.shared.lock();
        shared.recordings.iter().map(|each| each.info()).collect()
    }

    /// Refuses packets while a storage that is being filled is not recovered.
    pub(crate) fn check_recovered(&self) -> Result<(), StorageError> {
        let storages = self.engine.storages();
        let mut filled = self.filled_storages().into_iter();
        filled.try_for_each(|storage| storages.check_recovered(storage))
    }

    /// The parts of the standing recording that have not ended.
    pub(crate) fn standing_recordings(&self) -> Vec<Arc<Recording>> {
        let shared = self.shared.lock();
        let is_standing =
            |each: &&Arc<Recording>| each.spec.standing && each.state() != RecordingState::Off;
        shared
            .recordings
            .iter()
            .filter(is_standing)
            .cloned()
            .collect()
    }

    /// The storages that are being filled.
    pub(crate) fn filled_storages(&self) -> Vec<StorageId> {
        let shared = self.shared.lock();
        let on = (shared.recordings.iter()).filter(|each| each.inbox().is_some());
        on.map(|each| each.spec.storage).collect()
    }
}
