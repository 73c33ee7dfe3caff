//! The root over all packets of a storage.
//!
//! It depends on what the agents sent and not on how it is stored: not on compression, on the
//! files, or on the order in which packets of different streams arrived.

use blake3::Hasher;

use super::Digest;
use crate::{LeafId, StreamPosition, data_file::LeafPath, integer::u64_of};

const LEAF_CONTEXT: &str = "tracehold 2026-11 seal: packets of a leaf";
const ROOT_CONTEXT: &str = "tracehold 2026-11 seal: packets of a storage";

/// Hashes the packets of a leaf in their order.
#[derive(Debug, Clone)]
pub struct LeafHasher {
    leaf: LeafId,
    packets: u64,
    hasher: Hasher,
}

/// The hash of the packets of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeafHash {
    leaf: u64,
    packets: u64,
    hash: Digest,
}

impl LeafHasher {
    /// The hash of a leaf without packets.
    #[must_use]
    pub fn new(leaf: LeafId, path: &LeafPath) -> Self {
        let mut hasher = Hasher::new_derive_key(LEAF_CONTEXT);
        for text in [
            path.agent.as_str(),
            path.kind.as_str(),
            path.stream.as_str(),
        ] {
            hasher.update(&u64_of(text.len()).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        let (begin, length) = path.bucket.map_or((0, 0), |b| (b.begin, b.length));
        hasher.update(&begin.to_le_bytes());
        hasher.update(&length.to_le_bytes());
        Self {
            leaf,
            packets: 0,
            hasher,
        }
    }

    /// Adds the next packet: its number, its position, and its bytes as the agent sent them.
    pub fn add(&mut self, number: u64, position: StreamPosition, raw: &[u8]) {
        let mut hasher = Hasher::new();
        let hash = hasher.update(raw).finalize();
        self.hasher.update(&number.to_le_bytes());
        self.hasher.update(&position.epoch.to_le_bytes());
        self.hasher.update(&position.sequence.to_le_bytes());
        self.hasher.update(&u64_of(raw.len()).to_le_bytes());
        self.hasher.update(hash.as_bytes());
        self.packets = self.packets.saturating_add(1);
    }

    /// The hash of all packets so far.
    #[must_use]
    pub fn finish(&self) -> LeafHash {
        LeafHash {
            leaf: self.leaf.0,
            packets: self.packets,
            hash: Digest(*self.hasher.finalize().as_bytes()),
        }
    }
}

/// The number of packets of all leaves, and the root over them.
#[must_use]
pub fn packet_root(mut leaves: Vec<LeafHash>) -> (u64, Digest) {
    leaves.sort_unstable();
    let mut hasher = Hasher::new_derive_key(ROOT_CONTEXT);
    let mut packets = 0_u64;
    // A leaf without packets is as one that is not there.
    for leaf in leaves.iter().filter(|leaf| leaf.packets > 0) {
        hasher.update(&leaf.leaf.to_le_bytes());
        hasher.update(&leaf.packets.to_le_bytes());
        hasher.update(&leaf.hash.0);
        packets = packets.saturating_add(leaf.packets);
    }
    (packets, Digest(*hasher.finalize().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn leaf(id: u64, stream: &str, packets: &[&[u8]]) -> LeafHash {
        let path = LeafPath {
            agent: "node-1".parse().expect("an id"),
            kind: Kind::Raw,
            stream: stream.parse().expect("an id"),
            bucket: None,
        };
        let mut hasher = LeafHasher::new(LeafId(id), &path);
        for (number, packet) in (0..).zip(packets) {
            hasher.add(number, StreamPosition::new(1, number), packet);
        }
        hasher.finish()
    }

    #[test]
    fn the_root_depends_on_every_packet_and_not_on_the_order_of_leaves() {
        let whole = || vec![leaf(1, "a", &[b"x", b"yz"]), leaf(2, "b", &[b"x"])];
        let (packets, root) = packet_root(whole());
        assert_eq!(packets, 3);
        let reversed = whole().into_iter().rev().collect();
        assert_eq!(packet_root(reversed), (3, root));
        let with_empty = [whole(), vec![leaf(3, "c", &[])]].concat();
        assert_eq!(packet_root(with_empty), (3, root));
        for other in [
            vec![leaf(1, "a", &[b"x"]), leaf(2, "b", &[b"x"])],
            vec![leaf(1, "a", &[b"xy", b"z"]), leaf(2, "b", &[b"x"])],
            vec![leaf(1, "a", &[b"yz", b"x"]), leaf(2, "b", &[b"x"])],
            vec![leaf(1, "A", &[b"x", b"yz"]), leaf(2, "b", &[b"x"])],
            vec![leaf(1, "a", &[b"x", b"yz"])],
        ] {
            assert_ne!(packet_root(other).1, root);
        }
    }
}
