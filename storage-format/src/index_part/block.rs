//! The block of an array leaf: one entry of fixed size for each packet, in the order of the data
//! file.
//!
//! ```text
//! offset size field of an entry
//!      0    8 number of the packet in the storage
//!      8    8 offset of the stored payload in the leaf
//!     16    4 stored size, bytes
//!     20    4 raw size, bytes
//!     24    8 producer epoch
//!     32    8 producer sequence
//!     40    8 begin of the time span, ns since the epoch (i64)
//!     48    8 end of the time span, ns since the epoch (i64)
//!     56    4 events, saturating
//!     60    4 events lost, saturating
//!     64    4 CRC32C of the raw payload
//!     68    1 codec
//!     69    1 known facts: 1 time span, 2 events, 4 lost, 8 time basis, 16 records that cannot
//!                be read
//!     70    2 index in the time bases of the part, counted from 1 (0: none)
//! ```
//!
//! Numbers, offsets and positions grow from entry to entry, so a search for each takes O(log n) on
//! the encoded bytes.

use std::ops::Range;

use super::extent::Extent;
use crate::{
    Codec, Descriptor, FormatError, FormatErrorKind, StreamPosition,
    frame::{Facts, FrameHeader, is_packet_size},
    integer::u64_of,
    layout::{get_i64, get_u16, get_u32, get_u64, put},
};

use super::bases::{TimeBases, TimeBasesBuilder};

/// Size of an entry.
pub const ENTRY_BYTES: usize = 72;
const WHAT: &str = "index block";

/// The entry of one packet in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketEntry {
    /// Number of the packet in the storage.
    pub number: u64,
    /// Offset of the stored payload in the leaf.
    pub offset: u64,
    /// Size of the stored payload in bytes.
    pub stored_size: u32,
    /// Size of the payload as the agent sent it, in bytes.
    pub raw_size: u32,
    /// Position of the packet in its stream.
    pub position: StreamPosition,
    /// What is known about the packet.
    pub facts: Facts,
    /// CRC32C of the payload as the agent sent it.
    pub raw_checksum: u32,
    /// How the payload is stored.
    pub codec: Codec,
}

impl PacketEntry {
    /// The entry of the packet with this frame header and payload offset.
    #[must_use]
    pub fn of_frame(header: &FrameHeader, offset: u64) -> Self {
        Self {
            number: header.number,
            offset,
            stored_size: header.stored_size,
            raw_size: header.raw_size,
            position: header.position,
            facts: header.facts,
            raw_checksum: header.raw_checksum,
            codec: header.codec,
        }
    }

    /// The bytes of the entry in a part with these time bases.
    #[must_use]
    pub(super) fn encode(&self, bases: &mut TimeBasesBuilder) -> [u8; ENTRY_BYTES] {
        assert!(
            is_packet_size(self.stored_size) && is_packet_size(self.raw_size),
            "an entry is of a packet of a valid size"
        );
        let mut bytes = [0; ENTRY_BYTES];
        let basis = bases.code_of(self.facts.time_basis);
        let facts = Facts {
            time_basis: self.facts.time_basis.filter(|_| basis != 0),
            ..self.facts
        };
        let (begin, end) = facts.time_span.unwrap_or((0, 0));
        assert!(begin <= end, "a time span does not end before it begins");
        put(&mut bytes, 0, self.number.to_le_bytes());
        put(&mut bytes, 8, self.offset.to_le_bytes());
        put(&mut bytes, 16, self.stored_size.to_le_bytes());
        put(&mut bytes, 20, self.raw_size.to_le_bytes());
        put(&mut bytes, 24, self.position.epoch.to_le_bytes());
        put(&mut bytes, 32, self.position.sequence.to_le_bytes());
        put(&mut bytes, 40, begin.to_le_bytes());
        put(&mut bytes, 48, end.to_le_bytes());
        put(&mut bytes, 56, facts.events.unwrap_or(0).to_le_bytes());
        put(&mut bytes, 60, facts.lost.unwrap_or(0).to_le_bytes());
        put(&mut bytes, 64, self.raw_checksum.to_le_bytes());
        bytes[68] = self.codec.code();
        bytes[69] = facts.known_bits();
        put(&mut bytes, 70, basis.to_le_bytes());
        bytes
    }

    /// The bytes of the stored payload in the leaf.
    #[must_use]
    pub fn payload_range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(u64::from(self.stored_size))
    }

    /// The descriptor of the stored payload, which is in `extent`.
    ///
    /// # Errors
    /// When the extent does not contain the payload, or offset and size are not those of a packet.
    pub fn descriptor(&self, extent: &Extent) -> Result<Descriptor, FormatError> {
        let fault = || {
            let name = "offset and size";
            FormatError::new(WHAT, 8, FormatErrorKind::Field { name })
        };
        let found = extent.intersection(&self.payload_range());
        let found = found.filter(|found| found.length == u64::from(self.stored_size));
        let found = found.ok_or_else(fault)?;
        Descriptor::new(found.file, found.offset, self.stored_size).map_err(|_| fault())
    }
}

/// The position in an encoded entry.
fn position(entry: &[u8]) -> StreamPosition {
    StreamPosition::new(get_u64(entry, 24), get_u64(entry, 32))
}

/// The bytes of a block; the reader has checked them against the checksum in the footer.
#[derive(Debug, Clone, Copy)]
pub struct ArrayBlock<'a> {
    bytes: &'a [u8],
    bases: &'a TimeBases,
}

impl<'a> ArrayBlock<'a> {
    /// A view of `bytes` as entries of a part with these time bases.
    ///
    /// # Errors
    /// When the length is not a multiple of the size of an entry.
    pub fn new(bytes: &'a [u8], bases: &'a TimeBases) -> Result<Self, FormatError> {
        if bytes.len().is_multiple_of(ENTRY_BYTES) {
            return Ok(Self { bytes, bases });
        }
        Err(FormatError::new(
            WHAT,
            0,
            FormatErrorKind::Field { name: "length" },
        ))
    }

    /// Number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }

    /// Whether there is no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn entry(&self, index: usize) -> &'a [u8] {
        &self.bytes[index.saturating_mul(ENTRY_BYTES)..][..ENTRY_BYTES]
    }

    /// The entry at `index`.
    ///
    /// # Errors
    /// When the entry has a value that no writer produces.
    ///
    /// # Panics
    /// When `index` is not below [`Self::len`].
    pub fn get(&self, index: usize) -> Result<PacketEntry, FormatError> {
        let bytes = self.entry(index);
        let at = u64_of(index.saturating_mul(ENTRY_BYTES));
        let fault = |name, offset| {
            let offset = at.saturating_add(offset);
            FormatError::new(WHAT, offset, FormatErrorKind::Field { name })
        };
        let entry = PacketEntry {
            number: get_u64(bytes, 0),
            offset: get_u64(bytes, 8),
            stored_size: get_u32(bytes, 16),
            raw_size: get_u32(bytes, 20),
            position: position(bytes),
            facts: self.facts(index),
            raw_checksum: get_u32(bytes, 64),
            codec: Codec::from_code(bytes[68]).ok_or_else(|| fault("codec", 68))?,
        };
        if !is_packet_size(entry.stored_size) || !is_packet_size(entry.raw_size) {
            return Err(fault("size", 16));
        }
        if get_i64(bytes, 40) > get_i64(bytes, 48) {
            return Err(fault("time span", 40));
        }
        Ok(entry)
    }

    /// Index of the packet with this number.
    #[must_use]
    pub fn find_number(&self, number: u64) -> Option<usize> {
        self.find(|bytes| get_u64(bytes, 0).cmp(&number))
    }

    /// Index of the packet with this position in its stream.
    #[must_use]
    pub fn find_position(&self, wanted: StreamPosition) -> Option<usize> {
        self.find(|bytes| position(bytes).cmp(&wanted))
    }

    /// Index of the first packet whose number is at least `number`.
    #[must_use]
    pub fn first_at_or_after_number(&self, number: u64) -> usize {
        self.partition(|bytes| get_u64(bytes, 0) < number)
    }

    /// The facts about the packet at `index`.
    ///
    /// # Panics
    /// When `index` is not below [`Self::len`].
    #[must_use]
    pub fn facts(&self, index: usize) -> Facts {
        let bytes = self.entry(index);
        Facts {
            time_span: Some((get_i64(bytes, 40), get_i64(bytes, 48))),
            events: Some(get_u32(bytes, 56)),
            lost: Some(get_u32(bytes, 60)),
            time_basis: self.bases.get(get_u16(bytes, 70)),
            has_unreadable: false,
        }
        .with_known_bits(bytes[69])
    }

    fn find(&self, compare: impl Fn(&[u8]) -> std::cmp::Ordering) -> Option<usize> {
        let at = self.partition(|bytes| compare(bytes).is_lt());
        (at < self.len() && compare(self.entry(at)).is_eq()).then_some(at)
    }

    fn partition(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_before(self.entry(middle)) {
                low = middle.saturating_add(1)
            } else {
                high = middle
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> PacketEntry {
        PacketEntry {
            number,
            offset: number.saturating_mul(100),
            stored_size: 31,
            raw_size: 62,
            position: StreamPosition::new(number >> 2, number),
            facts: Facts {
                time_span: Some((5, 5)),
                ..Facts::default()
            },
            raw_checksum: 1,
            codec: Codec::None,
        }
    }

    #[test]
    fn packets_are_found_by_number_and_by_position() {
        let bases = TimeBases::default();
        for count in 0..6 {
            let numbers = (3_u64..).step_by(2).take(count);
            let mut builder = TimeBasesBuilder::default();
            let entries: Vec<_> = numbers.map(entry).collect();
            let bytes: Vec<_> = entries
                .iter()
                .flat_map(|it| it.encode(&mut builder))
                .collect();
            let block = ArrayBlock::new(&bytes, &bases).unwrap();
            assert_eq!((block.len(), block.is_empty()), (entries.len(), count == 0));
            for (at, expected) in entries.iter().enumerate() {
                assert_eq!(block.get(at).as_ref(), Ok(expected));
            }
            for number in 0..16 {
                let at = entries.iter().position(|it| it.number == number);
                assert_eq!(block.find_number(number), at, "{number} of {count}");
                let position = StreamPosition::new(number >> 2, number);
                assert_eq!(block.find_position(position), at, "{position} of {count}");
                let first = entries.iter().filter(|it| it.number < number).count();
                assert_eq!(
                    block.first_at_or_after_number(number),
                    first,
                    "{number} of {count}"
                );
            }
        }
        let error = ArrayBlock::new(&[0; ENTRY_BYTES + 1], &bases).unwrap_err();
        assert_eq!(error.kind, FormatErrorKind::Field { name: "length" });
    }
}
