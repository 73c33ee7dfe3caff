//! One recording: what it was told, where it is in its life, and the way into it.

use std::sync::Arc;

use parking_lot::Mutex;
use storage_core::{BytePermit, PendingPush, StorageError};
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use crate::ConfigError;
use crate::packet::Packet;
use crate::processors::PacketQuery;
use crate::spec::{Counting, RecordingInfo, RecordingSpec, RecordingState};

/// Packets that may wait for one recording.
const INBOX_MAX: usize = 64;
const NS: i64 = 1_000_000_000;

/// One recording.
pub(crate) struct Recording {
    pub(crate) id: Uuid,
    pub(crate) spec: RecordingSpec,
    pub(crate) created: i64,
    pub(crate) counting: Counting,
    pub(crate) stop: watch::Sender<Option<String>>,
    query: Option<PacketQuery>,
    life: Mutex<Life>,
}

struct Life {
    state: RecordingState,
    started: Option<i64>,
    ended: Option<i64>,
    reason: Option<String>,
    inbox: Option<mpsc::Sender<Arriving>>,
    /// What the task begins with when the trigger came: what the buffer held, and the end of the
    /// inbox into which packets come already.
    pulled: Option<Pulled>,
}

/// See [`Life::pulled`].
pub(crate) struct Pulled {
    pub(crate) backlog: Vec<Arc<Packet>>,
    pub(crate) arriving: mpsc::Receiver<Arriving>,
}

/// A packet on its way to a recording.
pub(crate) struct Arriving {
    pub(crate) packet: Arc<Packet>,
    pub(crate) permit: BytePermit,
    /// Whether its agent waits until it is durable.
    pub(crate) waits: bool,
    pub(crate) reply: oneshot::Sender<Result<Vec<PendingPush>, StorageError>>,
}

impl Recording {
    pub(crate) fn new(info: RecordingInfo) -> Result<Self, ConfigError> {
        let query = info.spec.trigger.as_ref();
        let query = query
            .map(|trigger| PacketQuery::new(&trigger.query))
            .transpose()?;
        // One that was on takes packets from the first on; they wait until its task is ready.
        let is_on = info.state == RecordingState::On;
        let (inbox, pulled) = is_on
            .then(|| {
                let (inbox, arriving) = mpsc::channel(INBOX_MAX);
                let backlog = Vec::new();
                (inbox, Pulled { backlog, arriving })
            })
            .unzip();
        Ok(Self {
            id: info.id,
            created: info.created,
            counting: Counting::of(info.counts),
            stop: watch::Sender::new(None),
            query,
            life: Mutex::new(Life {
                state: info.state,
                started: info.started,
                ended: info.ended,
                reason: info.reason,
                inbox,
                pulled,
            }),
            spec: info.spec,
        })
    }

    pub(crate) fn info(&self) -> RecordingInfo {
        let life = self.life.lock();
        RecordingInfo {
            id: self.id,
            spec: self.spec.clone(),
            state: life.state,
            created: self.created,
            started: life.started,
            ended: life.ended,
            reason: life.reason.clone(),
            counts: self.counting.read(),
        }
    }

    pub(crate) fn state(&self) -> RecordingState {
        self.life.lock().state
    }

    /// Whether an event of the packet starts it.
    pub(crate) fn is_started_by(&self, packet: &Packet) -> bool {
        let query = self.query.as_ref();
        query.is_some_and(|query| query.matches_packet(packet))
    }

    /// From when on it takes what the buffer holds, when its trigger comes at `now`.
    pub(crate) fn since(&self, now: i64) -> Option<i64> {
        let seconds = self.spec.trigger.as_ref()?.before_seconds?;
        let before = i64::try_from(seconds)
            .unwrap_or(i64::MAX)
            .saturating_mul(NS);
        Some(now.saturating_sub(before))
    }

    /// The trigger came: packets wait in the inbox until the task is ready for them.
    pub(crate) fn pull(&self, backlog: Vec<Arc<Packet>>, now: i64) {
        let (inbox, arriving) = mpsc::channel(INBOX_MAX);
        let mut life = self.life.lock();
        life.inbox = Some(inbox);
        life.pulled = Some(Pulled { backlog, arriving });
        life.started = Some(now);
        // The task looks up.
        self.stop.send_modify(|_| {});
    }

    /// Whether it waits for an event.
    pub(crate) fn is_armed(&self) -> bool {
        let life = self.life.lock();
        life.state == RecordingState::Scheduled && life.started.is_none() && self.query.is_some()
    }

    /// The way to the task while it records.
    pub(crate) fn inbox(&self) -> Option<mpsc::Sender<Arriving>> {
        self.life.lock().inbox.clone()
    }

    /// Whether the trigger came.
    pub(crate) fn is_pulled(&self) -> bool {
        self.life.lock().pulled.is_some()
    }

    /// From now on packets go into the inbox, whose other end is given.
    pub(crate) fn begin(&self, now: i64) -> Pulled {
        let mut life = self.life.lock();
        life.state = RecordingState::On;
        let started = *life.started.get_or_insert(now);
        if life.ended.is_none() {
            life.ended = self
                .spec
                .duration_seconds
                .map(|seconds| end_of(started, seconds));
        }
        life.pulled.take().unwrap_or_else(|| {
            let (inbox, arriving) = mpsc::channel(INBOX_MAX);
            life.inbox = Some(inbox);
            Pulled {
                backlog: Vec::new(),
                arriving,
            }
        })
    }

    /// From now on no packet comes.
    pub(crate) fn close(&self) {
        self.life.lock().inbox = None;
    }

    pub(crate) fn end(&self, now: i64, reason: String) {
        let mut life = self.life.lock();
        life.inbox = None;
        life.pulled = None;
        life.state = RecordingState::Off;
        life.ended = Some(now);
        life.reason = Some(reason);
    }

    /// When it starts, and when it ends, as far as that is known.
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
