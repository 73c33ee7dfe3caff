//! The streams of a storage in its writer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use storage_format::{
    AgentId, LeafId, StreamId, StreamPosition, agent_file::StreamSpec, data_file::Bucket,
    frame::FrameHeader,
};

use crate::{
    PacketSummary,
    stream_counts::{StreamCount, StreamCounts},
    tree::IndexTree,
};

/// A packet in flight, and the pushes that wait for it.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) position: StreamPosition,
    pub(super) summary: PacketSummary,
    /// Group and slot of the push that sent it first.
    pub(super) owner: (u64, usize),
    /// Groups and slots of pushes that sent it again meanwhile.
    pub(super) repeats: Vec<(u64, usize)>,
}

/// A stream of this storage.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) agent: AgentId,
    pub(super) spec: StreamSpec,
    /// The next position: it follows everything that was accepted.
    pub(super) next: StreamPosition,
    /// The position that follows everything that is durable.
    pub(super) durable_next: StreamPosition,
    pub(super) in_flight: VecDeque<InFlight>,
    /// Time bucket and leaf of the last packet.
    pub(super) leaf: Option<(Option<Bucket>, LeafId)>,
    /// Whether a packet was refused and the packets in flight after it are being refused.
    pub(super) is_failing: bool,
    /// What arrives and is lost, if it is counted.
    counts: Option<Arc<StreamCount>>,
}

impl Stream {
    pub(super) fn new(
        agent: AgentId,
        spec: StreamSpec,
        tree: &IndexTree,
        counts: &StreamCounts,
    ) -> Self {
        let counts = counts.of(&agent, &spec.id);
        let next = tree.next_position(&agent, &spec.id);
        Self {
            agent,
            spec,
            next,
            durable_next: next,
            in_flight: VecDeque::new(),
            leaf: None,
            is_failing: false,
            counts,
        }
    }

    pub(super) fn count_durable(&self, packets: &[FrameHeader]) {
        if let Some(counts) = &self.counts {
            counts.durable(packets);
        }
    }

    pub(super) fn count_failed(&self, packets: u64) {
        if let Some(counts) = &self.counts {
            counts.failed(packets);
        }
    }

    /// The packet in flight at this position.
    pub(super) fn in_flight(&mut self, wanted: StreamPosition) -> Option<&mut InFlight> {
        let at = self
            .in_flight
            .binary_search_by_key(&wanted, |packet| packet.position)
            .ok()?;
        self.in_flight.get_mut(at)
    }
}

/// The streams of a storage.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    by_id: HashMap<AgentId, HashMap<StreamId, usize>>,
}

impl Streams {
    pub(super) fn find(&self, agent: &AgentId, stream: &StreamId) -> Option<usize> {
        self.by_id.get(agent)?.get(stream).copied()
    }

    pub(super) fn add(&mut self, stream: Stream) -> usize {
        let at = self.all.len();
        let of_agent = self.by_id.entry(stream.agent.clone()).or_default();
        of_agent.insert(stream.spec.id.clone(), at);
        self.all.push(stream);
        at
    }

    pub(super) fn get(&mut self, at: usize) -> &mut Stream {
        &mut self.all[at]
    }
}
