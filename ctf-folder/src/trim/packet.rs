//! A packet with some of its events only.

use ctf::class::{FieldClass, FixedBits, Role, Scope};
use ctf::{DecodeError, Element, ElementReader, Field, Procedure};

use super::bits;

/// Why a packet cannot be trimmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrimFault {
    /// It cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The result would not have the events that were selected.
    #[error(
        "its packet cannot be divided between these events: their times or fields depend on \
         events outside of the window; choose a window that has the whole packet"
    )]
    Dependent,
    /// A length or time of the packet is in a field that cannot be changed.
    #[error("the field {name:?} of its packet context has no fixed length and cannot be changed")]
    Variable {
        /// The name of the field.
        name: String,
    },
}

/// What remains of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trimmed {
    /// All of it.
    Whole,
    /// Some of its events, or none.
    Part(Vec<u8>),
}

/// Cycles of the first and the last event that remain.
type Span = Option<(Option<u64>, Option<u64>)>;

/// The packet in `data` with the events for which `is_kept` says so, by their cycles.
pub(super) fn trim(
    procedure: &Procedure,
    data: &[u8],
    is_kept: &dyn Fn(Option<u64>) -> bool,
) -> Result<Trimmed, TrimFault> {
    let mut copier = Copier::new(data);
    let mut reader = ElementReader::new(procedure, data);
    while let Some(element) = reader.next_element()? {
        let element = *element;
        let at = reader.offset();
        if let Element::ContentEnd = element {
            break;
        }
        copier.element(&element, at, is_kept);
    }
    // The padding of a packet at the end of a file may be cut off.
    while reader.next_element()?.is_some() {}
    let Some(packet) = copier.finish()? else {
        return Ok(Trimmed::Whole);
    };
    // Read again, it has the same events with the same times and values.
    let mut again = Copier::new(&packet);
    let mut reader = ElementReader::new(procedure, &packet);
    while let Some(element) = reader.next_element()? {
        let element = *element;
        let at = reader.offset();
        if let Element::ContentEnd = element {
            break;
        }
        again.element(&element, at, &|_| true);
    }
    if again.values == copier.values {
        Ok(Trimmed::Part(packet))
    } else {
        Err(TrimFault::Dependent)
    }
}

/// A field of the packet context that changes with its events.
struct Patch {
    role: Role,
    at: u64,
    name: String,
    bits: Option<FixedBits>,
}

/// Copies elements to where they are without the events between them.
struct Copier<'d> {
    data: &'d [u8],
    out: Vec<u8>,
    /// Bit offset in the output behind what was copied.
    head: u64,
    patches: Vec<Patch>,
    is_in_record: bool,
    /// Where the current record begins in the output, and in the values.
    record: (u64, usize),
    /// Offset of the text or bytes that began.
    bytes_at: u64,
    clock: Option<u64>,
    span: Span,
    /// Whether events before the first kept one, and behind the last one, were dropped.
    dropped: (bool, bool),
    /// Whether any event was dropped.
    has_dropped: bool,
    /// The values of the events that were kept.
    values: Vec<u8>,
}

impl<'d> Copier<'d> {
    fn new(data: &'d [u8]) -> Self {
        Self {
            data,
            out: Vec::new(),
            head: 0,
            patches: Vec::new(),
            is_in_record: false,
            record: (0, 0),
            bytes_at: 0,
            clock: None,
            span: None,
            dropped: (false, false),
            has_dropped: false,
            values: Vec::new(),
        }
    }

    fn element(&mut self, element: &Element<'_>, at: u64, is_kept: &dyn Fn(Option<u64>) -> bool) {
        match element {
            Element::ClockValue(cycles) => {
                self.clock = Some(*cycles);
                if self.is_in_record {
                    self.value(*cycles);
                }
            }
            Element::PacketInfo => self.preamble(at),
            Element::RecordBegin => {
                self.is_in_record = true;
                self.record = (self.head, self.values.len());
            }
            Element::RecordEnd => self.record_end(is_kept),
            _ if self.is_in_record => self.field(element, at),
            Element::FixedUnsigned(field, _) | Element::VariableUnsigned(field, _) => {
                self.preamble_field(*field, at);
            }
            _ => {}
        }
    }

    /// Header and context are copied as they are.
    fn preamble(&mut self, end: u64) {
        let bytes = usize::try_from(end.div_ceil(8)).unwrap_or(usize::MAX);
        let preamble = self.data.get(..bytes).unwrap_or(self.data);
        self.out.extend_from_slice(preamble);
        self.head = end;
    }

    fn preamble_field(&mut self, field: Field<'_>, at: u64) {
        let class = field.class();
        let roles = [
            Role::PacketTotalLength,
            Role::PacketContentLength,
            Role::ClockTimestamp,
            Role::PacketEndTimestamp,
        ];
        for role in roles {
            if class.roles.has(role) && field.node().scope() == Scope::PacketContext {
                self.patches.push(Patch {
                    role,
                    at,
                    name: field.name().unwrap_or_default().to_owned(),
                    bits: class.fixed_bits().copied(),
                });
            }
        }
    }

    fn record_end(&mut self, is_kept: &dyn Fn(Option<u64>) -> bool) {
        self.is_in_record = false;
        if is_kept(self.clock) {
            let first = self.span.map_or(self.clock, |(first, _)| first);
            self.span = Some((first, self.clock));
            self.dropped.1 = false;
            return;
        }
        if self.span.is_none() {
            self.dropped.0 = true;
        }
        self.dropped.1 = true;
        self.has_dropped = true;
        let (head, values) = self.record;
        self.head = head;
        self.values.truncate(values);
        let bytes = usize::try_from(head.div_ceil(8)).unwrap_or(usize::MAX);
        self.out.truncate(bytes);
    }

    fn value(&mut self, value: u64) {
        self.values.extend_from_slice(&value.to_le_bytes());
    }

    fn align(&mut self, class: &FieldClass) {
        let alignment = u64::from(class.alignment.max(1));
        self.head = self.head.next_multiple_of(alignment);
    }

    fn field(&mut self, element: &Element<'_>, at: u64) {
        match element {
            Element::FixedBitArray(field, value)
            | Element::FixedBitMap(field, value)
            | Element::FixedUnsigned(field, value) => self.fixed(*field, at, *value),
            Element::FixedBool(field, value) => self.fixed(*field, at, u64::from(*value)),
            Element::FixedSigned(field, value) => self.fixed(*field, at, value.cast_unsigned()),
            Element::FixedFloat(field, value) => self.fixed(*field, at, value.to_bits()),
            Element::VariableSigned(field, value) => {
                self.variable(*field, at, value.cast_unsigned());
            }
            Element::VariableUnsigned(field, value) => self.variable(*field, at, *value),
            Element::EventInfo(class) => self.value(class.map_or(u64::MAX, |class| class.id)),
            Element::NullTerminatedStringBegin(field)
            | Element::StaticStringBegin(field, _)
            | Element::DynamicStringBegin(field, _)
            | Element::StaticBlobBegin(field, _)
            | Element::DynamicBlobBegin(field, _) => {
                self.align(field.class());
                self.bytes_at = at;
            }
            Element::NullTerminatedStringEnd(_)
            | Element::StaticStringEnd(_)
            | Element::DynamicStringEnd(_)
            | Element::StaticBlobEnd(_)
            | Element::DynamicBlobEnd(_) => self.bytes(at),
            Element::StaticArrayBegin(field, length)
            | Element::DynamicArrayBegin(field, length) => {
                self.align(field.class());
                self.value(*length);
            }
            Element::StructBegin(field) => self.align(field.class()),
            _ => {}
        }
    }

    fn fixed(&mut self, field: Field<'_>, at: u64, value: u64) {
        let class = field.class();
        self.value(value);
        self.align(class);
        if let Some(bits) = class.fixed_bits() {
            let length = u64::from(bits.length);
            let order = bits.byte_order;
            bits::copy((self.data, at), (&mut self.out, self.head), length, order);
            self.head += length;
        }
    }

    /// Seven bits a byte; the last byte has no high bit.
    fn variable(&mut self, field: Field<'_>, at: u64, value: u64) {
        self.value(value);
        self.align(field.class());
        let begin = usize::try_from(at / 8).unwrap_or(usize::MAX);
        let rest = self.data.get(begin..).unwrap_or_default();
        let last = rest.iter().position(|byte| byte & 0x80 == 0);
        let length = last.map_or(0, |last| last + 1);
        bits::copy_bytes(&rest[..length], &mut self.out, self.head);
        self.head += length as u64 * 8;
    }

    /// The bytes up to here from where they began.
    fn bytes(&mut self, end: u64) {
        let place = |at: u64| usize::try_from(at / 8).unwrap_or(usize::MAX);
        let range = place(self.bytes_at)..place(end);
        let bytes = self.data.get(range).unwrap_or_default();
        self.values.extend_from_slice(bytes);
        bits::copy_bytes(bytes, &mut self.out, self.head);
        self.head += bytes.len() as u64 * 8;
    }

    /// The packet; `None` if all of its events were kept.
    fn finish(&mut self) -> Result<Option<Vec<u8>>, TrimFault> {
        if !self.has_dropped {
            return Ok(None);
        }
        let mut out = std::mem::take(&mut self.out);
        let total = self.head.div_ceil(8);
        out.resize(usize::try_from(total).unwrap_or(usize::MAX), 0);
        for patch in &self.patches {
            let value = match (patch.role, self.span) {
                (Role::PacketTotalLength, _) => Some(total * 8),
                (Role::PacketContentLength, _) => Some(self.head),
                (Role::ClockTimestamp, Some((first, _))) if self.dropped.0 => first,
                (Role::PacketEndTimestamp, Some((_, last))) if self.dropped.1 => last,
                _ => None,
            };
            let Some(value) = value else { continue };
            let Some(bits) = patch.bits else {
                let name = patch.name.clone();
                return Err(TrimFault::Variable { name });
            };
            bits::put(&mut out, patch.at, bits, value);
        }
        Ok(Some(out))
    }
}
