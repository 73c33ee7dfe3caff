//! Lowers a procedure to a plan: fuses runs and removes fields that are not selected.

use super::compiled_plan::{CompiledPlan, StreamPlan};
use super::op::{Effect, Op, Uses};
use super::runs::{Congruence, Runs};
use super::token::{Packing, TokenKind};
use crate::class::{EventClass, Scope, StreamClass, StreamClassIndex};
use crate::integer::{low_u32, usize_from};
use crate::procedure::{Count, FixedKind, FixedRead, Instr, NodeId, Procedure, SelectorTable};

/// Longest string or BLOB that can be part of a run; longer ones get an operation each.
pub(super) const RUN_BYTES_MAX: u64 = 1 << 16;

/// A field that a projection can select.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'p> {
    /// The class of the stream.
    pub stream: &'p StreamClass,
    /// The class of the event record; `None` for the event header and the common context.
    pub event: Option<&'p EventClass>,
    /// The root structure.
    pub scope: Scope,
    /// Display names from the root structure to the field. Never empty.
    pub path: &'p [&'p str],
    /// The node of the field in the procedure.
    pub node: NodeId,
}

pub(super) struct Lowering<'p, W> {
    pub(super) procedure: &'p Procedure,
    selected: W,
    pub(super) runs: Runs,
    pub(super) tables: Vec<SelectorTable>,
    pub(super) packings: Vec<Packing>,
    /// Address of the next instruction.
    pub(super) at: usize,
    /// Whether the fields here are selected by a field that contains them.
    pub(super) inside: bool,
    stream: Option<&'p StreamClass>,
    event: Option<&'p EventClass>,
    path: Vec<&'p str>,
    /// The nodes of the current scope that are selected, in order, unless all are.
    selected_nodes: Vec<u32>,
    /// Whether event classes are selected by an id.
    dynamic_event: bool,
    /// Number of enclosing arrays, variants and optionals, whose fields are not selected
    /// individually.
    pub(super) depth: u32,
}

impl<'p, W: FnMut(&Candidate<'_>) -> bool> Lowering<'p, W> {
    pub(super) fn new(procedure: &'p Procedure, selected: W) -> Self {
        Self {
            procedure,
            selected,
            runs: Runs::new(has_two_orders(procedure.code())),
            tables: Vec::new(),
            packings: Vec::new(),
            at: 0,
            inside: true,
            stream: None,
            event: None,
            path: Vec::new(),
            selected_nodes: Vec::new(),
            dynamic_event: false,
            depth: 0,
        }
    }

    pub(super) fn plan(mut self) -> CompiledPlan {
        // A packet begins at bit 0, which is a multiple of every alignment.
        let header = self.region(0, true, Congruence::aligned(1 << 31));
        let selects = |instr: &Instr| matches!(instr, Instr::SelectStream { dynamic: true });
        let dynamic_stream = self.procedure.code().iter().any(selects);
        let class = self.procedure.trace_class();
        let mut streams = Vec::new();
        for (index, code) in (0..).zip(self.procedure.streams()) {
            let stream = class.stream_class(StreamClassIndex(index));
            (self.stream, self.event) = (Some(stream), None);
            let packet = self.region(code.packet, true, Congruence::NOTHING);
            let alignment = match self.procedure.code().get(usize_from(code.record)) {
                Some(Instr::NextRecord { alignment }) => *alignment,
                _ => 1,
            };
            let record = self.region(code.record + 1, false, Congruence::aligned(alignment));
            let known = self.runs.known();
            let mut events = Vec::new();
            for (class, &at) in stream.event_classes().iter().zip(&code.events) {
                self.event = Some(class);
                events.push(self.region(at, false, known));
            }
            streams.push(StreamPlan {
                packet,
                record,
                alignment,
                events: events.into(),
            });
        }
        let (ops, items) = self.runs.into_parts();
        CompiledPlan {
            procedure: self.procedure.clone(),
            ops,
            items,
            tables: self.tables.into(),
            packings: self.packings.into(),
            header,
            dynamic_stream,
            streams: streams.into(),
        }
    }

    /// Lowers the region of instructions that begins at `from`.
    fn region(&mut self, from: u32, inside: bool, known: Congruence) -> u32 {
        self.at = usize_from(from);
        self.inside = inside;
        self.runs.begin(known);
        let begin = self.runs.here();
        while self.instr() {}
        begin
    }

    pub(super) fn next(&mut self) -> Option<&'p Instr> {
        let procedure = self.procedure;
        let instr = procedure.code().get(self.at)?;
        self.at += 1;
        Some(instr)
    }

    /// Lowers one instruction with everything that it contains; false at the end of the region.
    fn instr(&mut self) -> bool {
        let Some(instr) = self.next() else {
            self.runs.end();
            return false;
        };
        match *instr {
            Instr::BeginPacket | Instr::BeginContent | Instr::StreamInfo | Instr::EventInfo => {}
            Instr::SelectStream { .. } | Instr::EnterStream | Instr::PacketInfo => {
                self.runs.end();
                return false;
            }
            Instr::SelectEvent { dynamic } => self.dynamic_event = dynamic,
            Instr::EnterEvent => {
                let dynamic = self.dynamic_event;
                self.runs.push(Op::EnterEvent { dynamic });
                return false;
            }
            Instr::EndRecord => {
                self.runs.end();
                return false;
            }
            Instr::BeginScope { scope, alignment } => self.scope(scope, alignment),
            ref instr => self.scalar(instr),
        }
        true
    }

    fn scope(&mut self, scope: Scope, alignment: u32) {
        self.runs.align(alignment);
        let has_fields = self.inside || self.any_selected();
        if has_fields {
            self.runs.append(Op::BeginScope { scope });
        }
        // The root structure has no tokens; the scope represents it.
        if let Some(Instr::BeginStruct { alignment, .. }) = self.next() {
            self.runs.align(*alignment);
        }
        self.content();
        while !matches!(self.next(), Some(Instr::EndScope { .. }) | None) {}
    }

    /// True when a field of the root structure that begins here is selected, or when it is empty.
    fn any_selected(&mut self) -> bool {
        let Some(Instr::BeginStruct { node, .. }) = self.procedure.code().get(self.at) else {
            return false;
        };
        self.find_selected(*node);
        self.procedure.node(*node).end().0 == node.0 + 1 || self.has_selected(*node)
    }

    /// Whether the projection selects a node in `node`, in the scope of the last
    /// [`Self::find_selected`].
    pub(super) fn has_selected(&self, node: NodeId) -> bool {
        let inside = (node.0 + 1, self.procedure.node(node).end().0);
        let next = self.selected_nodes.partition_point(|id| *id < inside.0);
        let found = self.selected_nodes.get(next);
        found.is_some_and(|id| *id < inside.1)
    }

    /// Finds the nodes in `root` that the projection selects.
    fn find_selected(&mut self, root: NodeId) {
        self.selected_nodes.clear();
        let procedure = self.procedure;
        let mut path = Vec::new();
        // The ends of the structures on the path.
        let mut ends = vec![procedure.node(root).end()];
        let mut next = root.0 + 1;
        while next < procedure.node(root).end().0 {
            let id = NodeId(next);
            while ends.last().is_some_and(|end| end.0 <= next) {
                ends.pop();
                path.pop();
            }
            let node = procedure.node(id);
            let Some(name) = node.display_name() else {
                // An element or option; what it contains is not selected by itself.
                next = node.end().0;
                continue;
            };
            path.push(name);
            if self.selects(id, &path) {
                self.selected_nodes.push(next);
            }
            ends.push(node.end());
            next += 1;
        }
    }

    fn selects(&mut self, node: NodeId, path: &[&str]) -> bool {
        let Some(stream) = self.stream else {
            return true;
        };
        let scope = self.procedure.node(node).scope();
        (self.selected)(&Candidate {
            stream,
            event: self.event,
            scope,
            path,
            node,
        })
    }

    /// Determines whether the member `node` is selected. Returns whether it is not inside of a
    /// selected field.
    pub(super) fn enter_member(&mut self, node: NodeId) -> bool {
        let outside = !self.inside && self.depth == 0;
        let name = self.procedure.node(node).display_name().unwrap_or_default();
        self.path.push(name);
        if outside {
            let path = std::mem::take(&mut self.path);
            self.inside = self.selects(node, &path);
            self.path = path;
        }
        outside
    }

    pub(super) fn leave_member(&mut self, outside: bool) {
        self.path.pop();
        self.inside &= !outside;
    }

    pub(super) fn mark(&mut self, selected: bool, node: NodeId, kind: TokenKind) {
        if selected {
            self.runs.mark(node, kind);
        }
    }

    /// Lowers a field that contains no fields, or an effect.
    pub(super) fn scalar(&mut self, instr: &'p Instr) {
        let selected = self.inside;
        match *instr {
            Instr::Unsigned(ref read) | Instr::Signed(ref read) | Instr::Fixed(ref read) => {
                self.fixed(read);
            }
            Instr::VariableUnsigned { node } => {
                self.runs.whole_bytes(Op::Variable {
                    node,
                    signed: false,
                    selected,
                });
            }
            Instr::VariableSigned { node } => {
                self.runs.whole_bytes(Op::Variable {
                    node,
                    signed: true,
                    selected,
                });
            }
            Instr::BeginText { node } => {
                if let Some(&Instr::TextUntilNull { unit }) = self.next() {
                    self.runs.whole_bytes(Op::Text {
                        node,
                        unit,
                        selected,
                    });
                }
                self.next();
            }
            Instr::BeginString { node, count } => self.bytes(node, count, TokenKind::Text),
            Instr::BeginBlob { node, count } => self.bytes(node, count, TokenKind::Blob),
            ref effect => {
                if let Some(op) = effect_of(effect) {
                    self.runs.append(op);
                }
            }
        }
    }

    fn fixed(&mut self, read: &FixedRead) {
        let load = self.runs.field(read);
        let code = self.procedure.code();
        let has_effect = code
            .get(self.at)
            .is_some_and(|next| effect_of(next).is_some());
        let selected = self.inside;
        if has_effect && read.kind != FixedKind::Bool {
            let uses = self.uses();
            self.runs.append(Op::Integer {
                load,
                selected,
                uses,
            });
            return;
        }
        if has_effect {
            let uses = Uses::default();
            self.runs.append(Op::Integer {
                load,
                selected: false,
                uses,
            });
        }
        if selected {
            self.runs.item(load);
        }
    }

    /// Consumes the following effects that can be part of the operation that loads the integer.
    fn uses(&mut self) -> Uses {
        let mut uses = Uses::default();
        while let Some(instr) = self.procedure.code().get(self.at) {
            match *instr {
                Instr::Save { slot } if uses.slot == 0 && slot.0 < u32::from(u16::MAX) => {
                    uses.slot = u16::try_from(slot.0 + 1).unwrap_or(0);
                }
                Instr::SetId if !uses.is_id => uses.is_id = true,
                Instr::UpdateClock { length } if uses.clock == 0 && length > 0 => {
                    uses.clock = length;
                }
                _ => break,
            }
            self.at += 1;
        }
        uses
    }

    fn bytes(&mut self, node: NodeId, count: Count, kind: TokenKind) {
        let selected = self.inside;
        // While the effects of a run are applied, the head is already at the end of the run.
        let end = match count {
            Count::Static(length) if length <= RUN_BYTES_MAX => {
                let length = low_u32(length);
                let at = self.runs.stretch(8, length * 8);
                if selected {
                    self.runs.several(node, at, length, kind);
                }
                Some(at + length * 8)
            }
            count => {
                self.runs.whole_bytes(Op::Data {
                    node,
                    count,
                    kind: selected.then_some(kind),
                });
                None
            }
        };
        while let Some(instr) = self.next() {
            match instr {
                Instr::EndString { .. } | Instr::EndBlob { .. } => return,
                Instr::MetadataUuid { blob: true } => {
                    if let Some(end) = end {
                        self.runs.append(Op::Effect(Effect::UuidBlob { end }));
                    }
                }
                _ => {}
            }
        }
    }
}

/// The node that an instruction begins or reads.
pub(super) fn node_of(instr: &Instr) -> Option<NodeId> {
    match *instr {
        Instr::BeginStruct { node, .. }
        | Instr::VariableUnsigned { node }
        | Instr::VariableSigned { node }
        | Instr::BeginText { node }
        | Instr::BeginString { node, .. }
        | Instr::BeginBlob { node, .. }
        | Instr::BeginArray { node, .. }
        | Instr::BeginVariant { node, .. }
        | Instr::BeginOptional { node, .. } => Some(node),
        Instr::Unsigned(ref read) | Instr::Signed(ref read) | Instr::Fixed(ref read) => {
            Some(read.node)
        }
        _ => None,
    }
}

fn effect_of(instr: &Instr) -> Option<Op> {
    Some(match *instr {
        Instr::Save { slot } => Op::Save { slot },
        Instr::UpdateClock { length } => Op::UpdateClock { length },
        Instr::SetId => Op::SetId,
        Instr::SetPacketEndClock => Op::Effect(Effect::PacketEndClock),
        Instr::SetStreamId => Op::Effect(Effect::StreamId),
        Instr::SetSequence => Op::Effect(Effect::Sequence),
        Instr::SetDiscarded => Op::Effect(Effect::Discarded),
        Instr::SetTotalLength => Op::Effect(Effect::TotalLength),
        Instr::SetContentLength => Op::Effect(Effect::ContentLength),
        Instr::MagicNumber => Op::Effect(Effect::MagicNumber),
        Instr::UuidByte => Op::Effect(Effect::UuidByte),
        Instr::MetadataUuid { blob: false } => Op::Effect(Effect::Uuid),
        _ => return None,
    })
}

fn has_two_orders(code: &[Instr]) -> bool {
    let mut orders = code.iter().filter_map(|instr| match instr {
        Instr::Unsigned(read)
        | Instr::Signed(read)
        | Instr::Fixed(read)
        | Instr::UnsignedElements(read) => Some(read.order),
        _ => None,
    });
    let first = orders.next();
    orders.any(|order| Some(order) != first)
}
