//! One state of the whole: the store, the requests under way, the nodes, what was acknowledged.

use crate::few::Few;

/// What a record is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Kind {
    #[default]
    Packet,
    Own,
    Close,
}

/// A record of the chain. Packets are numbered from 1; other kinds have 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Record {
    pub(crate) epoch: u8,
    /// Which node wrote it.
    pub(crate) node: u8,
    pub(crate) kind: Kind,
    pub(crate) packet: u8,
}

impl Record {
    pub(crate) fn new(node: &Node, kind: Kind, packet: u8) -> Self {
        Self {
            epoch: node.epoch,
            node: node.name,
            kind,
            packet,
        }
    }

    fn write(self, code: &mut Code) {
        code.push((self.epoch << 4) | self.node);
        code.push(((self.kind as u8) << 4) | self.packet);
    }
}

/// Where a record is kept. `space` is 0, but for the variant with one sequence per epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Key {
    pub(crate) space: u8,
    pub(crate) number: u8,
}

impl Key {
    fn code(self) -> u8 {
        (self.space << 5) | self.number
    }
}

/// A record that is, or is to be, stored under a key.
pub(crate) type Placed = (Key, Record);

/// What a node does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The form of the model has fewer nodes.
    Absent,
    /// Has not begun to take over.
    Idle,
    /// Looks for the first absent number, and makes its `own` there.
    Walking,
    /// Owns the chain, and looks whether the storage is sealed.
    Checking,
    Owning,
    Closing,
    Sealing,
    Collecting,
    /// Superseded: it never acknowledges again.
    Stopped,
    /// Somebody else has sealed.
    Ended,
    /// Read what no node writes, in a storage without a seal.
    Broken,
}

/// What is known of a record that a node has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Progress {
    #[default]
    Sent,
    Won,
    Lost,
    /// Another record is there that does not count: to be sent to this number instead.
    Next,
}

/// A record that a node has sent, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Flight {
    pub(crate) number: u8,
    pub(crate) record: Record,
    pub(crate) progress: Progress,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) name: u8,
    pub(crate) epoch: u8,
    pub(crate) phase: Phase,
    /// The next number of the chain.
    pub(crate) next: u8,
    /// Its first packet that it has not sent yet, and the end of its packets.
    pub(crate) packet: u8,
    pub(crate) packets_end: u8,
    pub(crate) flights: Few<Flight, 2>,
    /// While it walks: the records it has seen.
    pub(crate) seen: Few<Record, 16>,
    /// Afterwards: the packets that it knows to be in the chain.
    pub(crate) content: Few<u8, 8>,
}

/// A seal: who made it, and the packets in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seal {
    pub(crate) epoch: u8,
    pub(crate) content: Few<u8, 8>,
}

/// All of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) store: Few<Placed, 16>,
    pub(crate) seal: Option<Seal>,
    pub(crate) nodes: [Node; 3],
    pub(crate) network: Few<Placed, 16>,
    /// Bit of each acknowledged packet.
    pub(crate) acknowledged: u8,
    /// How many more requests the network may apply twice.
    pub(crate) duplicates: u8,
}

impl Node {
    pub(crate) fn new(name: u8, phase: Phase, packets: u8) -> Self {
        Self {
            name,
            epoch: name,
            phase,
            next: 0,
            packet: 1,
            packets_end: packets + 1,
            flights: Few::new(),
            seen: Few::new(),
            content: Few::new(),
        }
    }

    /// The largest epoch that it has read.
    pub(crate) fn newest(&self) -> u8 {
        let epochs = self.seen.items().iter().map(|record| record.epoch);
        epochs.max().unwrap_or(0)
    }

    pub(crate) fn has_packets(&self) -> bool {
        self.packet < self.packets_end
    }

    pub(crate) fn knows(&self, packet: u8) -> bool {
        self.content.items().contains(&packet)
    }

    fn write(&self, code: &mut Code) {
        for part in [self.phase as u8, self.epoch, self.next] {
            code.push(part);
        }
        code.push(self.packets_end - self.packet);
        code.begin(self.flights.items());
        for flight in self.flights.items() {
            code.push((flight.number << 2) | flight.progress as u8);
            flight.record.write(code);
        }
        code.begin(self.seen.items());
        for record in self.seen.items() {
            record.write(code);
        }
        code.begin(self.content.items());
        for packet in self.content.items() {
            code.push(*packet);
        }
    }
}

/// A state in few bytes; different states differ in them. Not a `Vec`: without optimization the
/// search would spend its time in its functions.
#[derive(Debug)]
pub(crate) struct Code {
    bytes: [u8; 256],
    length: usize,
}

impl Code {
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; 256],
            length: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    fn begin<T>(&mut self, list: &[T]) {
        self.push(u8::try_from(list.len()).unwrap());
    }
}

impl State {
    pub(crate) fn get(&self, key: Key) -> Option<Record> {
        let found = self.store.items().iter().find(|placed| placed.0 == key);
        found.map(|placed| placed.1)
    }

    pub(crate) fn acknowledge(&mut self, packet: u8) {
        self.acknowledged |= 1 << packet;
    }

    /// What an acknowledged packet, or a seal, must never be.
    pub(crate) fn violation(&self) -> Option<String> {
        if self.nodes.iter().any(|node| node.phase == Phase::Broken) {
            return Some("a record lacks its `own`, and there is no seal".into());
        }
        let content = self.seal.as_ref()?.content;
        let mut sealed = 0;
        for packet in content.items() {
            if sealed & (1 << packet) != 0 {
                return Some(format!("packet {packet} is in the seal twice"));
            }
            sealed |= 1 << packet;
        }
        let lost = self.acknowledged & !sealed;
        (lost != 0).then(|| format!("acknowledged packets are not in the seal: bits {lost:b}"))
    }

    /// Overwrites `code` with that of this state.
    pub(crate) fn write(&self, code: &mut Code) {
        code.length = 0;
        for list in [self.store.items(), self.network.items()] {
            code.begin(list);
            for (key, record) in list {
                code.push(key.code());
                record.write(code);
            }
        }
        match &self.seal {
            Some(seal) => {
                code.push(seal.epoch);
                code.begin(seal.content.items());
                for packet in seal.content.items() {
                    code.push(*packet);
                }
            }
            None => code.push(0),
        }
        for node in &self.nodes {
            node.write(code);
        }
        code.push(self.acknowledged);
        code.push(self.duplicates);
    }
}
