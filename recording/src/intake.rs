//! The way of a pushed packet: into the buffer, and to the recordings that want it.

use std::sync::Arc;

use storage_core::{BytePermit, NewPacket, PendingPush, Push, StorageError, packet_charge};
use storage_format::{AgentId, StorageId, StreamId, StreamPosition};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, oneshot};

use crate::RecordingError;
use crate::next_position::{HandedOut, NextPosition};
use crate::packet::Packet;
use crate::recorder::Recorder;
use crate::recording::{InboxPacket, Recording};
use crate::registry::Shared;
use crate::trigger_queue::{QueueSlot, QueuedPacket};

/// A packet that a recording accepted, on its way to the disk.
#[derive(Debug)]
pub struct Recorded {
    /// The storage that the packet is written to.
    pub storage: StorageId,
    /// Resolves when the packet is durable.
    pub pending: PendingPush,
    /// The packet arrived before; a storage that does not contain it did not want it then.
    pub is_duplicate: bool,
}

/// What became of a pushed packet.
#[derive(Debug, Default)]
pub struct Delivered {
    /// Its writes on their way to the disk.
    pub recorded: Vec<Recorded>,
    /// Why a recording refused it although others did not; of packets without a position only,
    /// because those with one are sent again.
    pub refused: Option<StorageError>,
    /// Whether a recording accepted it, or waits for its trigger with the buffer. Otherwise the
    /// packet is only in the buffer.
    pub is_accepted: bool,
    /// Of packets with a position: until it is acknowledged, or dropped.
    pub handed_out: Option<HandedOut>,
}

/// A recording that wants a packet, with the memory reserved for it.
struct Delivery {
    storage: StorageId,
    is_standing: bool,
    inbox: mpsc::Sender<InboxPacket>,
    permit: BytePermit,
}

impl Recorder {
    /// Puts a packet into the buffer and delivers it to the recordings that want it. Returns what
    /// is on its way to their storages: nothing when no recording wrote the packet as it came, and
    /// nothing when its agent does not wait (`waits`), so that the packet may be dropped.
    ///
    /// # Errors
    /// When there is no memory for it, a storage refused it, or it follows a gap. The agent then
    /// sends it again; storages that accepted it recognize it by its position. A packet without a
    /// position is refused only if no recording accepted it: it would be recorded twice.
    pub async fn push(
        &self,
        packet: Packet,
        permit: BytePermit,
        waits: bool,
    ) -> Result<Delivered, RecordingError> {
        self.ensure_standing(&packet).await?;
        let Some(position) = packet.position else {
            // With a position, they are queried for theirs.
            self.inner.registry.check_recovered()?;
            return self.deliver(packet, permit, (waits, &[])).await;
        };
        let stream = self.inner.positions.entry(&packet.agent, &packet.stream);
        let mut next = stream.next.lock().await;
        let is_duplicate = next.is_duplicate(position)?;
        let handed_out = Some(HandedOut::new(&stream, position));
        if is_duplicate {
            drop(next);
            let storages = self.inner.registry.filled_storages();
            return Ok(Delivered {
                recorded: self.push_again(&storages, &packet).await?,
                refused: None,
                is_accepted: true,
                handed_out,
            });
        }
        let past = self.storages_past(&mut next, &packet, position).await?;
        let mut delivered = self.deliver(packet, permit, (waits, &past)).await?;
        if let Some(error) = delivered.refused.take() {
            return Err(error.into());
        }
        next.next = Some(position.next());
        delivered.handed_out = handed_out;
        Ok(delivered)
    }

    /// Requests the receipts of a packet that `storages` may contain. It does not pass their
    /// chains again.
    async fn push_again(
        &self,
        storages: &[StorageId],
        packet: &Packet,
    ) -> Result<Vec<Recorded>, RecordingError> {
        let engine = &self.inner.registry.engine;
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
                is_duplicate: true,
            });
        }
        Ok(recorded)
    }

    /// The storages that contained this packet before the server started, or did not want it then.
    async fn storages_past(
        &self,
        next: &mut NextPosition,
        packet: &Packet,
        position: StreamPosition,
    ) -> Result<Vec<StorageId>, RecordingError> {
        if next.is_unknown() {
            let registry = &self.inner.registry;
            let mut before_start = Vec::new();
            for storage in registry.filled_storages() {
                let next =
                    registry
                        .engine
                        .ingest()
                        .next_position(storage, &packet.agent, &packet.stream);
                before_start.push((storage, next.await?));
            }
            next.before_start = Some(before_start);
        }
        Ok(next.storages_past(position))
    }

    /// Sets a stream back to a packet that was delivered and could not be made durable.
    pub async fn refused(&self, agent: &AgentId, stream: &StreamId, position: StreamPosition) {
        if let Some(stream) = self.inner.positions.get(agent, stream) {
            let mut next = stream.next.lock().await;
            if next.next.is_some_and(|next| position < next) {
                next.next = Some(position);
            }
        }
    }

    /// The next position of a stream: after what its agent has receipts for since the server
    /// started, or else after what the storages that are being filled contain. The latter comes
    /// with the storages and their positions, for who knows whether these are acknowledged.
    ///
    /// # Errors
    /// When there is no such agent or stream, or a storage cannot be read.
    pub async fn next_position(
        &self,
        agent: &AgentId,
        stream: &StreamId,
    ) -> Result<(StreamPosition, Vec<(StorageId, StreamPosition)>), RecordingError> {
        let registry = &self.inner.registry;
        let engine = &registry.engine;
        if engine.agents().get(agent)?.stream(stream).is_none() {
            return Err(StorageError::StreamNotFound {
                agent: agent.clone(),
                stream: stream.clone(),
            }
            .into());
        }
        if let Some(known) = self.inner.positions.get(agent, stream)
            && let Some(next) = known.acknowledged().await
        {
            return Ok((next, Vec::new()));
        }
        let mut stored = Vec::new();
        for storage in registry.filled_storages() {
            let next = engine.ingest().next_position(storage, agent, stream);
            stored.push((storage, next.await?));
        }
        let next = stored.iter().map(|(_, next)| *next).max();
        Ok((next.unwrap_or_default(), stored))
    }

    async fn deliver(
        &self,
        packet: Packet,
        permit: BytePermit,
        (waits, past): (bool, &[StorageId]),
    ) -> Result<Delivered, RecordingError> {
        let packet = Arc::new(packet);
        let inner = &self.inner;
        let shared = &inner.registry.shared;
        let slot = inner.trigger_queue.reserve(&packet, shared).await;
        let (deliveries, is_awaited) = self.route(&packet, permit, slot, past)?;
        let mut recorded = self.push_again(past, &packet).await?;
        let mut is_accepted = is_awaited || !past.is_empty();
        let mut replies = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let (reply, answer) = oneshot::channel();
            let message = InboxPacket {
                packet: Arc::clone(&packet),
                permit: delivery.permit,
                waits,
                reply,
            };
            let sent = match delivery.inbox.send(message).await {
                Ok(()) => Some(delivery.storage),
                Err(SendError(message)) if delivery.is_standing => {
                    self.send_to_next_standing(message).await?
                }
                // A recording that ended meanwhile does not want the packet any more.
                Err(_) => None,
            };
            replies.extend(sent.map(|storage| (storage, answer)));
        }
        let mut refused = None;
        for (storage, answer) in replies {
            match answer.await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(pending))) => {
                    is_accepted = true;
                    recorded.extend((pending.into_iter()).map(|pending| Recorded {
                        storage,
                        pending,
                        is_duplicate: false,
                    }));
                }
                Ok(Err(error)) => refused = Some(error),
                Err(_) => refused = Some(StorageError::Stopping),
            }
        }
        match refused {
            Some(error) if !is_accepted => Err(error.into()),
            refused => Ok(Delivered {
                recorded,
                refused,
                is_accepted,
                handed_out: None,
            }),
        }
    }

    /// Passes a message on that came too late for the standing recording of its period.
    async fn send_to_next_standing(
        &self,
        message: InboxPacket,
    ) -> Result<Option<StorageId>, RecordingError> {
        self.ensure_standing(&message.packet).await?;
        let Some(next) = self.inner.standing.recording() else {
            return Ok(None);
        };
        let Some(inbox) = next.inbox() else {
            return Ok(None);
        };
        let sent = inbox.send(message).await;
        Ok(sent.is_ok().then_some(next.spec.storage))
    }

    /// Puts the packet into the buffer and the trigger queue, and reserves memory for each
    /// recording that wants it; also returns whether a recording waits for its trigger with the
    /// buffer. Changes nothing when there is not enough memory, or a recording is suspended.
    fn route(
        &self,
        packet: &Arc<Packet>,
        permit: BytePermit,
        slot: Option<QueueSlot>,
        past: &[StorageId],
    ) -> Result<(Vec<Delivery>, bool), RecordingError> {
        let engine = &self.inner.registry.engine;
        let budget = engine.budget();
        let bytes = packet_charge(packet.payload.len() as u64);
        let mut permits = vec![permit];
        let mut shared = self.inner.registry.shared.lock();
        let Shared { buffer, recordings } = &mut *shared;
        let standing = &self.inner.standing;
        let wants = |each: &&Arc<Recording>| {
            each.spec.wants(packet) && (!each.spec.standing || standing.is_current(each))
        };
        let is_past = |each: &&Arc<Recording>| past.contains(&each.spec.storage);
        let wanting = recordings.iter().filter(wants);
        let inboxes: Vec<_> = (wanting.filter(|each| !is_past(each)))
            .filter_map(|each| Some((Arc::clone(each), each.inbox()?)))
            .collect();
        for (recording, _) in &inboxes {
            recording.check_disk(engine)?;
        }
        for _ in 1..inboxes.len() {
            let more = budget.try_grow(bytes);
            permits.push(more.inspect_err(|_| budget.count_refusal())?);
        }
        let number = buffer.insert(packet, slot.is_some());
        let armed = || {
            recordings
                .iter()
                .filter(wants)
                .filter(|each| each.is_armed())
        };
        let is_awaited = armed().next().is_some();
        if let Some(slot) = slot {
            slot.fill(QueuedPacket {
                packet: Arc::clone(packet),
                number,
                armed: armed().cloned().collect(),
            });
        }
        let deliveries = inboxes.into_iter().zip(permits);
        let deliveries = deliveries
            .map(|((recording, inbox), permit)| Delivery {
                storage: recording.spec.storage,
                is_standing: recording.spec.standing,
                inbox,
                permit,
            })
            .collect();
        Ok((deliveries, is_awaited))
    }
}
