//! Which records of a chain count.

use uuid::Uuid;

use super::record::{Record, RecordKind};
use crate::NodeName;

/// A node that took a storage over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its epoch.
    pub epoch: u64,
    /// The node.
    pub node: NodeName,
    /// The nonce of its takeover.
    pub nonce: Uuid,
    /// The number of its `own`.
    pub number: u64,
}

/// What a record means behind those in front of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Counts,
    Void,
    /// No node writes this: the chain was collected, or is damaged.
    Impossible(&'static str),
}

/// The records from the first to some number, as far as they matter for the next.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    pub(super) owner: Option<Owner>,
    pub(super) is_closed: bool,
}

impl Sequence {
    /// The largest epoch so far; 0 in front of the first `own`.
    pub(super) fn epoch(&self) -> u64 {
        self.owner.as_ref().map_or(0, |owner| owner.epoch)
    }

    /// Takes the next record.
    pub(super) fn push(&mut self, record: &Record) -> Meaning {
        if self.is_closed || record.epoch < self.epoch() {
            return Meaning::Void;
        }
        let newest = self.owner.as_ref();
        if record.kind == RecordKind::Own {
            if record.epoch == self.epoch() {
                return Meaning::Impossible("another `own` has its epoch");
            }
            self.owner = Some(Owner {
                epoch: record.epoch,
                node: record.node.clone(),
                nonce: record.nonce,
                number: record.number,
            });
            return Meaning::Counts;
        }
        let owner = newest.filter(|owner| owner.epoch == record.epoch);
        if owner.is_none_or(|owner| owner.nonce != record.nonce) {
            return Meaning::Impossible("the `own` of its node is missing");
        }
        self.is_closed = record.kind == RecordKind::Close;
        Meaning::Counts
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn record(number: u64, epoch: u64, nonce: u8, kind: RecordKind) -> Record {
        Record {
            number,
            epoch,
            nonce: Uuid::from_bytes([nonce; 16]),
            node: NodeName::new("n").unwrap(),
            kind,
            payload: Bytes::new(),
        }
    }

    fn meanings(records: &[(u64, u8, RecordKind)]) -> String {
        let mut sequence = Sequence::default();
        let mut meaning = |(number, (epoch, nonce, kind))| match sequence
            .push(&record(number, epoch, nonce, kind))
        {
            Meaning::Counts => '+',
            Meaning::Void => '-',
            Meaning::Impossible(_) => '!',
        };
        (0..)
            .zip(records.iter().copied())
            .map(&mut meaning)
            .collect()
    }

    #[test]
    fn older_epochs_are_void_and_so_is_all_behind_a_close() {
        use RecordKind::{Close, Own, Packets};
        let chain = [
            (1, 1, Own),
            (1, 1, Packets),
            (3, 3, Own),
            (1, 1, Packets),
            (1, 1, Close),
            (2, 2, Own),
            (3, 3, Packets),
            (3, 3, Close),
            (3, 3, Packets),
            (4, 4, Own),
        ];
        assert_eq!(meanings(&chain), "+++---++--");
    }

    #[test]
    fn what_no_node_writes_is_noticed() {
        use RecordKind::{Close, Own, Packets};
        assert_eq!(meanings(&[(1, 1, Packets)]), "!");
        assert_eq!(meanings(&[(1, 1, Own), (1, 2, Own)]), "+!");
        assert_eq!(meanings(&[(1, 1, Own), (1, 2, Packets)]), "+!");
        assert_eq!(meanings(&[(1, 1, Own), (2, 2, Close)]), "+!");
        assert_eq!(meanings(&[(0, 1, Own)]), "!");
    }
}
