//! The spec of a recording, its state, and its form in the API and on disk.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use storage_format::{AgentId, StorageId};
use uuid::Uuid;

use crate::ConfigError;
use crate::config::{ProcessorConfig, check_chain, default_chain};
use crate::packet::Packet;
use crate::processors::PacketQuery;

/// Agents in one spec.
const AGENTS_MAX: usize = 10_000;
/// Longest delay and duration: about 68 years, so that sums of them do not overflow.
const SECONDS_MAX: u64 = 1 << 31;

/// The instruction to record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordingSpec {
    /// The storage to fill.
    pub storage: StorageId,
    /// Only packets of these agents; empty for all.
    #[serde(default)]
    pub agents: Vec<AgentId>,
    /// The chain.
    #[serde(default = "default_chain")]
    pub processors: Vec<ProcessorConfig>,
    /// Delay of the start, seconds.
    #[serde(default)]
    pub delay_seconds: u64,
    /// Duration, seconds; without one the recording runs until it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<u64>,
    /// Whether the storage is finalized at the end.
    #[serde(default)]
    pub auto_finalize: bool,
    /// Starts with an event instead of at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Whether the server began it by itself; see `StandingConfig`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standing: bool,
}

/// What starts a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// The first event that matches this starts the recording.
    pub query: String,
    /// Packets of the buffer that arrived at most this long before are recorded, too, seconds;
    /// without it all packets of the buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_seconds: Option<u64>,
}

impl RecordingSpec {
    /// Checks the spec.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_chain(&self.processors)?;
        if self.agents.len() > AGENTS_MAX {
            let problem = format!("must be at most {AGENTS_MAX} agents");
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
                    format!("must be at most {SECONDS_MAX}"),
                ));
            }
        }
        if self.duration_seconds == Some(0) {
            let problem = "must be at least 1".to_owned();
            return Err(ConfigError::new("duration_seconds", problem));
        }
        if self.trigger.is_some() && self.delay_seconds > 0 {
            let problem = "cannot be combined with trigger".to_owned();
            return Err(ConfigError::new("delay_seconds", problem));
        }
        match &self.trigger {
            Some(trigger) => PacketQuery::new(&trigger.query).map(drop),
            None => Ok(()),
        }
    }

    /// Whether the recording includes this packet; the standing recording includes only spans.
    #[must_use]
    pub fn wants(&self, packet: &Packet) -> bool {
        (self.agents.is_empty() || self.agents.contains(&packet.agent))
            && (!self.standing || packet.is_spans())
    }
}

/// The state of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RecordingState {
    /// It waits for its start or its trigger.
    Scheduled,
    /// It records.
    On,
    /// It is on, but refuses packets until there is space on the disk. Only in the API: in the
    /// file it is ON.
    Suspended,
    /// It has ended.
    Off,
}

/// What a recording accepted and wrote since the server started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordingCounts {
    /// Packets that it accepted.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets written as they arrived, or a part of them.
    pub written_packets: u64,
    /// Packets of clones, extracted spans, exceptions and aggregates written.
    pub derived_packets: u64,
    /// Their bytes.
    pub derived_bytes: u64,
    /// Of these, refused by the storage.
    pub derived_refused: u64,
    /// Packets of spans that could be decoded only in part.
    pub undecoded: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
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

impl Counters {
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

/// A recording in the API and in the file of recordings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordingInfo {
    /// Its id.
    pub id: Uuid,
    /// Its spec.
    #[serde(flatten)]
    pub spec: RecordingSpec,
    /// Its state.
    pub state: RecordingState,
    /// When it was created, ns since the epoch.
    pub created: i64,
    /// When it starts or started, ns since the epoch; unknown before its trigger.
    pub started: Option<i64>,
    /// When it will end or ended, ns since the epoch.
    pub ended: Option<i64>,
    /// Why it ended, or why its storage was not finalized.
    pub reason: Option<String>,
    /// What it accepted and wrote.
    pub counts: RecordingCounts,
}

/// The file of recordings.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecordingsFile {
    pub(crate) version: u32,
    pub(crate) recordings: Vec<RecordingInfo>,
}

/// The current version of [`RecordingsFile`].
pub(crate) const RECORDINGS_VERSION: u32 = 1;
