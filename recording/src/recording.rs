//! One recording: its spec, its state, and its inbox.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use storage_core::{BytePermit, Engine, PendingPush, StorageError};
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use crate::ConfigError;
use crate::packet::Packet;
use crate::processors::PacketQuery;
use crate::spec::{Counters, RecordingInfo, RecordingSpec, RecordingState};

/// Packets in the inbox of a recording.
const INBOX_MAX: usize = 64;
const NS: i64 = 1_000_000_000;

/// One recording.
pub(crate) struct Recording {
    pub(crate) id: Uuid,
    pub(crate) spec: RecordingSpec,
    pub(crate) created: i64,
    pub(crate) counters: Counters,
    pub(crate) stop: watch::Sender<Option<String>>,
    query: Option<PacketQuery>,
    life: Mutex<Life>,
}

struct Life {
    state: RecordingState,
    started: Option<i64>,
    ended: Option<i64>,
    reason: Option<String>,
    inbox: Option<mpsc::Sender<InboxPacket>>,
    /// Why packets are refused for now.
    suspension: Option<Suspension>,
    /// What the task begins with, once the trigger came or the server resumed the recording.
    intake: Option<Intake>,
}

/// Why a recording refuses packets for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Suspension {
    /// Less free space than the limit.
    DiskLow,
    /// A write found no space at this path, at this time in ns since the epoch.
    DiskFull(PathBuf, i64),
}

/// The packets of a recording: those of the buffer at its start, and the receiving end of the
/// inbox.
pub(crate) struct Intake {
    pub(crate) backlog: Vec<Arc<Packet>>,
    pub(crate) arriving: mpsc::Receiver<InboxPacket>,
}

/// A packet in the inbox of a recording.
pub(crate) struct InboxPacket {
    pub(crate) packet: Arc<Packet>,
    pub(crate) permit: BytePermit,
    /// Whether the agent waits until the packet is durable.
    pub(crate) waits: bool,
    /// `None` when the recording does not write any more.
    pub(crate) reply: oneshot::Sender<Result<Option<Vec<PendingPush>>, StorageError>>,
}

impl Recording {
    pub(crate) fn new(info: RecordingInfo) -> Result<Self, ConfigError> {
        let query = info.spec.trigger.as_ref();
        let query = query
            .map(|trigger| PacketQuery::new(&trigger.query))
            .transpose()?;
        // A recording that resumes accepts packets at once; they wait until its task is ready.
        let is_on = info.state == RecordingState::On;
        let (inbox, intake) = is_on
            .then(|| {
                let (inbox, arriving) = mpsc::channel(INBOX_MAX);
                let backlog = Vec::new();
                (inbox, Intake { backlog, arriving })
            })
            .unzip();
        Ok(Self {
            id: info.id,
            created: info.created,
            counters: Counters::of(info.counts),
            stop: watch::Sender::new(None),
            query,
            life: Mutex::new(Life {
                state: info.state,
                started: info.started,
                ended: info.ended,
                reason: info.reason,
                inbox,
                suspension: None,
                intake,
            }),
            spec: info.spec,
        })
    }

    pub(crate) fn info(&self) -> RecordingInfo {
        let life = self.life.lock();
        RecordingInfo {
            id: self.id,
            spec: self.spec.clone(),
            state: match life.suspension {
                Some(_) if life.state == RecordingState::On => RecordingState::Suspended,
                _ => life.state,
            },
            created: self.created,
            started: life.started,
            ended: life.ended,
            reason: life.reason.clone(),
            counts: self.counters.read(),
        }
    }

    pub(crate) fn state(&self) -> RecordingState {
        self.life.lock().state
    }

    /// Sets or removes the reason for which packets are refused; returns the one before.
    pub(crate) fn suspend(&self, suspension: Option<Suspension>) -> Option<Suspension> {
        std::mem::replace(&mut self.life.lock().suspension, suspension)
    }

    pub(crate) fn suspension(&self) -> Option<Suspension> {
        self.life.lock().suspension.clone()
    }

    /// Refuses while the recording is suspended, or has to be.
    pub(crate) fn check_disk(&self, engine: &Engine) -> Result<(), StorageError> {
        engine.check_disk()?;
        match self.suspension() {
            Some(Suspension::DiskFull(path, _)) => Err(StorageError::DiskFull { path }),
            // The disk has space again; the recording continues with its next tick.
            Some(Suspension::DiskLow) | None => Ok(()),
        }
    }

    /// Whether an event of the packet matches the trigger.
    pub(crate) fn is_started_by(&self, packet: &Packet) -> bool {
        let query = self.query.as_ref();
        query.is_some_and(|query| query.matches_packet(packet))
    }

    /// The earliest arrival of packets of the buffer that belong to the recording, when its trigger
    /// comes at `now`; `None` for all packets.
    pub(crate) fn since(&self, now: i64) -> Option<i64> {
        let seconds = self.spec.trigger.as_ref()?.before_seconds?;
        let before = i64::try_from(seconds)
            .unwrap_or(i64::MAX)
            .saturating_mul(NS);
        Some(now.saturating_sub(before))
    }

    /// Starts the recording by its trigger. Packets wait in the inbox until the task is ready.
    pub(crate) fn trigger(&self, backlog: Vec<Arc<Packet>>, now: i64) {
        let (inbox, arriving) = mpsc::channel(INBOX_MAX);
        let mut life = self.life.lock();
        life.inbox = Some(inbox);
        life.intake = Some(Intake { backlog, arriving });
        life.started = Some(now);
        // Wakes the task.
        self.stop.send_modify(|_| {});
    }

    /// Whether the recording waits for its trigger.
    pub(crate) fn is_armed(&self) -> bool {
        let life = self.life.lock();
        life.state == RecordingState::Scheduled && life.started.is_none() && self.query.is_some()
    }

    /// The inbox, while the recording accepts packets.
    pub(crate) fn inbox(&self) -> Option<mpsc::Sender<InboxPacket>> {
        self.life.lock().inbox.clone()
    }

    /// Whether the recording has packets, so that the task has to begin.
    pub(crate) fn is_triggered(&self) -> bool {
        self.life.lock().intake.is_some()
    }

    /// Sets the state ON. Packets go to the inbox from now on.
    pub(crate) fn begin(&self, now: i64) -> Intake {
        let mut life = self.life.lock();
        life.state = RecordingState::On;
        let started = *life.started.get_or_insert(now);
        if life.ended.is_none() {
            life.ended = self
                .spec
                .duration_seconds
                .map(|seconds| end_of(started, seconds));
        }
        life.intake.take().unwrap_or_else(|| {
            let (inbox, arriving) = mpsc::channel(INBOX_MAX);
            life.inbox = Some(inbox);
            Intake {
                backlog: Vec::new(),
                arriving,
            }
        })
    }

    /// Accepts no more packets.
    pub(crate) fn close(&self) {
        self.life.lock().inbox = None;
    }

    pub(crate) fn end(&self, now: i64, reason: String) {
        let mut life = self.life.lock();
        life.inbox = None;
        life.intake = None;
        life.suspension = None;
        life.state = RecordingState::Off;
        life.ended = Some(now);
        life.reason = Some(reason);
    }

    /// The times of the start and of the end, as far as they are known.
    pub(crate) fn times(&self) -> (Option<i64>, Option<i64>) {
        let life = self.life.lock();
        (life.started, life.ended)
    }
}

pub(crate) fn end_of(start: i64, seconds: u64) -> i64 {
    start.saturating_add(
        i64::try_from(seconds)
            .unwrap_or(i64::MAX)
            .saturating_mul(NS),
    )
}
