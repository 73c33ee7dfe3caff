//! The position of a reader: the complete state of the machine as a plain value.

use crate::integer::u64_from;
use std::cmp::Ordering;

use super::PacketInfo;
use crate::class::ByteOrder;
use crate::procedure::Address;

/// An unknown length; no packet has it.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// A saved position of an [`ElementReader`](super::ElementReader).
///
/// It can be stored and passed to any reader of the same procedure and data. Positions are ordered
/// by their location in the data.
#[derive(Clone, Debug)]
pub struct Position {
    /// Offset of the packet in the data, in bytes.
    pub(super) packet: usize,
    /// Offset of the packet that the next `BeginPacket` begins.
    pub(super) next_packet: usize,
    /// Offset in the packet, in bits.
    pub(super) head: u64,
    /// Lengths of the packet in bits, or [`UNKNOWN`].
    pub(super) total: u64,
    pub(super) content: u64,
    /// The next instruction.
    pub(super) at: Address,
    /// Offset of the current element in the data, in bits, and its number in the packet.
    pub(super) offset: u64,
    pub(super) mark: u64,
    /// The last integer and its length in bits.
    pub(super) integer: u64,
    pub(super) integer_length: u32,
    /// Byte order of the last fixed-length field of the packet.
    pub(super) order: Option<ByteOrder>,
    /// Remaining bytes of a string or BLOB.
    pub(super) remaining: u64,
    /// The partial code unit of a null-terminated string at the end of the last piece.
    pub(super) unit: u32,
    pub(super) unit_bytes: u8,
    pub(super) id: u64,
    pub(super) stream: Option<u32>,
    pub(super) stream_id: Option<u64>,
    pub(super) event: Option<u32>,
    pub(super) record: u64,
    pub(super) uuid: [u8; 16],
    pub(super) clock: u64,
    pub(super) info: PacketInfo,
    /// Remaining elements of each open array, and the head when the current element began.
    pub(super) arrays: Vec<(u64, u64)>,
    pub(super) saved: Vec<u64>,
    /// Number of consecutive array elements and event records without any bit.
    pub(super) idle: u32,
}

impl Position {
    pub(super) fn new(packet: usize, slots: usize) -> Self {
        Self {
            packet,
            next_packet: packet,
            head: 0,
            total: UNKNOWN,
            content: UNKNOWN,
            at: 0,
            offset: u64_from(packet) * 8,
            mark: 0,
            integer: 0,
            integer_length: 0,
            order: None,
            remaining: 0,
            unit: 0,
            unit_bytes: 0,
            id: 0,
            stream: None,
            stream_id: None,
            event: None,
            record: 0,
            uuid: [0; 16],
            clock: 0,
            info: PacketInfo::default(),
            arrays: Vec::new(),
            saved: vec![0; slots],
            idle: 0,
        }
    }

    /// Moves to the beginning of the packet at `packet` and resets the state.
    pub(super) fn begin_packet(&mut self, packet: usize) {
        let mut arrays = std::mem::take(&mut self.arrays);
        let mut saved = std::mem::take(&mut self.saved);
        arrays.clear();
        saved.fill(0);
        *self = Self::new(packet, 0);
        (self.arrays, self.saved) = (arrays, saved);
    }

    /// Offset of the current element from the beginning of the data, in bits.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of the current element in its packet, the packet's beginning being 1.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Offset of the current packet in the data, in bytes.
    pub fn packet_offset(&self) -> usize {
        self.packet
    }

    fn order(&self) -> (usize, u64) {
        (self.packet, self.mark)
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Position {}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}
