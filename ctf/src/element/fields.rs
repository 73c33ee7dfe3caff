//! Execution of the instructions that read fields.

use super::Element;
use super::execution::{Executed, Step};
use super::machine::Machine;
use crate::class::{ByteOrder, SlotId};
use crate::decoding::{DecodeFault, align_up, bits};
use crate::integer::{byte_of, low_u32, u64_from, usize_from};
use crate::procedure::{Count, FixedKind, FixedRead, NodeId, SelectorKind, SelectorTable};

impl<'a> Machine<'a> {
    #[inline]
    pub(super) fn align(&mut self, alignment: u32) -> Result<(), DecodeFault> {
        let head = self.position.head;
        if head & u64::from(alignment - 1) == 0 {
            return Ok(());
        }
        let aligned = align_up(head, alignment);
        if aligned <= self.limit {
            self.position.head = aligned;
            return Ok(());
        }
        let remaining = self.position.content - head;
        if aligned - head > remaining {
            return Err(DecodeFault::BeyondContent {
                needed: aligned - head,
                remaining,
            });
        }
        self.position.head = self.data_bits();
        Err(DecodeFault::EndOfData { needed: 1 })
    }

    /// Checks that `needed` bits can be read at the head.
    #[inline]
    fn require(&self, needed: u64) -> Result<(), DecodeFault> {
        let head = self.position.head;
        if needed <= self.limit - head {
            Ok(())
        } else {
            Err(self.missing(needed))
        }
    }

    #[cold]
    fn missing(&self, needed: u64) -> DecodeFault {
        let remaining = self.position.content - self.position.head;
        if needed > remaining {
            DecodeFault::BeyondContent { needed, remaining }
        } else {
            DecodeFault::EndOfData { needed }
        }
    }

    /// Aligns, reads a fixed-length field and moves the head to its end.
    #[inline]
    pub(super) fn fixed(&mut self, read: &FixedRead) -> Result<u64, DecodeFault> {
        self.align(read.alignment)?;
        let head = self.position.head;
        let length = u32::from(read.length);
        let end = head + u64::from(length);
        if end > self.limit {
            return Err(self.missing(u64::from(length)));
        }
        if (head | end) & 7 != 0 {
            self.check_order(head, read.order)?;
        }
        let value = bits::read(self.bytes, head, length, read.order, read.reversed);
        self.mark();
        self.position.head = end;
        // The limit is within the data.
        Ok(value.unwrap_or_default())
    }

    /// Checks that a field that shares a byte with the previous field has the same byte order.
    #[inline(never)]
    fn check_order(&mut self, head: u64, to: ByteOrder) -> Result<(), DecodeFault> {
        match self.position.order.replace(to) {
            Some(from) if from != to && head & 7 != 0 => {
                self.position.order = Some(from);
                Err(DecodeFault::ByteOrderChange { from, to })
            }
            _ => Ok(()),
        }
    }

    /// Reads a fixed-length field that is not an integer.
    pub(super) fn other(&mut self, read: &FixedRead) -> Executed {
        let value = self.fixed(read)?;
        let field = self.field(read.node);
        self.position.integer = value;
        self.element = match read.kind {
            FixedKind::Bool => {
                self.position.integer = u64::from(value != 0);
                Element::FixedBool(field, value != 0)
            }
            FixedKind::Float32 => {
                Element::FixedFloat(field, f64::from(f32::from_bits(low_u32(value))))
            }
            FixedKind::Float64 => Element::FixedFloat(field, f64::from_bits(value)),
            FixedKind::BitMap => Element::FixedBitMap(field, value),
            _ => Element::FixedBitArray(field, value),
        };
        Ok(Some(Step::Element))
    }

    pub(super) fn variable(&mut self, node: NodeId, signed: bool) -> Executed {
        self.align(8)?;
        let begin = self.position.head;
        let mut integer = bits::Leb128::default();
        loop {
            self.require(8)?;
            let byte = self.bytes[byte_of(self.position.head)];
            let done = integer
                .push(byte, signed)
                .ok_or(DecodeFault::OversizedInteger)?;
            self.position.head += 8;
            if done {
                break;
            }
        }
        let end = std::mem::replace(&mut self.position.head, begin);
        self.mark();
        self.position.head = end;
        self.position.integer_length = integer.length();
        let field = self.field(node);
        self.element = if signed {
            let value = integer.signed();
            self.position.integer = value.cast_unsigned();
            Element::VariableSigned(field, value)
        } else {
            self.position.integer = integer.unsigned();
            Element::VariableUnsigned(field, integer.unsigned())
        };
        Ok(Some(Step::Element))
    }

    pub(super) fn update_clock(&mut self, length: u8) -> Element<'a> {
        let at = &mut self.position;
        let length = if length == 0 {
            at.integer_length
        } else {
            u32::from(length)
        };
        at.clock = bits::update_clock(at.clock, at.integer, length);
        Element::ClockValue(at.clock)
    }

    fn count(&self, count: Count) -> u64 {
        match count {
            Count::Static(count) => count,
            Count::Saved(slot) => self.saved(slot),
        }
    }

    fn saved(&self, slot: SlotId) -> u64 {
        self.position.saved[usize_from(slot.0)]
    }

    pub(super) fn begin_string(
        &mut self,
        node: NodeId,
        count: Count,
    ) -> Result<Element<'a>, DecodeFault> {
        self.align(8)?;
        let length = self.count(count);
        self.position.remaining = length;
        Ok(match count {
            Count::Static(_) => Element::StaticStringBegin(self.field(node), length),
            Count::Saved(_) => Element::DynamicStringBegin(self.field(node), length),
        })
    }

    pub(super) fn begin_blob(
        &mut self,
        node: NodeId,
        count: Count,
    ) -> Result<Element<'a>, DecodeFault> {
        self.align(8)?;
        let length = self.count(count);
        self.position.remaining = length;
        Ok(match count {
            Count::Static(_) => Element::StaticBlobBegin(self.field(node), length),
            Count::Saved(_) => Element::DynamicBlobBegin(self.field(node), length),
        })
    }

    /// The bytes from the head to the end of the window or of the data.
    fn block(&self) -> Result<&'a [u8], DecodeFault> {
        self.require(8)?;
        let begin = byte_of(self.position.head);
        let rest = &self.bytes[begin..];
        if self.window == u64::MAX {
            return Ok(rest);
        }
        let left = self.window - (u64_from(self.position.packet) + u64_from(begin)) % self.window;
        Ok(&rest[..rest.len().min(usize::try_from(left).unwrap_or(usize::MAX))])
    }

    pub(super) fn raw_data(&mut self) -> Executed {
        let block = self.block()?;
        let wanted = usize::try_from(self.position.remaining).unwrap_or(usize::MAX);
        let bytes = &block[..block.len().min(wanted)];
        self.emit_raw(bytes)?;
        let at = &mut self.position;
        at.remaining -= u64_from(bytes.len());
        if at.remaining == 0 {
            at.at += 1;
        }
        self.element = Element::RawData(bytes);
        Ok(Some(Step::Element))
    }

    pub(super) fn uuid_of_blob(&mut self) {
        let before = &self.bytes[..byte_of(self.position.head)];
        self.position.uuid = *before.last_chunk().expect("a BLOB of 16 bytes was read");
    }

    /// Marks and consumes `bytes` at the head; this instruction is executed again.
    fn emit_raw(&mut self, bytes: &[u8]) -> Result<(), DecodeFault> {
        let length = u64_from(bytes.len()) * 8;
        let remaining = self.position.content - self.position.head;
        if length > remaining {
            return Err(DecodeFault::BeyondContent {
                needed: length,
                remaining,
            });
        }
        self.mark();
        self.position.at -= 1;
        self.position.head += length;
        Ok(())
    }

    pub(super) fn text(&mut self, unit: u8) -> Executed {
        let mut block = self.block()?;
        if self.window == u64::MAX {
            // The string cannot end after the content.
            let content = (self.limit - self.position.head) / 8;
            block = &block[..block
                .len()
                .min(usize::try_from(content).unwrap_or(usize::MAX))];
        }
        let at = &mut self.position;
        let end = match unit {
            1 => memchr::memchr(0, block),
            _ => null_unit(block, unit, &mut at.unit, &mut at.unit_bytes),
        };
        let bytes = end.map_or(block, |end| &block[..=end]);
        self.emit_raw(bytes)?;
        if end.is_some() {
            self.position.at += 1;
        }
        self.element = Element::RawData(bytes);
        Ok(Some(Step::Element))
    }

    pub(super) fn begin_array(
        &mut self,
        node: NodeId,
        alignment: u32,
        count: Count,
        after: u32,
    ) -> Executed {
        self.align(alignment)?;
        let length = self.count(count);
        let field = self.field(node);
        self.emit(match count {
            Count::Static(_) => Element::StaticArrayBegin(field, length),
            Count::Saved(_) => Element::DynamicArrayBegin(field, length),
        });
        match length {
            0 => self.position.at = after,
            _ => self.position.arrays.push((length, self.position.head)),
        }
        Ok(Some(Step::Element))
    }

    pub(super) fn next_array_element(&mut self, body: u32) -> Executed {
        let head = self.position.head;
        let array = self
            .position
            .arrays
            .last_mut()
            .expect("an array is being read");
        array.0 -= 1;
        if array.0 == 0 {
            self.position.arrays.pop();
            self.position.at += 1;
            return Ok(None);
        }
        let before = std::mem::replace(&mut array.1, head);
        self.progress(before)?;
        self.position.at = body;
        Ok(None)
    }

    pub(super) fn begin_variant(&mut self, node: NodeId, slot: SlotId, table: u32) -> Executed {
        let table: &SelectorTable = self.procedure.table(table);
        let raw = self.saved(slot);
        let value = raw.cast_signed();
        let Some(option) = table.select(raw) else {
            return Err(if table.is_signed() {
                DecodeFault::InvalidSignedSelector { value }
            } else {
                DecodeFault::InvalidUnsignedSelector { value: raw }
            });
        };
        let field = self.field(node);
        self.emit(if table.is_signed() {
            Element::SignedVariantBegin(field, value)
        } else {
            Element::UnsignedVariantBegin(field, raw)
        });
        self.position.at = table.addresses[usize_from(option)];
        Ok(Some(Step::Element))
    }

    pub(super) fn begin_optional(
        &mut self,
        node: NodeId,
        slot: SlotId,
        kind: SelectorKind,
        table: u32,
    ) {
        let table = self.procedure.table(table);
        let raw = self.saved(slot);
        let field = self.field(node);
        let selected = table.select(raw).is_some();
        let (is_present, element) = match kind {
            SelectorKind::Bool => (raw != 0, Element::BoolOptionalBegin(field, raw != 0)),
            SelectorKind::Unsigned => (
                selected,
                Element::UnsignedOptionalBegin(field, selected, raw),
            ),
            SelectorKind::Signed => (
                selected,
                Element::SignedOptionalBegin(field, selected, raw.cast_signed()),
            ),
        };
        self.emit(element);
        if !is_present {
            self.position.at = table.end;
        }
    }
}

/// The index of the last byte of the first null code unit of `unit` bytes in `block`. A code unit
/// that is incomplete at the end is stored in `partial` and `length` for the next block.
fn null_unit(block: &[u8], unit: u8, partial: &mut u32, length: &mut u8) -> Option<usize> {
    for (index, &byte) in block.iter().enumerate() {
        *partial |= u32::from(byte);
        *length += 1;
        if *length == unit {
            if *partial == 0 {
                return Some(index);
            }
            (*partial, *length) = (0, 0);
        }
    }
    None
}
