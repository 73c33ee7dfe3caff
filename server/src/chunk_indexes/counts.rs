//! What is known of the events of a storage: of each leaf, what was counted when its packets
//! arrived, and what its chunk index has counted since.

use std::collections::HashMap;

use storage_core::LeafKey;
use storage_format::frame::{Facts, HEADER_BYTES};
use storage_format::index_part::PacketEntry;
use storage_format::{AgentId, Kind, LeafId, StreamNames};

/// The events of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventCount {
    /// Events, without those of derived streams.
    pub(crate) events: u64,
    /// Packets whose events are not among them; `None` until it is known.
    pub(crate) uncounted_packets: Option<u64>,
}

/// The packets of a leaf up to one of its bytes, as they were counted when they arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) to: u64,
    pub(super) packets: u64,
    pub(super) events: u64,
    /// Packets that were not counted, or with other metadata than that of today.
    pub(super) uncounted: u64,
    /// Events that were counted with other metadata.
    pub(super) outdated: u64,
}

/// What packets are decoded with besides their bytes: the trace metadata of their agent (CTF).
pub(super) type Metadata = Option<u32>;

impl Arrived {
    pub(super) fn add(&mut self, facts: &Facts, metadata: Option<Metadata>) {
        self.packets += 1;
        let events = facts.events.map_or(0, u64::from);
        let is_current = metadata.is_none_or(|metadata| facts.time_basis == metadata);
        self.events = self.events.saturating_add(events);
        if !is_current {
            self.outdated = self.outdated.saturating_add(events);
        }
        if !is_current || facts.events.is_none() {
            self.uncounted += 1;
        }
    }

    /// The packets up to `to`, from those that `each` visits after a byte.
    pub(super) fn up_to<E>(
        mut self,
        to: u64,
        metadata: Option<Metadata>,
        each: impl FnOnce(u64, &mut dyn FnMut(&PacketEntry)) -> Result<(), E>,
    ) -> Result<Self, E> {
        let wanted = self.to..to;
        let mut add = |entry: &PacketEntry| {
            if wanted.contains(&entry.offset.saturating_sub(HEADER_BYTES as u64)) {
                self.add(&entry.facts, metadata);
            }
        };
        each(wanted.start, &mut add)?;
        self.to = to;
        Ok(self)
    }
}

/// What is known of the events of one leaf.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeafCount {
    is_derived: bool,
    pub(super) is_plain: bool,
    pub(super) arrived: Arrived,
    /// The packets that its chunk index covers, and the events in it.
    pub(super) indexed: Option<(Arrived, u64)>,
    /// The metadata of its agent, of a CTF leaf.
    pub(super) metadata: Option<Metadata>,
    /// Its length when its packets were last to be counted with this metadata.
    pub(super) tried: Option<u64>,
}

impl LeafCount {
    pub(super) fn uncounted(&self) -> u64 {
        let counted = self.indexed.map_or(0, |(arrived, _)| arrived.uncounted);
        self.arrived.uncounted.saturating_sub(counted)
    }

    /// Events that were counted with other metadata, and that no index has counted since.
    fn outdated(&self) -> u64 {
        let counted = self.indexed.map_or(0, |(arrived, _)| arrived.outdated);
        self.arrived.outdated.saturating_sub(counted)
    }

    /// Whether an index may count more: none was tried with this metadata, or the leaf has grown by
    /// a part of what an index would be made of again.
    pub(super) fn is_due(&self) -> bool {
        let is_readable = self.metadata != Some(None);
        let has_grown = |length: u64| self.arrived.to.saturating_sub(length) > length / 4;
        is_readable && self.uncounted() > 0 && self.tried.is_none_or(has_grown)
    }
}

/// What is known of the events of one storage.
#[derive(Debug, Default)]
pub(super) struct StorageCount {
    pub(super) leaves: HashMap<LeafId, LeafCount>,
    /// Whether all that was there was looked at once.
    pub(super) is_known: bool,
}

impl StorageCount {
    /// Its events, of which so many were counted when they arrived.
    pub(super) fn of(&self, arrived: u64) -> EventCount {
        let leaves = || self.leaves.values().filter(|leaf| !leaf.is_derived);
        let sum = |terms: &mut dyn Iterator<Item = u64>| terms.fold(0, u64::saturating_add);
        let indexed = || leaves().filter_map(|leaf| leaf.indexed);
        let more = sum(&mut indexed().map(|(_, events)| events));
        let less = sum(&mut indexed().map(|(arrived, _)| arrived.events));
        let outdated = sum(&mut leaves().map(LeafCount::outdated));
        EventCount {
            events: arrived
                .saturating_add(more)
                .saturating_sub(less)
                .saturating_sub(outdated),
            uncounted_packets: self
                .is_known
                .then(|| sum(&mut leaves().map(LeafCount::uncounted))),
        }
    }

    /// Forgets the leaves that are no longer there, those that were cut, and those whose agent has
    /// other metadata now; returns those with packets that were not looked at, and the bytes of
    /// these.
    pub(super) fn begin(
        &mut self,
        keys: &[LeafKey],
        metadata: &HashMap<AgentId, Metadata>,
    ) -> (HashMap<LeafId, LeafCount>, u64) {
        let lengths: HashMap<LeafId, u64> = keys.iter().map(|key| (key.leaf, key.length)).collect();
        self.leaves
            .retain(|leaf, count| lengths.get(leaf).is_some_and(|to| count.arrived.to <= *to));
        let names: StreamNames = keys.iter().map(|key| &key.path).collect();
        let (mut changed, mut bytes) = (HashMap::new(), 0_u64);
        for key in keys {
            let path = &key.path;
            let count = self.leaves.entry(key.leaf).or_default();
            let of_agent = metadata.get(&path.agent).copied().unwrap_or_default();
            let metadata = (path.kind == Kind::Ctf).then_some(of_agent);
            if count.metadata != metadata {
                *count = LeafCount {
                    metadata,
                    ..LeafCount::default()
                };
            }
            count.is_derived = names.has_source_of(path.kind, &path.agent, &path.stream);
            if count.arrived.to < key.length {
                changed.insert(key.leaf, *count);
                bytes = bytes.saturating_add(key.length - count.arrived.to);
            }
        }
        self.is_known |= changed.is_empty();
        (changed, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(packets: u64, uncounted: u64) -> LeafCount {
        LeafCount {
            arrived: Arrived {
                to: 1000,
                packets,
                events: 10,
                uncounted,
                outdated: 0,
            },
            ..LeafCount::default()
        }
    }

    #[test]
    fn a_leaf_is_due_once_for_its_metadata_and_length() {
        let of = |metadata, tried| LeafCount {
            metadata,
            tried,
            ..leaf(5, 2)
        };
        let (ctf, without, other) = (Some(Some(1)), Some(None), None);
        for (what, count, is_due) in [
            ("new", of(ctf, None), true),
            ("all counted", leaf(5, 0), false),
            ("no metadata", of(without, None), false),
            ("needs none", of(other, None), true),
            ("tried", of(ctf, Some(1000)), false),
            ("grown a little", of(ctf, Some(800)), false),
            ("grown", of(ctf, Some(799)), true),
        ] {
            assert_eq!(count.is_due(), is_due, "{what}");
        }
    }

    #[test]
    fn packets_that_were_counted_with_other_metadata_are_to_be_counted() {
        let facts = |events, time_basis| Facts {
            events,
            time_basis,
            ..Facts::default()
        };
        for (facts, metadata, expected) in [
            (facts(Some(3), None), None, (3, 0, 0)),
            (facts(None, None), None, (0, 1, 0)),
            (facts(Some(3), Some(1)), Some(Some(1)), (3, 0, 0)),
            (facts(Some(3), Some(1)), Some(Some(2)), (3, 1, 3)),
            (facts(None, Some(1)), Some(Some(1)), (0, 1, 0)),
            (facts(None, None), Some(None), (0, 1, 0)),
        ] {
            let mut arrived = Arrived::default();
            arrived.add(&facts, metadata);
            let found = (arrived.events, arrived.uncounted, arrived.outdated);
            assert_eq!(found, expected, "{facts:?} {metadata:?}");
        }
    }

    #[test]
    fn events_in_indexes_replace_those_that_arrived() {
        let indexed = LeafCount {
            indexed: Some((leaf(4, 2).arrived, 50)),
            ..leaf(6, 3)
        };
        let derived = LeafCount {
            is_derived: true,
            ..indexed
        };
        let mut count = StorageCount {
            leaves: [(1, leaf(2, 0)), (2, indexed), (3, derived)]
                .map(|(id, count)| (LeafId(id), count))
                .into(),
            is_known: false,
        };
        // 10 events of each leaf arrived, and those of the derived one are not counted.
        let of = |count: &StorageCount| {
            let EventCount {
                events,
                uncounted_packets,
            } = count.of(20);
            (events, uncounted_packets)
        };
        assert_eq!(of(&count), (60, None));
        count.is_known = true;
        assert_eq!(of(&count), (60, Some(1)));
        let mut outdated = leaf(2, 2);
        outdated.arrived.outdated = 10;
        count.leaves.insert(LeafId(1), outdated);
        assert_eq!(of(&count), (50, Some(3)));
    }
}
