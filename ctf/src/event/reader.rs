//! The reader of packets and of their event records.

use crate::integer::{u64_from, usize_from};
use uuid::Uuid;

use super::compiled_plan::CompiledPlan;
use super::interpreter::{Interpreter, NO_SCOPE, TOKENS_MAX, UNKNOWN, Undecodable};
use super::packet::Packet;
use super::plan::Plan;
use super::{Event, Fields};
use crate::class::{ByteOrder, ClockClass, Scope, StreamClass, StreamClassIndex};
use crate::decoding::{DecodeError, DecodeFault, align_up};
use crate::element::ElementReader;

/// Limit of consecutive event records without any bit in a packet.
const IDLE_MAX: u32 = 1 << 16;
/// The magic number of packets.
const MAGIC: u64 = 0xc1fc_1fc1;

/// The part of a packet that was not read because of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Offset of the packet in the data, in bytes.
    pub packet: usize,
    /// Beginning of the unread part, in bits from the beginning of the data.
    pub from: u64,
    /// End of the unread part, where reading continues, in bits from the beginning of the data.
    pub to: u64,
}

/// A position between two event records, as a plain value.
///
/// It can be stored and passed to any reader of the same plan and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPosition {
    packet: usize,
    head: u64,
    clock: u64,
    has_clock: bool,
    order: Option<ByteOrder>,
    saved: Box<[u64]>,
    idle: u32,
}

impl EventPosition {
    /// Offset of the packet in the data, in bytes.
    pub fn packet_offset(&self) -> usize {
        self.packet
    }

    /// The offset in the data, in bits.
    pub fn offset(&self) -> u64 {
        u64_from(self.packet) * 8 + self.head
    }
}

/// The state of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the packet at this offset in bytes.
    Before(usize),
    /// In the content of a packet.
    Inside,
    /// After the last event record of a packet, or after an error.
    After,
}

/// Reads the packets in `data` and the fields of their event records that the [`Plan`] selects.
///
/// ```
/// use ctf::class::Scope;
/// use ctf::{EventReader, Plan, Procedure, Value};
///
/// # fn read(metadata: &[u8], stream: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
/// let procedure = Procedure::new(ctf::parse_metadata(metadata)?)?;
/// let plan = Plan::new(&procedure, |field| field.path == ["bytes"]);
/// let mut reader = EventReader::new(&plan, stream);
/// while let Some(packet) = reader.next_packet()? {
///     println!("packet {:?} of {} bytes", packet.sequence, packet.bytes);
///     while let Some(event) = reader.next_event()? {
///         println!("{:?} {:?}", event.clock(), event.name());
///         for datum in event.fields(Scope::EventPayload) {
///             if let Value::Unsigned(bytes) = datum.value {
///                 println!("  {bytes} bytes");
///             }
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EventReader<'a> {
    plan: &'a CompiledPlan,
    data: &'a [u8],
    interpreter: Interpreter<'a>,
    state: State,
    packet: Packet,
    /// The interpreter after the packet's header and context, with their decoded values.
    preamble: Interpreter<'a>,
    /// Offset of the current event record in the packet, in bits.
    record: u64,
    idle: u32,
    error: Option<DecodeError>,
}

impl<'a> EventReader<'a> {
    /// A reader before the first packet of `data`.
    pub fn new(plan: &'a Plan, data: &'a [u8]) -> Self {
        let plan = plan.inner();
        Self {
            plan,
            data,
            interpreter: Interpreter::new(plan),
            state: State::Before(0),
            packet: Packet::at(0),
            preamble: Interpreter::new(plan),
            record: 0,
            idle: 0,
            error: None,
        }
    }

    /// Advances to the next packet, skipping the rest of the current one, and reads its header and
    /// context. Returns `None` at the end of the data.
    ///
    /// After an error in a packet whose total length is known, this continues with the packet that
    /// follows it; [`Self::lost`] reports the part that was skipped.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] of the header or context, or of a magic number that is not that of
    /// packets.
    pub fn next_packet(&mut self) -> Result<Option<&Packet>, DecodeError> {
        let offset = match self.state {
            State::Before(offset) => offset,
            State::Inside | State::After => self.packet.end(),
        };
        if offset >= self.data.len() {
            self.state = State::Before(offset);
            return Ok(None);
        }
        self.state = State::After;
        self.packet = Packet::at(offset);
        (self.record, self.idle, self.error) = (0, 0, None);
        let bytes = &self.data[offset..];
        self.interpreter.begin_packet(bytes);
        let preamble = self.read_preamble();
        self.gather();
        // Whatever follows is of no packet of this trace, even if it can be decoded.
        if let Some(found) = self.packet.magic.filter(|found| *found != MAGIC) {
            let error = DecodeError {
                offset: u64_from(offset) * 8,
                fault: DecodeFault::MagicNumber { found },
            };
            self.error = Some(error);
            return Err(error);
        }
        match preamble {
            Ok(()) => {
                self.preamble.clone_from(&self.interpreter);
                self.state = State::Inside;
                Ok(Some(&self.packet))
            }
            Err(Undecodable) => Err(self.explain()),
        }
    }

    fn read_preamble(&mut self) -> Result<(), Undecodable> {
        self.interpreter.execute(self.plan.header)?;
        let class = self.plan.procedure.trace_class();
        if class.stream_classes().is_empty() {
            return Ok(());
        }
        let id = self.interpreter.id;
        let index = if self.plan.dynamic_stream {
            class.find_stream_class(id).ok_or(Undecodable)?
        } else {
            StreamClassIndex(0)
        };
        self.interpreter.stream = index.0;
        self.packet.stream_class = Some(index);
        let clock = std::mem::take(&mut self.interpreter.has_clock);
        let result = self
            .interpreter
            .execute(self.plan.streams[usize_from(index.0)].packet);
        self.packet.begin_clock = self.interpreter.has_clock.then_some(self.interpreter.clock);
        self.interpreter.has_clock |= clock;
        result
    }

    /// Collects the values of the preamble, which may be incomplete.
    fn gather(&mut self) {
        let interpreter = &self.interpreter;
        let known = |length: u64| (length != UNKNOWN).then_some(length);
        let available = interpreter.bytes.len();
        let total =
            known(interpreter.total).map(|bits| usize::try_from(bits / 8).unwrap_or(usize::MAX));
        let content = known(interpreter.content).map(|bits| bits.div_ceil(8));
        let content = content.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        // Without a total length the packet ends with its content, and without a content length
        // with the data. A packet of no content and no header cannot be one of several.
        let length = total
            .or(content)
            .filter(|length| *length > 0)
            .unwrap_or(available);
        let packet = &mut self.packet;
        packet.stream_id = interpreter.stream_id;
        packet.magic = interpreter.magic;
        packet.uuid = interpreter.uuid.map(Uuid::from_bytes);
        packet.total_length = known(interpreter.total);
        packet.content_length = known(interpreter.content);
        packet.preamble_length = interpreter.head;
        packet.end_clock = interpreter.end_clock;
        packet.discarded_events = interpreter.discarded;
        packet.sequence = interpreter.sequence;
        packet.bytes = length.min(available);
        packet.is_truncated = length > available;
    }

    /// Advances to the next event record of the packet. Returns `None` after the last one.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] when the event record cannot be decoded. The rest of the packet is
    /// skipped: [`Self::next_packet`] continues with the next packet.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, DecodeError> {
        if self.state != State::Inside {
            return Ok(None);
        }
        match self.read_event() {
            Ok(true) => Ok(Some(Event { reader: self })),
            Ok(false) if self.packet.is_truncated => Err(self.explain()),
            Ok(false) => {
                self.state = State::After;
                Ok(None)
            }
            Err(Undecodable) => Err(self.explain()),
        }
    }

    #[inline]
    fn read_event(&mut self) -> Result<bool, Undecodable> {
        let interpreter = &mut self.interpreter;
        let Some(stream) = self.plan.streams.get(usize_from(interpreter.stream)) else {
            return Ok(false);
        };
        if stream.events.is_empty() {
            return Ok(false);
        }
        if interpreter.head >= interpreter.limit {
            return Ok(false);
        }
        let begin = align_up(interpreter.head, stream.alignment);
        if begin > interpreter.limit {
            return Err(Undecodable);
        }
        interpreter.begin_record();
        interpreter.head = begin;
        self.record = begin;
        interpreter.execute(stream.record)?;
        if interpreter.head == begin {
            self.idle += 1;
            if self.idle > IDLE_MAX {
                return Err(Undecodable);
            }
        }
        Ok(true)
    }

    /// Determines the error: an element reader decodes the packet again up to the fault.
    #[cold]
    fn explain(&mut self) -> DecodeError {
        self.state = State::After;
        let offset = self.packet.offset;
        let mut elements = ElementReader::new(&self.plan.procedure, self.data);
        elements.seek_packet(offset);
        let fault = if self.interpreter.tokens.len() > TOKENS_MAX {
            DecodeFault::TooManyValues {
                limit: u64_from(TOKENS_MAX),
            }
        } else {
            DecodeFault::NoProgress
        };
        let mut error = DecodeError {
            offset: u64_from(offset) * 8 + self.interpreter.head,
            fault,
        };
        if matches!(fault, DecodeFault::NoProgress) {
            loop {
                match elements.next_element() {
                    Ok(Some(crate::Element::PacketEnd) | None) => break,
                    Ok(Some(_)) => {}
                    Err(found) => {
                        error = found;
                        break;
                    }
                }
            }
        }
        self.error = Some(error);
        error
    }

    /// The part of the current packet that the last error made unreadable, until
    /// [`Self::next_packet`] is called.
    pub fn lost(&self) -> Option<Lost> {
        let error = self.error?;
        let from = u64_from(self.packet.offset) * 8 + self.record;
        let to = u64_from(self.packet.end()) * 8;
        Some(Lost {
            packet: self.packet.offset,
            from: from.min(error.offset),
            to,
        })
    }

    /// The current packet.
    pub fn packet(&self) -> &Packet {
        &self.packet
    }

    /// Moves to the packet at `offset` of the data, in bytes.
    pub fn seek(&mut self, offset: usize) {
        self.state = State::Before(offset);
        self.error = None;
    }

    /// The position after the event record that was read last; `None` when the reader is not in a
    /// packet, or cannot continue in it.
    pub fn position(&self) -> Option<EventPosition> {
        (self.state == State::Inside).then(|| EventPosition {
            packet: self.packet.offset,
            head: self.interpreter.head,
            clock: self.interpreter.clock,
            has_clock: self.interpreter.has_clock,
            order: self.interpreter.order,
            saved: self.interpreter.saved.as_slice().into(),
            idle: self.idle,
        })
    }

    /// Moves to a position; the next event record is the one that follows it.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] when the position belongs to other data, so that the header and context
    /// of its packet cannot be decoded.
    pub fn restore(&mut self, position: &EventPosition) -> Result<(), DecodeError> {
        self.seek(position.packet);
        self.next_packet()?;
        let interpreter = &mut self.interpreter;
        interpreter.head = position.head.min(interpreter.limit);
        (interpreter.clock, interpreter.has_clock) = (position.clock, position.has_clock);
        interpreter.order = position.order;
        for (slot, value) in interpreter.saved.iter_mut().zip(&position.saved) {
            *slot = *value;
        }
        self.idle = position.idle;
        Ok(())
    }

    /// The values of the header or context of the current packet.
    pub fn packet_fields(&self, scope: Scope) -> Fields<'_> {
        scope_of(&self.preamble, self.plan, scope)
    }

    /// True when the packet has this scope and its values were decoded.
    pub fn has_packet_scope(&self, scope: Scope) -> bool {
        self.preamble.scopes[scope.index()] != NO_SCOPE
    }

    /// The class of the current packet's stream.
    pub fn stream_class(&self) -> Option<&'a StreamClass> {
        let class = self.plan.procedure.trace_class();
        self.packet
            .stream_class
            .map(|index| class.stream_class(index))
    }

    /// The default clock of the current packet's stream.
    pub fn clock_class(&self) -> Option<&'a ClockClass> {
        self.plan
            .procedure
            .trace_class()
            .default_clock(self.packet.stream_class?)
    }

    pub(super) fn interpreter(&self) -> &Interpreter<'a> {
        &self.interpreter
    }

    pub(super) fn plan(&self) -> &'a CompiledPlan {
        self.plan
    }

    pub(super) fn record(&self) -> u64 {
        self.record
    }
}

/// The values of a scope; empty when there are none.
pub(super) fn scope_of<'r>(
    interpreter: &'r Interpreter<'_>,
    plan: &'r CompiledPlan,
    scope: Scope,
) -> Fields<'r> {
    let begin = interpreter.scopes[scope.index()];
    if begin == NO_SCOPE {
        return Fields::new(plan, interpreter.bytes, &[]);
    }
    let later = &interpreter.scopes[scope.index() + 1..];
    let end = later.iter().find(|begin| **begin != NO_SCOPE);
    let end = end.map_or(interpreter.tokens.len(), |end| usize_from(*end));
    let tokens = interpreter
        .tokens
        .get(usize_from(begin)..end)
        .unwrap_or_default();
    Fields::new(plan, interpreter.bytes, tokens)
}
