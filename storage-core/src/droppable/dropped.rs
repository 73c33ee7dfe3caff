//! How much was dropped of each stream, also once the writer of its storage has ended.

use std::collections::HashMap;

use serde::Serialize;
use storage_format::{AgentId, StorageId, StreamId, StreamPosition};

use super::{Droppable, Key, Lane, State, StreamState};
use crate::Push;

/// The packets of a stream that were accepted and dropped since the server started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DroppedPackets {
    /// The agent.
    pub agent: AgentId,
    /// The stream.
    pub stream: StreamId,
    /// Number of packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Epoch of the next position of the stream.
    pub next_epoch: u64,
    /// Sequence of the next position.
    pub next_sequence: u64,
}

/// The streams of ended writers of which packets were dropped.
pub(super) type EndedStreams = HashMap<Key, EndedStream>;

/// A stream of an ended writer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EndedStream {
    next: StreamPosition,
    packets: u64,
    bytes: u64,
}

impl EndedStream {
    /// Adds what was dropped of the stream later, or by a later writer.
    fn add(&mut self, later: &StreamState) {
        self.next = later.next;
        self.packets = self.packets.saturating_add(later.dropped_packets);
        self.bytes = self.bytes.saturating_add(later.dropped_bytes);
    }
}

impl State {
    /// Removes the packets that wait for a storage, and counts them as dropped.
    pub(super) fn drop_waiting(&mut self, of: &Droppable, storage: StorageId) -> Vec<Push> {
        let Some(lane) = self.lanes.get(&storage) else {
            return Vec::new();
        };
        let mut dropped = Vec::with_capacity(lane.waiting.len());
        for ordinal in lane.waiting.clone() {
            if let Some(entry) = self.queue.remove(&ordinal) {
                dropped.push(of.drop_entry(self, ordinal, entry));
            }
        }
        dropped
    }

    /// Keeps the numbers of a lane that is forgotten.
    pub(super) fn keep_dropped(&mut self, storage: StorageId, lane: Lane) {
        let mut streams = lane.streams;
        streams.retain(|_, stream| stream.dropped_packets > 0);
        if streams.is_empty() {
            return;
        }
        let ended = self.ended.entry(storage).or_default();
        for (key, stream) in streams {
            ended.entry(key).or_default().add(&stream);
        }
    }
}

impl Droppable {
    /// The dropped packets of a storage, for each stream.
    pub(crate) fn dropped(&self, storage: StorageId) -> Vec<DroppedPackets> {
        let state = self.state.lock();
        let mut streams = state.ended.get(&storage).cloned().unwrap_or_default();
        if let Some(lane) = state.lanes.get(&storage) {
            for (key, stream) in &lane.streams {
                if stream.dropped_packets > 0 || streams.contains_key(key) {
                    streams.entry(key.clone()).or_default().add(stream);
                }
            }
        }
        drop(state);
        let mut dropped: Vec<_> = streams
            .into_iter()
            .map(|((agent, stream), of_stream)| DroppedPackets {
                agent,
                stream,
                packets: of_stream.packets,
                bytes: of_stream.bytes,
                next_epoch: of_stream.next.epoch,
                next_sequence: of_stream.next.sequence,
            })
            .collect();
        dropped.sort_by(|a, b| (&a.agent, &a.stream).cmp(&(&b.agent, &b.stream)));
        dropped
    }

    /// Packets and bytes that were dropped of a stream, in all storages.
    pub(crate) fn dropped_of(&self, agent: &AgentId, stream: &StreamId) -> (u64, u64) {
        let key = (agent.clone(), stream.clone());
        let state = self.state.lock();
        let ended = state.ended.values().filter_map(|of| of.get(&key));
        let ended = ended.map(|stream| (stream.packets, stream.bytes));
        let lanes = state.lanes.values();
        let open = lanes.filter_map(|lane| lane.streams.get(&key));
        let open = open.map(|stream| (stream.dropped_packets, stream.dropped_bytes));
        let sum = |(packets, bytes): (u64, u64), (more, more_bytes)| {
            let packets = packets.saturating_add(more);
            (packets, bytes.saturating_add(more_bytes))
        };
        ended.chain(open).fold((0, 0), sum)
    }

    /// Number of storages of which the positions of streams are known.
    #[cfg(test)]
    pub(crate) fn lane_count(&self) -> usize {
        self.state.lock().lanes.len()
    }
}
