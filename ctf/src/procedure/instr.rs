//! The instructions of a procedure.

use crate::class::{ByteOrder, Scope, SlotId};
use crate::integer::usize_from;

/// The address of an instruction in a procedure.
pub(crate) type Address = u32;

/// A use of a field class: a member, an element, an option or a root structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The index into the node table of the procedure.
    pub const fn index(self) -> usize {
        usize_from(self.0)
    }
}

/// The interpretation of the bits of a fixed-length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FixedKind {
    BitArray,
    BitMap,
    Bool,
    Unsigned,
    Signed,
    Float32,
    Float64,
}

/// A read of a fixed-length field: align, check, load, interpret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedRead {
    pub(crate) node: NodeId,
    /// In bits, a power of two.
    pub(crate) alignment: u32,
    /// 1 to 64.
    pub(crate) length: u8,
    pub(crate) order: ByteOrder,
    /// The bits must be reversed after a read in the natural order.
    pub(crate) reversed: bool,
    pub(crate) kind: FixedKind,
}

/// The number of elements or bytes that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Static(u64),
    Saved(SlotId),
}

/// The type of an optional field's selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectorKind {
    Bool,
    Unsigned,
    Signed,
}

/// One instruction. The module documentation describes the effect of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instr {
    BeginPacket,
    BeginContent,
    /// The stream class is the one whose id was read last, or the only one.
    SelectStream {
        dynamic: bool,
    },
    StreamInfo,
    EnterStream,
    PacketInfo,
    NextRecord {
        alignment: u32,
    },
    /// The event class is the one whose id was read last, or the only one.
    SelectEvent {
        dynamic: bool,
    },
    EventInfo,
    EnterEvent,
    EndRecord,
    EndContent,
    EndPacket,

    BeginScope {
        scope: Scope,
        alignment: u32,
    },
    EndScope {
        scope: Scope,
    },
    BeginStruct {
        node: NodeId,
        alignment: u32,
    },
    EndStruct {
        node: NodeId,
    },

    Unsigned(FixedRead),
    Signed(FixedRead),
    /// A fixed-length field of another kind.
    Fixed(FixedRead),
    /// All elements of an array of unsigned integers without any effect.
    UnsignedElements(FixedRead),
    VariableUnsigned {
        node: NodeId,
    },
    VariableSigned {
        node: NodeId,
    },

    BeginText {
        node: NodeId,
    },
    TextUntilNull {
        unit: u8,
    },
    EndText {
        node: NodeId,
    },

    BeginString {
        node: NodeId,
        count: Count,
    },
    EndString {
        node: NodeId,
        dynamic: bool,
    },
    BeginBlob {
        node: NodeId,
        count: Count,
    },
    EndBlob {
        node: NodeId,
        dynamic: bool,
    },
    /// The bytes of a string or BLOB.
    RawData,

    BeginArray {
        node: NodeId,
        alignment: u32,
        count: Count,
        after: Address,
    },
    NextElement {
        body: Address,
    },
    EndArray {
        node: NodeId,
        dynamic: bool,
    },

    BeginVariant {
        node: NodeId,
        slot: SlotId,
        table: u32,
    },
    EndVariant {
        node: NodeId,
        signed: bool,
    },
    BeginOptional {
        node: NodeId,
        slot: SlotId,
        kind: SelectorKind,
        table: u32,
    },
    EndOptional {
        node: NodeId,
        kind: SelectorKind,
    },
    Jump {
        to: Address,
    },

    Save {
        slot: SlotId,
    },
    /// The length of the last integer; 0 when it is known only during decoding.
    UpdateClock {
        length: u8,
    },
    SetPacketEndClock,
    SetId,
    SetStreamId,
    SetSequence,
    SetDiscarded,
    SetTotalLength,
    SetContentLength,
    MagicNumber,
    UuidByte,
    /// The UUID is complete: 16 bytes of a BLOB before the head, or those of `UuidByte`.
    MetadataUuid {
        blob: bool,
    },
}

const _: () = assert!(
    size_of::<Instr>() <= 32,
    "an instruction is half a cache line at most"
);
