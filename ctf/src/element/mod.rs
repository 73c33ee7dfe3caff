//! Face (a) of the machine: every datum and every boundary of a packet as an element.

mod batch;
mod execution;
mod fast_path;
mod fields;
mod machine;
mod position;
mod reader;
mod text;

use uuid::Uuid;

use crate::class::{EventClass, FieldClass, FieldKind, Scope, StreamClass};
use crate::procedure::{Node, NodeId, Procedure};
pub use position::Position;
pub use reader::ElementReader;
pub use text::ElementText;

/// A field of a packet: which node of the procedure an element is about.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    procedure: &'a Procedure,
    node: NodeId,
}

impl<'a> Field<'a> {
    pub(crate) fn new(procedure: &'a Procedure, node: NodeId) -> Self {
        Self { procedure, node }
    }

    /// The id of its node, the same for the same place in the trace class.
    pub fn id(&self) -> NodeId {
        self.node
    }

    /// Its node.
    pub fn node(&self) -> &'a Node {
        self.procedure.node(self.node)
    }

    /// Its class.
    pub fn class(&self) -> &'a FieldClass {
        self.procedure.field_class(self.node)
    }

    /// Its name when it is a member of a structure.
    pub fn name(&self) -> Option<&'a str> {
        self.node().name()
    }

    /// Its name for people when it is a member of a structure.
    pub fn display_name(&self) -> Option<&'a str> {
        self.node().display_name()
    }

    /// Names of the active flags of the bit map value `value`.
    pub fn active_flags(&self, value: u64) -> impl Iterator<Item = &'a str> + use<'a> {
        let class = match &self.class().kind {
            FieldKind::BitMap(class) => Some(class),
            _ => None,
        };
        class
            .into_iter()
            .flat_map(move |class| class.active_flags(value))
    }

    /// The media type of a BLOB.
    pub fn media_type(&self) -> Option<&'a str> {
        match &self.class().kind {
            FieldKind::Blob(class) => Some(&class.media_type),
            _ => None,
        }
    }
}

/// What a packet says about its stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamInfo<'a> {
    /// Its class; none when the trace class has no stream classes.
    pub class: Option<&'a StreamClass>,
    /// Its id within the class.
    pub id: Option<u64>,
}

/// What a packet says about itself. Lengths in bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketInfo {
    /// Length with the padding at its end.
    pub total_length: Option<u64>,
    /// Length without the padding.
    pub content_length: Option<u64>,
    /// Cycles of the default clock at its end.
    pub end_clock: Option<u64>,
    /// Its number in the stream.
    pub sequence: Option<u64>,
    /// Snapshot of the stream's counter of discarded event records.
    pub discarded_events: Option<u64>,
}

/// One thing that a packet holds, says or begins. 49 kinds; beginnings and ends are balanced.
#[derive(Clone, Copy, Debug)]
#[allow(
    missing_docs,
    reason = "the names say it: see the table of the module `procedure`"
)]
pub enum Element<'a> {
    PacketBegin,
    PacketEnd,
    ContentBegin,
    ContentEnd,
    RecordBegin,
    RecordEnd,
    ScopeBegin(Scope),
    ScopeEnd(Scope),
    /// The number at the beginning of a packet; 0xC1FC1FC1 when it is one.
    MagicNumber(u64),
    /// The UUID of the metadata as the packet has it.
    MetadataUuid(Uuid),
    StreamInfo(StreamInfo<'a>),
    /// What the packet says about itself is known:
    /// [`ElementReader::packet_info`](super::ElementReader::packet_info) has it.
    PacketInfo,
    /// The class of an event record; none when the stream class has no event classes.
    EventInfo(Option<&'a EventClass>),
    /// Cycles of the default clock from here on.
    ClockValue(u64),
    FixedBitArray(Field<'a>, u64),
    FixedBitMap(Field<'a>, u64),
    FixedBool(Field<'a>, bool),
    FixedSigned(Field<'a>, i64),
    FixedUnsigned(Field<'a>, u64),
    FixedFloat(Field<'a>, f64),
    VariableSigned(Field<'a>, i64),
    VariableUnsigned(Field<'a>, u64),
    NullTerminatedStringBegin(Field<'a>),
    NullTerminatedStringEnd(Field<'a>),
    /// Bytes of a string or BLOB; a long one comes in several pieces.
    RawData(&'a [u8]),
    StaticArrayBegin(Field<'a>, u64),
    StaticArrayEnd(Field<'a>),
    DynamicArrayBegin(Field<'a>, u64),
    DynamicArrayEnd(Field<'a>),
    StaticStringBegin(Field<'a>, u64),
    StaticStringEnd(Field<'a>),
    DynamicStringBegin(Field<'a>, u64),
    DynamicStringEnd(Field<'a>),
    StaticBlobBegin(Field<'a>, u64),
    StaticBlobEnd(Field<'a>),
    DynamicBlobBegin(Field<'a>, u64),
    DynamicBlobEnd(Field<'a>),
    StructBegin(Field<'a>),
    StructEnd(Field<'a>),
    SignedVariantBegin(Field<'a>, i64),
    SignedVariantEnd(Field<'a>),
    UnsignedVariantBegin(Field<'a>, u64),
    UnsignedVariantEnd(Field<'a>),
    BoolOptionalBegin(Field<'a>, bool),
    BoolOptionalEnd(Field<'a>),
    /// An optional field, whether it is there, and its selector.
    SignedOptionalBegin(Field<'a>, bool, i64),
    SignedOptionalEnd(Field<'a>),
    /// An optional field, whether it is there, and its selector.
    UnsignedOptionalBegin(Field<'a>, bool, u64),
    UnsignedOptionalEnd(Field<'a>),
}

const _: () = assert!(
    size_of::<Element<'_>>() <= 32,
    "an element is half a cache line at most: forty of them are written for an event record"
);

#[cfg(test)]
mod tests;
