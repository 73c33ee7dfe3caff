//! Executes the operations of a plan on the bytes of a packet.

use super::compiled_plan::CompiledPlan;
use super::op::{Effect, Op, Uses};
use super::token::{Load, Token, TokenKind};
use crate::class::{ByteOrder, Scope};
use crate::decoding::{align_up, bits};
use crate::integer::{byte_of, u32_saturating, u64_from, usize_from, usize_saturating};
use crate::procedure::{Count, FixedKind, NodeId};

/// Limit of values of an event record, boundaries included; a packed array counts as one.
pub(super) const TOKENS_MAX: usize = 1 << 22;
/// Limit of consecutive array elements without any bit in an event record.
const IDLE_MAX: u32 = 1 << 16;
/// An unknown length.
pub(super) const UNKNOWN: u64 = u64::MAX;
/// The scope has no tokens.
pub(super) const NO_SCOPE: u32 = u32::MAX;

/// The bytes cannot be decoded; an element reader determines the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undecodable;

/// The state of the interpreter: position, values of the packet, and decoded values.
#[derive(Clone, Debug)]
pub(super) struct Interpreter<'a> {
    plan: &'a CompiledPlan,
    /// The data from the beginning of the packet.
    pub(super) bytes: &'a [u8],
    /// Bits of the packet that may be read.
    pub(super) limit: u64,
    pub(super) head: u64,
    pub(super) total: u64,
    pub(super) content: u64,
    pub(super) clock: u64,
    /// True when a timestamp was read since [`Self::begin_packet`].
    pub(super) has_clock: bool,
    pub(super) id: u64,
    pub(super) stream: u32,
    pub(super) event: u32,
    pub(super) stream_id: Option<u64>,
    pub(super) end_clock: Option<u64>,
    pub(super) sequence: Option<u64>,
    pub(super) discarded: Option<u64>,
    pub(super) magic: Option<u64>,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) tokens: Vec<Token>,
    /// Index of the first token of each scope.
    pub(super) scopes: [u32; 6],
    integer: u64,
    integer_length: u32,
    uuid_bytes: [u8; 16],
    pub(super) order: Option<ByteOrder>,
    pub(super) saved: Vec<u64>,
    /// Remaining elements of each open array, and the head when the current element began.
    arrays: Vec<(u64, u64)>,
    idle: u32,
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(plan: &'a CompiledPlan) -> Self {
        let slots = usize_from(plan.procedure.trace_class().slot_count());
        Self {
            plan,
            bytes: &[],
            limit: 0,
            head: 0,
            total: UNKNOWN,
            content: UNKNOWN,
            clock: 0,
            has_clock: false,
            id: 0,
            stream: 0,
            event: 0,
            stream_id: None,
            end_clock: None,
            sequence: None,
            discarded: None,
            magic: None,
            uuid: None,
            tokens: Vec::new(),
            scopes: [NO_SCOPE; 6],
            integer: 0,
            integer_length: 0,
            uuid_bytes: [0; 16],
            order: None,
            saved: vec![0; slots],
            arrays: Vec::new(),
            idle: 0,
        }
    }

    pub(super) fn begin_packet(&mut self, bytes: &'a [u8]) {
        let (mut tokens, mut saved) = (
            std::mem::take(&mut self.tokens),
            std::mem::take(&mut self.saved),
        );
        tokens.clear();
        saved.fill(0);
        let new = Self::new(self.plan);
        let limit = u64_from(bytes.len()) * 8;
        *self = Self {
            bytes,
            limit,
            tokens,
            saved,
            ..new
        };
    }

    /// Executes operations from `at` to the end of the preamble or event record.
    pub(super) fn execute(&mut self, at: u32) -> Result<(), Undecodable> {
        let plan = self.plan;
        let ops = &*plan.ops;
        let mut at = usize_from(at);
        let mut run = self.head;
        loop {
            let op = ops.get(at).ok_or(Undecodable)?;
            at += 1;
            match *op {
                Op::Run { alignment, bits } => run = self.run(alignment, bits)?,
                Op::RunInteger {
                    scope,
                    alignment,
                    bits,
                    ref load,
                    selected,
                    uses,
                } => {
                    self.begin_scope(scope);
                    run = self.run(alignment, bits)?;
                    self.integer(run, load, selected, uses);
                }
                Op::RunItems {
                    scope,
                    ends,
                    alignment,
                    bits,
                    first,
                    count,
                } => {
                    self.begin_scope(scope);
                    run = self.run(alignment, bits)?;
                    self.push(TokenKind::Items, NodeId(first), run, count.into());
                    if ends {
                        return Ok(());
                    }
                }
                Op::Integer {
                    ref load,
                    selected,
                    uses,
                } => self.integer(run, load, selected, uses),
                Op::Items { first, count } => {
                    self.push(TokenKind::Items, NodeId(first), run, count.into());
                }
                Op::UpdateClock { length } => {
                    let length = if length == 0 {
                        self.integer_length
                    } else {
                        u32::from(length)
                    };
                    self.clock = bits::update_clock(self.clock, self.integer, length);
                    self.has_clock = true;
                }
                Op::Save { slot } => self.saved[usize_from(slot.0)] = self.integer,
                Op::SetId => self.id = self.integer,
                Op::Jump { to } => at = usize_from(to),
                Op::BeginScope { scope } => self.begin_scope(Some(scope)),
                Op::Text {
                    node,
                    unit,
                    selected,
                } => self.text(node, unit, selected)?,
                Op::Packed {
                    packing,
                    count,
                    selected,
                } => self.packed(packing, count, selected)?,
                Op::Variant {
                    node,
                    slot,
                    table,
                    selected,
                } => {
                    let table = &plan.tables[usize_from(table)];
                    let raw = self.saved[usize_from(slot.0)];
                    let option = table.select(raw).ok_or(Undecodable)?;
                    if selected {
                        self.push(TokenKind::VariantBegin, node, raw, option.into());
                    }
                    at = usize_from(table.addresses[usize_from(option)]);
                }
                Op::EnterEvent { dynamic } => at = usize_from(self.enter_event(dynamic)?),
                Op::End => return Ok(()),
                Op::Next { body } => {
                    if self.next_element()? {
                        at = usize_from(body);
                    }
                }
                Op::Array {
                    node,
                    alignment,
                    count,
                    after,
                    selected,
                } => {
                    if !self.array(node, alignment, count, selected)? {
                        at = usize_from(after);
                    }
                }
                Op::Optional {
                    node,
                    slot,
                    table,
                    is_bool,
                    selected,
                } => {
                    let table = &plan.tables[usize_from(table)];
                    let raw = self.saved[usize_from(slot.0)];
                    let is_present = is_bool && raw != 0 || !is_bool && table.select(raw).is_some();
                    if selected {
                        self.push(TokenKind::OptionalBegin, node, raw, is_present.into());
                    }
                    if !is_present {
                        at = usize_from(table.end);
                    }
                }
                Op::CheckOrder { order, at } => {
                    let inside_byte = (run + u64::from(at)) & 7 != 0;
                    if inside_byte && self.order.is_some_and(|before| before != order) {
                        return Err(Undecodable);
                    }
                }
                Op::SetOrder { order } => self.order = Some(order),
                ref op => self.rare(op, run)?,
            }
        }
    }

    #[inline(never)]
    fn rare(&mut self, op: &Op, run: u64) -> Result<(), Undecodable> {
        match *op {
            Op::Variable {
                node,
                signed,
                selected,
            } => self.variable(node, signed, selected)?,
            Op::Data { node, count, kind } => self.data(node, count, kind)?,
            Op::Effect(Effect::UuidBlob { end }) => {
                let end = (run + u64::from(end)) / 8;
                let before = self.bytes.get(..usize_saturating(end)).ok_or(Undecodable)?;
                self.uuid = Some(*before.last_chunk().ok_or(Undecodable)?);
            }
            Op::Effect(effect) => self.effect(effect)?,
            _ => return Err(Undecodable),
        }
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, kind: TokenKind, node: NodeId, value: u64, length: u64) {
        self.tokens.push(Token {
            value,
            length,
            node,
            kind,
        });
    }

    #[inline(always)]
    fn begin_scope(&mut self, scope: Option<Scope>) {
        if let Some(scope) = scope {
            self.scopes[scope.index()] = u32_saturating(self.tokens.len());
        }
    }

    /// Aligns the head and moves it over a run; returns the beginning of the run.
    #[inline(always)]
    fn run(&mut self, alignment: u32, bits: u32) -> Result<u64, Undecodable> {
        let run = align_up(self.head, alignment);
        let end = run + u64::from(bits);
        if end > self.limit {
            return Err(Undecodable);
        }
        self.head = end;
        Ok(run)
    }

    #[inline(always)]
    fn integer(&mut self, run: u64, load: &Load, selected: bool, uses: Uses) {
        let value = load.read(self.bytes, run + u64::from(load.at));
        let is_bool = load.kind == FixedKind::Bool;
        self.integer = if is_bool {
            u64::from(value != 0)
        } else {
            value
        };
        if selected {
            self.push(load.token_kind(), load.node, value, 0);
        }
        self.use_integer(uses);
    }

    #[inline(always)]
    fn use_integer(&mut self, uses: Uses) {
        if let Some(slot) = uses.slot.checked_sub(1) {
            self.saved[usize::from(slot)] = self.integer;
        }
        if uses.is_id {
            self.id = self.integer;
        }
        if uses.clock > 0 {
            self.clock = bits::update_clock(self.clock, self.integer, uses.clock.into());
            self.has_clock = true;
        }
    }

    fn enter_event(&mut self, dynamic: bool) -> Result<u32, Undecodable> {
        let class = self.plan.procedure.trace_class();
        let stream = class
            .stream_classes()
            .get(usize_from(self.stream))
            .ok_or(Undecodable)?;
        self.event = if dynamic {
            stream.find_event_class(self.id).ok_or(Undecodable)?.0
        } else {
            0
        };
        let events = &self.plan.streams[usize_from(self.stream)].events;
        events
            .get(usize_from(self.event))
            .copied()
            .ok_or(Undecodable)
    }

    fn count(&self, count: Count) -> u64 {
        match count {
            Count::Static(count) => count,
            Count::Saved(slot) => self.saved[usize_from(slot.0)],
        }
    }

    #[inline]
    fn align(&self, alignment: u32) -> Result<u64, Undecodable> {
        let begin = align_up(self.head, alignment);
        if begin <= self.limit {
            Ok(begin)
        } else {
            Err(Undecodable)
        }
    }

    fn text(&mut self, node: NodeId, unit: u8, selected: bool) -> Result<(), Undecodable> {
        let begin = self.align(8)? / 8;
        let content = self
            .bytes
            .get(usize_saturating(begin)..byte_of(self.limit))
            .ok_or(Undecodable)?;
        let length = match unit {
            1 => memchr::memchr(0, content),
            unit => {
                let unit = usize::from(unit);
                let mut units = content.chunks_exact(unit);
                units
                    .position(|unit| unit.iter().all(|byte| *byte == 0))
                    .map(|at| at * unit)
            }
        };
        let length = u64_from(length.ok_or(Undecodable)?);
        if selected {
            self.push(TokenKind::Text, node, begin, length);
        }
        self.head = (begin + length + u64::from(unit)) * 8;
        Ok(())
    }

    fn data(
        &mut self,
        node: NodeId,
        count: Count,
        kind: Option<TokenKind>,
    ) -> Result<(), Undecodable> {
        let begin = self.align(8)?;
        let length = self.count(count);
        if length > (self.limit - begin) / 8 {
            return Err(Undecodable);
        }
        if let Some(kind) = kind {
            self.push(kind, node, begin / 8, length);
        }
        self.head = begin + length * 8;
        Ok(())
    }

    fn packed(&mut self, index: u32, count: Count, selected: bool) -> Result<(), Undecodable> {
        let packing = &self.plan.packings[usize_from(index)];
        let begin = self.align(packing.alignment)?;
        let count = self.count(count);
        let length = packing.bits(count).ok_or(Undecodable)?;
        if length > self.limit - begin {
            return Err(Undecodable);
        }
        if count > 0 {
            let order = packing.load.order;
            if begin & 7 != 0 && self.order.is_some_and(|before| before != order) {
                return Err(Undecodable);
            }
            self.order = Some(order);
        }
        if selected {
            self.push(TokenKind::Packed, NodeId(index), begin, count);
        }
        self.head = begin + length;
        Ok(())
    }

    fn variable(&mut self, node: NodeId, signed: bool, selected: bool) -> Result<(), Undecodable> {
        let begin = self.align(8)? / 8;
        let content = self
            .bytes
            .get(usize_saturating(begin)..byte_of(self.limit))
            .ok_or(Undecodable)?;
        let mut integer = bits::Leb128::default();
        for (&byte, length) in content.iter().zip(1..) {
            if !integer.push(byte, signed).ok_or(Undecodable)? {
                continue;
            }
            self.head = (begin + length) * 8;
            self.integer_length = integer.length();
            let (kind, value) = if signed {
                (TokenKind::Signed, integer.signed().cast_unsigned())
            } else {
                (TokenKind::Unsigned, integer.unsigned())
            };
            self.integer = value;
            if selected {
                self.push(kind, node, value, 0);
            }
            return Ok(());
        }
        Err(Undecodable)
    }

    /// False when the array is empty.
    fn array(
        &mut self,
        node: NodeId,
        alignment: u32,
        count: Count,
        selected: bool,
    ) -> Result<bool, Undecodable> {
        self.head = self.align(alignment)?;
        let count = self.count(count);
        if selected {
            self.push(TokenKind::ArrayBegin, node, 0, count);
        }
        if count > 0 {
            self.arrays.push((count, self.head));
        }
        Ok(count > 0)
    }

    /// True when there is another element.
    fn next_element(&mut self) -> Result<bool, Undecodable> {
        let array = self.arrays.last_mut().ok_or(Undecodable)?;
        array.0 -= 1;
        if array.0 == 0 {
            self.arrays.pop();
            return Ok(false);
        }
        if array.1 == self.head {
            self.idle += 1;
        } else {
            self.idle = 0;
        }
        array.1 = self.head;
        if self.idle > IDLE_MAX || self.tokens.len() > TOKENS_MAX {
            return Err(Undecodable);
        }
        Ok(true)
    }

    fn effect(&mut self, effect: Effect) -> Result<(), Undecodable> {
        let value = self.integer;
        match effect {
            Effect::PacketEndClock => self.end_clock = Some(value),
            Effect::StreamId => self.stream_id = Some(value),
            Effect::Sequence => self.sequence = Some(value),
            Effect::Discarded => self.discarded = Some(value),
            Effect::MagicNumber => self.magic = Some(value),
            Effect::TotalLength => {
                let below_content = self.content != UNKNOWN && value < self.content;
                if value & 7 != 0 || below_content || value < self.head {
                    return Err(Undecodable);
                }
                self.total = value;
                if self.content == UNKNOWN {
                    self.set_content(value);
                }
            }
            Effect::ContentLength => {
                if self.total < value || value < self.head {
                    return Err(Undecodable);
                }
                self.set_content(value);
            }
            Effect::UuidByte => {
                self.uuid_bytes.rotate_left(1);
                self.uuid_bytes[15] = value.to_le_bytes()[0];
            }
            Effect::Uuid => self.uuid = Some(self.uuid_bytes),
            // Applied by `rare`, which knows the beginning of the run.
            Effect::UuidBlob { .. } => return Err(Undecodable),
        }
        Ok(())
    }

    fn set_content(&mut self, content: u64) {
        self.content = content;
        self.limit = content.min(u64_from(self.bytes.len()) * 8);
    }

    /// Begins the next event record at the head.
    pub(super) fn begin_record(&mut self) {
        self.tokens.clear();
        self.arrays.clear();
        self.scopes = [NO_SCOPE; 6];
        self.idle = 0;
    }
}
