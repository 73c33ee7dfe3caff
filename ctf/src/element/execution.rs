//! Execution of instructions: the complete implementation of the machine.

use crate::integer::usize_from;
use uuid::Uuid;

use super::machine::Machine;
use super::position::UNKNOWN;
use super::{Element, Field};
use crate::decoding::{DecodeFault, bits};
use crate::procedure::{Instr, NodeId, SelectorKind, StreamCode};

/// Limit of consecutive array elements or event records without any bit in a packet.
const IDLE_MAX: u32 = 1 << 16;

/// The result of executing instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// `element` is the next element.
    Element,
    /// The end of the data is reached.
    End,
}

/// The result of one instruction: an element, or nothing yet.
pub(super) type Executed = Result<Option<Step>, DecodeFault>;

impl<'a> Machine<'a> {
    /// Emits `element`, which begins at the head, and advances to the next instruction.
    #[inline]
    pub(super) fn emit(&mut self, element: Element<'a>) {
        self.mark();
        self.element = element;
    }

    #[inline]
    pub(super) fn mark(&mut self) {
        self.position.offset = self.head_offset();
        self.position.mark += 1;
        self.position.at += 1;
    }

    #[inline]
    pub(super) fn field(&self, node: NodeId) -> Field<'a> {
        Field::new(self.procedure, node)
    }

    /// Executes one instruction.
    ///
    /// This implements all instructions. The fast path executes the frequent ones faster and falls
    /// back to this function in all other cases.
    #[inline(never)]
    pub(super) fn execute(&mut self, instr: &Instr) -> Executed {
        match instr {
            Instr::Unsigned(read) => {
                let value = self.fixed(read)?;
                self.position.integer = value;
                self.element = Element::FixedUnsigned(self.field(read.node), value);
            }
            Instr::UnsignedElements(read) => {
                let value = self.fixed(read)?;
                self.element = Element::FixedUnsigned(self.field(read.node), value);
                let array = self
                    .position
                    .arrays
                    .last_mut()
                    .expect("an array is being read");
                array.0 -= 1;
                if array.0 == 0 {
                    self.position.arrays.pop();
                } else {
                    self.position.at -= 1;
                }
            }
            Instr::Signed(read) => {
                let value = bits::sign_extend(self.fixed(read)?, u32::from(read.length));
                self.position.integer = value.cast_unsigned();
                self.element = Element::FixedSigned(self.field(read.node), value);
            }
            Instr::BeginStruct { node, alignment } => {
                self.align(*alignment)?;
                self.emit(Element::StructBegin(self.field(*node)));
            }
            Instr::EndStruct { node } => self.emit(Element::StructEnd(self.field(*node))),
            Instr::BeginScope { scope, alignment } => {
                self.align(*alignment)?;
                self.emit(Element::ScopeBegin(*scope));
            }
            Instr::EndScope { scope } => self.emit(Element::ScopeEnd(*scope)),
            Instr::Save { slot } => {
                self.position.saved[usize_from(slot.0)] = self.position.integer;
                self.position.at += 1;
                return Ok(None);
            }
            Instr::Jump { to } => {
                self.position.at = *to;
                return Ok(None);
            }
            instr => return self.rare(instr),
        }
        Ok(Some(Step::Element))
    }

    fn rare(&mut self, instr: &Instr) -> Executed {
        if let Some(end) = self.end_of_field(instr) {
            self.emit(end);
            return Ok(Some(Step::Element));
        }
        let element = match *instr {
            Instr::BeginPacket
            | Instr::BeginContent
            | Instr::EndContent
            | Instr::EndPacket
            | Instr::SelectStream { .. }
            | Instr::StreamInfo
            | Instr::EnterStream
            | Instr::PacketInfo
            | Instr::NextRecord { .. }
            | Instr::SelectEvent { .. }
            | Instr::EventInfo
            | Instr::EnterEvent
            | Instr::EndRecord => return self.frame(instr),
            Instr::RawData if self.position.remaining == 0 => {
                self.position.at += 1;
                return Ok(None);
            }
            Instr::RawData => return self.raw_data(),
            Instr::TextUntilNull { unit } => return self.text(unit),
            Instr::NextElement { body } => return self.next_array_element(body),
            Instr::UpdateClock { length } => self.update_clock(length),
            Instr::Fixed(ref read) => return self.other(read),
            Instr::VariableUnsigned { node } => return self.variable(node, false),
            Instr::VariableSigned { node } => return self.variable(node, true),
            Instr::BeginText { node } => {
                self.align(8)?;
                (self.position.unit, self.position.unit_bytes) = (0, 0);
                Element::NullTerminatedStringBegin(self.field(node))
            }
            Instr::BeginString { node, count } => self.begin_string(node, count)?,
            Instr::BeginBlob { node, count } => self.begin_blob(node, count)?,
            Instr::BeginArray {
                node,
                alignment,
                count,
                after,
            } => {
                return self.begin_array(node, alignment, count, after);
            }
            Instr::BeginVariant { node, slot, table } => {
                return self.begin_variant(node, slot, table);
            }
            Instr::BeginOptional {
                node,
                slot,
                kind,
                table,
            } => {
                self.begin_optional(node, slot, kind, table);
                return Ok(Some(Step::Element));
            }
            Instr::MagicNumber => Element::MagicNumber(self.position.integer),
            Instr::MetadataUuid { blob } => {
                if blob {
                    self.uuid_of_blob();
                }
                Element::MetadataUuid(Uuid::from_bytes(self.position.uuid))
            }
            ref effect => return self.effect(effect).map(|()| None),
        };
        self.emit(element);
        Ok(Some(Step::Element))
    }

    /// The element of an instruction that ends a field.
    fn end_of_field(&self, instr: &Instr) -> Option<Element<'a>> {
        Some(match *instr {
            Instr::EndText { node } => Element::NullTerminatedStringEnd(self.field(node)),
            Instr::EndString { node, dynamic } => {
                if dynamic {
                    Element::DynamicStringEnd(self.field(node))
                } else {
                    Element::StaticStringEnd(self.field(node))
                }
            }
            Instr::EndBlob { node, dynamic } => {
                if dynamic {
                    Element::DynamicBlobEnd(self.field(node))
                } else {
                    Element::StaticBlobEnd(self.field(node))
                }
            }
            Instr::EndArray { node, dynamic } => {
                if dynamic {
                    Element::DynamicArrayEnd(self.field(node))
                } else {
                    Element::StaticArrayEnd(self.field(node))
                }
            }
            Instr::EndVariant { node, signed } => {
                if signed {
                    Element::SignedVariantEnd(self.field(node))
                } else {
                    Element::UnsignedVariantEnd(self.field(node))
                }
            }
            Instr::EndOptional { node, kind } => match kind {
                SelectorKind::Bool => Element::BoolOptionalEnd(self.field(node)),
                SelectorKind::Unsigned => Element::UnsignedOptionalEnd(self.field(node)),
                SelectorKind::Signed => Element::SignedOptionalEnd(self.field(node)),
            },
            _ => return None,
        })
    }

    /// Applies the effect of the last integer on the packet.
    fn effect(&mut self, instr: &Instr) -> Result<(), DecodeFault> {
        let at = &mut self.position;
        let value = at.integer;
        match instr {
            Instr::SetPacketEndClock => at.info.end_clock = Some(value),
            Instr::SetId => at.id = value,
            Instr::SetStreamId => at.stream_id = Some(value),
            Instr::SetSequence => at.info.sequence = Some(value),
            Instr::SetDiscarded => at.info.discarded_events = Some(value),
            Instr::UuidByte => {
                at.uuid.rotate_left(1);
                at.uuid[15] = value.to_le_bytes()[0];
            }
            Instr::SetTotalLength => self.set_total_length(value)?,
            Instr::SetContentLength => self.set_content_length(value)?,
            other => unreachable!("{other:?} is executed elsewhere"),
        }
        self.position.at += 1;
        Ok(())
    }

    fn set_total_length(&mut self, total: u64) -> Result<(), DecodeFault> {
        let at = &mut self.position;
        if total & 7 != 0 {
            return Err(DecodeFault::TotalLengthNotBytes { total });
        }
        if at.content != UNKNOWN && total < at.content {
            return Err(DecodeFault::TotalLengthBelowContent {
                total,
                content: at.content,
            });
        }
        if total < at.head {
            return Err(DecodeFault::TotalLengthBelowPosition {
                total,
                position: at.head,
            });
        }
        at.total = total;
        if at.content == UNKNOWN {
            self.set_limit(total);
        }
        Ok(())
    }

    fn set_content_length(&mut self, content: u64) -> Result<(), DecodeFault> {
        let at = &self.position;
        if at.total < content {
            return Err(DecodeFault::TotalLengthBelowContent {
                total: at.total,
                content,
            });
        }
        if content < at.head {
            return Err(DecodeFault::ContentLengthBelowPosition {
                content,
                position: at.head,
            });
        }
        self.set_limit(content);
        Ok(())
    }

    fn set_limit(&mut self, content: u64) {
        self.position.content = content;
        self.limit = content.min(self.data_bits());
    }

    fn frame(&mut self, instr: &Instr) -> Executed {
        let element = match *instr {
            Instr::BeginPacket => {
                self.position.begin_packet(self.position.next_packet);
                self.resume();
                if self.position.packet >= self.data.len() {
                    return Ok(Some(Step::End));
                }
                Element::PacketBegin
            }
            Instr::BeginContent => Element::ContentBegin,
            Instr::SelectStream { dynamic } => {
                self.select_stream(dynamic)?;
                return Ok(None);
            }
            Instr::StreamInfo => {
                self.stream_info = self.current_stream();
                Element::StreamInfo(self.stream_info)
            }
            Instr::EnterStream => {
                let code = self.stream_code().map(|stream| stream.packet);
                self.position.at = code.unwrap_or(self.procedure.packet_end());
                return Ok(None);
            }
            Instr::PacketInfo => {
                let known = |length: u64| (length != UNKNOWN).then_some(length);
                self.position.info.total_length = known(self.position.total);
                self.position.info.content_length = known(self.position.content);
                Element::PacketInfo
            }
            Instr::NextRecord { alignment } => return self.next_record(alignment),
            Instr::SelectEvent { dynamic } => {
                self.select_event(dynamic)?;
                return Ok(None);
            }
            Instr::EventInfo => {
                let classes = self.stream_info.class.map(|class| class.event_classes());
                let index = self.position.event;
                let event = index.and_then(|index| classes?.get(usize_from(index)));
                Element::EventInfo(event)
            }
            Instr::EnterEvent => {
                let event = usize_from(self.position.event.unwrap_or(0));
                let code = self
                    .stream_code()
                    .and_then(|stream| stream.events.get(event));
                self.position.at = *code.expect("an event class was selected before");
                return Ok(None);
            }
            Instr::EndRecord => {
                self.emit(Element::RecordEnd);
                let code = self.stream_code().expect("event records are in a stream");
                self.position.at = code.record;
                return Ok(Some(Step::Element));
            }
            Instr::EndContent => Element::ContentEnd,
            Instr::EndPacket => return self.end_packet(),
            ref other => unreachable!("{other:?} is not of the frame"),
        };
        self.emit(element);
        Ok(Some(Step::Element))
    }

    fn stream_code(&self) -> Option<&'a StreamCode> {
        self.procedure
            .streams()
            .get(usize_from(self.position.stream?))
    }

    fn select_stream(&mut self, dynamic: bool) -> Result<(), DecodeFault> {
        let class = self.procedure.trace_class();
        let id = self.position.id;
        self.position.stream = Some(if dynamic {
            class
                .find_stream_class(id)
                .ok_or(DecodeFault::UnknownStreamClass { id })?
                .0
        } else {
            0
        });
        self.position.at += 1;
        Ok(())
    }

    fn select_event(&mut self, dynamic: bool) -> Result<(), DecodeFault> {
        let id = self.position.id;
        let class = self
            .stream_info
            .class
            .expect("event records are in a stream");
        self.position.event = Some(if dynamic {
            class
                .find_event_class(id)
                .ok_or(DecodeFault::UnknownEventClass { id })?
                .0
        } else {
            0
        });
        self.position.at += 1;
        Ok(())
    }

    fn next_record(&mut self, alignment: u32) -> Executed {
        let at = &self.position;
        let end = if at.content == UNKNOWN {
            self.data_bits()
        } else {
            at.content
        };
        if at.head >= end {
            self.position.at = self.procedure.packet_end();
            return Ok(None);
        }
        self.align(alignment)?;
        self.progress(self.position.record)?;
        self.position.record = self.position.head;
        self.emit(Element::RecordBegin);
        Ok(Some(Step::Element))
    }

    /// Refuses endless repetition without reading any bit.
    pub(super) fn progress(&mut self, before: u64) -> Result<(), DecodeFault> {
        if self.position.head != before {
            self.position.idle = 0;
            return Ok(());
        }
        self.position.idle += 1;
        if self.position.idle > IDLE_MAX {
            Err(DecodeFault::NoProgress)
        } else {
            Ok(())
        }
    }

    fn end_packet(&mut self) -> Executed {
        let data_bits = self.data_bits();
        let total = self.position.total;
        if total != UNKNOWN {
            if total > data_bits {
                self.position.head = data_bits;
                return Err(DecodeFault::EndOfData { needed: 1 });
            }
            self.position.head = total;
        }
        self.mark();
        // Only a packet without any field can end where it begins; the rest of the data then
        // belongs to it.
        let bytes = match self.position.head.div_ceil(8) {
            0 => self.bytes.len(),
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        self.element = Element::PacketEnd;
        self.position.next_packet = self.position.packet.saturating_add(bytes);
        self.position.at = 0;
        Ok(Some(Step::Element))
    }
}
