//! A leaf of the index tree, and the segments in which its packets are known.

use std::{ops::Range, sync::Arc};

use storage_format::{
    LeafId, LeafType,
    data_file::{self, LeafPath},
    frame::frame_bytes,
    index_part::{LeafEntry, LeafNumbers, PacketEntry},
    storage_file::Totals,
};

use super::{IndexPart, time_index::TimeIndex};
use crate::io_thread::Tail;

/// A run of packets of one leaf.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// Bytes of the data file.
    pub(crate) covered: Range<u64>,
    /// CRC32C of the data file up to the end of `covered`.
    pub(crate) covered_checksum: u32,
    pub(crate) totals: Totals,
    pub(crate) numbers: LeafNumbers,
    pub(crate) body: SegmentBody,
}

/// Where the entries of a segment are.
#[derive(Debug, Clone)]
pub(crate) enum SegmentBody {
    /// In a block of an index part.
    Part(Arc<IndexPart>),
    /// In memory.
    Memory(Vec<PacketEntry>),
    /// Nowhere: a plain leaf.
    Plain,
}

/// The segment to which packets are added.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) segment: Segment,
    pub(crate) times: TimeIndex,
}

/// A leaf of the tree.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) id: LeafId,
    pub(crate) leaf_type: LeafType,
    pub(crate) path: LeafPath,
    /// Packets on their way to the disk.
    pub(crate) in_flight: usize,
    /// The durable tail of the data file.
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

    pub(super) fn add_part(&mut self, part: &Arc<IndexPart>, entry: &LeafEntry) {
        self.parts.push(Arc::new(Segment::of_part(part, entry)));
        if entry.covered.end > self.tail.length {
            self.tail = Tail {
                length: entry.covered.end,
                checksum: entry.covered_checksum,
            };
        }
    }

    pub(super) fn push(&mut self, entry: &PacketEntry) {
        let position = entry.position;
        let start = self.covered_end();
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
                    LeafType::Plain => SegmentBody::Plain,
                },
            },
            times: TimeIndex::default(),
        });
        let segment = &mut live.segment;
        assert!(
            entry.number >= segment.numbers.last,
            "packets of a leaf come in order"
        );
        segment.numbers.last = entry.number;
        segment.numbers.last_position = position;
        segment.covered.end = entry.offset - storage_format::frame::HEADER_BYTES as u64
            + frame_bytes(entry.stored_size);
        segment.totals.add(&totals_of(entry));
        if let SegmentBody::Memory(entries) = &mut segment.body {
            entries.push(*entry);
            live.times.push(&entry.facts);
        }
    }

    /// End of what all segments cover; the first frame when there is none.
    fn covered_end(&self) -> u64 {
        let last = self.segments().last().map(|segment| segment.covered.end);
        last.unwrap_or(data_file::HEADER_BYTES as u64)
    }

    /// The segments in the order of the data file.
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
        debug_assert_eq!(
            segment.covered.end, self.tail.length,
            "the tail was told with the packets"
        );
        segment.covered_checksum = self.tail.checksum;
        let segment = Arc::new(segment);
        self.sealed = Some(Arc::clone(&segment));
        Some(segment)
    }

    /// Makes the sealed segment live again; gives its packets and bytes.
    pub(super) fn unseal(&mut self) -> (usize, u64) {
        let Some(sealed) = self.sealed.take() else {
            return (0, 0);
        };
        let bytes = sealed.covered.end - sealed.covered.start;
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

/// What one packet adds to the sums.
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
