//! Compilation of a trace class to instructions.

use super::instr::{Address, Count, FixedKind, FixedRead, Instr, NodeId, SelectorKind};
use super::{Node, ProcedureError, SelectorTable, StreamCode};
use crate::class::{
    EventClass, FieldId, FieldKind, Length, OptionalClass, Role, Scope, SelectorRanges, SlotId,
    StreamClass, TraceClass, VariantClass,
};
use crate::integer::{low_u8, u32_saturating, u64_from, usize_from};

/// Most instructions of a procedure; far above what the metadata of any tracer needs (a kernel with
/// 2,000 event classes needs about 60,000).
const INSTRUCTIONS_MAX: usize = 1 << 22;

pub(super) struct Compiler<'c> {
    class: &'c TraceClass,
    pub(super) code: Vec<Instr>,
    pub(super) nodes: Vec<Node>,
    pub(super) tables: Vec<SelectorTable>,
    scope: Scope,
    has_clock: bool,
    reads_id: bool,
}

impl<'c> Compiler<'c> {
    pub(super) fn new(class: &'c TraceClass) -> Self {
        Self {
            class,
            code: Vec::new(),
            nodes: Vec::new(),
            tables: Vec::new(),
            scope: Scope::PacketHeader,
            has_clock: false,
            reads_id: false,
        }
    }

    /// Writes the packet preamble at address 0.
    pub(super) fn packet(&mut self) -> Result<(), ProcedureError> {
        self.push(Instr::BeginPacket)?;
        self.push(Instr::BeginContent)?;
        self.reads_id = false;
        self.scope(Scope::PacketHeader, self.class.packet_header())?;
        if !self.class.stream_classes().is_empty() {
            self.push(Instr::SelectStream {
                dynamic: self.reads_id,
            })?;
        }
        self.push(Instr::StreamInfo)?;
        self.push(Instr::EnterStream)
    }

    /// Writes the end of every packet.
    pub(super) fn packet_end(&mut self) -> Result<Address, ProcedureError> {
        let at = self.here();
        self.push(Instr::EndContent)?;
        self.push(Instr::EndPacket)?;
        Ok(at)
    }

    pub(super) fn stream(
        &mut self,
        stream: &StreamClass,
        packet_end: Address,
    ) -> Result<StreamCode, ProcedureError> {
        self.has_clock = stream.default_clock.is_some();
        let packet = self.here();
        self.scope(Scope::PacketContext, stream.packet_context)?;
        self.push(Instr::PacketInfo)?;
        let events = stream.event_classes();
        if events.is_empty() {
            self.push(Instr::Jump { to: packet_end })?;
        }
        let record = self.here();
        self.push(Instr::NextRecord {
            alignment: self.record_alignment(stream),
        })?;
        self.reads_id = false;
        self.scope(Scope::EventHeader, stream.event_header)?;
        if !events.is_empty() {
            self.push(Instr::SelectEvent {
                dynamic: self.reads_id,
            })?;
        }
        self.push(Instr::EventInfo)?;
        self.scope(Scope::EventCommonContext, stream.event_common_context)?;
        self.push(Instr::EnterEvent)?;
        let events = events
            .iter()
            .map(|event| self.event(event))
            .collect::<Result<_, _>>()?;
        Ok(StreamCode {
            packet,
            record,
            events,
        })
    }

    fn event(&mut self, event: &EventClass) -> Result<Address, ProcedureError> {
        let at = self.here();
        self.scope(Scope::EventSpecificContext, event.specific_context)?;
        self.scope(Scope::EventPayload, event.payload)?;
        self.push(Instr::EndRecord)?;
        Ok(at)
    }

    /// The alignment of an event record is that of its first scope.
    fn record_alignment(&self, stream: &StreamClass) -> u32 {
        let only = stream.event_classes().first();
        let first = stream
            .event_header
            .or(stream.event_common_context)
            .or_else(|| only.and_then(|event| event.specific_context.or(event.payload)));
        first.map_or(1, |field| self.class.field(field).alignment)
    }

    fn scope(&mut self, scope: Scope, root: Option<FieldId>) -> Result<(), ProcedureError> {
        let Some(root) = root else { return Ok(()) };
        self.scope = scope;
        let alignment = self.class.field(root).alignment;
        self.push(Instr::BeginScope { scope, alignment })?;
        self.field(root, None, None)?;
        self.push(Instr::EndScope { scope })
    }

    fn field(
        &mut self,
        id: FieldId,
        parent: Option<NodeId>,
        name: Option<(&str, &str)>,
    ) -> Result<(), ProcedureError> {
        let class = self.class;
        let field = class.field(id);
        let node = NodeId(index(self.nodes.len())?);
        let names = name.map(|(name, display)| (name.into(), display.into()));
        let (scope, end) = (self.scope, node);
        self.nodes.push(Node {
            class: id,
            scope,
            parent,
            names,
            option: None,
            end,
        });
        let alignment = field.alignment;
        match &field.kind {
            FieldKind::BitArray(_) => self.fixed(node, id, FixedKind::BitArray)?,
            FieldKind::BitMap(_) => self.fixed(node, id, FixedKind::BitMap)?,
            FieldKind::Bool(_) => self.fixed(node, id, FixedKind::Bool)?,
            FieldKind::Unsigned(..) => self.fixed(node, id, FixedKind::Unsigned)?,
            FieldKind::Signed(..) => self.fixed(node, id, FixedKind::Signed)?,
            FieldKind::Float(float) if float.bits.length == 32 => {
                self.fixed(node, id, FixedKind::Float32)?;
            }
            FieldKind::Float(_) => self.fixed(node, id, FixedKind::Float64)?,
            FieldKind::VariableUnsigned(_) => {
                self.push(Instr::VariableUnsigned { node })?;
                self.effects(id)?;
            }
            FieldKind::VariableSigned(_) => {
                self.push(Instr::VariableSigned { node })?;
                self.effects(id)?;
            }
            FieldKind::NullTerminatedString(encoding) => {
                self.push(Instr::BeginText { node })?;
                self.push(Instr::TextUntilNull {
                    unit: low_u8(u64_from(encoding.unit_bytes())),
                })?;
                self.push(Instr::EndText { node })?;
            }
            FieldKind::String(string) => {
                let (count, dynamic) = self.count(&string.length)?;
                self.push(Instr::BeginString { node, count })?;
                self.push(Instr::RawData)?;
                self.push(Instr::EndString { node, dynamic })?;
            }
            FieldKind::Blob(blob) => {
                let (count, dynamic) = self.count(&blob.length)?;
                self.push(Instr::BeginBlob { node, count })?;
                self.push(Instr::RawData)?;
                if count == Count::Static(16) && self.is_metadata_uuid(id) {
                    self.push(Instr::MetadataUuid { blob: true })?;
                }
                self.push(Instr::EndBlob { node, dynamic })?;
            }
            FieldKind::Array(array) => {
                self.array(node, id, &array.length, array.element, alignment)?;
            }
            FieldKind::Struct(structure) => {
                self.push(Instr::BeginStruct { node, alignment })?;
                for member in &structure.members {
                    let name = (&*member.name, &*member.display_name);
                    self.field(member.class, Some(node), Some(name))?;
                }
                self.push(Instr::EndStruct { node })?;
            }
            FieldKind::Optional(optional) => self.optional(node, optional)?,
            FieldKind::Variant(variant) => self.variant(node, variant)?,
        }
        self.nodes[node.index()].end = NodeId(index(self.nodes.len())?);
        Ok(())
    }

    fn fixed(&mut self, node: NodeId, id: FieldId, kind: FixedKind) -> Result<(), ProcedureError> {
        let field = self.class.field(id);
        let bits = field.fixed_bits().ok_or(ProcedureError::NotFixed(id))?;
        if bits.length == 0 || bits.length > 64 {
            return Err(ProcedureError::BitLength {
                field: id,
                length: bits.length,
            });
        }
        let read = FixedRead {
            node,
            alignment: field.alignment,
            length: bits.length,
            order: bits.byte_order,
            reversed: bits.is_reversed(),
            kind,
        };
        self.push(match kind {
            FixedKind::Unsigned => Instr::Unsigned(read),
            FixedKind::Signed => Instr::Signed(read),
            _ => Instr::Fixed(read),
        })?;
        self.effects(id)
    }

    fn array(
        &mut self,
        node: NodeId,
        id: FieldId,
        length: &Length,
        element: FieldId,
        alignment: u32,
    ) -> Result<(), ProcedureError> {
        let (count, dynamic) = self.count(length)?;
        let begin = self.code.len();
        self.push(Instr::BeginArray {
            node,
            alignment,
            count,
            after: 0,
        })?;
        let body = self.here();
        self.field(element, Some(node), None)?;
        let is_uuid = count == Count::Static(16) && self.is_metadata_uuid(id);
        if is_uuid {
            self.push(Instr::UuidByte)?;
        }
        match self.code[usize_from(body)..] {
            [Instr::Unsigned(read)] => {
                self.code[usize_from(body)] = Instr::UnsignedElements(read);
            }
            _ => self.push(Instr::NextElement { body })?,
        }
        let here = self.here();
        if let Instr::BeginArray { after, .. } = &mut self.code[begin] {
            *after = here;
        }
        if is_uuid {
            self.push(Instr::MetadataUuid { blob: false })?;
        }
        self.push(Instr::EndArray { node, dynamic })
    }

    fn optional(&mut self, node: NodeId, optional: &OptionalClass) -> Result<(), ProcedureError> {
        let (kind, selector) = match &optional.enabled {
            SelectorRanges::Bool => (SelectorKind::Bool, SelectorTable::new(Vec::new(), 0)),
            SelectorRanges::Unsigned(set) => (
                SelectorKind::Unsigned,
                SelectorTable::unsigned([set].into_iter()),
            ),
            SelectorRanges::Signed(set) => (
                SelectorKind::Signed,
                SelectorTable::signed([set].into_iter()),
            ),
        };
        let table = index(self.tables.len())?;
        self.tables.push(selector);
        let slot = self.slot(optional.selector.slot)?;
        self.push(Instr::BeginOptional {
            node,
            slot,
            kind,
            table,
        })?;
        self.field(optional.field, Some(node), None)?;
        self.tables[usize_from(table)].end = self.here();
        self.push(Instr::EndOptional { node, kind })
    }

    fn variant(&mut self, node: NodeId, variant: &VariantClass) -> Result<(), ProcedureError> {
        let slot = self.slot(variant.selector.slot)?;
        let table = index(self.tables.len())?;
        self.tables
            .push(SelectorTable::of_options(&variant.options));
        self.push(Instr::BeginVariant { node, slot, table })?;
        let mut jumps = Vec::new();
        for option in 0..variant.options.len() {
            let at = self.here();
            self.tables[usize_from(table)].addresses.push(at);
            let first = self.nodes.len();
            self.field(variant.options.field(option), Some(node), None)?;
            self.nodes[first].option = Some(index(option)?);
            jumps.push(self.code.len());
            self.push(Instr::Jump { to: 0 })?;
        }
        let end = self.here();
        for jump in jumps {
            self.code[jump] = Instr::Jump { to: end };
        }
        let table = &mut self.tables[usize_from(table)];
        table.end = end;
        let signed = table.is_signed();
        self.push(Instr::EndVariant { node, signed })
    }

    /// Writes the effects that the value of an integer or boolean has in this scope.
    fn effects(&mut self, id: FieldId) -> Result<(), ProcedureError> {
        let field = self.class.field(id);
        for &slot in &field.slots {
            let slot = self.slot(slot)?;
            self.push(Instr::Save { slot })?;
        }
        if field.roles.is_empty() {
            return Ok(());
        }
        let (scope, clock) = (self.scope, self.has_clock);
        let length = field.fixed_bits().map_or(0, |bits| bits.length);
        let header = scope == Scope::PacketHeader;
        let context = scope == Scope::PacketContext;
        let event = scope == Scope::EventHeader;
        let all = [
            (
                Role::PacketEndTimestamp,
                context && clock,
                Instr::SetPacketEndClock,
            ),
            (
                Role::ClockTimestamp,
                (context || event) && clock,
                Instr::UpdateClock { length },
            ),
            (Role::DiscardedEvents, context, Instr::SetDiscarded),
            (Role::PacketSequenceNumber, context, Instr::SetSequence),
            (Role::PacketContentLength, context, Instr::SetContentLength),
            (Role::PacketTotalLength, context, Instr::SetTotalLength),
            (Role::StreamId, header, Instr::SetStreamId),
            (Role::StreamClassId, header, Instr::SetId),
            (Role::EventClassId, event, Instr::SetId),
            (Role::PacketMagicNumber, header, Instr::MagicNumber),
        ];
        for (role, here, instr) in all {
            if here && field.roles.has(role) {
                self.reads_id |= instr == Instr::SetId;
                self.push(instr)?;
            }
        }
        Ok(())
    }

    fn is_metadata_uuid(&self, id: FieldId) -> bool {
        self.scope == Scope::PacketHeader && self.class.field(id).roles.has(Role::MetadataUuid)
    }

    /// The count, and true when it is known only during decoding.
    fn count(&self, length: &Length) -> Result<(Count, bool), ProcedureError> {
        Ok(match length {
            Length::Static(length) => (Count::Static(*length), false),
            Length::Dynamic(dependency) => (Count::Saved(self.slot(dependency.slot)?), true),
        })
    }

    fn slot(&self, slot: SlotId) -> Result<SlotId, ProcedureError> {
        if slot.0 < self.class.slot_count() {
            Ok(slot)
        } else {
            Err(ProcedureError::Slot(slot))
        }
    }

    fn here(&self) -> Address {
        // `push` keeps the length below `INSTRUCTIONS_MAX`.
        u32_saturating(self.code.len())
    }

    fn push(&mut self, instr: Instr) -> Result<(), ProcedureError> {
        if self.code.len() >= INSTRUCTIONS_MAX {
            return Err(ProcedureError::TooLarge {
                instructions_max: INSTRUCTIONS_MAX,
            });
        }
        self.code.push(instr);
        Ok(())
    }
}

fn index(length: usize) -> Result<u32, ProcedureError> {
    u32::try_from(length).map_err(|_| ProcedureError::TooLarge {
        instructions_max: INSTRUCTIONS_MAX,
    })
}
