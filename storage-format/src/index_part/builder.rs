//! Builds an index part.

use std::ops::Range;

use super::{
    IndexPartHeader, VERSION,
    bases::{TimeBases, TimeBasesBuilder},
    block::PacketEntry,
    extent::Extent,
    footer::{DataFileEntry, Footer, LeafEntry, LeafNumbers, LogPosition, Trailer, encode_log},
};
use crate::{
    LeafId, LeafType, checksum::crc32c, data_file::LeafPath, integer::u64_of, storage_file::Totals,
};

/// A leaf to be added to an index part.
#[derive(Debug)]
pub struct NewLeaf<'a> {
    /// The leaf.
    pub leaf: LeafId,
    /// Its path in the tree.
    pub path: LeafPath,
    /// Its packets, in the order of the leaf; `None` makes it a plain leaf.
    pub entries: Option<&'a [PacketEntry]>,
    /// Where the bytes `covered` are, in the order of the leaf.
    pub extents: &'a [Extent],
    /// Bytes of the leaf that this part describes.
    pub covered: Range<u64>,
    /// CRC32C of the leaf from its start to the end of `covered`.
    pub covered_checksum: u32,
    /// Sums over the packets in this part.
    pub totals: Totals,
    /// First and last packet in this part.
    pub numbers: LeafNumbers,
}

/// Collects the leaves of an index part and encodes it.
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
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&header.encode());
        Self {
            header,
            bytes,
            leaves: Vec::new(),
            bases: TimeBasesBuilder::default(),
        }
    }

    /// Adds a leaf.
    ///
    /// # Panics
    /// When its packets are not in order.
    pub fn add_leaf(&mut self, leaf: NewLeaf<'_>) {
        if let Some(entries) = leaf.entries {
            let is_ordered = |a: &PacketEntry, b: &PacketEntry| {
                a.number < b.number && a.offset < b.offset && a.position < b.position
            };
            assert!(
                entries.is_sorted_by(is_ordered),
                "a block is searched by number, offset and position, so all of them grow"
            );
            let ends = entries.first().zip(entries.last());
            assert!(
                ends.is_none_or(|(first, last)| first.number == leaf.numbers.first
                    && last.number == leaf.numbers.last),
                "the footer gives the first and the last number of the block"
            );
        }
        let start = self.bytes.len();
        for entry in leaf.entries.unwrap_or_default() {
            let entry = entry.encode(&mut self.bases);
            self.bytes.extend_from_slice(&entry);
        }
        let mut next = leaf.covered.start;
        for extent in leaf.extents {
            assert_eq!(
                extent.leaf_offset, next,
                "the extents of a leaf follow each other without a gap"
            );
            next = extent.leaf_end();
            self.bytes.extend_from_slice(&extent.encode());
        }
        assert_eq!(
            next, leaf.covered.end,
            "the extents of a leaf cover what the part describes"
        );
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
            block_offset: u64_of(start),
            block_packets: u32::try_from(block_packets)
                .expect("the number of live packets is bounded"),
            block_extents: u32::try_from(leaf.extents.len())
                .expect("the number of live extents is bounded"),
            block_checksum: crc32c(&self.bytes[start..]),
            covered: leaf.covered,
            covered_checksum: leaf.covered_checksum,
            totals: leaf.totals,
            numbers: leaf.numbers,
        });
    }

    /// The bytes of the part of a storage with these data files, described up to `position` of its
    /// log; and the footer and time bases that they contain.
    #[must_use]
    pub fn finish(
        mut self,
        files: Vec<DataFileEntry>,
        position: Option<LogPosition>,
    ) -> (Vec<u8>, Footer, TimeBases) {
        self.leaves.sort_by_key(|entry| entry.leaf);
        assert!(
            self.leaves.is_sorted_by(|a, b| a.leaf < b.leaf),
            "a part describes a leaf once"
        );
        let bases = u64_of(self.bytes.len());
        self.bases.encode(&mut self.bytes);
        let start = self.bytes.len();
        encode_log(&files, position, &mut self.bytes);
        for leaf in &self.leaves {
            leaf.encode(&mut self.bytes);
        }
        let footer = &self.bytes[start..];
        let trailer = Trailer {
            footer_offset: u64_of(start),
            footer_length: u32::try_from(footer.len()).expect("the number of leaves is bounded"),
            footer_checksum: crc32c(footer),
            leaf_count: u32::try_from(self.leaves.len()).expect("the number of leaves is bounded"),
            version: VERSION,
        };
        self.bytes
            .extend_from_slice(&trailer.encode(self.header.storage));
        (
            self.bytes,
            Footer {
                files,
                position,
                leaves: self.leaves,
                bases: bases..u64_of(start),
            },
            self.bases.finish(),
        )
    }
}
