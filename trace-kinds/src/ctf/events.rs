//! CTF event records as events (`docs/fields.md`).

use super::fields::{Common, FieldMap, category};
use crate::{DecodeError, Decoded, Decoder, EachEvent, Event};
use ctf::class::{Encoding, FieldKind, Mappings, Scope};
use ctf::text::{push_byte, push_float, push_signed, push_unsigned, to_utf8};
use ctf::{Datum, DecodeFault, EventReader, Fields, Plan, Procedure, Value as CtfValue};
use query_language::{FieldId, FieldSource, FieldTable, Value};
use std::cell::RefCell;

/// Scopes of an event record in the order of `each_field`.
const EVENT_SCOPES: [Scope; 3] = [
    Scope::EventCommonContext,
    Scope::EventSpecificContext,
    Scope::EventPayload,
];

/// Decodes packets of one CTF trace.
#[derive(Debug)]
pub struct CtfDecoder {
    plan: Plan,
    /// Reads all fields, for `each_field`.
    all_fields: Plan,
    map: FieldMap,
    fields: usize,
}

/// A value without a lifetime: text is a range of the packet or of the scratch buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Slot {
    None,
    Int(i64),
    Uint(u64),
    Float(f64),
    Bool(bool),
    Packet(usize, usize),
    Scratch(usize, usize),
}

/// The values of the current event, by the index of their field.
#[derive(Debug, Default)]
struct Row {
    slots: Vec<Slot>,
    scratch: Vec<u8>,
    /// The array that is being converted to text.
    array: Option<Array>,
}

/// An array that is being converted to text.
#[derive(Clone, Copy, Debug)]
struct Array {
    start: usize,
    depth: u32,
}

impl CtfDecoder {
    /// A decoder for the fields of `table`.
    pub fn new(procedure: &Procedure, table: &FieldTable) -> Self {
        let map = FieldMap::new(procedure, table);
        let plan = Plan::new(procedure, |candidate| map.wants(procedure, candidate.node));
        Self {
            plan,
            all_fields: Plan::everything(procedure),
            map,
            fields: table.len(),
        }
    }
}

impl Decoder for CtfDecoder {
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError> {
        let mut decoded = Decoded::default();
        let mut reader = EventReader::new(&self.plan, packet);
        let full = RefCell::new(FullReader {
            reader: EventReader::new(&self.all_fields, packet),
            at: 0,
        });
        let mut row = Row {
            slots: vec![Slot::None; self.fields],
            ..Row::default()
        };
        while reader.next_packet()?.is_some() {
            while let Some(event) = reader.next_event()? {
                let time = event.nanoseconds();
                if time.is_none()
                    && let Some(cycles) = event.clock()
                {
                    let (offset, fault) = (event.offset(), DecodeFault::ClockOverflow { cycles });
                    return Err(ctf::DecodeError { offset, fault }.into());
                }
                decoded.events += 1;
                row.clear();
                let packet_context = event.reader().packet_fields(Scope::PacketContext);
                row.fill(packet_context, &self.map, packet);
                for scope in EVENT_SCOPES {
                    row.fill(event.fields(scope), &self.map, packet);
                }
                let view = CtfEvent {
                    time,
                    event,
                    row: &row,
                    map: &self.map,
                    packet,
                    full: &full,
                    number: decoded.events,
                };
                if each(&view).is_break() {
                    return Ok(decoded);
                }
            }
        }
        Ok(decoded)
    }
}

impl Row {
    fn clear(&mut self) {
        self.slots.fill(Slot::None);
        self.scratch.clear();
        self.array = None;
    }

    fn fill(&mut self, fields: Fields<'_>, map: &FieldMap, packet: &[u8]) {
        for datum in fields {
            let slot = self.slot(&datum, packet);
            if slot == Slot::None {
                continue;
            }
            for target in map.targets(datum.field.id()) {
                self.slots[*target] = slot;
            }
        }
    }

    /// The value of `datum`, unless it is part of another value.
    fn slot(&mut self, datum: &Datum<'_>, packet: &[u8]) -> Slot {
        if let Some(array) = self.array {
            return self.array_part(array, datum);
        }
        match datum.value {
            CtfValue::Unsigned(value) => match label(datum, value) {
                Some(label) => self.store(label.as_bytes()),
                None => Slot::Uint(value),
            },
            CtfValue::Signed(value) => match label(datum, value.cast_unsigned()) {
                Some(label) => self.store(label.as_bytes()),
                None => Slot::Int(value),
            },
            CtfValue::BitArray(value) | CtfValue::BitMap(value) => Slot::Uint(value),
            CtfValue::Bool(value) => Slot::Bool(value),
            CtfValue::Float(value) => Slot::Float(value),
            CtfValue::Text(_) => self.text(datum, packet),
            CtfValue::Blob(bytes) => {
                let start = self.scratch.len();
                push_bytes(&mut self.scratch, bytes);
                Slot::Scratch(start, self.scratch.len())
            }
            CtfValue::ArrayBegin(_) => {
                self.array = Some(Array {
                    start: self.scratch.len(),
                    depth: 1,
                });
                self.scratch.push(b'[');
                Slot::None
            }
            _ => Slot::None,
        }
    }

    fn store(&mut self, text: &[u8]) -> Slot {
        let start = self.scratch.len();
        self.scratch.extend_from_slice(text);
        Slot::Scratch(start, self.scratch.len())
    }

    fn text(&mut self, datum: &Datum<'_>, packet: &[u8]) -> Slot {
        let bytes = datum.text().unwrap_or_default();
        match encoding(datum) {
            Encoding::Utf8 => {
                // The offset of the text in the packet, so that it need not be copied.
                let start = (bytes.as_ptr() as usize).checked_sub(packet.as_ptr() as usize);
                match start.filter(|start| start + bytes.len() <= packet.len()) {
                    Some(start) => Slot::Packet(start, start + bytes.len()),
                    None => self.store(bytes),
                }
            }
            encoding => self.store(&to_utf8(bytes, encoding)),
        }
    }

    fn array_part(&mut self, array: Array, datum: &Datum<'_>) -> Slot {
        let closes = match datum.value {
            CtfValue::ArrayEnd => Some(b']'),
            CtfValue::StructEnd => Some(b'}'),
            CtfValue::VariantBegin { .. }
            | CtfValue::VariantEnd
            | CtfValue::OptionalBegin(_)
            | CtfValue::OptionalEnd => return Slot::None,
            _ => None,
        };
        if let Some(close) = closes {
            self.scratch.push(close);
            let depth = array.depth - 1;
            self.array = Some(Array { depth, ..array }).filter(|array| array.depth > 0);
            return match depth {
                0 => Slot::Scratch(array.start, self.scratch.len()),
                _ => Slot::None,
            };
        }
        if !matches!(self.scratch.last(), Some(b'[' | b'{')) {
            self.scratch.extend_from_slice(b", ");
        }
        let opens = match datum.value {
            CtfValue::ArrayBegin(_) => Some(b'['),
            CtfValue::StructBegin => Some(b'{'),
            _ => None,
        };
        match opens {
            Some(open) => {
                self.scratch.push(open);
                self.array = Some(Array {
                    depth: array.depth + 1,
                    ..array
                });
            }
            None => push_scalar(&mut self.scratch, datum),
        }
        Slot::None
    }

    fn value<'v>(&'v self, slot: Slot, packet: &'v [u8]) -> Option<Value<'v>> {
        match slot {
            Slot::None => None,
            Slot::Int(value) => Some(Value::Int(value)),
            Slot::Uint(value) => Some(Value::Uint(value)),
            Slot::Float(value) => Some(Value::Float(value)),
            Slot::Bool(value) => Some(Value::Bool(value)),
            Slot::Packet(start, end) => Some(Value::Str(&packet[start..end])),
            Slot::Scratch(start, end) => Some(Value::Str(&self.scratch[start..end])),
        }
    }
}

fn encoding(datum: &Datum<'_>) -> Encoding {
    match &datum.field.class().kind {
        FieldKind::String(class) => class.encoding,
        FieldKind::NullTerminatedString(encoding) => *encoding,
        _ => Encoding::Utf8,
    }
}

/// The first label of an enumeration's value.
fn label<'d>(datum: &Datum<'d>, raw: u64) -> Option<&'d str> {
    fn first<T: Copy + Ord>(mappings: &Mappings<T>, value: T) -> Option<&str> {
        mappings.names_of(value).next()
    }
    match &datum.field.class().kind {
        FieldKind::Unsigned(_, class) | FieldKind::VariableUnsigned(class) => {
            first(&class.mappings, raw)
        }
        FieldKind::Signed(_, class) | FieldKind::VariableSigned(class) => {
            first(&class.mappings, raw.cast_signed())
        }
        _ => None,
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        push_byte(out, byte);
    }
}

fn push_scalar(out: &mut Vec<u8>, datum: &Datum<'_>) {
    match datum.value {
        CtfValue::Unsigned(value) | CtfValue::BitArray(value) | CtfValue::BitMap(value) => {
            push_unsigned(out, value);
        }
        CtfValue::Signed(value) => push_signed(out, value),
        CtfValue::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        CtfValue::Float(value) => push_float(out, value),
        CtfValue::Text(_) => {
            let text = to_utf8(datum.text().unwrap_or_default(), encoding(datum));
            out.push(b'"');
            out.extend_from_slice(&text);
            out.push(b'"');
        }
        CtfValue::Blob(bytes) => push_bytes(out, bytes),
        _ => {}
    }
}

/// A second reader of the packet, for `each_field`. It follows the first one.
struct FullReader<'p> {
    reader: EventReader<'p>,
    at: u64,
}

struct CtfEvent<'e, 'p> {
    time: Option<i64>,
    event: ctf::Event<'e>,
    row: &'e Row,
    map: &'e FieldMap,
    packet: &'e [u8],
    full: &'e RefCell<FullReader<'p>>,
    number: u64,
}

impl FieldSource for CtfEvent<'_, '_> {
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        let index = id.index();
        if let Some(slot) = self.row.slots.get(index)
            && let Some(value) = self.row.value(*slot, self.packet)
        {
            return Some(value);
        }
        if let Some((_, value)) = self.map.constant.iter().find(|(field, _)| *field == index) {
            return Some(Value::Int(*value));
        }
        match self.map.common.iter().find(|(field, _)| *field == index)?.1 {
            Common::Name => self.event.name().map(Value::from),
            Common::Category => category(self.event.class()).map(Value::from),
            Common::Time => self.time.map(Value::Int),
        }
    }
}

impl Event for CtfEvent<'_, '_> {
    fn ts(&self) -> Option<i64> {
        self.time
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        let class = self.event.class();
        if let Some(name) = self.event.name() {
            visit("name", Value::from(name));
        }
        if let Some(category) = category(class) {
            visit("cat", Value::from(category));
        }
        if let Some(time) = self.time {
            visit("ts", Value::Int(time));
        }
        let mut full = self.full.borrow_mut();
        let FullReader { reader, at } = &mut *full;
        while *at < self.number {
            // The first reader decoded the same event without an error.
            let Ok(found) = reader.next_event() else {
                return;
            };
            let Some(event) = found else {
                if !matches!(reader.next_packet(), Ok(Some(_))) {
                    return;
                }
                continue;
            };
            *at += 1;
            if *at == self.number {
                self.visit_fields(&event, visit);
            }
        }
    }
}

impl CtfEvent<'_, '_> {
    fn visit_fields(&self, event: &ctf::Event<'_>, visit: &mut dyn FnMut(&str, Value<'_>)) {
        let mut row = Row::default();
        let packet_context = event.reader().packet_fields(Scope::PacketContext);
        let scopes = EVENT_SCOPES.iter().map(|scope| event.fields(*scope));
        for fields in std::iter::once(packet_context).chain(scopes) {
            for datum in fields {
                let slot = row.slot(&datum, self.packet);
                let path = self.map.path(datum.field.id());
                if let (false, Some(value)) = (path.is_empty(), row.value(slot, self.packet)) {
                    visit(&path, value);
                }
            }
        }
    }
}
