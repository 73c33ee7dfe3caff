//! Pushed packets, and the reply to a push.

use crate::{BytePermit, PacketSummary, StorageError};
use bytes::Bytes;
use storage_format::{
    AgentId, Descriptor, LeafId, StreamId, StreamPosition, checksum::crc32c, frame::Facts,
};

/// A packet as the agent sent it.
#[derive(Debug, Clone)]
pub struct NewPacket {
    /// Position in the stream.
    pub position: StreamPosition,
    /// The bytes.
    pub payload: Bytes,
    /// CRC32C of the bytes, computed when they arrived; it is stored with the packet.
    pub checksum: u32,
    /// What is known about them.
    pub facts: Facts,
}

impl NewPacket {
    /// Size and checksum; the size of a packet that was not checked may be truncated.
    pub(crate) fn summary(&self) -> PacketSummary {
        PacketSummary {
            size: u32::try_from(self.payload.len()).unwrap_or(u32::MAX),
            checksum: self.checksum,
        }
    }

    /// A packet whose checksum is computed here.
    #[must_use]
    pub fn new(position: StreamPosition, payload: Bytes, facts: Facts) -> Self {
        let checksum = crc32c(&payload);
        Self {
            position,
            payload,
            checksum,
            facts,
        }
    }
}

/// Memory for the bookkeeping of a packet in flight, in addition to its payload: its entry in the
/// request and in the push, its header, its frame, and its receipt.
const BOOKKEEPING_BYTES: u64 = 640;

/// Bytes of the budget that a packet with `payload_bytes` needs.
#[must_use]
pub fn packet_charge(payload_bytes: u64) -> u64 {
    payload_bytes.saturating_add(BOOKKEEPING_BYTES)
}

/// Packets of one stream, in the order of their sequence.
#[derive(Debug)]
pub struct Push {
    /// The agent.
    pub agent: AgentId,
    /// The stream.
    pub stream: StreamId,
    /// The packets.
    pub packets: Vec<NewPacket>,
    /// The bytes of the budget that these packets use until the reply.
    pub permit: BytePermit,
}

/// Whether sequences may be missing in a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// A packet after a gap is refused, so that its producer sends what is missing.
    Refused,
    /// Packets before this position were dropped, and their agent did not wait for them: a gap is
    /// accepted there and only there.
    UpTo(StreamPosition),
    /// Any gap is accepted: a recording stores a part of a stream.
    Taken,
    /// New packets are refused: only stored packets and those in flight get a receipt.
    RepeatsOnly,
}

impl Gaps {
    /// Whether a repeat has the same bytes as the first packet at its position. A recording may
    /// have stored a part of a packet, and what it stores of a repeat can differ.
    pub(crate) fn has_same_bytes(self) -> bool {
        match self {
            Self::Refused | Self::UpTo(_) => true,
            Self::Taken | Self::RepeatsOnly => false,
        }
    }
}

/// Confirms that a packet is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Its leaf in the storage.
    pub leaf: LeafId,
    /// Position in the stream.
    pub position: StreamPosition,
    /// Number of the packet in the storage.
    pub number: u64,
    /// Whether the packet was pushed before; then this repeats the first receipt.
    pub is_duplicate: bool,
    /// Location of its stored bytes.
    pub descriptor: Descriptor,
    /// Number of its events, if they could be counted.
    pub events: Option<u32>,
}

/// The reply to a push.
#[derive(Debug)]
pub struct PushOutcome {
    /// Receipts of the packets before the first refused one.
    pub receipts: Vec<Receipt>,
    /// Why the packet after them was refused; `None` when all are durable.
    pub refused: Option<StorageError>,
    /// The bytes of the budget that the receipts use.
    pub permit: Option<BytePermit>,
}

/// Refuses a position that has no next one: a stream could not distinguish a repeat of its packet
/// from the packet after it.
///
/// # Errors
/// `PositionInvalid`.
pub fn check_position(position: StreamPosition) -> Result<(), StorageError> {
    if position.epoch == u64::MAX || position.sequence == u64::MAX {
        Err(StorageError::PositionInvalid { position })
    } else {
        Ok(())
    }
}

/// Refuses a packet that is empty or too large, or whose position has no next one.
pub(crate) fn check_packet(packet: &NewPacket, max: u32) -> Result<(), StorageError> {
    check_position(packet.position)?;
    let size = packet.payload.len() as u64;
    let max = u64::from(max);
    match size {
        0 => Err(StorageError::PacketEmpty),
        size if size > max => Err(StorageError::PacketTooLarge { size, max }),
        _ => Ok(()),
    }
}
