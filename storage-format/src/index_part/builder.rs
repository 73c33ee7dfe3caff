//! Builds an index part.

use std::ops::Range;

use super::{
    IndexPartHeader, VERSION,
    bases::{TimeBases, TimeBasesBuilder},
    block::{ArrayBlock, PacketEntry},
    extent::Extent,
    footer::{
        DataFileEntry, Footer, LeafEntry, LeafNumbers, LogPosition, Trailer, are_in_order,
        encode_log,
    },
};
use crate::{
    FormatError, FormatErrorKind, LeafId, LeafType, checksum::crc32c, data_file::LeafPath,
    integer::u64_of, storage_file::Totals,
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

/// A block of another part, checked against its record in the footer.
#[derive(Debug, Clone, Copy)]
pub struct StoredBlock<'a> {
    /// Its record.
    pub entry: &'a LeafEntry,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The time bases of the other part.
    pub bases: &'a TimeBases,
}

/// Collects the leaves of an index part and encodes it.
#[derive(Debug)]
pub struct IndexPartBuilder {
    header: IndexPartHeader,
    /// Number of bytes that were taken.
    taken: u64,
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
            taken: 0,
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
            block_offset: self.taken.saturating_add(u64_of(start)),
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

    /// Adds a leaf whose packets are in blocks of other parts, which follow each other; they become
    /// one block. After an error the builder is of no use.
    ///
    /// # Errors
    /// When a block is impossible, or does not follow the one before.
    ///
    /// # Panics
    /// When there is no block.
    pub fn add_joined(&mut self, blocks: &[StoredBlock<'_>]) -> Result<(), FormatError> {
        let (first, last) = blocks.first().zip(blocks.last()).expect("a block is added");
        let fault = |block: &StoredBlock<'_>, name| {
            let at = block.entry.block_offset;
            FormatError::new("index block", at, FormatErrorKind::Order { name })
        };
        let pairs = blocks.iter().zip(blocks.iter().skip(1));
        if let Some((_, next)) = pairs
            .into_iter()
            .find(|(block, next)| !block.entry.is_followed_by(next.entry))
        {
            return Err(fault(next, "leaf"));
        }
        let start = self.bytes.len();
        let mut before: Option<PacketEntry> = None;
        for block in blocks {
            if !self.add_entries(block, &mut before)? {
                return Err(fault(block, "packets"));
            }
        }
        let (mut packets, mut extents, mut totals) = (0_u32, 0_u32, Totals::default());
        for block in blocks {
            packets = packets.saturating_add(block.entry.block_packets);
            totals.add(&block.entry.totals);
            let of_block = block.entry.extents_in(block.bytes)?;
            for extent in &of_block {
                self.bytes.extend_from_slice(&extent.encode());
            }
            let count = u32::try_from(of_block.len()).unwrap_or(u32::MAX);
            extents = extents.saturating_add(count);
        }
        self.leaves.push(LeafEntry {
            leaf: first.entry.leaf,
            leaf_type: first.entry.leaf_type,
            path: first.entry.path.clone(),
            block_offset: self.taken.saturating_add(u64_of(start)),
            block_packets: packets,
            block_extents: extents,
            block_checksum: crc32c(&self.bytes[start..]),
            covered: first.entry.covered.start..last.entry.covered.end,
            covered_checksum: last.entry.covered_checksum,
            totals,
            numbers: LeafNumbers {
                last: last.entry.numbers.last,
                last_position: last.entry.numbers.last_position,
                ..first.entry.numbers
            },
        });
        Ok(())
    }

    /// Adds a leaf whose packets are in a block of another part, and whose bytes are in `extents`
    /// now. After an error the builder is of no use.
    ///
    /// # Errors
    /// When the block is impossible, or the extents are not those of its bytes.
    pub fn add_moved(
        &mut self,
        block: &StoredBlock<'_>,
        extents: &[Extent],
    ) -> Result<(), FormatError> {
        let entry = block.entry;
        let fault = |name| {
            let kind = FormatErrorKind::Order { name };
            FormatError::new("index block", entry.block_offset, kind)
        };
        let start = self.bytes.len();
        if !self.add_entries(block, &mut None)? {
            return Err(fault("packets"));
        }
        let mut next = entry.covered.start;
        for extent in extents {
            if extent.leaf_offset != next {
                return Err(fault("extents"));
            }
            next = extent.leaf_end();
            self.bytes.extend_from_slice(&extent.encode());
        }
        let count = u32::try_from(extents.len()).unwrap_or(u32::MAX);
        if next != entry.covered.end || count == 0 {
            return Err(fault("extents"));
        }
        self.leaves.push(LeafEntry {
            block_offset: self.taken.saturating_add(u64_of(start)),
            block_extents: count,
            block_checksum: crc32c(&self.bytes[start..]),
            ..entry.clone()
        });
        Ok(())
    }

    /// Adds the packets of a block; whether they follow the packet before.
    fn add_entries(
        &mut self,
        block: &StoredBlock<'_>,
        before: &mut Option<PacketEntry>,
    ) -> Result<bool, FormatError> {
        let entries = ArrayBlock::new(block.entry.entries_in(block.bytes), block.bases)?;
        for at in 0..entries.len() {
            let entry = entries.get(at)?;
            let follows = |before: &PacketEntry| {
                before.number < entry.number
                    && before.offset < entry.offset
                    && before.position < entry.position
            };
            if !before.as_ref().is_none_or(follows) {
                return Ok(false);
            }
            *before = Some(entry);
            let encoded = entry.encode(&mut self.bases);
            self.bytes.extend_from_slice(&encoded);
        }
        Ok(true)
    }

    /// Number of encoded bytes that were not taken yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Takes what is encoded so far, so that it can be written before the part is complete. What
    /// [`Self::finish`] returns follows it.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        self.taken = self.taken.saturating_add(u64_of(self.bytes.len()));
        std::mem::take(&mut self.bytes)
    }

    /// The bytes of the part of a storage with these data files, described up to `position` of its
    /// log; and the footer and time bases that they contain.
    #[must_use]
    pub fn finish(
        mut self,
        files: Vec<DataFileEntry>,
        position: Option<LogPosition>,
    ) -> (Vec<u8>, Footer, TimeBases) {
        self.leaves
            .sort_by_key(|entry| (entry.leaf, entry.covered.start));
        assert!(
            are_in_order(&self.leaves),
            "the records of a leaf follow each other"
        );
        let bases = self.taken.saturating_add(u64_of(self.bytes.len()));
        self.bases.encode(&mut self.bytes);
        let start = self.bytes.len();
        encode_log(&files, position, &mut self.bytes);
        for leaf in &self.leaves {
            leaf.encode(&mut self.bytes);
        }
        let footer = &self.bytes[start..];
        let footer_offset = self.taken.saturating_add(u64_of(start));
        let trailer = Trailer {
            footer_offset,
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
                bases: bases..footer_offset,
            },
            self.bases.finish(),
        )
    }
}
