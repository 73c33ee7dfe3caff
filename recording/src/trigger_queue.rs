//! The queue of packets that may start a recording: while a recording waits for its trigger, a
//! task matches each packet against the queries, so that pushes do not wait for them.
//!
//! The queue is bounded; pushes wait when it is full. The buffer retains what it evicts while
//! packets are queued, so a recording begins with what the buffer contained when the packet arrived
//! that starts it, with that packet, and with all that arrived since.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::packet::Packet;
use crate::recording::Recording;
use crate::registry::{Registry, Shared};

/// Packets in the queue.
const PACKETS_MAX: usize = 1024;
/// The queue has 1/4 of the buffer's bytes, and at least 1 MiB.
const BUFFER_SHARE: usize = 4;
const BYTES_MIN: usize = 1 << 20;
/// Bytes are counted in units of this.
const UNIT: usize = 1024;
/// Packets of this size and larger are matched on a thread for blocking work, bytes.
const LONG_BYTES: usize = 128 << 10;

/// A packet to be matched.
pub(crate) struct QueuedPacket {
    pub(crate) packet: Arc<Packet>,
    /// Its number in the buffer.
    pub(crate) number: u64,
    /// The recordings that waited for a trigger when the packet arrived.
    pub(crate) armed: Vec<Arc<Recording>>,
}

/// A packet in the queue, and the bytes it takes there.
pub(crate) struct Queued {
    packet: QueuedPacket,
    _bytes: OwnedSemaphorePermit,
}

/// The sending end of the queue.
pub(crate) struct TriggerQueue {
    sender: mpsc::Sender<Queued>,
    bytes: Arc<Semaphore>,
    units_max: usize,
}

/// A reserved slot for one packet.
pub(crate) struct QueueSlot {
    slot: mpsc::OwnedPermit<Queued>,
    bytes: OwnedSemaphorePermit,
}

impl QueueSlot {
    /// Queues a packet. Packets are queued in the order in which they enter the buffer.
    pub(crate) fn fill(self, packet: QueuedPacket) {
        self.slot.send(Queued {
            packet,
            _bytes: self.bytes,
        });
    }
}

impl TriggerQueue {
    pub(crate) fn new(buffer_bytes_max: usize) -> (Self, mpsc::Receiver<Queued>) {
        let (sender, queued) = mpsc::channel(PACKETS_MAX);
        let units_max = (buffer_bytes_max / BUFFER_SHARE).max(BYTES_MIN) / UNIT;
        let queue = Self {
            sender,
            bytes: Arc::new(Semaphore::new(units_max)),
            units_max,
        };
        (queue, queued)
    }

    /// Waits for a slot while any recording waits for its trigger; `None` when none does. Packets
    /// that no such recording wants need a slot, too, for they may evict others from the buffer.
    pub(crate) async fn reserve(
        &self,
        packet: &Packet,
        shared: &Mutex<Shared>,
    ) -> Option<QueueSlot> {
        let is_any_armed = || {
            let shared = shared.lock();
            shared.recordings.iter().any(|each| each.is_armed())
        };
        if !is_any_armed() {
            return None;
        }
        let units = (packet.memory() / UNIT + 1).min(self.units_max);
        let bytes = Arc::clone(&self.bytes);
        // Neither is closed while the recorder exists.
        let bytes = bytes.acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX));
        let bytes = bytes.await.ok()?;
        let slot = self.sender.clone().reserve_owned().await.ok()?;
        Some(QueueSlot { slot, bytes })
    }
}

/// Matches the packets of the queue one after another, until the server stops.
pub(crate) async fn match_all(
    registry: Arc<Registry>,
    mut queued: mpsc::Receiver<Queued>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let next = tokio::select! {
            next = queued.recv() => next,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let Some(Queued { packet, _bytes }) = next else {
            return;
        };
        let (number, arrival) = (packet.number, packet.packet.arrival);
        let started = started_by(packet).await;
        let mut shared = registry.shared.lock();
        for recording in started {
            if recording.is_armed() {
                start(&recording, &shared, number, arrival);
            }
        }
        shared.buffer.release(number);
    }
}

/// The recordings whose trigger the packet matches.
async fn started_by(queued: QueuedPacket) -> Vec<Arc<Recording>> {
    let QueuedPacket { packet, armed, .. } = queued;
    let is_long = packet.payload.len() >= LONG_BYTES && !armed.is_empty();
    let find = move || {
        let is_started = |each: &Arc<Recording>| each.is_started_by(&packet);
        armed.into_iter().filter(is_started).collect()
    };
    if !is_long {
        return find();
    }
    tokio::task::spawn_blocking(find).await.unwrap_or_else(|_| {
        tracing::error!("matching a packet with the trigger of a recording failed; it is skipped");
        Vec::new()
    })
}

/// Starts a recording with what the buffer contained when the packet `number` arrived, and all
/// that arrived since.
fn start(recording: &Recording, shared: &Shared, number: u64, arrival: i64) {
    let since = recording.since(arrival);
    let mut backlog = shared.buffer.since_before(number);
    backlog.retain(|packet| {
        recording.spec.wants(packet) && since.is_none_or(|since| packet.arrival >= since)
    });
    recording.trigger(backlog, arrival);
}
