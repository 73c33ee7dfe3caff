//! Triggers: each packet that comes while a recording waits for its event stands in line, and is
//! looked at by a task, so that the request that brought it does not wait for the query.
//!
//! The line is bounded: requests wait when it is full. What leaves the buffer meanwhile is held by
//! it, so a recording begins with what the buffer held when the packet came that starts it, with
//! that packet, and with all that came since.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::packet::Packet;
use crate::recorder::{Recorder, Shared};
use crate::recording::Recording;

/// Packets that may stand in line.
const LINE_MAX: usize = 1024;
/// Share of the buffer's bytes that may stand in line, and how many always may.
const LINE_SHARE: usize = 4;
const LINE_BYTES_MIN: usize = 1 << 20;
/// Bytes are counted in units of this.
const UNIT: usize = 1024;
/// Packets from this size on are looked at on a thread where that may take its time, bytes.
const LONG_BYTES: usize = 128 << 10;

/// A packet in line.
pub(crate) struct Look {
    pub(crate) packet: Arc<Packet>,
    /// Its number in the buffer.
    pub(crate) number: u64,
    /// The recordings that waited for an event when it came.
    pub(crate) armed: Vec<Arc<Recording>>,
}

/// A packet in line, and the room it takes there.
pub(crate) struct InLine {
    look: Look,
    _room: OwnedSemaphorePermit,
}

/// The way into the line.
pub(crate) struct Looks {
    line: mpsc::Sender<InLine>,
    bytes: Arc<Semaphore>,
    units_max: usize,
}

/// Room in line for one packet.
pub(crate) struct LookRoom {
    place: mpsc::OwnedPermit<InLine>,
    room: OwnedSemaphorePermit,
}

impl LookRoom {
    /// Puts a packet into line; in the order in which packets come into the buffer.
    pub(crate) fn look(self, look: Look) {
        self.place.send(InLine {
            look,
            _room: self.room,
        });
    }
}

impl Looks {
    pub(crate) fn new(buffer_bytes_max: usize) -> (Self, mpsc::Receiver<InLine>) {
        let (line, in_line) = mpsc::channel(LINE_MAX);
        let units_max = (buffer_bytes_max / LINE_SHARE).max(LINE_BYTES_MIN) / UNIT;
        let looks = Self {
            line,
            bytes: Arc::new(Semaphore::new(units_max)),
            units_max,
        };
        (looks, in_line)
    }

    /// Room for a packet, while a recording waits for an event. Packets that no such recording
    /// wants need it too, for they may drive others out of the buffer.
    pub(crate) async fn room_for(
        &self,
        packet: &Packet,
        shared: &Mutex<Shared>,
    ) -> Option<LookRoom> {
        let is_any_armed = || {
            let shared = shared.lock();
            shared.recordings.iter().any(|each| each.is_armed())
        };
        if !is_any_armed() {
            return None;
        }
        let units = (packet.memory() / UNIT + 1).min(self.units_max);
        let bytes = Arc::clone(&self.bytes);
        // Neither is ever closed while the recorder is there.
        let room = bytes.acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX));
        let room = room.await.ok()?;
        let place = self.line.clone().reserve_owned().await.ok()?;
        Some(LookRoom { place, room })
    }
}

/// Looks at the packets in line, one after the other, until the server stops.
pub(crate) async fn look_at_all(
    recorder: Recorder,
    mut in_line: mpsc::Receiver<InLine>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let next = tokio::select! {
            next = in_line.recv() => next,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let Some(InLine { look, _room }) = next else {
            return;
        };
        let (number, packet) = (look.number, Arc::clone(&look.packet));
        let started = starts(look).await;
        let mut shared = recorder.inner.shared.lock();
        for recording in started {
            if recording.is_armed() {
                pull(&recording, &shared, number, packet.arrival);
            }
        }
        shared.buffer.looked_at(number);
    }
}

/// The recordings that a packet starts.
async fn starts(look: Look) -> Vec<Arc<Recording>> {
    let Look { packet, armed, .. } = look;
    let is_long = packet.payload.len() >= LONG_BYTES && !armed.is_empty();
    let find = move || {
        let starts = |each: &Arc<Recording>| each.is_started_by(&packet);
        armed.into_iter().filter(starts).collect()
    };
    match is_long {
        false => find(),
        true => tokio::task::spawn_blocking(find).await.unwrap_or_else(|_| {
            tracing::error!("a query of a trigger failed");
            Vec::new()
        }),
    }
}

/// Starts a recording with what the buffer held when the packet `number` came, and all since.
fn pull(recording: &Recording, shared: &Shared, number: u64, arrival: i64) {
    let since = recording.since(arrival);
    let mut backlog = shared.buffer.since_before(number);
    backlog.retain(|packet| {
        recording.spec.wants(&packet.agent) && since.is_none_or(|since| packet.arrival >= since)
    });
    recording.pull(backlog, arrival);
}
