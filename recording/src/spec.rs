//! What a recording is told, what it is, and what is kept of it.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use storage_format::{AgentId, StorageId};
use uuid::Uuid;

use crate::ConfigError;
use crate::config::{ProcessorConfig, check_chain, default_chain};
use crate::processors::PacketQuery;

/// Agents that one recording may name.
const AGENTS_MAX: usize = 10_000;
/// Longest delay and duration: about 68 years, so that every sum of them is an instant.
const SECONDS_MAX: u64 = 1 << 31;

/// The instruction to record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordingSpec {
    /// The storage to fill.
    pub storage: StorageId,
    /// Only what comes from these; empty for all.
    #[serde(default)]
    pub agents: Vec<AgentId>,
    /// The chain.
    #[serde(default = "default_chain")]
    pub processors: Vec<ProcessorConfig>,
    /// Starts so long after it was asked for, seconds.
    #[serde(default)]
    pub delay_seconds: u64,
    /// Lasts so long; until it is stopped when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<u64>,
    /// Whether the storage is finalized at the end.
    #[serde(default)]
    pub auto_finalize: bool,
    /// Starts with an event instead of at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
}

/// What starts a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// An event that matches this starts it.
    pub query: String,
    /// What came so long before that packet is recorded too, as far as the buffer holds it;
    /// all that it holds when it is left out. Seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_seconds: Option<u64>,
}

impl RecordingSpec {
    /// Refuses what could not run.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_chain(&self.processors)?;
        if self.agents.len() > AGENTS_MAX {
            let problem = format!("are more than {AGENTS_MAX}");
            return Err(ConfigError::new("agents", problem));
        }
        let times = [
            ("delay_seconds", Some(self.delay_seconds)),
            ("duration_seconds", self.duration_seconds),
        ];
        for (what, seconds) in times {
            if seconds.is_some_and(|seconds| seconds > SECONDS_MAX) {
                return Err(ConfigError::new(
                    what,
                    format!("is more than {SECONDS_MAX}"),
                ));
            }
        }
        if self.duration_seconds == Some(0) {
            let problem = "a recording lasts at least 1 s".to_owned();
            return Err(ConfigError::new("duration_seconds", problem));
        }
        if self.trigger.is_some() && self.delay_seconds > 0 {
            let problem = "a recording with a trigger waits for that and nothing else".to_owned();
            return Err(ConfigError::new("delay_seconds", problem));
        }
        match &self.trigger {
            Some(trigger) => PacketQuery::new(&trigger.query).map(drop),
            None => Ok(()),
        }
    }

    /// Whether packets of this agent are wanted.
    #[must_use]
    pub fn wants(&self, agent: &AgentId) -> bool {
        self.agents.is_empty() || self.agents.contains(agent)
    }
}

/// Where a recording is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RecordingState {
    /// It waits for its time or its trigger.
    Scheduled,
    /// It records.
    On,
    /// It ended.
    Off,
}

/// What a recording took and wrote since the server started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordingCounts {
    /// Packets that came to it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets written as they came, or a part of them.
    pub written_packets: u64,
    /// Packets of clones, extracted spans, exceptions and aggregates written.
    pub derived_packets: u64,
    /// Their bytes.
    pub derived_bytes: u64,
    /// Of these, refused by the storage.
    pub derived_refused: u64,
    /// Packets of spans that could not be decoded to their end.
    pub undecoded: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) written_packets: AtomicU64,
    pub(crate) derived_packets: AtomicU64,
    pub(crate) derived_bytes: AtomicU64,
    pub(crate) derived_refused: AtomicU64,
    pub(crate) undecoded: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counting {
    pub(crate) fn of(counts: RecordingCounts) -> Self {
        Self {
            packets: counts.packets.into(),
            bytes: counts.bytes.into(),
            written_packets: counts.written_packets.into(),
            derived_packets: counts.derived_packets.into(),
            derived_bytes: counts.derived_bytes.into(),
            derived_refused: counts.derived_refused.into(),
            undecoded: counts.undecoded.into(),
        }
    }

    pub(crate) fn read(&self) -> RecordingCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RecordingCounts {
            packets: read(&self.packets),
            bytes: read(&self.bytes),
            written_packets: read(&self.written_packets),
            derived_packets: read(&self.derived_packets),
            derived_bytes: read(&self.derived_bytes),
            derived_refused: read(&self.derived_refused),
            undecoded: read(&self.undecoded),
        }
    }
}

/// A recording as it is now, and as it is kept over a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordingInfo {
    /// Its id.
    pub id: Uuid,
    /// What it was told.
    #[serde(flatten)]
    pub spec: RecordingSpec,
    /// Where it is in its life.
    pub state: RecordingState,
    /// When it was asked for, ns since the epoch.
    pub created: i64,
    /// When it starts or started; not known before its trigger. Ns since the epoch.
    pub started: Option<i64>,
    /// When it will end or ended. Ns since the epoch.
    pub ended: Option<i64>,
    /// Why it ended, or why it could not finalize its storage.
    pub reason: Option<String>,
    /// What it took and wrote.
    pub counts: RecordingCounts,
}

/// The file of recordings.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecordingsFile {
    pub(crate) version: u32,
    pub(crate) recordings: Vec<RecordingInfo>,
}

/// The version of [`RecordingsFile`] that is written.
pub(crate) const RECORDINGS_VERSION: u32 = 1;
