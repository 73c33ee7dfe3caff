//! The reader of packets and of their event records.

use uuid::Uuid;

use super::compiled_plan::CompiledPlan;
use super::interpreter::{Interpreter, NO_SCOPE, TOKENS_MAX, UNKNOWN, Undecodable};
use super::packet::Packet;
use super::plan::Plan;
use super::{Event, Fields};
use crate::class::{ByteOrder, ClockClass, Scope, StreamClass, StreamClassIndex};
use crate::decoding::{DecodeError, DecodeFault, align_up};
use crate::element::ElementReader;

/// Event records without a bit that a packet may have in a row.
const IDLE_MAX: u32 = 1 << 16;

/// What a reader did not read of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where the packet begins in the data, in bytes.
    pub packet: usize,
    /// From where it was not read, in bits from the beginning of the data.
    pub from: u64,
    /// Where reading goes on, in bits from the beginning of the data.
    pub to: u64,
}

/// A place between two event records, as a plain value.
///
/// It can be cloned, kept, and given to any reader of the same plan and data.
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

    /// Where it is, in bits from the beginning of the data.
    pub fn offset(&self) -> u64 {
        self.packet as u64 * 8 + self.head
    }
}

/// Where the reader is in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the packet, which begins at the offset in bytes.
    Before(usize),
    /// In its content.
    Inside,
    /// After its last event record, or after an error.
    After,
}

/// Reads the packets in `data` and their event records, as far as its [`Plan`] wants them.
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
    facts: Packet,
    /// Decoded values of the packet's header and context.
    preamble: Interpreter<'a>,
    /// Where the current event record begins in the packet, in bits.
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
            facts: facts(0),
            preamble: Interpreter::new(plan),
            record: 0,
            idle: 0,
            error: None,
        }
    }

    /// Goes to the next packet, past whatever is left of the current one, and reads its header and
    /// context; nothing at the end of the data.
    ///
    /// After an error in a packet whose total length is known, this goes on with the packet after
    /// it; [`Self::lost`] tells what was left out.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] of the header or context.
    pub fn next_packet(&mut self) -> Result<Option<&Packet>, DecodeError> {
        let offset = match self.state {
            State::Before(offset) => offset,
            State::Inside | State::After => self.facts.end(),
        };
        if offset >= self.data.len() {
            self.state = State::Before(offset);
            return Ok(None);
        }
        self.state = State::After;
        self.facts = facts(offset);
        (self.record, self.idle, self.error) = (0, 0, None);
        let bytes = &self.data[offset..];
        self.interpreter.begin_packet(bytes);
        let preamble = self.read_preamble();
        self.gather();
        match preamble {
            Ok(()) => {
                self.preamble.clone_from(&self.interpreter);
                self.state = State::Inside;
                Ok(Some(&self.facts))
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
        let index = match self.plan.dynamic_stream {
            true => class.find_stream_class(id).ok_or(Undecodable)?,
            false => StreamClassIndex(0),
        };
        self.interpreter.stream = index.0;
        self.facts.stream_class = Some(index);
        let clock = std::mem::take(&mut self.interpreter.has_clock);
        let result = self
            .interpreter
            .execute(self.plan.streams[index.0 as usize].packet);
        self.facts.begin_clock = self.interpreter.has_clock.then_some(self.interpreter.clock);
        self.interpreter.has_clock |= clock;
        result
    }

    /// Takes what the engine read of the preamble, complete or not.
    fn gather(&mut self) {
        let interpreter = &self.interpreter;
        let known = |length: u64| (length != UNKNOWN).then_some(length);
        let available = interpreter.bytes.len();
        let total =
            known(interpreter.total).map(|bits| usize::try_from(bits / 8).unwrap_or(usize::MAX));
        let content = known(interpreter.content).map(|bits| bits.div_ceil(8));
        let content = content.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        // Without a total length the packet ends with its content, and without that with the data.
        // A packet of no content and no header cannot be one of several.
        let length = total
            .or(content)
            .filter(|length| *length > 0)
            .unwrap_or(available);
        let facts = &mut self.facts;
        facts.stream_id = interpreter.stream_id;
        facts.magic = interpreter.magic;
        facts.uuid = interpreter.uuid.map(Uuid::from_bytes);
        facts.total_length = known(interpreter.total);
        facts.content_length = known(interpreter.content);
        facts.preamble_length = interpreter.head;
        facts.end_clock = interpreter.end_clock;
        facts.discarded_events = interpreter.discarded;
        facts.sequence = interpreter.sequence;
        facts.bytes = length.min(available);
        facts.is_truncated = length > available;
    }

    /// Goes to the next event record of the packet; nothing after the last one.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] when the event record cannot be decoded. Nothing more comes from this
    /// packet then: [`Self::next_packet`] goes on with the next one.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, DecodeError> {
        if self.state != State::Inside {
            return Ok(None);
        }
        match self.read_event() {
            Ok(true) => Ok(Some(Event { reader: self })),
            Ok(false) if self.facts.is_truncated => Err(self.explain()),
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
        let Some(stream) = self.plan.streams.get(interpreter.stream as usize) else {
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

    /// Finds out what is wrong: the element face reads the packet again up to the fault.
    #[cold]
    fn explain(&mut self) -> DecodeError {
        self.state = State::After;
        let offset = self.facts.offset;
        let mut elements = ElementReader::new(&self.plan.procedure, self.data);
        elements.seek_packet(offset);
        let fault = match self.interpreter.tokens.len() > TOKENS_MAX {
            true => DecodeFault::TooManyValues {
                limit: TOKENS_MAX as u64,
            },
            false => DecodeFault::NoProgress,
        };
        let mut error = DecodeError {
            offset: offset as u64 * 8 + self.interpreter.head,
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

    /// What the last error made unreadable, until [`Self::next_packet`] is called.
    pub fn lost(&self) -> Option<Lost> {
        let error = self.error?;
        let from = self.facts.offset as u64 * 8 + self.record;
        let to = self.facts.end() as u64 * 8;
        Some(Lost {
            packet: self.facts.offset,
            from: from.min(error.offset),
            to,
        })
    }

    /// The facts of the current packet.
    pub fn packet(&self) -> &Packet {
        &self.facts
    }

    /// Goes to the packet that begins `offset` bytes from the beginning of the data.
    pub fn seek(&mut self, offset: usize) {
        self.state = State::Before(offset);
        self.error = None;
    }

    /// The place after the event record that was read last; nothing when the reader is not in a
    /// packet, or cannot go on in it.
    pub fn position(&self) -> Option<EventPosition> {
        (self.state == State::Inside).then(|| EventPosition {
            packet: self.facts.offset,
            head: self.interpreter.head,
            clock: self.interpreter.clock,
            has_clock: self.interpreter.has_clock,
            order: self.interpreter.order,
            saved: self.interpreter.saved.as_slice().into(),
            idle: self.idle,
        })
    }

    /// Goes to a place; the next event record is the one after it.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] when the data is not the one the place is from: the header and context of
    /// its packet cannot be decoded.
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

    /// The values of a scope of the current packet: its header or its context.
    pub fn packet_fields(&self, scope: Scope) -> Fields<'_> {
        scope_of(&self.preamble, self.plan, scope)
    }

    /// True when the packet has this scope and its values were read.
    pub fn has_packet_scope(&self, scope: Scope) -> bool {
        self.preamble.scopes[scope.index()] != NO_SCOPE
    }

    /// The class of the current packet's stream.
    pub fn stream_class(&self) -> Option<&'a StreamClass> {
        let class = self.plan.procedure.trace_class();
        self.facts
            .stream_class
            .map(|index| class.stream_class(index))
    }

    /// The default clock of the current packet's stream.
    pub fn clock_class(&self) -> Option<&'a ClockClass> {
        self.plan
            .procedure
            .trace_class()
            .default_clock(self.facts.stream_class?)
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

/// The values of a scope, or nothing when it has none.
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
    let end = end.map_or(interpreter.tokens.len(), |end| *end as usize);
    let tokens = interpreter
        .tokens
        .get(begin as usize..end)
        .unwrap_or_default();
    Fields::new(plan, interpreter.bytes, tokens)
}

fn facts(offset: usize) -> Packet {
    Packet {
        offset,
        stream_class: None,
        stream_id: None,
        magic: None,
        uuid: None,
        total_length: None,
        content_length: None,
        preamble_length: 0,
        begin_clock: None,
        end_clock: None,
        discarded_events: None,
        sequence: None,
        bytes: 0,
        is_truncated: false,
    }
}
