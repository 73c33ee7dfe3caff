//! What is pushed, and what is answered.

use std::sync::Arc;

use bytes::Bytes;
use storage_format::{
    AgentId, Descriptor, StreamId, StreamPosition, checksum::crc32c, frame::Facts,
};
use tokio::sync::oneshot;

use crate::{BytePermit, StorageError, droppable::UnderWay};

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

/// A push and who waits for it.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) push: Push,
    pub(super) gaps: Gaps,
    /// The request that it is part of, while I/O is traced.
    pub(super) request: Option<Arc<str>>,
    pub(super) reply: Reply,
}

/// Who is told what became of a push.
#[derive(Debug)]
pub(super) enum Reply {
    /// Somebody waits for it.
    To(oneshot::Sender<PushOutcome>),
    /// Nobody waits; what is not kept is counted.
    Counted(UnderWay),
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

/// A push that is under way.
#[derive(Debug)]
pub(super) struct Group {
    slots: Vec<Option<Receipt>>,
    missing: usize,
    refused: Option<(usize, StorageError)>,
    reply: Reply,
    _permit: BytePermit,
}

impl Group {
    /// A group of which nothing is known; `count` packets will each be settled once.
    pub(super) fn new(count: usize, reply: Reply, permit: BytePermit) -> Self {
        Self {
            slots: vec![None; count],
            missing: count,
            refused: None,
            reply,
            _permit: permit,
        }
    }

    /// Settles one packet.
    pub(super) fn settle(&mut self, slot: usize, result: Result<Receipt, StorageError>) {
        assert!(self.missing > 0, "every packet is settled once");
        self.missing -= 1;
        match result {
            Ok(receipt) => self.slots[slot] = Some(receipt),
            Err(error) if self.refused.as_ref().is_none_or(|(first, _)| slot < *first) => {
                self.refused = Some((slot, error));
            }
            Err(_) => {}
        }
    }

    /// Refuses the packets from `slot` to the end at once.
    pub(super) fn refuse_from(&mut self, slot: usize, error: StorageError) {
        self.missing -= self.slots.len() - slot;
        if self.refused.as_ref().is_none_or(|(first, _)| slot < *first) {
            self.refused = Some((slot, error));
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.missing == 0
    }

    /// Answers.
    pub(super) fn finish(self) {
        let reply = match self.reply {
            Reply::To(reply) => reply,
            Reply::Counted(under_way) => {
                under_way.ended(self.slots.iter().map(Option::is_some));
                return;
            }
        };
        let accepted = self
            .refused
            .as_ref()
            .map_or(self.slots.len(), |(first, _)| *first);
        let receipts = self.slots.into_iter().take(accepted).flatten().collect();
        let refused = self.refused.map(|(_, error)| error);
        // An agent that hung up asks again.
        let _ = reply.send(PushOutcome { receipts, refused });
    }
}
