//! The buffer: the most recent packets of all agents, in memory.
//!
//! It is indexed like a storage, agent → kind → stream, and the leaves contain the packets
//! themselves, so a [`Selection`] has the same meaning for both. Bounded in bytes; the oldest
//! packet of all is evicted first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use storage_core::Selection;
use storage_format::{AgentId, Kind, StreamId};

use crate::packet::Packet;

/// A packet of the buffer with its number.
type Entry = (u64, Arc<Packet>);
/// The leaves of an agent.
type Leaves = BTreeMap<(Kind, StreamId), VecDeque<Entry>>;

/// The most recent packets.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes_max: usize,
    bytes: usize,
    next: u64,
    /// All packets, oldest first.
    packets: VecDeque<Entry>,
    tree: BTreeMap<AgentId, Leaves>,
    evicted: u64,
    /// Packets in the trigger queue.
    queued: usize,
    /// Packets evicted while packets were queued, oldest first, each with the number of the packet
    /// that replaced it: what the buffer contained when a packet arrived is available until that
    /// packet was matched.
    retained: VecDeque<(u64, Entry)>,
}

/// The contents of the buffer in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BufferStatus {
    /// Packets in it.
    pub packets: u64,
    /// Memory that they take, bytes.
    pub bytes: u64,
    /// Memory that they may take, bytes.
    pub bytes_max: u64,
    /// Packets evicted since the server started.
    pub evicted: u64,
}

impl Buffer {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            next: 0,
            packets: VecDeque::new(),
            tree: BTreeMap::new(),
            evicted: 0,
            queued: 0,
            retained: VecDeque::new(),
        }
    }

    /// Inserts a packet and evicts the oldest ones if there is not enough space. A packet larger
    /// than the buffer is not inserted. Returns its number. With `is_queued`, evicted packets are
    /// retained until [`Self::release`].
    pub(crate) fn insert(&mut self, packet: &Packet, is_queued: bool) -> u64 {
        let number = self.next;
        self.queued += usize::from(is_queued);
        let memory = packet.memory();
        if memory > self.bytes_max {
            self.next += 1;
            self.evicted += 1;
            if self.queued > 0 {
                let entry = (number, Arc::new(packet.clone()));
                self.retained.push_back((number, entry));
            }
            return number;
        }
        while self.bytes + memory > self.bytes_max {
            self.evict();
        }
        // A copy: the payload may be a small part of a large allocation.
        let packet = Arc::new(Packet {
            payload: Bytes::copy_from_slice(&packet.payload),
            ..packet.clone()
        });
        self.bytes += memory;
        let leaves = self.tree.entry(packet.agent.clone()).or_default();
        let leaf = leaves
            .entry((packet.kind, packet.stream.clone()))
            .or_default();
        leaf.push_back((self.next, Arc::clone(&packet)));
        self.packets.push_back((number, packet));
        self.next += 1;
        number
    }

    /// Releases the packets that were retained for the packet with this number; called in the order
    /// of numbers.
    pub(crate) fn release(&mut self, number: u64) {
        self.queued -= 1;
        let is_last = self.queued == 0;
        while (self.retained.front()).is_some_and(|(by, _)| is_last || *by <= number) {
            self.retained.pop_front();
        }
    }

    /// The contents of the buffer before the packet with this number arrived, and all packets that
    /// arrived since, in the order of arrival.
    pub(crate) fn since_before(&self, number: u64) -> Vec<Arc<Packet>> {
        let retained = self.retained.iter().filter(|(by, _)| *by >= number);
        let mut found: Vec<_> = retained
            .map(|(_, entry)| entry)
            .chain(&self.packets)
            .collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        found
            .into_iter()
            .map(|(_, packet)| Arc::clone(packet))
            .collect()
    }

    fn evict(&mut self) {
        let Some((number, oldest)) = self.packets.pop_front() else {
            return;
        };
        self.bytes -= oldest.memory();
        self.evicted += 1;
        if self.queued > 0 {
            let entry = (number, Arc::clone(&oldest));
            self.retained.push_back((self.next, entry));
        }
        let key = (oldest.kind, oldest.stream.clone());
        if let Some(leaves) = self.tree.get_mut(&oldest.agent) {
            if let Some(leaf) = leaves.get_mut(&key) {
                // The oldest packet of all is the oldest of its leaf.
                leaf.pop_front();
                if leaf.is_empty() {
                    leaves.remove(&key);
                }
            }
            if leaves.is_empty() {
                self.tree.remove(&oldest.agent);
            }
        }
    }

    /// The packets that `selection` cannot rule out, in the order of their arrival.
    pub(crate) fn select(&self, selection: &Selection) -> Vec<Arc<Packet>> {
        let agents = (self.tree.iter()).filter(|(agent, _)| {
            selection
                .agent
                .as_ref()
                .is_none_or(|wanted| wanted == *agent)
        });
        let leaves = agents
            .flat_map(|(_, leaves)| leaves)
            .filter(|((kind, stream), _)| {
                selection.kind.is_none_or(|wanted| wanted == *kind)
                    && selection
                        .stream
                        .as_ref()
                        .is_none_or(|wanted| wanted == stream)
            });
        let mut found: Vec<_> = leaves
            .flat_map(|(_, leaf)| leaf)
            .filter(|(number, packet)| {
                selection.after.is_none_or(|after| *number > after)
                    && packet.overlaps(selection.from, selection.to)
            })
            .collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        let limit = selection.limit;
        found
            .into_iter()
            .take(limit)
            .map(|(_, packet)| Arc::clone(packet))
            .collect()
    }

    pub(crate) fn status(&self) -> BufferStatus {
        BufferStatus {
            packets: self.packets.len() as u64,
            bytes: self.bytes as u64,
            bytes_max: self.bytes_max as u64,
            evicted: self.evicted,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use storage_format::frame::Facts;

    use super::*;

    fn packet(agent: usize, stream: usize, size: usize, begin: i64) -> Packet {
        Packet {
            agent: format!("a{agent}").parse().unwrap(),
            stream: format!("s{stream}").parse().unwrap(),
            kind: [Kind::Otlp, Kind::Dft][stream % 2],
            position: None,
            payload: vec![0; size].into(),
            facts: Facts {
                time_span: Some((begin, begin + 10)),
                ..Facts::default()
            },
            arrival: begin,
            context: Arc::default(),
        }
    }

    fn all() -> Selection {
        Selection {
            limit: usize::MAX,
            ..Selection::default()
        }
    }

    proptest! {
        /// The buffer contains the newest packets that fit, and finds what a scan finds.
        #[test]
        fn the_newest_packets_are_found(
            packets in proptest::collection::vec(
                (0..3_usize, 0..4_usize, 0..900_usize, 0..100_i64), 0..60,
            ),
            agent in 0..3_usize, stream in 0..4_usize, from in 0..100_i64, length in 0..50_i64,
        ) {
            let mut buffer = Buffer::new(5000);
            let mut model: Vec<Packet> = Vec::new();
            for (agent, stream, size, begin) in packets {
                let packet = packet(agent, stream, size, begin);
                buffer.insert(&packet, false);
                model.push(packet);
                while model.iter().map(Packet::memory).sum::<usize>() > 5000 {
                    model.remove(0);
                }
            }
            let retained: usize = model.iter().map(Packet::memory).sum();
            prop_assert_eq!(buffer.status().bytes, retained as u64);
            let selection = Selection {
                agent: Some(format!("a{agent}").parse().unwrap()),
                stream: Some(format!("s{stream}").parse().unwrap()),
                from: Some(from),
                to: Some(from + length),
                ..all()
            };
            for (selection, is_wanted) in [
                (all(), Box::new(|_: &Packet| true) as Box<dyn Fn(&Packet) -> bool>),
                (selection.clone(), Box::new(|packet: &Packet| {
                    Some(&packet.agent) == selection.agent.as_ref()
                        && Some(&packet.stream) == selection.stream.as_ref()
                        && packet.arrival + 10 >= from
                        && packet.arrival < from + length
                })),
            ] {
                let found: Vec<_> = buffer.select(&selection).iter()
                    .map(|p| (p.agent.clone(), p.stream.clone(), p.arrival, p.payload.len()))
                    .collect();
                let wanted: Vec<_> = model.iter().filter(|packet| is_wanted(packet))
                    .map(|p| (p.agent.clone(), p.stream.clone(), p.arrival, p.payload.len()))
                    .collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }

    #[test]
    fn a_packet_larger_than_the_buffer_evicts_nothing() {
        let mut buffer = Buffer::new(2000);
        buffer.insert(&packet(0, 0, 100, 0), false);
        buffer.insert(&packet(0, 0, 3000, 0), false);
        let status = buffer.status();
        assert_eq!((status.packets, status.evicted), (1, 1));
    }

    #[test]
    fn evicted_packets_are_retained_until_released() {
        let mut buffer = Buffer::new(2000);
        let arrivals = |packets: &[Arc<Packet>]| -> Vec<i64> {
            packets.iter().map(|packet| packet.arrival).collect()
        };
        for arrival in 0..3 {
            buffer.insert(&packet(0, 0, 300, arrival), false);
        }
        // No packet is queued yet: 0 is not retained.
        buffer.insert(&packet(0, 0, 300, 3), false);
        let first = buffer.insert(&packet(0, 0, 300, 4), true);
        buffer.insert(&packet(1, 1, 5000, 5), true);
        let third = buffer.insert(&packet(0, 0, 1000, 6), true);
        assert_eq!(arrivals(&buffer.since_before(first)), [1, 2, 3, 4, 5, 6]);
        buffer.release(first);
        assert_eq!(arrivals(&buffer.since_before(third)), [2, 3, 4, 6]);
        buffer.release(first + 1);
        assert_eq!(arrivals(&buffer.since_before(third)), [2, 3, 4, 6]);
        buffer.release(third);
        assert!(buffer.retained.is_empty());
        assert_eq!(arrivals(&buffer.since_before(third)), [4, 6]);
    }
}
