//! Pushes in flight: the packets whose outcome is still open, and the reply.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    BytePermit, StorageError,
    droppable::InWriter,
    push::{Gaps, Push, PushOutcome, Receipt},
};

/// A push and its reply.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) push: Push,
    pub(super) gaps: Gaps,
    /// The request that sent it, while I/O is traced.
    pub(super) request: Option<Arc<str>>,
    pub(super) reply: Reply,
}

/// The receiver of the outcome of a push.
#[derive(Debug)]
pub(super) enum Reply {
    /// A caller that waits.
    To(oneshot::Sender<PushOutcome>),
    /// Nobody waits: packets that are not written count as dropped.
    Droppable(InWriter),
}

/// A push in flight.
#[derive(Debug)]
pub(super) struct Group {
    slots: Vec<Option<Receipt>>,
    missing: usize,
    refused: Option<(usize, StorageError)>,
    reply: Reply,
    permit: BytePermit,
}

impl Group {
    /// A group of `count` packets without an outcome; each packet gets one outcome.
    pub(super) fn new(count: usize, reply: Reply, permit: BytePermit) -> Self {
        Self {
            slots: vec![None; count],
            missing: count,
            refused: None,
            reply,
            permit,
        }
    }

    /// Records the outcome of one packet.
    pub(super) fn record(&mut self, slot: usize, result: Result<Receipt, StorageError>) {
        assert!(
            slot < self.slots.len() && self.slots[slot].is_none() && self.missing > 0,
            "every packet has one outcome"
        );
        self.missing = self.missing.saturating_sub(1);
        match result {
            Ok(receipt) => self.slots[slot] = Some(receipt),
            Err(error) if self.refused.as_ref().is_none_or(|(first, _)| slot < *first) => {
                self.refused = Some((slot, error));
            }
            Err(_) => {}
        }
    }

    /// Refuses the packets from `slot` to the end.
    pub(super) fn refuse_from(&mut self, slot: usize, error: StorageError) {
        let count = self.slots.len().checked_sub(slot);
        let count = count.expect("the slot is one of the group");
        assert!(
            self.missing >= count,
            "only packets without an outcome are refused"
        );
        self.missing = self.missing.saturating_sub(count);
        if self.refused.as_ref().is_none_or(|(first, _)| slot < *first) {
            self.refused = Some((slot, error));
        }
    }

    /// Refuses every packet without an outcome after a panic, and sends the reply. What a panic
    /// left is not asserted.
    pub(super) fn abandon(mut self, error: StorageError) {
        let first = self.slots.iter().position(Option::is_none);
        let first = first.unwrap_or(self.slots.len());
        if self.refused.as_ref().is_none_or(|(slot, _)| first < *slot) {
            self.refused = Some((first, error));
        }
        self.missing = 0;
        self.finish();
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Sends the reply.
    pub(super) fn finish(mut self) {
        assert!(
            self.is_complete(),
            "a push gets its reply when every packet has an outcome"
        );
        let reply = match self.reply {
            Reply::To(reply) => reply,
            Reply::Droppable(in_writer) => {
                in_writer.ended(self.slots.iter().map(Option::is_some));
                return;
            }
        };
        let accepted = self
            .refused
            .as_ref()
            .map_or(self.slots.len(), |(first, _)| *first);
        let receipts: Vec<_> = self.slots.into_iter().take(accepted).flatten().collect();
        let bytes = receipts.len().saturating_mul(size_of::<Receipt>());
        let permit = Some(self.permit.split(bytes as u64));
        let refused = self.refused.map(|(_, error)| error);
        // An agent that hung up pushes again.
        let _ = reply.send(PushOutcome {
            receipts,
            refused,
            permit,
        });
    }
}
