//! Puts an index part together.

use std::ops::Range;

use super::{
    Footer, HEADER_BYTES, IndexPartHeader, LeafEntry, LeafNumbers, PacketEntry, TimeBases, Trailer,
    bases::TimeBasesBuilder,
};
use crate::{LeafId, LeafType, checksum::crc32c, data_file::LeafPath, storage_file::Totals};

/// A leaf to be added to an index part.
#[derive(Debug)]
pub struct NewLeaf<'a> {
    /// The leaf.
    pub leaf: LeafId,
    /// Where it stands in the tree.
    pub path: LeafPath,
    /// Its packets, in the order of the data file; `None` makes it a plain leaf.
    pub entries: Option<&'a [PacketEntry]>,
    /// Bytes of the data file that this part describes.
    pub covered: Range<u64>,
    /// CRC32C of the data file from its start to the end of `covered`.
    pub covered_checksum: u32,
    /// Sums over the packets in this part.
    pub totals: Totals,
    /// First and last packet in this part.
    pub numbers: LeafNumbers,
}

/// Collects the leaves of an index part and gives its bytes.
#[derive(Debug)]
pub struct IndexPartBuilder {
    header: IndexPartHeader,
    bytes: Vec<u8>,
    leaves: Vec<LeafEntry>,
    bases: TimeBasesBuilder,
}

impl IndexPartBuilder {
    /// An index part without leaves.
    #[must_use]
    pub fn new(header: IndexPartHeader) -> Self {
        let mut bytes = Vec::with_capacity(4 * HEADER_BYTES);
        bytes.extend_from_slice(&header.encode());
        Self {
            header,
            bytes,
            leaves: Vec::new(),
            bases: TimeBasesBuilder::default(),
        }
    }

    /// Adds a leaf.
    pub fn add_leaf(&mut self, leaf: NewLeaf<'_>) {
        let start = self.bytes.len();
        for entry in leaf.entries.unwrap_or_default() {
            let entry = entry.encode(&mut self.bases);
            self.bytes.extend_from_slice(&entry);
        }
        let leaf_type = if leaf.entries.is_some() {
            LeafType::Array
        } else {
            LeafType::Plain
        };
        let block_packets = leaf.entries.map_or(0, <[_]>::len);
        self.leaves.push(LeafEntry {
            leaf: leaf.leaf,
            leaf_type,
            path: leaf.path,
            block_offset: start as u64,
            block_packets: u32::try_from(block_packets).expect("a tree is bounded far below this"),
            block_checksum: crc32c(&self.bytes[start..]),
            covered: leaf.covered,
            covered_checksum: leaf.covered_checksum,
            totals: leaf.totals,
            numbers: leaf.numbers,
        });
    }

    /// The bytes of the part, and the footer and the time bases that stand in them.
    #[must_use]
    pub fn finish(mut self) -> (Vec<u8>, Footer, TimeBases) {
        self.leaves.sort_by_key(|entry| entry.leaf);
        let bases = self.bytes.len() as u64;
        self.bases.encode(&mut self.bytes);
        let start = self.bytes.len();
        for leaf in &self.leaves {
            leaf.encode(&mut self.bytes);
        }
        let footer = &self.bytes[start..];
        let trailer = Trailer {
            footer_offset: start as u64,
            footer_length: u32::try_from(footer.len()).expect("a tree is bounded far below this"),
            footer_checksum: crc32c(footer),
            leaf_count: u32::try_from(self.leaves.len()).expect("a tree is bounded"),
        };
        self.bytes
            .extend_from_slice(&trailer.encode(self.header.storage));
        (
            self.bytes,
            Footer {
                leaves: self.leaves,
                bases: bases..start as u64,
            },
            self.bases.finish(),
        )
    }
}
