//! The protocol, and variants of it that each leave out one rule.

use crate::{
    few::Few,
    state::{Flight, Key, Kind, Node, Phase, Progress, Record, State},
    step::Step,
};

/// Which rules hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// All of them.
    Whole,
    /// Every epoch numbers its records by itself.
    EpochInKey,
    /// The collection removes every kind of record.
    CollectOwns,
    /// A create that finds another record counts as done.
    ExistingCounts,
    /// A node that took over does not look for a seal.
    SealUnseen,
    /// The collection removes also records that are void.
    CollectVoid,
    /// Records are acknowledged before those in front of them are known.
    AnyOrder,
    /// Records behind a newer `own` count, and repeated packets are not recognized.
    VoidCounts,
}

/// Where the epochs of takeovers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Epochs {
    /// Each node has one from the beginning. The first owner has no `own`.
    Given,
    /// The largest that a node has read, plus one: two nodes may choose the same.
    Chosen,
}

/// The size of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) variant: Variant,
    pub(crate) epochs: Epochs,
    /// Packets that the first owner pushes.
    pub(crate) first: u8,
    /// Packets that the second owner pushes; they repeat those of the first.
    pub(crate) second: u8,
    /// Whether a third node may take over.
    pub(crate) third: bool,
    /// Appends that a node may have under way at once.
    pub(crate) under_way: usize,
}

impl Form {
    pub(crate) fn start(&self) -> State {
        let third = if self.third {
            Phase::Idle
        } else {
            Phase::Absent
        };
        let mut state = State {
            store: Few::new(),
            seal: None,
            nodes: [
                Node::new(1, Phase::Owning, self.first),
                Node::new(2, Phase::Idle, self.second),
                Node::new(3, third, 0),
            ],
            network: Few::new(),
            acknowledged: 0,
            duplicates: 1,
        };
        if self.epochs == Epochs::Chosen {
            let [first, others @ ..] = &mut state.nodes;
            let own = Record::new(first, Kind::Own, 0);
            state.store.push((Key::default(), own));
            first.next = 1;
            for node in others {
                node.epoch = 0;
            }
        }
        state
    }

    pub(crate) fn key(&self, epoch: u8, number: u8) -> Key {
        let space = match self.variant {
            Variant::EpochInKey => epoch,
            _ => 0,
        };
        Key { space, number }
    }

    /// Where the record of a flight is, once it was sent.
    pub(crate) fn key_sent(&self, epoch: u8, flight: &Flight) -> Key {
        if self.variant == Variant::EpochInKey && flight.record.kind == Kind::Own {
            return self.key(epoch, 0);
        }
        self.key(epoch, flight.number)
    }

    /// The packets of these records that count, in order.
    pub(crate) fn valid(&self, records: &[Record]) -> Few<u8, 8> {
        let counts_all = self.variant == Variant::VoidCounts;
        let mut packets = Few::<u8, 8>::new();
        let mut newest = 0;
        for record in records {
            if record.epoch < newest && !counts_all {
                continue;
            }
            newest = newest.max(record.epoch);
            match record.kind {
                Kind::Own => {}
                Kind::Close => break,
                Kind::Packet => {
                    if counts_all || !packets.items().contains(&record.packet) {
                        packets.push(record.packet);
                    }
                }
            }
        }
        packets
    }

    /// A node that walks reads `found` at its next number.
    pub(crate) fn pass(&self, node: &mut Node, found: Record, is_sealed: bool) -> Step {
        let name = node.name;
        let is_newer = self.epochs == Epochs::Given && found.epoch > node.epoch;
        if self.is_impossible(node, found) {
            node.phase = if is_sealed {
                Phase::Stopped
            } else {
                Phase::Broken
            };
            Step::Impossible { node: name }
        } else if self.is_closing(node, found) {
            self.finish_seal(node);
            Step::FindClosed { node: name }
        } else if is_newer {
            node.phase = Phase::Stopped;
            Step::Superseded { node: name }
        } else {
            node.seen.push(found);
            node.next += 1;
            Step::Walk { node: name }
        }
    }

    /// Node `index` learns that `found` stands where it sent its flight.
    pub(crate) fn learn(
        &self,
        state: &mut State,
        index: usize,
        flight_index: usize,
        found: Record,
    ) {
        let is_sealed = state.seal.is_some();
        let node = &mut state.nodes[index];
        let flight = node.flights.items()[flight_index];
        let sent = flight.record;
        if found == sent || self.variant == Variant::ExistingCounts {
            self.decide(state, index, flight_index, Progress::Won);
            return;
        }
        let is_newer = match self.epochs {
            Epochs::Chosen if sent.kind == Kind::Own => {
                found.kind == Kind::Own && found.epoch >= node.epoch
            }
            _ => found.epoch >= node.epoch,
        };
        if is_newer {
            self.decide(state, index, flight_index, Progress::Lost);
            return;
        }
        let again = Flight {
            number: flight.number + 1,
            record: sent,
            progress: Progress::Next,
        };
        // In front of our `own` it counts, behind it is void: in both cases the next number.
        if sent.kind == Kind::Own {
            self.pass(node, found, is_sealed);
            if node.phase != Phase::Walking {
                node.flights = Few::new();
                return;
            }
        }
        node.flights.replace(flight_index, again);
        node.next = node.next.max(flight.number + 2);
    }

    fn decide(&self, state: &mut State, index: usize, flight_index: usize, progress: Progress) {
        let node = &mut state.nodes[index];
        let flight = node.flights.items()[flight_index];
        node.flights
            .replace(flight_index, Flight { progress, ..flight });
        self.settle(state, index);
    }

    /// Takes from the front what is known to be in the chain.
    fn settle(&self, state: &mut State, index: usize) {
        let node = &mut state.nodes[index];
        let mut known = 0_u8;
        if self.variant == Variant::AnyOrder {
            for flight in node.flights.items() {
                if flight.progress == Progress::Won && flight.record.kind == Kind::Packet {
                    known |= 1 << flight.record.packet;
                }
            }
        }
        while let Some(flight) = node.flights.items().first().copied() {
            if flight.progress != Progress::Won {
                break;
            }
            node.flights.remove(0);
            match flight.record.kind {
                Kind::Packet => {
                    known |= 1 << flight.record.packet;
                    node.content.push(flight.record.packet);
                }
                Kind::Own => {
                    node.content = self.valid(node.seen.items());
                    node.seen = Few::new();
                    node.phase = match self.variant {
                        Variant::SealUnseen => Phase::Owning,
                        _ => Phase::Checking,
                    };
                }
                Kind::Close => node.phase = Phase::Sealing,
            }
        }
        let first = node.flights.items().first();
        if first.is_some_and(|flight| flight.progress == Progress::Lost) {
            node.flights = Few::new();
            node.phase = Phase::Stopped;
        }
        state.acknowledged |= known;
    }

    /// A closed chain needs no owner: whoever finds it seals.
    pub(crate) fn finish_seal(&self, node: &mut Node) {
        node.content = self.valid(node.seen.items());
        node.seen = Few::new();
        node.flights = Few::new();
        node.packet = node.packets_end;
        node.phase = Phase::Sealing;
    }

    /// Whether the collection removes this record.
    pub(crate) fn is_collected(&self, state: &State, key: Key, record: Record) -> bool {
        let is_kind = record.kind == Kind::Packet || self.variant == Variant::CollectOwns;
        let takes_void = matches!(self.variant, Variant::CollectVoid | Variant::EpochInKey);
        let is_fenced = || {
            state.store.items().iter().any(|(other, own)| {
                own.kind == Kind::Own && *other < key && own.epoch > record.epoch
            })
        };
        is_kind && (takes_void || !is_fenced())
    }

    /// Whether `found` is a close that counts for a node that walks.
    fn is_closing(&self, node: &Node, found: Record) -> bool {
        let is_older = self.epochs == Epochs::Chosen || found.epoch < node.epoch;
        found.kind == Kind::Close && is_older && found.epoch >= node.newest()
    }

    /// Whether no node writes `found` behind what this node has read.
    fn is_impossible(&self, node: &Node, found: Record) -> bool {
        let newest = node.newest();
        if self.epochs == Epochs::Given || found.epoch < newest {
            return false;
        }
        let is_own = found.kind == Kind::Own;
        let is_owner = |own: &Record| own.kind == Kind::Own && own.node == found.node;
        let mut owns = node.seen.items().iter().filter(|own| own.epoch == newest);
        let is_of_owner = found.epoch == newest && owns.any(is_owner);
        if is_own {
            found.epoch == newest
        } else {
            !is_of_owner
        }
    }
}
