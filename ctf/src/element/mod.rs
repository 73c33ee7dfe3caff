//! Reading elements: every datum and every boundary of a packet.

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

/// A field of a packet: a node of the procedure.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    procedure: &'a Procedure,
    node: NodeId,
}

impl<'a> Field<'a> {
    pub(crate) fn new(procedure: &'a Procedure, node: NodeId) -> Self {
        Self { procedure, node }
    }

    /// The id of the node.
    pub fn id(&self) -> NodeId {
        self.node
    }

    /// The node.
    pub fn node(&self) -> &'a Node {
        self.procedure.node(self.node)
    }

    /// The class of the field.
    pub fn class(&self) -> &'a FieldClass {
        self.procedure.field_class(self.node)
    }

    /// The name, when the field is a member of a structure.
    pub fn name(&self) -> Option<&'a str> {
        self.node().name()
    }

    /// The display name, when the field is a member of a structure.
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

/// The stream of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamInfo<'a> {
    /// Its class; `None` when the trace class has no stream classes.
    pub class: Option<&'a StreamClass>,
    /// Its id in the class.
    pub id: Option<u64>,
}

/// Lengths (in bits), end time and counters from the context of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketInfo {
    /// Length including the padding at the end.
    pub total_length: Option<u64>,
    /// Length without the padding.
    pub content_length: Option<u64>,
    /// Cycles of the default clock at the end.
    pub end_clock: Option<u64>,
    /// Sequence number in the stream.
    pub sequence: Option<u64>,
    /// Snapshot of the stream's counter of discarded event records.
    pub discarded_events: Option<u64>,
}

/// An element of a packet: a datum or a boundary. Beginnings and ends are balanced.
#[derive(Clone, Copy, Debug)]
#[expect(
    missing_docs,
    reason = "the names are those of the instructions in the module `procedure`"
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
    /// The magic number at the beginning of a packet; 0xC1FC1FC1 when it is valid.
    MagicNumber(u64),
    /// The UUID of the metadata in the packet header.
    MetadataUuid(Uuid),
    StreamInfo(StreamInfo<'a>),
    /// The packet context is complete; its values are in
    /// [`ElementReader::packet_info`](super::ElementReader::packet_info).
    PacketInfo,
    /// The class of an event record; `None` when the stream class has no event classes.
    EventInfo(Option<&'a EventClass>),
    /// The new value of the default clock, in cycles.
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
    /// Bytes of a string or BLOB, which may be split into several elements.
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
    /// An optional field, whether it is present, and its selector.
    SignedOptionalBegin(Field<'a>, bool, i64),
    SignedOptionalEnd(Field<'a>),
    /// An optional field, whether it is present, and its selector.
    UnsignedOptionalBegin(Field<'a>, bool, u64),
    UnsignedOptionalEnd(Field<'a>),
}

const _: () = assert!(
    size_of::<Element<'_>>() <= 32,
    "an element is half a cache line at most: forty of them are written for an event record"
);

#[cfg(test)]
mod tests;
