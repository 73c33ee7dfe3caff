//! The operations of a plan: instructions of a procedure, lowered for one projection.

use super::token::{Load, TokenKind};
use crate::class::{ByteOrder, Scope, SlotId};
use crate::procedure::{Count, NodeId};

/// One operation.
///
/// A *run* is a sequence of fields whose offsets from its beginning are known: it is aligned and
/// bounds-checked once, and its fields are then loaded from their offsets, or not at all.
///
/// The tag is a separate byte and small fields come first: dispatch takes one load, and operations
/// stay small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Op {
    /// Aligns the head, which is the beginning of the run, and moves it to the end of the run.
    Run {
        alignment: u32,
        bits: u32,
    },
    /// `BeginScope` (when there is a scope), `Run` and `Integer`.
    RunInteger {
        scope: Option<Scope>,
        selected: bool,
        uses: Uses,
        alignment: u32,
        bits: u32,
        load: Load,
    },
    /// `BeginScope` (when there is a scope), `Run` and `Items`, and `End` when `ends`.
    RunItems {
        scope: Option<Scope>,
        ends: bool,
        alignment: u32,
        bits: u32,
        first: u32,
        count: u32,
    },
    /// The field at this offset in the run may share a byte with the last field of another run.
    CheckOrder {
        order: ByteOrder,
        at: u32,
    },
    /// The run may end within a byte.
    SetOrder {
        order: ByteOrder,
    },
    /// Loads an integer that later operations need, with a token when it is selected.
    Integer {
        selected: bool,
        uses: Uses,
        load: Load,
    },
    /// Emits items of the run.
    Items {
        first: u32,
        count: u32,
    },
    Variable {
        node: NodeId,
        signed: bool,
        selected: bool,
    },
    Text {
        node: NodeId,
        unit: u8,
        selected: bool,
    },
    Data {
        kind: Option<TokenKind>,
        node: NodeId,
        count: Count,
    },
    Packed {
        selected: bool,
        packing: u32,
        count: Count,
    },
    Array {
        selected: bool,
        node: NodeId,
        alignment: u32,
        after: u32,
        count: Count,
    },
    Next {
        body: u32,
    },
    Variant {
        node: NodeId,
        slot: SlotId,
        table: u32,
        selected: bool,
    },
    Optional {
        node: NodeId,
        slot: SlotId,
        table: u32,
        is_bool: bool,
        selected: bool,
    },
    Jump {
        to: u32,
    },
    Save {
        slot: SlotId,
    },
    UpdateClock {
        length: u8,
    },
    SetId,
    /// Another effect of the last integer on the packet.
    Effect(Effect),
    BeginScope {
        scope: Scope,
    },
    EnterEvent {
        dynamic: bool,
    },
    /// The end of a packet preamble or of an event record.
    End,
    /// The fields here can never be decoded.
    Fail,
}

const _: () = assert!(
    size_of::<Op>() <= 32,
    "an operation is half a cache line at most"
);

/// The frequent uses of an integer, applied by the operation that loads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    /// The slot it is saved in, plus one; 0 for none.
    pub(super) slot: u16,
    /// The integer is an id.
    pub(super) is_id: bool,
    /// Bits of a timestamp; 0 for none.
    pub(super) clock: u8,
}

/// The effect of an integer of a packet preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    PacketEndClock,
    StreamId,
    Sequence,
    Discarded,
    TotalLength,
    ContentLength,
    MagicNumber,
    UuidByte,
    Uuid,
    /// A BLOB that ends `end` bits after the beginning of its run.
    UuidBlob {
        end: u32,
    },
}
