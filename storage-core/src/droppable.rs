//! Droppable packets: packets whose agents do not wait for the disk, until a writer accepts them.
//!
//! They count against the byte budget like all packets, and are dropped when somebody else needs
//! the space: the oldest of all first, whoever sent it, and the drop is counted for its stream. A
//! packet that a writer has is no longer dropped, so writers accept a limited share at a time, and
//! the rest of the budget is always available to agents that wait.
//!
//! A dropped packet leaves a gap in its stream. The state of the stream contains the position after
//! the gap, so that the next packet is accepted there.

mod dropped;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use storage_format::{AgentId, Arrival, OutOfOrder, StorageId, StreamId, StreamPosition};
use tokio::sync::Notify;

pub use self::dropped::DroppedPackets;
use self::dropped::EndedStreams;
use crate::{NewPacket, Push, StorageError, budget::Reclaim, counters::Counters, push::Gaps};

/// Share of the budget that droppable packets in writers may have: in all writers, and in each.
const ALL_WRITERS_SHARE: u64 = 2;
const ONE_WRITER_SHARE: u64 = 8;

/// A stream of a storage.
type Key = (AgentId, StreamId);

/// The droppable packets that wait for a writer.
#[derive(Debug)]
pub(crate) struct Droppable {
    state: Mutex<State>,
    /// Bytes that can be dropped now.
    waiting_bytes: AtomicU64,
    /// Bytes that all writers may have, and each of them.
    all_writers_max: u64,
    one_writer_max: u64,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Oldest first.
    queue: BTreeMap<u64, Entry>,
    lanes: HashMap<StorageId, Lane>,
    /// What was dropped of storages whose writer ended.
    ended: HashMap<StorageId, EndedStreams>,
    /// Bytes that writers have.
    in_writer: u64,
    /// A writer stopped accepting packets because all writers have too many bytes.
    has_blocked_writer: bool,
}

#[derive(Debug)]
struct Entry {
    storage: StorageId,
    push: Push,
    bytes: u64,
    /// Sequences before it may be missing.
    part: bool,
}

impl Entry {
    /// Bytes of the budget that the push uses; at least those of its packets, for packets that
    /// have no permit.
    fn charged_bytes(&self) -> u64 {
        self.push.permit.bytes().max(self.bytes)
    }
}

/// A push that is handed to a writer.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) push: Push,
    pub(crate) gaps: Gaps,
    pub(crate) in_writer: InWriter,
}

/// The droppable packets of one storage.
#[derive(Debug)]
struct Lane {
    signal: Arc<LaneSignal>,
    waiting: BTreeSet<u64>,
    in_writer: u64,
    streams: HashMap<Key, StreamState>,
}

/// The state that a storage and its writer share with the droppable packets.
#[derive(Debug, Default)]
pub(crate) struct LaneSignal {
    /// Set by the first droppable packet; before it, only this flag is checked.
    is_used: AtomicBool,
    /// Whether a writer accepts packets.
    is_open: AtomicBool,
    /// Wakes the writer.
    pub(crate) wake: Notify,
}

impl LaneSignal {
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }
}

/// The positions of a stream.
#[derive(Debug)]
struct StreamState {
    /// The next position: it follows all accepted packets.
    next: StreamPosition,
    /// The position that follows all packets that the writer has.
    handed: StreamPosition,
    /// The position that follows all dropped packets: the stream may continue there after a gap.
    lost_until: StreamPosition,
    waiting: VecDeque<u64>,
    dropped_packets: u64,
    dropped_bytes: u64,
}

/// An accepted packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedPacket {
    /// Position in the stream.
    pub position: StreamPosition,
    /// Whether it is a duplicate.
    pub is_duplicate: bool,
}

/// The reply to packets whose agent does not wait.
#[derive(Debug, Default)]
pub struct Accepted {
    /// The packets before the first refused one.
    pub packets: Vec<AcceptedPacket>,
    /// Why the packet after them was refused.
    pub refused: Option<StorageError>,
}

/// Droppable packets in a writer, which reports what happened to them.
#[derive(Debug)]
pub(crate) struct InWriter {
    droppable: Arc<Droppable>,
    storage: StorageId,
    key: Key,
    bytes: u64,
    /// Bytes of each of its packets.
    sizes: Vec<u64>,
    /// The position that follows it in its stream.
    next: StreamPosition,
}

impl Droppable {
    pub(crate) fn new(budget_max: u64, counters: Arc<Counters>) -> Self {
        Self {
            state: Mutex::default(),
            waiting_bytes: AtomicU64::new(0),
            all_writers_max: budget_max / ALL_WRITERS_SHARE,
            one_writer_max: budget_max / ONE_WRITER_SHARE,
            counters,
        }
    }

    /// Accepts packets of a stream whose durable packets end before `durable_next`. With `part`,
    /// sequences may be missing.
    pub(crate) fn offer(
        &self,
        (storage, signal): (StorageId, &Arc<LaneSignal>),
        mut push: Push,
        durable_next: StreamPosition,
        part: bool,
    ) -> Result<Accepted, Push> {
        let mut accepted = Accepted::default();
        let mut state = self.state.lock();
        let state = &mut *state;
        if !signal.is_open.load(Ordering::Acquire) {
            return Err(push);
        }
        signal.is_used.store(true, Ordering::Release);
        let lane = state.lanes.entry(storage).or_insert_with(|| Lane {
            signal: Arc::clone(signal),
            waiting: BTreeSet::new(),
            in_writer: 0,
            streams: HashMap::new(),
        });
        let key = (push.agent.clone(), push.stream.clone());
        let stream = lane.streams.entry(key).or_insert_with(|| {
            let first = push.packets.first();
            let first = first.map_or(durable_next, |packet| packet.position);
            // Packets from before the start are unknown; the stream continues where its producer
            // does.
            StreamState {
                next: first.max(durable_next),
                handed: durable_next,
                lost_until: first,
                waiting: VecDeque::new(),
                dropped_packets: 0,
                dropped_bytes: 0,
            }
        });
        push.packets
            .retain(|packet| stream.accept(packet, part, &mut accepted));
        if push.packets.is_empty() {
            return Ok(accepted);
        }
        let bytes = push.packets.iter().map(size_of).sum();
        let queued = push.permit.bytes();
        let ordinal = state.next;
        state.next = ordinal.checked_add(1).expect("pushes do not reach 2^64");
        stream.waiting.push_back(ordinal);
        lane.waiting.insert(ordinal);
        lane.signal.wake.notify_one();
        let entry = Entry {
            storage,
            push,
            bytes,
            part,
        };
        state.queue.insert(ordinal, entry);
        let waiting = self.waiting_bytes.fetch_add(queued, Ordering::SeqCst);
        self.counters
            .droppable_bytes
            .set(waiting.saturating_add(queued));
        Ok(accepted)
    }

    /// Counts an entry that was removed from the queue as dropped.
    fn drop_entry(&self, state: &mut State, ordinal: u64, entry: Entry) -> Push {
        let key = (entry.push.agent.clone(), entry.push.stream.clone());
        let packets = entry.push.packets.len() as u64;
        if let Some(lane) = state.lanes.get_mut(&entry.storage) {
            lane.waiting.remove(&ordinal);
            if let Some(stream) = lane.streams.get_mut(&key) {
                stream.forget(ordinal);
                stream.lost(position_after(&entry.push), packets, entry.bytes);
            }
        }
        self.counters.packets_dropped.add(packets);
        self.counters.dropped_bytes.add(entry.bytes);
        self.release(entry.push.permit.bytes());
        entry.push
    }

    fn release(&self, released: u64) {
        let waiting = self.waiting_bytes.fetch_sub(released, Ordering::SeqCst);
        assert!(
            waiting >= released,
            "only bytes of packets that wait leave the queue"
        );
        self.counters
            .droppable_bytes
            .set(waiting.saturating_sub(released));
    }

    /// The next push for the writer of a storage, if it may accept one; with `all` the writer is
    /// stopping and accepts every push.
    pub(crate) fn take(self: &Arc<Self>, storage: StorageId, all: bool) -> Option<Handed> {
        let mut state = self.state.lock();
        let lane = state.lanes.get(&storage)?;
        let ordinal = *lane.waiting.first()?;
        let bytes = state.queue.get(&ordinal)?.charged_bytes();
        let fits = |taken: u64, max: u64| taken == 0 || taken.saturating_add(bytes) <= max;
        if !all && !fits(lane.in_writer, self.one_writer_max) {
            return None;
        }
        if !all && !fits(state.in_writer, self.all_writers_max) {
            state.has_blocked_writer = true;
            return None;
        }
        self.hand(&mut state, ordinal)
    }

    /// The next push of a stream, so that a push whose agent waits follows it.
    pub(crate) fn take_of(
        self: &Arc<Self>,
        storage: StorageId,
        agent: &AgentId,
        stream: &StreamId,
    ) -> Option<Handed> {
        let mut state = self.state.lock();
        let stream = state
            .lanes
            .get(&storage)?
            .streams
            .get(&(agent.clone(), stream.clone()))?;
        let ordinal = *stream.waiting.front()?;
        self.hand(&mut state, ordinal)
    }

    fn hand(self: &Arc<Self>, state: &mut State, ordinal: u64) -> Option<Handed> {
        let entry = state.queue.remove(&ordinal)?;
        let key = (entry.push.agent.clone(), entry.push.stream.clone());
        let next = position_after(&entry.push);
        let mut gaps = Gaps::Taken;
        let bytes = entry.charged_bytes();
        state.in_writer = state.in_writer.saturating_add(bytes);
        if let Some(lane) = state.lanes.get_mut(&entry.storage) {
            lane.waiting.remove(&ordinal);
            lane.in_writer = lane.in_writer.saturating_add(bytes);
            if let Some(stream) = lane.streams.get_mut(&key) {
                stream.forget(ordinal);
                stream.handed = stream.handed.max(next);
                if !entry.part {
                    gaps = Gaps::UpTo(stream.lost_until);
                }
            }
        }
        self.release(entry.push.permit.bytes());
        let in_writer = InWriter {
            droppable: Arc::clone(self),
            storage: entry.storage,
            key,
            bytes,
            sizes: entry.push.packets.iter().map(size_of).collect(),
            next,
        };
        Some(Handed {
            push: entry.push,
            gaps,
            in_writer,
        })
    }

    /// Records a push whose agent waits; returns the position that follows the dropped packets of
    /// the stream, where the stream may continue after a gap.
    pub(crate) fn pass(
        &self,
        storage: StorageId,
        push: &Push,
        part: bool,
    ) -> Option<StreamPosition> {
        let mut state = self.state.lock();
        let lane = state.lanes.get_mut(&storage)?;
        let key = (push.agent.clone(), push.stream.clone());
        let stream = lane.streams.get_mut(&key)?;
        let next = stream.next;
        let first = push.packets.first()?;
        if part || !matches!(first.position.follows(next), Err(OutOfOrder::Gap { .. })) {
            stream.next = next.max(position_after(push));
            stream.handed = stream.handed.max(position_after(push));
        }
        Some(stream.lost_until)
    }

    /// Starts accepting packets of a storage.
    pub(crate) fn open(&self, signal: &LaneSignal) {
        let _state = self.state.lock();
        signal.is_open.store(true, Ordering::Release);
    }

    /// Stops accepting packets; a writer can still accept those that wait.
    pub(crate) fn close(&self, signal: &LaneSignal) {
        let _state = self.state.lock();
        signal.is_open.store(false, Ordering::Release);
    }

    /// Drops the packets that wait for a storage that accepts no more, and forgets the positions of
    /// its streams: its writer has ended, and another one begins with what is durable then. The
    /// numbers of what was dropped stay.
    pub(crate) fn end(&self, storage: StorageId) {
        let mut state = self.state.lock();
        let dropped = state.drop_waiting(self, storage);
        if let Some(lane) = state.lanes.remove(&storage) {
            state.keep_dropped(storage, lane);
        }
        drop(state);
        // Their bytes are freed without the lock, because whoever gets them may drop more.
        drop(dropped);
    }

    /// As [`Self::end`]; forgets also what was dropped.
    pub(crate) fn forget(&self, storage: StorageId) {
        self.end(storage);
        self.state.lock().ended.remove(&storage);
    }

    /// Number of waiting packets of a storage, and their bytes.
    pub(crate) fn waiting(&self, storage: StorageId) -> (u64, u64) {
        let state = self.state.lock();
        let Some(lane) = state.lanes.get(&storage) else {
            return (0, 0);
        };
        let entries = lane.waiting.iter().filter_map(|at| state.queue.get(at));
        entries.fold((0_u64, 0_u64), |(packets, bytes), entry| {
            (
                packets.saturating_add(entry.push.packets.len() as u64),
                bytes.saturating_add(entry.bytes),
            )
        })
    }
}

impl Reclaim for Droppable {
    /// Drops the oldest packets until `bytes` of the budget are free; nothing when that is more
    /// than all that can be dropped.
    fn reclaim(&self, bytes: u64) -> bool {
        if self.waiting_bytes.load(Ordering::SeqCst) < bytes.max(1) {
            return false;
        }
        let mut state = self.state.lock();
        let mut freed: u64 = 0;
        while freed < bytes.max(1) {
            let Some((ordinal, entry)) = state.queue.pop_first() else {
                break;
            };
            let push = self.drop_entry(&mut state, ordinal, entry);
            freed = freed.saturating_add(push.permit.bytes());
            push.permit.give_back_quietly();
        }
        freed > 0
    }
}

impl StreamState {
    /// Removes a push from the queue; it is always the oldest of its stream.
    fn forget(&mut self, ordinal: u64) {
        let first = self.waiting.pop_front();
        assert_eq!(
            first,
            Some(ordinal),
            "the oldest packets of a stream leave the queue first"
        );
    }

    fn lost(&mut self, until: StreamPosition, packets: u64, bytes: u64) {
        self.lost_until = self.lost_until.max(until);
        self.dropped_packets = self.dropped_packets.saturating_add(packets);
        self.dropped_bytes = self.dropped_bytes.saturating_add(bytes);
    }

    /// Whether a packet is new and therefore accepted; adds it to the reply.
    fn accept(&mut self, packet: &NewPacket, part: bool, accepted: &mut Accepted) -> bool {
        if accepted.refused.is_some() {
            return false;
        }
        let position = packet.position;
        let is_new = match self.judge(position, part) {
            Ok(is_new) => is_new,
            Err(error) => {
                accepted.refused = Some(error);
                return false;
            }
        };
        if is_new {
            self.next = position.next();
        }
        accepted.packets.push(AcceptedPacket {
            position,
            is_duplicate: !is_new,
        });
        is_new
    }

    /// Whether a packet is new; a gap is refused unless a part of the stream is accepted.
    fn judge(&self, position: StreamPosition, part: bool) -> Result<bool, StorageError> {
        match position.follows(self.next) {
            Ok(Arrival::Next) => Ok(true),
            // All that follows what the writer has was dropped: it may come again.
            Ok(Arrival::Duplicate) => Ok(self.waiting.is_empty() && position >= self.handed),
            Err(OutOfOrder::Gap { .. }) if part => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// The position that follows the last packet of a push.
fn position_after(push: &Push) -> StreamPosition {
    let last = push.packets.last();
    last.map_or(StreamPosition::default(), |last| last.position.next())
}

fn size_of(packet: &NewPacket) -> u64 {
    packet.payload.len() as u64
}

impl InWriter {
    /// Reports which of its packets were written; the others are counted as dropped.
    pub(crate) fn ended(&self, are_written: impl Iterator<Item = bool>) {
        let lost = self
            .sizes
            .iter()
            .zip(are_written)
            .filter(|(_, is_written)| !is_written);
        let (packets, bytes) = lost.fold((0_u64, 0_u64), |(packets, bytes), (size, _)| {
            (packets.saturating_add(1), bytes.saturating_add(*size))
        });
        if packets == 0 {
            return;
        }
        let mut state = self.droppable.state.lock();
        let lane = state.lanes.get_mut(&self.storage);
        if let Some(stream) = lane.and_then(|lane| lane.streams.get_mut(&self.key)) {
            stream.lost(self.next, packets, bytes);
        }
        self.droppable.counters.packets_dropped.add(packets);
        self.droppable.counters.dropped_bytes.add(bytes);
    }
}

impl Drop for InWriter {
    fn drop(&mut self) {
        let mut state = self.droppable.state.lock();
        state.in_writer = state.in_writer.saturating_sub(self.bytes);
        if let Some(lane) = state.lanes.get_mut(&self.storage) {
            lane.in_writer = lane.in_writer.saturating_sub(self.bytes);
        }
        if std::mem::take(&mut state.has_blocked_writer) {
            let lanes = state.lanes.values();
            let waiting = lanes.filter(|lane| !lane.waiting.is_empty());
            waiting.for_each(|lane| lane.signal.wake.notify_one());
        }
    }
}

#[cfg(test)]
mod tests;
