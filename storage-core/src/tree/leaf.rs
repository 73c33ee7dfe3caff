//! A leaf of the index tree, and the segments of its packets.

use std::{
    ops::{Range, RangeInclusive},
    sync::Arc,
};

use storage_format::{
    LeafId, LeafType, StreamPosition,
    data_file::{self, LeafPath},
    frame::{self, frame_bytes},
    index_part::{Extent, LeafEntry, LeafNumbers, PacketEntry},
    storage_file::Totals,
};

use super::{PartBlock, time_index::TimeIndex};
use crate::io_thread::Tail;

/// A run of packets of one leaf.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// Bytes of the leaf.
    pub(crate) covered: Range<u64>,
    /// CRC32C of the leaf up to the end of `covered`.
    pub(crate) covered_checksum: u32,
    pub(crate) totals: Totals,
    pub(crate) numbers: LeafNumbers,
    pub(crate) body: SegmentBody,
    /// Where the bytes are, unless they are in an index part.
    pub(crate) extents: Vec<Extent>,
}

impl Segment {
    /// The segment that a block of an index part describes.
    pub(super) fn of_block(block: &PartBlock) -> Self {
        let entry = block.entry();
        Self {
            covered: entry.covered.clone(),
            covered_checksum: entry.covered_checksum,
            totals: entry.totals,
            numbers: entry.numbers,
            body: match entry.leaf_type {
                LeafType::Array => SegmentBody::Part(block.clone()),
                LeafType::Plain => SegmentBody::Plain(Some(block.clone())),
            },
            extents: Vec::new(),
        }
    }

    /// The extent in memory that contains the byte `offset` of the leaf.
    pub(super) fn extent_at(&self, offset: u64) -> Option<Extent> {
        let after = self
            .extents
            .partition_point(|extent| extent.leaf_offset <= offset);
        let found = self.extents.get(after.checked_sub(1)?)?;
        (offset < found.leaf_end()).then_some(*found)
    }

    /// The order that packets after this segment must follow.
    fn order(&self) -> PacketOrder {
        PacketOrder {
            frame: self.covered.end,
            last: Some((self.numbers.last, self.numbers.last_position)),
        }
    }
}

/// Where the entries of a segment are.
#[derive(Debug, Clone)]
pub(crate) enum SegmentBody {
    /// In a block of an index part.
    Part(PartBlock),
    /// In memory.
    Memory(Vec<PacketEntry>),
    /// Nowhere: a plain leaf. Its extents are in this block, or in memory.
    Plain(Option<PartBlock>),
}

impl SegmentBody {
    /// The block in an index part that describes the segment.
    pub(crate) fn part_block(&self) -> Option<&PartBlock> {
        match self {
            Self::Part(block) | Self::Plain(Some(block)) => Some(block),
            Self::Memory(_) | Self::Plain(None) => None,
        }
    }
}

/// The segment to which packets are added.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) segment: Segment,
    pub(crate) times: TimeIndex,
}

/// The order of the packets of a leaf: frames follow each other without a gap, and numbers and
/// positions grow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketOrder {
    /// Offset of the next frame in the leaf.
    frame: u64,
    /// Number and position of the last packet.
    last: Option<(u64, StreamPosition)>,
}

impl PacketOrder {
    /// Whether the last packet ends at this offset of the leaf.
    pub(super) fn ends_at(&self, offset: u64) -> bool {
        self.frame == offset
    }

    /// Moves past the next packet of the leaf.
    ///
    /// # Errors
    /// The name of the field that breaks the order; then nothing changes.
    pub(crate) fn accept(&mut self, entry: &PacketEntry) -> Result<(), &'static str> {
        if entry.offset != self.frame.saturating_add(frame::HEADER_BYTES as u64) {
            return Err("offset");
        }
        match self.last {
            Some((number, _)) if entry.number <= number => return Err("number"),
            Some((_, position)) if entry.position <= position => return Err("position"),
            _ => {}
        }
        self.frame = self.frame.saturating_add(frame_bytes(entry.stored_size));
        self.last = Some((entry.number, entry.position));
        Ok(())
    }
}

impl Default for PacketOrder {
    /// The order of a leaf without packets.
    fn default() -> Self {
        Self {
            frame: data_file::HEADER_BYTES as u64,
            last: None,
        }
    }
}

/// A leaf of the tree.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) id: LeafId,
    pub(crate) leaf_type: LeafType,
    pub(crate) path: LeafPath,
    /// Packets in flight.
    pub(crate) in_flight: usize,
    /// The end of its durable bytes.
    pub(crate) tail: Tail,
    pub(super) parts: Vec<Arc<Segment>>,
    pub(super) sealed: Option<Arc<Segment>>,
    pub(super) live: Option<Live>,
}

impl Leaf {
    pub(super) fn new(id: LeafId, leaf_type: LeafType, path: LeafPath) -> Self {
        let tail = Tail::default();
        Self {
            id,
            leaf_type,
            path,
            in_flight: 0,
            tail,
            parts: Vec::new(),
            sealed: None,
            live: None,
        }
    }

    pub(super) fn add_part(&mut self, block: &PartBlock) {
        let entry = block.entry();
        self.parts.push(Arc::new(Segment::of_block(block)));
        if entry.covered.end > self.tail.length {
            self.tail = Tail {
                length: entry.covered.end,
                checksum: entry.covered_checksum,
            };
        }
    }

    /// The order that the next packet of the data file must follow.
    pub(crate) fn order(&self) -> PacketOrder {
        let last = self.segments().last();
        last.map(Segment::order).unwrap_or_default()
    }

    /// Replaces the segments in the parts with `ordinals` by the one of `blocks`, a merged part.
    pub(super) fn replace_parts(
        &mut self,
        ordinals: &RangeInclusive<u64>,
        blocks: impl Iterator<Item = PartBlock>,
    ) {
        let ends = |leaf: &Self| leaf.parts.iter().map(|segment| segment.covered.end).max();
        let before = ends(self);
        self.parts.retain(|segment| {
            let part = segment.body.part_block().map(PartBlock::part);
            !part.is_some_and(|part| ordinals.contains(&part.header.ordinal))
        });
        let merged = blocks.map(|block| Arc::new(Segment::of_block(&block)));
        self.parts.extend(merged);
        self.parts.sort_by_key(|segment| segment.covered.start);
        let is_whole = (self.parts.iter().zip(self.parts.iter().skip(1)))
            .all(|(segment, next)| segment.covered.end == next.covered.start);
        assert!(
            is_whole && before == ends(self),
            "a merged part describes the same bytes of a leaf as the parts that it replaces"
        );
    }

    /// Whether a part describes the packets that follow those that are known.
    pub(super) fn is_followed_by(&self, entry: &LeafEntry) -> bool {
        let LeafNumbers {
            first,
            first_position,
            ..
        } = entry.numbers;
        let order = self.order();
        let follows = |last: (u64, StreamPosition)| first > last.0 && first_position > last.1;
        entry.covered.start == order.frame && order.last.is_none_or(follows)
    }

    /// Adds a packet that is durable.
    ///
    /// # Panics
    /// When it does not follow the packets before it. Entries that come from disk are checked with
    /// [`Leaf::order`] before.
    pub(super) fn push(&mut self, entry: &PacketEntry) {
        let position = entry.position;
        let mut order = match &self.live {
            Some(live) => live.segment.order(),
            None => self.order(),
        };
        let start = order.frame;
        if let Err(field) = order.accept(entry) {
            panic!("packets of a leaf are inserted in order, but `{field}` does not follow");
        }
        let leaf_type = self.leaf_type;
        let live = self.live.get_or_insert_with(|| Live {
            segment: Segment {
                covered: start..start,
                covered_checksum: 0,
                totals: Totals::default(),
                numbers: LeafNumbers {
                    first: entry.number,
                    last: entry.number,
                    first_position: position,
                    last_position: position,
                },
                body: match leaf_type {
                    LeafType::Array => SegmentBody::Memory(Vec::new()),
                    LeafType::Plain => SegmentBody::Plain(None),
                },
                extents: Vec::new(),
            },
            times: TimeIndex::default(),
        });
        let segment = &mut live.segment;
        segment.numbers.last = entry.number;
        segment.numbers.last_position = position;
        segment.covered.end = order.frame;
        segment.totals.add(&totals_of(entry));
        if let SegmentBody::Memory(entries) = &mut segment.body {
            entries.push(*entry);
            live.times.push(&entry.facts);
        }
    }

    /// Adds the place of bytes that are durable, after the packets in them.
    pub(super) fn place(&mut self, extent: &Extent) {
        let Some(live) = &mut self.live else { return };
        let segment = &mut live.segment;
        let wanted = segment
            .extents
            .last()
            .map_or(segment.covered.start, Extent::leaf_end);
        // A segment begins after the header of a new leaf, which is in its first extent.
        let extent = extent.intersection(&(wanted..u64::MAX));
        if let Some(extent) = extent {
            extend_extents(&mut segment.extents, [extent]);
        }
    }

    /// The segments in the order of the leaf.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        let live = self.live.as_ref().map(|live| &live.segment);
        self.parts
            .iter()
            .chain(&self.sealed)
            .map(|segment| &**segment)
            .chain(live)
    }

    pub(super) fn seal(&mut self) -> Option<Arc<Segment>> {
        let mut segment = self.live.take()?.segment;
        // The live segment always ends at the tail of the file.
        assert_eq!(
            segment.covered.end, self.tail.length,
            "the tail moves with the packets"
        );
        segment.covered_checksum = self.tail.checksum;
        let placed = segment.extents.last().map(Extent::leaf_end);
        assert_eq!(
            placed,
            Some(segment.covered.end),
            "the extents of a segment cover it"
        );
        let segment = Arc::new(segment);
        self.sealed = Some(Arc::clone(&segment));
        Some(segment)
    }

    /// Makes the sealed segment live again; returns its packets and bytes.
    pub(super) fn unseal(&mut self) -> (usize, u64) {
        let Some(sealed) = self.sealed.take() else {
            return (0, 0);
        };
        let bytes = sealed.covered.end.saturating_sub(sealed.covered.start);
        let newer = self.live.take();
        let mut segment = Arc::unwrap_or_clone(sealed);
        let mut times = TimeIndex::default();
        let mut packets = 0;
        if let SegmentBody::Memory(entries) = &mut segment.body {
            packets = entries.len();
            entries.iter().for_each(|entry| times.push(&entry.facts));
        }
        if let Some(newer) = newer {
            segment.covered.end = newer.segment.covered.end;
            segment.totals.add(&newer.segment.totals);
            extend_extents(&mut segment.extents, newer.segment.extents);
            segment.numbers.last = newer.segment.numbers.last;
            segment.numbers.last_position = newer.segment.numbers.last_position;
            if let (SegmentBody::Memory(all), SegmentBody::Memory(more)) =
                (&mut segment.body, newer.segment.body)
            {
                more.iter().for_each(|entry| times.push(&entry.facts));
                all.extend(more);
            }
        }
        self.live = Some(Live { segment, times });
        (packets, bytes)
    }
}

/// Appends extents; those that continue the last one become a part of it.
pub(crate) fn extend_extents(extents: &mut Vec<Extent>, more: impl IntoIterator<Item = Extent>) {
    for extent in more {
        let last = extents.last_mut();
        if !last.is_some_and(|last| last.append(&extent)) {
            extents.push(extent);
        }
    }
}

/// The totals of one packet.
pub(crate) fn totals_of(entry: &PacketEntry) -> Totals {
    Totals {
        packets: 1,
        raw_bytes: u64::from(entry.raw_size),
        stored_bytes: u64::from(entry.stored_size),
        events: u64::from(entry.facts.events.unwrap_or(0)),
        lost: u64::from(entry.facts.lost.unwrap_or(0)),
        time_span: entry.facts.time_span,
    }
}
