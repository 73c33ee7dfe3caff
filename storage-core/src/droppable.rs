//! Packets whose agents do not wait for the disk, while they wait for their writer.
//!
//! They hold room of the byte budget like all packets, and give way to everybody who finds none:
//! the oldest of all is dropped first, whose it is, and counted for its stream. What a writer has
//! taken is dropped no more, so writers take only so much of it at once: the rest of the budget is
//! always there for agents that wait.
//!
//! A packet that was dropped leaves a gap in its stream. What is known here of each stream says
//! where it goes on, so that the next packet is taken behind the gap.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use serde::Serialize;
use storage_format::{AgentId, Arrival, OutOfOrder, StorageId, StreamId, StreamPosition};
use tokio::sync::Notify;

use crate::{NewPacket, Push, StorageError, budget::Reclaim, counters::Counters, push::Gaps};

/// Share of the budget that writers hold of droppable packets: all of them, and each.
const ALL_WRITERS_SHARE: u64 = 2;
const ONE_WRITER_SHARE: u64 = 8;

/// A stream of a storage.
type Key = (AgentId, StreamId);

/// All droppable packets that wait.
#[derive(Debug)]
pub(crate) struct Droppable {
    state: Mutex<State>,
    /// Bytes that may be dropped now.
    waiting_bytes: AtomicU64,
    /// Bytes that writers may have taken in all, and each of them.
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
    /// Bytes that writers have taken.
    in_writer: u64,
    /// A writer left something because all of them have too much.
    is_held_up: bool,
}

#[derive(Debug)]
struct Entry {
    storage: StorageId,
    push: Push,
    bytes: u64,
    /// Sequences may be left out before it.
    part: bool,
}

/// A push for the writer.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) push: Push,
    pub(crate) gaps: Gaps,
    pub(crate) in_writer: InWriter,
}

/// What is droppable of one storage.
#[derive(Debug)]
struct Lane {
    signal: Arc<LaneSignal>,
    waiting: BTreeSet<u64>,
    in_writer: u64,
    fronts: HashMap<Key, Front>,
}

/// Where a storage and its writer meet its droppable packets.
#[derive(Debug, Default)]
pub(crate) struct LaneSignal {
    /// Something was pushed so; before, nothing here costs more than this look.
    is_used: AtomicBool,
    /// Whether a writer takes packets.
    is_open: AtomicBool,
    /// Wakes the writer.
    pub(crate) wake: Notify,
}

impl LaneSignal {
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }
}

/// Where a stream is.
#[derive(Debug)]
struct Front {
    /// What comes next, behind all that was accepted.
    next: StreamPosition,
    /// What comes behind all that the writer has.
    handed: StreamPosition,
    /// What comes behind all that was not kept: there the stream may go on behind a gap.
    lost_until: StreamPosition,
    waiting: VecDeque<u64>,
    dropped_packets: u64,
    dropped_bytes: u64,
}

/// What was accepted of a stream and not kept, since the server started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DroppedPackets {
    /// The agent.
    pub agent: AgentId,
    /// The stream.
    pub stream: StreamId,
    /// How many packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Where the stream goes on.
    pub next_epoch: u64,
    /// The sequence there.
    pub next_sequence: u64,
}

/// A packet that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedPacket {
    /// Position in the stream.
    pub position: StreamPosition,
    /// It was accepted before.
    pub is_duplicate: bool,
}

/// The answer to packets whose agent does not wait.
#[derive(Debug, Default)]
pub struct Accepted {
    /// Packets before the first one that was refused.
    pub packets: Vec<AcceptedPacket>,
    /// Why the packet behind them was refused.
    pub refused: Option<StorageError>,
}

/// A taken entry: says what became of it.
#[derive(Debug)]
pub(crate) struct InWriter {
    droppable: Arc<Droppable>,
    storage: StorageId,
    key: Key,
    bytes: u64,
    /// Bytes of each of its packets.
    sizes: Vec<u64>,
    /// What comes behind it in its stream.
    behind: StreamPosition,
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

    /// Takes packets of a stream that is `durable_next` behind what is durable. `part` says that
    /// sequences may be left out.
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
            fronts: HashMap::new(),
        });
        let key = (push.agent.clone(), push.stream.clone());
        let front = lane.fronts.entry(key).or_insert_with(|| {
            let first = push.packets.first();
            let first = first.map_or(durable_next, |packet| packet.position);
            // What came before the start is not known; the stream goes on where its producer does.
            Front {
                next: first.max(durable_next),
                handed: durable_next,
                lost_until: first,
                waiting: VecDeque::new(),
                dropped_packets: 0,
                dropped_bytes: 0,
            }
        });
        push.packets
            .retain(|packet| front.accept(packet, part, &mut accepted));
        if push.packets.is_empty() {
            return Ok(accepted);
        }
        let bytes = push.packets.iter().map(size_of).sum();
        let held = push.permit.bytes();
        let ordinal = state.next;
        state.next += 1;
        front.waiting.push_back(ordinal);
        lane.waiting.insert(ordinal);
        lane.signal.wake.notify_one();
        let entry = Entry {
            storage,
            push,
            bytes,
            part,
        };
        state.queue.insert(ordinal, entry);
        let waiting = self.waiting_bytes.fetch_add(held, Ordering::SeqCst) + held;
        self.counters.droppable_bytes.set(waiting);
        Ok(accepted)
    }

    /// Counts an entry that is out of the queue as dropped.
    fn drop_entry(&self, state: &mut State, ordinal: u64, entry: Entry) -> Push {
        let key = (entry.push.agent.clone(), entry.push.stream.clone());
        let packets = entry.push.packets.len() as u64;
        if let Some(lane) = state.lanes.get_mut(&entry.storage) {
            lane.waiting.remove(&ordinal);
            if let Some(front) = lane.fronts.get_mut(&key) {
                front.forget(ordinal);
                front.lost(position_after(&entry.push), packets, entry.bytes);
            }
        }
        self.counters.packets_dropped.add(packets);
        self.counters.dropped_bytes.add(entry.bytes);
        self.leaves(entry.push.permit.bytes());
        entry.push
    }

    fn leaves(&self, held: u64) {
        let waiting = self.waiting_bytes.fetch_sub(held, Ordering::SeqCst);
        self.counters
            .droppable_bytes
            .set(waiting.saturating_sub(held));
    }

    /// The next push for the writer of a storage, while it may take one; `all` when it ends, and
    /// takes whatever is there.
    pub(crate) fn take(self: &Arc<Self>, storage: StorageId, all: bool) -> Option<Handed> {
        let mut state = self.state.lock();
        let lane = state.lanes.get(&storage)?;
        let ordinal = *lane.waiting.first()?;
        let bytes = state.queue.get(&ordinal)?.bytes;
        let fits = |taken: u64, max: u64| taken == 0 || taken + bytes <= max;
        if !all && !fits(lane.in_writer, self.one_writer_max) {
            return None;
        }
        if !all && !fits(state.in_writer, self.all_writers_max) {
            state.is_held_up = true;
            return None;
        }
        self.hand(&mut state, ordinal)
    }

    /// The next push of a stream, so that one whose agent waits comes behind it.
    pub(crate) fn take_of(
        self: &Arc<Self>,
        storage: StorageId,
        agent: &AgentId,
        stream: &StreamId,
    ) -> Option<Handed> {
        let mut state = self.state.lock();
        let front = state
            .lanes
            .get(&storage)?
            .fronts
            .get(&(agent.clone(), stream.clone()))?;
        let ordinal = *front.waiting.front()?;
        self.hand(&mut state, ordinal)
    }

    fn hand(self: &Arc<Self>, state: &mut State, ordinal: u64) -> Option<Handed> {
        let entry = state.queue.remove(&ordinal)?;
        let key = (entry.push.agent.clone(), entry.push.stream.clone());
        let behind = position_after(&entry.push);
        let mut gaps = Gaps::Taken;
        state.in_writer += entry.bytes;
        if let Some(lane) = state.lanes.get_mut(&entry.storage) {
            lane.waiting.remove(&ordinal);
            lane.in_writer += entry.bytes;
            if let Some(front) = lane.fronts.get_mut(&key) {
                front.forget(ordinal);
                front.handed = front.handed.max(behind);
                if !entry.part {
                    gaps = Gaps::UpTo(front.lost_until);
                }
            }
        }
        self.leaves(entry.push.permit.bytes());
        let in_writer = InWriter {
            droppable: Arc::clone(self),
            storage: entry.storage,
            key,
            bytes: entry.bytes,
            sizes: entry.push.packets.iter().map(size_of).collect(),
            behind,
        };
        Some(Handed {
            push: entry.push,
            gaps,
            in_writer,
        })
    }

    /// Notes that an agent pushes into a stream and waits; gives the place behind what was not
    /// kept of it, where the stream may go on behind a gap.
    pub(crate) fn pass(
        &self,
        storage: StorageId,
        push: &Push,
        part: bool,
    ) -> Option<StreamPosition> {
        let mut state = self.state.lock();
        let lane = state.lanes.get_mut(&storage)?;
        let key = (push.agent.clone(), push.stream.clone());
        let front = lane.fronts.get_mut(&key)?;
        let next = front.next;
        let first = push.packets.first()?;
        if part || !matches!(first.position.follows(next), Err(OutOfOrder::Gap { .. })) {
            front.next = next.max(position_after(push));
            front.handed = front.handed.max(position_after(push));
        }
        Some(front.lost_until)
    }

    /// From now on packets of a storage are taken.
    pub(crate) fn open(&self, signal: &LaneSignal) {
        let _state = self.state.lock();
        signal.is_open.store(true, Ordering::Release);
    }

    /// From now on none is taken; those that wait can still be.
    pub(crate) fn close(&self, signal: &LaneSignal) {
        let _state = self.state.lock();
        signal.is_open.store(false, Ordering::Release);
    }

    /// Drops what waits for a storage that takes no more, and with `forget` all that is known of
    /// it.
    pub(crate) fn clear(&self, storage: StorageId, forget: bool) {
        let mut state = self.state.lock();
        let Some(lane) = state.lanes.get(&storage) else {
            return;
        };
        let mut dropped = Vec::with_capacity(lane.waiting.len());
        for ordinal in lane.waiting.clone() {
            if let Some(entry) = state.queue.remove(&ordinal) {
                dropped.push(self.drop_entry(&mut state, ordinal, entry));
            }
        }
        if forget {
            state.lanes.remove(&storage);
        }
        drop(state);
        // Their room comes back without the lock, for who gets it may drop more.
        drop(dropped);
    }

    /// What was dropped of a storage, stream by stream.
    pub(crate) fn dropped(&self, storage: StorageId) -> Vec<DroppedPackets> {
        let state = self.state.lock();
        let Some(lane) = state.lanes.get(&storage) else {
            return Vec::new();
        };
        let with_some = |front: &&Front| front.dropped_packets > 0;
        let fronts = lane.fronts.iter().filter(|(_, front)| with_some(front));
        let mut dropped: Vec<_> = fronts
            .map(|((agent, stream), front)| DroppedPackets {
                agent: agent.clone(),
                stream: stream.clone(),
                packets: front.dropped_packets,
                bytes: front.dropped_bytes,
                next_epoch: front.next.epoch,
                next_sequence: front.next.sequence,
            })
            .collect();
        dropped.sort_by(|a, b| (&a.agent, &a.stream).cmp(&(&b.agent, &b.stream)));
        dropped
    }

    /// Packets of a storage that wait, and their bytes.
    pub(crate) fn waiting(&self, storage: StorageId) -> (u64, u64) {
        let state = self.state.lock();
        let Some(lane) = state.lanes.get(&storage) else {
            return (0, 0);
        };
        let entries = lane.waiting.iter().filter_map(|at| state.queue.get(at));
        entries.fold((0, 0), |(packets, bytes), entry| {
            (
                packets + entry.push.packets.len() as u64,
                bytes + entry.bytes,
            )
        })
    }
}

impl Reclaim for Droppable {
    /// Drops the oldest packets until `bytes` of the budget came back; nothing when that is more
    /// than all that may be dropped.
    fn reclaim(&self, bytes: u64) -> bool {
        if self.waiting_bytes.load(Ordering::SeqCst) < bytes.max(1) {
            return false;
        }
        let mut state = self.state.lock();
        let mut freed = 0;
        while freed < bytes.max(1) {
            let Some((ordinal, entry)) = state.queue.pop_first() else {
                break;
            };
            let push = self.drop_entry(&mut state, ordinal, entry);
            freed += push.permit.bytes();
            push.permit.give_back_quietly();
        }
        freed > 0
    }
}

impl Front {
    /// A push left the queue: the oldest one of its stream always does first.
    fn forget(&mut self, ordinal: u64) {
        let first = self.waiting.pop_front();
        debug_assert_eq!(first, Some(ordinal), "a stream keeps its order");
    }

    fn lost(&mut self, until: StreamPosition, packets: u64, bytes: u64) {
        self.lost_until = self.lost_until.max(until);
        self.dropped_packets += packets;
        self.dropped_bytes += bytes;
    }

    /// Whether a packet is new and is kept; says so in the answer.
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

    /// Whether a packet is new; a gap is refused unless a part of the stream is taken.
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
    /// Says which of its packets were kept; the others are counted.
    pub(crate) fn ended(&self, kept: impl Iterator<Item = bool>) {
        let lost = self.sizes.iter().zip(kept).filter(|(_, is_kept)| !is_kept);
        let (packets, bytes) = lost.fold((0, 0), |(packets, bytes), (size, _)| {
            (packets + 1, bytes + size)
        });
        if packets == 0 {
            return;
        }
        let mut state = self.droppable.state.lock();
        let lane = state.lanes.get_mut(&self.storage);
        if let Some(front) = lane.and_then(|lane| lane.fronts.get_mut(&self.key)) {
            front.lost(self.behind, packets, bytes);
        }
        self.droppable.counters.packets_dropped.add(packets);
        self.droppable.counters.dropped_bytes.add(bytes);
    }
}

impl Drop for InWriter {
    fn drop(&mut self) {
        let mut state = self.droppable.state.lock();
        state.in_writer -= self.bytes;
        if let Some(lane) = state.lanes.get_mut(&self.storage) {
            lane.in_writer -= self.bytes;
        }
        if std::mem::take(&mut state.is_held_up) {
            let lanes = state.lanes.values();
            let waiting = lanes.filter(|lane| !lane.waiting.is_empty());
            waiting.for_each(|lane| lane.signal.wake.notify_one());
        }
    }
}

#[cfg(test)]
mod tests;
