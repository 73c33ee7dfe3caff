//! The fast path: frequent instructions in their usual cases.

use super::machine::{Entry, Machine};
use super::position::Position;
use super::{Element, Field};
use crate::class::{ByteOrder, EventClass, SlotId, StreamClass};
use crate::decoding::{align_up, bits};
use crate::integer::{byte_of, low_u32, u64_from, usize_from, usize_saturating};
use crate::procedure::{Count, FixedKind, FixedRead, Instr, NodeId, Procedure};

/// The result of an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    /// An element.
    Element,
    /// No element.
    Nothing,
    /// The instruction was not executed.
    Stop,
}

/// The state of the loop: what it holds in registers, and what it reads.
struct FastPath<'m, 'a> {
    procedure: &'a Procedure,
    bytes: &'a [u8],
    /// Bits from the beginning of the data to the packet.
    base: u64,
    limit: u64,
    whole: bool,
    class: Option<&'a StreamClass>,
    position: &'m mut Position,
    at: u32,
    head: u64,
    integer: u64,
}

impl<'a> Machine<'a> {
    /// Executes frequent instructions; stops before the first one that is rare or fails, or when
    /// `batch` is full. Returns the number of elements.
    pub(super) fn run(&mut self, batch: &mut [Entry<'a>]) -> usize {
        let code = self.code;
        let base = u64_from(self.position.packet) * 8;
        let (at, head, integer) = (self.position.at, self.position.head, self.position.integer);
        let mut run = FastPath {
            procedure: self.procedure,
            bytes: self.bytes,
            base,
            limit: self.limit,
            whole: self.window == u64::MAX,
            class: self.stream_info.class,
            position: &mut self.position,
            at,
            head,
            integer,
        };
        let filled = run.fill(code, batch);
        (run.position.at, run.position.head) = (run.at, run.head);
        run.position.integer = run.integer;
        run.position.mark += u64_from(filled);
        filled
    }
}

impl<'a> FastPath<'_, 'a> {
    /// Dispatches in one location and writes each element directly into the batch: both matter,
    /// with forty elements in an event record.
    #[inline(always)]
    fn fill(&mut self, code: &[Instr], batch: &mut [Entry<'a>]) -> usize {
        let mut filled = 0;
        while let Some(entry) = batch.get_mut(filled)
            && let Some(instr) = code.get(usize_from(self.at))
        {
            let done = match *instr {
                Instr::Unsigned(ref read) => self.unsigned(entry, read),
                Instr::Signed(ref read) => self.signed(entry, read),
                Instr::UnsignedElements(ref read) => {
                    match self.elements(read, &mut batch[filled..]) {
                        0 => break,
                        given => {
                            filled += given;
                            continue;
                        }
                    }
                }
                Instr::Fixed(ref read) => self.float(entry, read),
                Instr::BeginStruct { node, alignment } => {
                    let field = self.field(node);
                    self.begin(entry, alignment, Element::StructBegin(field))
                }
                Instr::EndStruct { node } => self.mark(entry, Element::StructEnd(self.field(node))),
                Instr::BeginScope { scope, alignment } => {
                    self.begin(entry, alignment, Element::ScopeBegin(scope))
                }
                Instr::EndScope { scope } => self.mark(entry, Element::ScopeEnd(scope)),
                Instr::BeginVariant { node, slot, table } => self.variant(entry, node, slot, table),
                Instr::EndVariant {
                    node,
                    signed: false,
                } => self.mark(entry, Element::UnsignedVariantEnd(self.field(node))),
                Instr::UpdateClock {
                    length: length @ 1..,
                } => self.update_clock(entry, length),
                Instr::BeginString { node, count } => self.string(entry, node, count),
                Instr::RawData if self.position.remaining == 0 => self.skip(),
                Instr::RawData => self.raw_data(entry),
                Instr::EndString { node, dynamic } => self.end_string(entry, node, dynamic),
                Instr::BeginText { node } => self.begin_text(entry, node),
                Instr::TextUntilNull { unit: 1 } => self.text(entry),
                Instr::EndText { node } => {
                    self.mark(entry, Element::NullTerminatedStringEnd(self.field(node)))
                }
                Instr::BeginArray {
                    node,
                    alignment,
                    count,
                    after,
                } => self.array(entry, node, (alignment, count, after)),
                Instr::EndArray { node, dynamic } => self.end_array(entry, node, dynamic),
                Instr::NextRecord { alignment } => self.next_record(entry, alignment),
                Instr::EventInfo => self.mark(entry, Element::EventInfo(self.event())),
                Instr::EndRecord => self.end_record(entry),
                Instr::Save { slot } => self.save(slot),
                Instr::SetId => self.set_id(),
                Instr::Jump { to } => self.jump(to),
                Instr::NextElement { body } => self.next_element(body),
                Instr::SelectEvent { dynamic: true } => self.select_event(),
                Instr::EnterEvent => self.enter_event(),
                _ => Done::Stop,
            };
            match done {
                Done::Element => filled += 1,
                Done::Nothing => {}
                Done::Stop => break,
            }
        }
        filled
    }

    #[inline(always)]
    fn field(&self, node: NodeId) -> Field<'a> {
        Field::new(self.procedure, node)
    }

    /// Emits an element that begins `head` bits after the beginning of the packet.
    #[inline(always)]
    fn emit(&self, entry: &mut Entry<'a>, head: u64, element: Element<'a>) -> Done {
        entry.offset = self.base + head;
        entry.element = element;
        Done::Element
    }

    #[inline(always)]
    fn mark(&mut self, entry: &mut Entry<'a>, element: Element<'a>) -> Done {
        self.at += 1;
        self.emit(entry, self.head, element)
    }

    #[inline(always)]
    fn begin(&mut self, entry: &mut Entry<'a>, alignment: u32, element: Element<'a>) -> Done {
        let begin = align_up(self.head, alignment);
        if begin > self.limit {
            return Done::Stop;
        }
        self.head = begin;
        self.mark(entry, element)
    }

    /// Loads a byte-aligned field in natural bit order when eight bytes are available: its offset,
    /// and a word with the field at the top.
    #[inline(always)]
    fn load(&mut self, read: &FixedRead) -> Option<(u64, u64)> {
        let length = u32::from(read.length);
        let begin = align_up(self.head, read.alignment);
        let end = begin + u64::from(length);
        if end > self.limit || (begin | end) & 7 != 0 || read.reversed {
            return None;
        }
        let word = *self.bytes.get(byte_of(begin)..)?.first_chunk()?;
        let top = match read.order {
            ByteOrder::Little => u64::from_le_bytes(word) << (64 - length),
            ByteOrder::Big => u64::from_be_bytes(word),
        };
        self.head = end;
        Some((begin, top))
    }

    #[inline(always)]
    fn unsigned(&mut self, entry: &mut Entry<'a>, read: &FixedRead) -> Done {
        let Some((begin, top)) = self.load(read) else {
            return Done::Stop;
        };
        let value = top >> (64 - u32::from(read.length));
        self.integer = value;
        self.at += 1;
        self.emit(
            entry,
            begin,
            Element::FixedUnsigned(self.field(read.node), value),
        )
    }

    #[inline(always)]
    fn signed(&mut self, entry: &mut Entry<'a>, read: &FixedRead) -> Done {
        let Some((begin, top)) = self.load(read) else {
            return Done::Stop;
        };
        let value = top.cast_signed() >> (64 - u32::from(read.length));
        self.integer = value.cast_unsigned();
        self.at += 1;
        self.emit(
            entry,
            begin,
            Element::FixedSigned(self.field(read.node), value),
        )
    }

    /// Emits elements of an array of unsigned integers until `batch` is full; returns their number.
    #[inline(always)]
    fn elements(&mut self, read: &FixedRead, batch: &mut [Entry<'a>]) -> usize {
        let Some(&(left, _)) = self.position.arrays.last() else {
            return 0;
        };
        let count = batch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let batch = &mut batch[..count];
        let is_octets = read.length == 8 && read.alignment <= 8 && !read.reversed;
        let given = if is_octets && self.head & 7 == 0 {
            self.octets(read.node, batch)
        } else {
            self.words(read, batch)
        };
        let left = left - u64_from(given);
        if left == 0 {
            self.position.arrays.pop();
            self.at += 1;
        } else if let Some(array) = self.position.arrays.last_mut() {
            array.0 = left;
        }
        given
    }

    #[inline(always)]
    fn octets(&mut self, node: NodeId, batch: &mut [Entry<'a>]) -> usize {
        let content = self.bytes.get(..byte_of(self.limit));
        let rest = content.and_then(|content| content.get(byte_of(self.head)..));
        let field = self.field(node);
        let mut offset = self.base + self.head;
        let mut given = 0;
        for (entry, &octet) in batch.iter_mut().zip(rest.unwrap_or_default()) {
            entry.offset = offset;
            entry.element = Element::FixedUnsigned(field, octet.into());
            offset += 8;
            given += 1;
        }
        self.head = offset - self.base;
        given
    }

    #[inline(always)]
    fn words(&mut self, read: &FixedRead, batch: &mut [Entry<'a>]) -> usize {
        let mut given = 0;
        for entry in batch {
            let Some((begin, top)) = self.load(read) else {
                break;
            };
            let value = top >> (64 - u32::from(read.length));
            let element = Element::FixedUnsigned(self.field(read.node), value);
            self.emit(entry, begin, element);
            given += 1;
        }
        given
    }

    #[inline(always)]
    fn float(&mut self, entry: &mut Entry<'a>, read: &FixedRead) -> Done {
        let is_double = match read.kind {
            FixedKind::Float32 => false,
            FixedKind::Float64 => true,
            _ => return Done::Stop,
        };
        let Some((begin, top)) = self.load(read) else {
            return Done::Stop;
        };
        self.at += 1;
        let value = if is_double {
            f64::from_bits(top)
        } else {
            f64::from(f32::from_bits(low_u32(top >> 32)))
        };
        self.emit(
            entry,
            begin,
            Element::FixedFloat(self.field(read.node), value),
        )
    }

    #[inline(always)]
    fn skip(&mut self) -> Done {
        self.at += 1;
        Done::Nothing
    }

    #[inline(always)]
    fn jump(&mut self, to: u32) -> Done {
        self.at = to;
        Done::Nothing
    }

    #[inline(always)]
    fn save(&mut self, slot: SlotId) -> Done {
        self.position.saved[usize_from(slot.0)] = self.integer;
        self.skip()
    }

    #[inline(always)]
    fn set_id(&mut self) -> Done {
        self.position.id = self.integer;
        self.skip()
    }

    #[inline(always)]
    fn update_clock(&mut self, entry: &mut Entry<'a>, length: u8) -> Done {
        let clock = bits::update_clock(self.position.clock, self.integer, u32::from(length));
        self.position.clock = clock;
        self.mark(entry, Element::ClockValue(clock))
    }

    #[inline(always)]
    fn variant(&mut self, entry: &mut Entry<'a>, node: NodeId, slot: SlotId, table: u32) -> Done {
        let table = self.procedure.table(table);
        let raw = self.position.saved[usize_from(slot.0)];
        let option = if table.is_signed() {
            None
        } else {
            table.select(raw)
        };
        let Some(option) = option else {
            return Done::Stop;
        };
        self.at = table.addresses[usize_from(option)];
        let element = Element::UnsignedVariantBegin(self.field(node), raw);
        self.emit(entry, self.head, element)
    }

    #[inline(always)]
    fn count(&self, count: Count) -> u64 {
        match count {
            Count::Static(count) => count,
            Count::Saved(slot) => self.position.saved[usize_from(slot.0)],
        }
    }

    #[inline(always)]
    fn string(&mut self, entry: &mut Entry<'a>, node: NodeId, count: Count) -> Done {
        let length = self.count(count);
        let field = self.field(node);
        self.position.remaining = length;
        self.begin(
            entry,
            8,
            match count {
                Count::Static(_) => Element::StaticStringBegin(field, length),
                Count::Saved(_) => Element::DynamicStringBegin(field, length),
            },
        )
    }

    #[inline(always)]
    fn raw_data(&mut self, entry: &mut Entry<'a>) -> Done {
        let length = self.position.remaining;
        if !self.whole || length > (self.limit - self.head) / 8 {
            return Done::Stop;
        }
        let begin = byte_of(self.head);
        let Some(bytes) = self
            .bytes
            .get(begin..begin.saturating_add(usize_saturating(length)))
        else {
            return Done::Stop;
        };
        self.position.remaining = 0;
        let done = self.mark(entry, Element::RawData(bytes));
        self.head += length * 8;
        done
    }

    #[inline(always)]
    fn end_string(&mut self, entry: &mut Entry<'a>, node: NodeId, dynamic: bool) -> Done {
        let field = self.field(node);
        self.mark(
            entry,
            if dynamic {
                Element::DynamicStringEnd(field)
            } else {
                Element::StaticStringEnd(field)
            },
        )
    }

    #[inline(always)]
    fn begin_text(&mut self, entry: &mut Entry<'a>, node: NodeId) -> Done {
        (self.position.unit, self.position.unit_bytes) = (0, 0);
        let element = Element::NullTerminatedStringBegin(self.field(node));
        self.begin(entry, 8, element)
    }

    #[inline(always)]
    fn text(&mut self, entry: &mut Entry<'a>) -> Done {
        let content = self.bytes.get(byte_of(self.head)..byte_of(self.limit));
        let content = content.filter(|_| self.whole).unwrap_or_default();
        let Some(end) = memchr::memchr(0, content) else {
            return Done::Stop;
        };
        let done = self.mark(entry, Element::RawData(&content[..=end]));
        self.head += (u64_from(end) + 1) * 8;
        done
    }

    #[inline(always)]
    fn array(
        &mut self,
        entry: &mut Entry<'a>,
        node: NodeId,
        (alignment, count, after): (u32, Count, u32),
    ) -> Done {
        let length = self.count(count);
        let field = self.field(node);
        let done = self.begin(
            entry,
            alignment,
            match count {
                Count::Static(_) => Element::StaticArrayBegin(field, length),
                Count::Saved(_) => Element::DynamicArrayBegin(field, length),
            },
        );
        match (done, length) {
            (Done::Element, 0) => self.at = after,
            (Done::Element, _) => self.position.arrays.push((length, self.head)),
            _ => {}
        }
        done
    }

    #[inline(always)]
    fn end_array(&mut self, entry: &mut Entry<'a>, node: NodeId, dynamic: bool) -> Done {
        let field = self.field(node);
        self.mark(
            entry,
            if dynamic {
                Element::DynamicArrayEnd(field)
            } else {
                Element::StaticArrayEnd(field)
            },
        )
    }

    /// Stops when the last element had no bits, which `execute` must count.
    #[inline(always)]
    fn next_element(&mut self, body: u32) -> Done {
        let Some(array) = self.position.arrays.last_mut() else {
            return Done::Stop;
        };
        if array.1 == self.head {
            return Done::Stop;
        }
        array.0 -= 1;
        array.1 = self.head;
        if array.0 == 0 {
            self.position.arrays.pop();
            self.at += 1;
        } else {
            self.position.idle = 0;
            self.at = body;
        }
        Done::Nothing
    }

    #[inline(always)]
    fn next_record(&mut self, entry: &mut Entry<'a>, alignment: u32) -> Done {
        if self.head >= self.limit || self.head == self.position.record {
            return Done::Stop;
        }
        let done = self.begin(entry, alignment, Element::RecordBegin);
        if done == Done::Element {
            self.position.record = self.head;
            self.position.idle = 0;
        }
        done
    }

    #[inline(always)]
    fn select_event(&mut self) -> Done {
        let class = self
            .class
            .and_then(|class| class.find_event_class(self.position.id));
        let Some(index) = class else {
            return Done::Stop;
        };
        self.position.event = Some(index.0);
        self.skip()
    }

    #[inline(always)]
    fn event(&self) -> Option<&'a EventClass> {
        self.class?
            .event_classes()
            .get(usize_from(self.position.event?))
    }

    #[inline(always)]
    fn enter_event(&mut self) -> Done {
        let (Some(stream), Some(event)) = (self.position.stream, self.position.event) else {
            return Done::Stop;
        };
        let stream = self.procedure.streams().get(usize_from(stream));
        match stream.and_then(|code| code.events.get(usize_from(event))) {
            Some(&at) => self.jump(at),
            None => Done::Stop,
        }
    }

    #[inline(always)]
    fn end_record(&mut self, entry: &mut Entry<'a>) -> Done {
        let stream = self.position.stream.map(usize_from);
        let code = stream.and_then(|stream| self.procedure.streams().get(stream));
        let Some(code) = code else {
            return Done::Stop;
        };
        self.at = code.record;
        self.emit(entry, self.head, Element::RecordEnd)
    }
}
