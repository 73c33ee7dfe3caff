//! Packets as they are pushed, and the reply to a push.

use crate::{BytePermit, StorageError};
use bytes::Bytes;
use storage_format::{
    AgentId, Descriptor, StreamId, StreamPosition, checksum::crc32c, frame::Facts,
};

/// A packet as the agent sent it.
#[derive(Debug, Clone)]
pub struct NewPacket {
    /// Position in the stream.
    pub position: StreamPosition,
    /// The bytes.
    pub payload: Bytes,
    /// CRC32C of the bytes, by whoever took them from the agent; it is kept with the packet.
    pub checksum: u32,
    /// What is known of them.
    pub facts: Facts,
}

impl NewPacket {
    /// A packet whose checksum is not known yet.
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

/// Packets of one stream, in the order of their sequence.
#[derive(Debug)]
pub struct Push {
    /// The agent.
    pub agent: AgentId,
    /// The stream.
    pub stream: StreamId,
    /// The packets.
    pub packets: Vec<NewPacket>,
    /// The bytes of the budget that these packets hold until they are answered.
    pub permit: BytePermit,
}

/// Whether a push may leave out sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// A packet after a gap is refused, so that its producer sends what is missing.
    Refused,
    /// Packets before this position were dropped, and their agent did not wait for them: a gap is
    /// accepted there and only there.
    UpTo(StreamPosition),
    /// What is missing is not wanted, or is lost already: a recording takes a part of a stream.
    Taken,
    /// Nothing new is taken: only packets that are there, or under way, have a receipt.
    RepeatsOnly,
}

/// Says that a packet is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Position in the stream.
    pub position: StreamPosition,
    /// Number of the packet in the storage.
    pub number: u64,
    /// Whether the packet had been pushed before; then this is the first receipt again.
    pub is_duplicate: bool,
    /// Where its stored bytes are.
    pub descriptor: Descriptor,
}

/// The answer to a push.
#[derive(Debug)]
pub struct PushOutcome {
    /// Receipts of the packets before the first one that was refused.
    pub receipts: Vec<Receipt>,
    /// Why the packet behind them was refused; `None` when all are durable.
    pub refused: Option<StorageError>,
}

/// Refuses a packet that is empty or too large.
pub(crate) fn check_size(packet: &NewPacket, max: u32) -> Result<(), StorageError> {
    let size = packet.payload.len() as u64;
    let max = u64::from(max);
    match size {
        0 => Err(StorageError::PacketEmpty),
        size if size > max => Err(StorageError::PacketTooLarge { size, max }),
        _ => Ok(()),
    }
}
