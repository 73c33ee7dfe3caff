//! What the writer knows of each stream.

use std::collections::{HashMap, VecDeque};

use storage_format::{AgentId, LeafId, StreamId, agent_file::StreamSpec, data_file::Bucket};

use super::push::Arriving;
use crate::tree::IndexTree;

/// A packet on its way to the disk, and who waits for it.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) raw_size: u32,
    /// Group and slot that brought it.
    pub(super) owner: (u64, usize),
    /// Groups and slots that brought it again meanwhile.
    pub(super) repeats: Vec<(u64, usize)>,
}

/// A stream of this storage.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) agent: AgentId,
    pub(super) spec: StreamSpec,
    /// Epoch and sequence that come next, behind everything that was taken.
    pub(super) next: (u64, u64),
    /// Epoch and sequence that come next, behind everything that is durable.
    pub(super) durable_next: (u64, u64),
    /// Whether any packet was ever taken.
    pub(super) has_begun: bool,
    pub(super) in_flight: VecDeque<InFlight>,
    /// Time bucket and leaf of the last packet.
    pub(super) leaf: Option<(Option<Bucket>, LeafId)>,
    /// Pushes that wait until what is under way has reached the leaf before.
    pub(super) waiting: VecDeque<Arriving>,
    /// Whether a packet was refused and those behind it are being refused, too.
    pub(super) is_failing: bool,
}

impl Stream {
    pub(super) fn new(agent: AgentId, spec: StreamSpec, tree: &IndexTree) -> Self {
        let last = tree.last_sequence(&agent, &spec.id);
        let next = last.map_or((0, 0), |(epoch, sequence)| (epoch, sequence + 1));
        Self {
            agent,
            spec,
            next,
            durable_next: next,
            has_begun: last.is_some(),
            in_flight: VecDeque::new(),
            leaf: None,
            waiting: VecDeque::new(),
            is_failing: false,
        }
    }

    /// The packet under way with this epoch and sequence.
    pub(super) fn in_flight(&mut self, wanted: (u64, u64)) -> Option<&mut InFlight> {
        let at = self
            .in_flight
            .binary_search_by_key(&wanted, |packet| (packet.epoch, packet.sequence))
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
