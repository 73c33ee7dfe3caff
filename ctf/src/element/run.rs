//! The fast loop: frequent instructions, as long as nothing is unusual.

use super::fill::{Entry, Machine};
use super::position::Position;
use super::{Element, Field};
use crate::class::{ByteOrder, EventClass, SlotId, StreamClass};
use crate::machine::{align_up, bits};
use crate::procedure::{Count, FixedKind, FixedRead, Instr, NodeId, Procedure};

/// What the loop keeps in registers, and what it reads.
struct Run<'m, 'a> {
    procedure: &'a Procedure,
    bytes: &'a [u8],
    limit: u64,
    whole: bool,
    class: Option<&'a StreamClass>,
    position: &'m mut Position,
    at: u32,
    head: u64,
    integer: u64,
}

impl<'a> Machine<'a> {
    /// Executes frequent instructions; stops before the first one that is rare or cannot be
    /// executed, or when `batch` is full. Gives the number of elements.
    pub(super) fn run(&mut self, batch: &mut [Entry<'a>]) -> usize {
        let code = self.code;
        let base = self.position.packet as u64 * 8;
        let (at, head, integer) = (self.position.at, self.position.head, self.position.integer);
        let mut run = Run {
            procedure: self.procedure,
            bytes: self.bytes,
            limit: self.limit,
            whole: self.window == u64::MAX,
            class: self.stream_info.class,
            position: &mut self.position,
            at,
            head,
            integer,
        };
        let mut filled = 0;
        while let Some(entry) = batch.get_mut(filled) {
            let Some(instr) = code.get(run.at as usize) else {
                break;
            };
            let begin = run.head;
            let element = match instr {
                Instr::Save { slot } => {
                    run.save(*slot);
                    continue;
                }
                Instr::SetId => {
                    run.position.id = run.integer;
                    run.at += 1;
                    continue;
                }
                Instr::Jump { to } => {
                    run.at = *to;
                    continue;
                }
                Instr::NextElement { body } => match run.next_element(*body) {
                    true => continue,
                    false => break,
                },
                Instr::SelectEvent { dynamic: true } => match run.select_event() {
                    true => continue,
                    false => break,
                },
                Instr::EnterEvent => match run.enter_event() {
                    true => continue,
                    false => break,
                },
                Instr::RawData if run.position.remaining == 0 => {
                    run.at += 1;
                    continue;
                }
                instr => run.element(instr),
            };
            let Some((padding, element)) = element else {
                break;
            };
            entry.offset = base + begin + padding;
            entry.element = element;
            filled += 1;
        }
        (run.position.at, run.position.head) = (run.at, run.head);
        run.position.integer = run.integer;
        run.position.mark += filled as u64;
        filled
    }
}

/// Padding bits before the element, and the element.
type Found<'a> = Option<(u64, Element<'a>)>;

impl<'a> Run<'_, 'a> {
    #[inline(always)]
    fn element(&mut self, instr: &Instr) -> Found<'a> {
        match instr {
            Instr::Unsigned(read) => self.unsigned(read),
            Instr::Signed(read) => self.signed(read),
            Instr::UnsignedElements(read) => self.unsigned_element(read),
            Instr::Fixed(read) => self.float(read),
            Instr::BeginStruct { node, alignment } => {
                self.begin(*alignment, Element::StructBegin(self.field(*node)))
            }
            Instr::EndStruct { node } => self.mark(Element::StructEnd(self.field(*node))),
            Instr::BeginScope { scope, alignment } => {
                self.begin(*alignment, Element::ScopeBegin(*scope))
            }
            Instr::EndScope { scope } => self.mark(Element::ScopeEnd(*scope)),
            Instr::BeginVariant { node, slot, table } => self.variant(*node, *slot, *table),
            Instr::EndVariant {
                node,
                signed: false,
            } => self.mark(Element::UnsignedVariantEnd(self.field(*node))),
            Instr::UpdateClock {
                length: length @ 1..,
            } => {
                let clock = self.position.clock;
                let clock = bits::update_clock(clock, self.integer, u32::from(*length));
                self.position.clock = clock;
                self.mark(Element::ClockValue(clock))
            }
            Instr::BeginString { node, count } => self.string(*node, *count),
            Instr::RawData => self.raw_data(),
            Instr::EndString { node, dynamic } => {
                let field = self.field(*node);
                self.mark(match dynamic {
                    true => Element::DynamicStringEnd(field),
                    false => Element::StaticStringEnd(field),
                })
            }
            Instr::BeginText { node } => {
                (self.position.unit, self.position.unit_bytes) = (0, 0);
                self.begin(8, Element::NullTerminatedStringBegin(self.field(*node)))
            }
            Instr::TextUntilNull { unit: 1 } => self.text(),
            Instr::EndText { node } => {
                self.mark(Element::NullTerminatedStringEnd(self.field(*node)))
            }
            Instr::BeginArray {
                node,
                alignment,
                count,
                after,
            } => self.array(*node, *alignment, *count, *after),
            Instr::EndArray { node, dynamic } => {
                let field = self.field(*node);
                self.mark(match dynamic {
                    true => Element::DynamicArrayEnd(field),
                    false => Element::StaticArrayEnd(field),
                })
            }
            Instr::NextRecord { alignment } => self.next_record(*alignment),
            Instr::EventInfo => {
                let event = self.event();
                self.mark(Element::EventInfo(event))
            }
            Instr::EndRecord => self.end_record(),
            _ => None,
        }
    }

    #[inline(always)]
    fn field(&self, node: NodeId) -> Field<'a> {
        Field::new(self.procedure, node)
    }

    #[inline(always)]
    fn mark(&mut self, element: Element<'a>) -> Found<'a> {
        self.at += 1;
        Some((0, element))
    }

    #[inline(always)]
    fn begin(&mut self, alignment: u32, element: Element<'a>) -> Found<'a> {
        let begin = align_up(self.head, alignment);
        if begin > self.limit {
            return None;
        }
        let padding = begin - self.head;
        self.head = begin;
        self.at += 1;
        Some((padding, element))
    }

    /// A fixed-length field of whole bytes in natural bit order, with eight bytes to load.
    #[inline(always)]
    fn load(&mut self, read: &FixedRead) -> Option<(u64, u64)> {
        let length = u32::from(read.length);
        let begin = align_up(self.head, read.alignment);
        let end = begin + u64::from(length);
        if end > self.limit || (begin | end) & 7 != 0 || read.reversed {
            return None;
        }
        let word = *self.bytes.get((begin >> 3) as usize..)?.first_chunk()?;
        let value = match read.order {
            ByteOrder::Little => u64::from_le_bytes(word) << (64 - length),
            ByteOrder::Big => u64::from_be_bytes(word),
        };
        let padding = begin - self.head;
        self.head = end;
        // The field is at the top of the word: a shift keeps only it, and can extend its sign.
        let value = match read.order {
            ByteOrder::Little => value,
            ByteOrder::Big => value >> (64 - length) << (64 - length),
        };
        Some((padding, value))
    }

    #[inline(always)]
    fn unsigned(&mut self, read: &FixedRead) -> Found<'a> {
        let (padding, top) = self.load(read)?;
        self.integer = top >> (64 - u32::from(read.length));
        self.at += 1;
        Some((
            padding,
            Element::FixedUnsigned(self.field(read.node), self.integer),
        ))
    }

    #[inline(always)]
    fn signed(&mut self, read: &FixedRead) -> Found<'a> {
        let (padding, top) = self.load(read)?;
        let value = top.cast_signed() >> (64 - u32::from(read.length));
        self.integer = value.cast_unsigned();
        self.at += 1;
        Some((padding, Element::FixedSigned(self.field(read.node), value)))
    }

    #[inline(always)]
    fn unsigned_element(&mut self, read: &FixedRead) -> Found<'a> {
        let array = self.position.arrays.last()?.0;
        let (padding, top) = self.load(read)?;
        if array == 1 {
            self.position.arrays.pop();
            self.at += 1;
        } else {
            self.position.arrays.last_mut()?.0 = array - 1;
        }
        let value = top >> (64 - u32::from(read.length));
        Some((
            padding,
            Element::FixedUnsigned(self.field(read.node), value),
        ))
    }

    #[inline(always)]
    fn float(&mut self, read: &FixedRead) -> Found<'a> {
        let is_double = match read.kind {
            FixedKind::Float32 => false,
            FixedKind::Float64 => true,
            _ => return None,
        };
        let (padding, top) = self.load(read)?;
        self.at += 1;
        let value = match is_double {
            true => f64::from_bits(top),
            false => f64::from(f32::from_bits((top >> 32) as u32)),
        };
        Some((padding, Element::FixedFloat(self.field(read.node), value)))
    }

    #[inline(always)]
    fn save(&mut self, slot: SlotId) {
        self.position.saved[slot.0 as usize] = self.integer;
        self.at += 1;
    }

    #[inline(always)]
    fn variant(&mut self, node: NodeId, slot: SlotId, table: u32) -> Found<'a> {
        let table = self.procedure.table(table);
        let raw = self.position.saved[slot.0 as usize];
        if table.is_signed() {
            return None;
        }
        self.at = table.addresses[table.select(raw)? as usize];
        Some((0, Element::UnsignedVariantBegin(self.field(node), raw)))
    }

    #[inline(always)]
    fn count(&self, count: Count) -> u64 {
        match count {
            Count::Static(count) => count,
            Count::Saved(slot) => self.position.saved[slot.0 as usize],
        }
    }

    #[inline(always)]
    fn string(&mut self, node: NodeId, count: Count) -> Found<'a> {
        let length = self.count(count);
        let field = self.field(node);
        let found = self.begin(
            8,
            match count {
                Count::Static(_) => Element::StaticStringBegin(field, length),
                Count::Saved(_) => Element::DynamicStringBegin(field, length),
            },
        )?;
        self.position.remaining = length;
        Some(found)
    }

    #[inline(always)]
    fn raw_data(&mut self) -> Found<'a> {
        let length = self.position.remaining;
        if !self.whole || length > (self.limit - self.head) / 8 {
            return None;
        }
        let begin = (self.head >> 3) as usize;
        let bytes = self.bytes.get(begin..begin + length as usize)?;
        self.head += length * 8;
        self.position.remaining = 0;
        self.mark(Element::RawData(bytes))
    }

    #[inline(always)]
    fn text(&mut self) -> Found<'a> {
        if !self.whole {
            return None;
        }
        let content = self
            .bytes
            .get((self.head >> 3) as usize..(self.limit >> 3) as usize)?;
        let end = memchr::memchr(0, content)? + 1;
        self.head += end as u64 * 8;
        self.mark(Element::RawData(&content[..end]))
    }

    #[inline(always)]
    fn array(&mut self, node: NodeId, alignment: u32, count: Count, after: u32) -> Found<'a> {
        let length = self.count(count);
        let field = self.field(node);
        let found = self.begin(
            alignment,
            match count {
                Count::Static(_) => Element::StaticArrayBegin(field, length),
                Count::Saved(_) => Element::DynamicArrayBegin(field, length),
            },
        )?;
        match length {
            0 => self.at = after,
            _ => self.position.arrays.push((length, self.head)),
        }
        Some(found)
    }

    /// False when the last element had no bits, which must be counted.
    #[inline(always)]
    fn next_element(&mut self, body: u32) -> bool {
        let Some(array) = self.position.arrays.last_mut() else {
            return false;
        };
        if array.1 == self.head {
            return false;
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
        true
    }

    #[inline(always)]
    fn next_record(&mut self, alignment: u32) -> Found<'a> {
        if self.head >= self.limit || self.head == self.position.record {
            return None;
        }
        let found = self.begin(alignment, Element::RecordBegin)?;
        self.position.record = self.head;
        self.position.idle = 0;
        Some(found)
    }

    #[inline(always)]
    fn select_event(&mut self) -> bool {
        let class = self
            .class
            .and_then(|class| class.find_event_class(self.position.id));
        let Some(index) = class else { return false };
        self.position.event = Some(index.0);
        self.at += 1;
        true
    }

    #[inline(always)]
    fn event(&self) -> Option<&'a EventClass> {
        self.class?
            .event_classes()
            .get(self.position.event? as usize)
    }

    #[inline(always)]
    fn enter_event(&mut self) -> bool {
        let (Some(stream), Some(event)) = (self.position.stream, self.position.event) else {
            return false;
        };
        let events = self
            .procedure
            .streams()
            .get(stream as usize)
            .map(|code| &code.events);
        let Some(&at) = events.and_then(|events| events.get(event as usize)) else {
            return false;
        };
        self.at = at;
        true
    }

    #[inline(always)]
    fn end_record(&mut self) -> Found<'a> {
        let stream = self.position.stream?;
        self.at = self.procedure.streams().get(stream as usize)?.record;
        Some((0, Element::RecordEnd))
    }
}
