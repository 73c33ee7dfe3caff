//! Packet procedures: a trace class compiled once into a program for the machine.
//!
//! A procedure is one flat list of instructions. It is compiled from a trace class once, shared by
//! any number of readers without locks, and executed on the bytes of packets.
//!
//! # The language
//!
//! The machine has a *head* (a bit offset in the current packet), the value of the *last integer*,
//! a table of *saved values*, a stack of *array counters*, and the properties of the packet.
//!
//! | instruction | effect |
//! | --- | --- |
//! | `BeginPacket`, `BeginContent`, `EndContent`, `EndPacket` | frame of a packet; `EndContent` moves the head over the padding |
//! | `SelectStream`, `EnterStream` | finds the stream class by the last id, or uses the only one; continues at its preamble |
//! | `StreamInfo`, `PacketInfo`, `EventInfo` | emit the properties of the stream, packet or event record |
//! | `NextRecord` | jumps to `EndContent` at the end of the content, otherwise aligns and begins an event record |
//! | `SelectEvent`, `EnterEvent`, `EndRecord` | the same as for streams; `EndRecord` returns to `NextRecord` |
//! | `BeginScope`, `EndScope`, `BeginStruct`, `EndStruct` | align, mark |
//! | `Unsigned`, `Signed`, `Fixed` | align, read 1 to 64 bits |
//! | `UnsignedElements` | the same for every element of an array |
//! | `VariableUnsigned`, `VariableSigned` | align to a byte, read LEB128 |
//! | `BeginText`, `TextUntilNull`, `EndText` | text up to a null code unit |
//! | `BeginString`, `BeginBlob`, `RawData`, `EndString`, `EndBlob` | bytes of static or saved length |
//! | `BeginArray`, `NextElement`, `EndArray` | pushes a counter; the body runs until it is zero |
//! | `BeginVariant`, `EndVariant` | jumps to the option that a saved value selects |
//! | `BeginOptional`, `EndOptional` | jumps to the end unless a saved value enables the field |
//! | `Jump` | jumps (from the end of an option to the end of its variant) |
//! | `Save` | stores the last integer for a later length or selector |
//! | `UpdateClock`, `SetPacketEndClock`, `SetId`, `SetStreamId`, `SetSequence`, `SetDiscarded`, `SetTotalLength`, `SetContentLength`, `MagicNumber`, `UuidByte`, `MetadataUuid` | apply the last integer or bytes to the state of the packet |
//!
//! Layout: packet preamble (packet header), packet end, then for every stream class its packet
//! preamble (packet context), its record preamble (event header, common context) and, one after
//! another, its event classes (specific context, payload).
//!
//! The element reader executes this program directly. The event reader executes a *plan*: the same
//! program, lowered for one projection, in which runs of fixed-size fields are fused and fields
//! that are not selected are skipped.

mod compiler;
mod instr;

use crate::deep_stack::run_deep;
use crate::integer::usize_from;
use std::sync::Arc;

use crate::class::{
    FieldClass, FieldId, IntRange, RangeSet, Scope, SlotId, TraceClass, VariantOptions,
};
use compiler::Compiler;
pub use instr::NodeId;
pub(crate) use instr::{Address, Count, FixedKind, FixedRead, Instr, SelectorKind};

/// Why a trace class cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcedureError {
    /// The trace class expands to too many instructions.
    #[error("the trace class needs more than {instructions_max} instructions")]
    TooLarge {
        /// The limit.
        instructions_max: usize,
    },
    /// A fixed-length field has an invalid length.
    #[error("field class {} has {length} bits, not 1 to 64", field.0)]
    BitLength {
        /// The field class.
        field: FieldId,
        /// Its length in bits.
        length: u8,
    },
    /// A field class that should have a fixed length has none.
    #[error("field class {} has no fixed length", .0.0)]
    NotFixed(FieldId),
    /// A thread with a stack for deeply nested field classes cannot be started.
    #[error("no thread can be started to compile field classes that nest {depth} levels deep")]
    NoStack {
        /// The levels.
        depth: u32,
    },
    /// A dependency refers to a slot that the trace class does not have.
    #[error("saved value {} is not in the trace class", .0.0)]
    Slot(SlotId),
}

/// A use of a field class, with its name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    class: FieldId,
    scope: Scope,
    parent: Option<NodeId>,
    names: Option<(Box<str>, Box<str>)>,
    option: Option<u32>,
    /// One past the last node inside this one.
    end: NodeId,
}

impl Node {
    /// The field class.
    pub fn class(&self) -> FieldId {
        self.class
    }

    /// The root structure that contains the node.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The structure, array, optional or variant that contains the node.
    pub fn parent(&self) -> Option<NodeId> {
        self.parent
    }

    /// The name, when the node is a member of a structure.
    pub fn name(&self) -> Option<&str> {
        self.names.as_ref().map(|(name, _)| &**name)
    }

    /// The display name, when the node is a member of a structure.
    pub fn display_name(&self) -> Option<&str> {
        self.names.as_ref().map(|(_, display)| &**display)
    }

    /// The index of the option, when the node is an option of a variant.
    pub fn option(&self) -> Option<u32> {
        self.option
    }

    /// One past the last node inside this one; contained nodes directly follow their container.
    pub fn end(&self) -> NodeId {
        self.end
    }
}

/// The options that ranges of selector values select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectorTable {
    /// Sorted and disjoint, signed values shifted so that they sort as unsigned ones.
    ranges: Vec<(u64, u64, u32)>,
    /// Applied (by exclusive or) to a raw value before the search.
    bias: u64,
    pub(crate) addresses: Vec<Address>,
    pub(crate) end: Address,
}

const SIGN: u64 = 1 << 63;

impl SelectorTable {
    fn of_options(options: &VariantOptions) -> Self {
        match options {
            VariantOptions::Unsigned(options) => {
                Self::unsigned(options.iter().map(|option| &option.ranges))
            }
            VariantOptions::Signed(options) => {
                Self::signed(options.iter().map(|option| &option.ranges))
            }
        }
    }

    fn unsigned<'r>(sets: impl Iterator<Item = &'r RangeSet<u64>>) -> Self {
        let mut ranges = Vec::new();
        for (index, set) in (0u32..).zip(sets) {
            let each = |range: &IntRange<u64>| (range.lower, range.upper, index);
            ranges.extend(set.ranges().iter().map(each));
        }
        Self::new(ranges, 0)
    }

    fn signed<'r>(sets: impl Iterator<Item = &'r RangeSet<i64>>) -> Self {
        let mut ranges = Vec::new();
        let shift = |value: i64| value.cast_unsigned() ^ SIGN;
        for (index, set) in (0u32..).zip(sets) {
            let each = |range: &IntRange<i64>| (shift(range.lower), shift(range.upper), index);
            ranges.extend(set.ranges().iter().map(each));
        }
        Self::new(ranges, SIGN)
    }

    fn new(mut ranges: Vec<(u64, u64, u32)>, bias: u64) -> Self {
        ranges.sort_unstable();
        Self {
            ranges,
            bias,
            addresses: Vec::new(),
            end: 0,
        }
    }

    pub(crate) fn is_signed(&self) -> bool {
        self.bias != 0
    }

    /// The index that the saved value `raw` selects.
    #[inline]
    pub(crate) fn select(&self, raw: u64) -> Option<u32> {
        let value = raw ^ self.bias;
        if self.ranges.len() <= 8 {
            let hit = |range: &&(u64, u64, u32)| range.0 <= value && value <= range.1;
            return self.ranges.iter().find(hit).map(|range| range.2);
        }
        let after = self.ranges.partition_point(|range| range.0 <= value);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (value <= range.1).then_some(range.2)
    }
}

/// The addresses of the code of a stream class.
#[derive(Clone, Debug)]
pub(crate) struct StreamCode {
    /// Preamble of a packet.
    pub(crate) packet: Address,
    /// `NextRecord`.
    pub(crate) record: Address,
    /// Event classes by their index.
    pub(crate) events: Box<[Address]>,
}

/// A compiled trace class. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Procedure(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    class: Arc<TraceClass>,
    code: Box<[Instr]>,
    nodes: Box<[Node]>,
    tables: Box<[SelectorTable]>,
    streams: Box<[StreamCode]>,
    packet_end: Address,
}

impl Procedure {
    /// Compiles `class`.
    ///
    /// # Errors
    ///
    /// [`ProcedureError::TooLarge`] when the trace class expands to more instructions than a
    /// procedure may have. The other errors are caused by trace classes that no metadata parser of
    /// this crate produces.
    pub fn new(class: impl Into<Arc<TraceClass>>) -> Result<Self, ProcedureError> {
        let class = class.into();
        let depth = class.depth();
        let compiled = run_deep(depth, || Self::compiled(class));
        compiled.unwrap_or(Err(ProcedureError::NoStack { depth }))
    }

    fn compiled(class: Arc<TraceClass>) -> Result<Self, ProcedureError> {
        let mut compiler = Compiler::new(&class);
        compiler.packet()?;
        let packet_end = compiler.packet_end()?;
        let streams = class.stream_classes().iter();
        let streams = streams.map(|stream| compiler.stream(stream, packet_end));
        let streams = streams.collect::<Result<_, _>>()?;
        let Compiler {
            code,
            nodes,
            tables,
            ..
        } = compiler;
        Ok(Self(Arc::new(Inner {
            code: code.into(),
            nodes: nodes.into(),
            tables: tables.into(),
            streams,
            packet_end,
            class,
        })))
    }

    /// The trace class that the procedure was compiled from.
    pub fn trace_class(&self) -> &Arc<TraceClass> {
        &self.0.class
    }

    /// The node `id`.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.0.nodes[id.index()]
    }

    /// All nodes; contained nodes directly follow their container.
    pub fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    /// The field class of the node `id`.
    pub fn field_class(&self, id: NodeId) -> &FieldClass {
        self.0.class.field(self.node(id).class)
    }

    pub(crate) fn code(&self) -> &[Instr] {
        &self.0.code
    }

    pub(crate) fn table(&self, index: u32) -> &SelectorTable {
        &self.0.tables[usize_from(index)]
    }

    pub(crate) fn streams(&self) -> &[StreamCode] {
        &self.0.streams
    }

    pub(crate) fn packet_end(&self) -> Address {
        self.0.packet_end
    }
}

#[cfg(test)]
mod tests;
