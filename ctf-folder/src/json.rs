//! Events as JSON, without loss: one object an event (`docs/fields.md`).

use std::collections::HashSet;

use ctf::class::{Encoding, FieldKind, Mappings, Scope};
use ctf::text::{push_signed, push_unsigned, to_utf8};
use ctf::{
    Datum, DecodeError, DecodeFault, Event, EventPosition, EventReader, Field, Fields, Plan, Value,
};

use super::text::{BLOCK_BYTES, Block, Progress, TextPlan};

/// Decodes packets to lines of JSON.
#[derive(Debug)]
pub(super) struct JsonDecoder {
    plan: Plan,
    /// Nanoseconds that are added to all times.
    clock_offset: i64,
    writer: ObjectWriter,
}

impl JsonDecoder {
    pub(super) fn new(text: &TextPlan) -> Self {
        Self {
            plan: Plan::everything(text.procedure()),
            clock_offset: text.style().clock_offset,
            writer: ObjectWriter::default(),
        }
    }

    /// Decodes events of the packet `data` into `block`, beginning at `from`, until the packet ends
    /// or the block is full.
    ///
    /// # Errors
    /// When the packet cannot be decoded any further; the block contains the preceding events.
    pub(super) fn decode(
        &mut self,
        data: &[u8],
        from: Option<&EventPosition>,
        block: &mut Block,
    ) -> Result<Progress, DecodeError> {
        let mut reader = EventReader::new(&self.plan, data);
        match from {
            Some(position) => reader.restore(position)?,
            None => {
                reader.next_packet()?;
            }
        }
        let mut bytes = 0;
        while let Some(event) = reader.next_event()? {
            let time = event.nanoseconds();
            let time = time.and_then(|time| time.checked_add(self.clock_offset));
            if time.is_none()
                && let Some(cycles) = event.clock()
            {
                let (offset, fault) = (event.offset(), DecodeFault::ClockOverflow { cycles });
                return Err(DecodeError { offset, fault });
            }
            let line = self.writer.event(&event, time);
            block.push_line(time, line);
            bytes += line.len();
            if bytes >= BLOCK_BYTES {
                return Ok(reader.position().map_or(Progress::Done, Progress::At));
            }
        }
        Ok(Progress::Done)
    }
}

/// A value that is being written inside of an array.
#[derive(Debug)]
enum Open {
    Array {
        is_first: bool,
    },
    Object {
        is_first: bool,
    },
    /// A variant or optional: its content stands for it.
    Content,
}

/// Writes objects. Outside of arrays, members of structures are members of the object, with dotted
/// names.
#[derive(Debug, Default)]
struct ObjectWriter {
    out: Vec<u8>,
    /// The name of the structure, variant or optional around the next value.
    path: String,
    /// Lengths of the paths around it.
    outer: Vec<usize>,
    open: Vec<Open>,
    is_first: bool,
    /// Names of the fields of contexts, when an event has two of them.
    names: Option<HashSet<String>>,
}

impl ObjectWriter {
    /// The line of an event.
    fn event(&mut self, event: &Event<'_>, time: Option<i64>) -> &[u8] {
        self.out.clear();
        self.out.push(b'{');
        self.is_first = true;
        if let Some(name) = event.name() {
            self.key("name");
            push_text(&mut self.out, name);
        }
        let class = event.class();
        let category = class.severity().or(class.identity.namespace.as_deref());
        if let Some(category) = category {
            self.key("cat");
            push_text(&mut self.out, category);
        }
        if let Some(time) = time {
            self.key("ts");
            push_signed(&mut self.out, time);
        }
        let reader = event.reader();
        self.scope("packet", reader.packet_fields(Scope::PacketContext));
        let (common, specific) = (Scope::EventCommonContext, Scope::EventSpecificContext);
        self.names = (event.has_scope(common) && event.has_scope(specific)).then(HashSet::new);
        self.scope("ctx", event.fields(common));
        self.scope("ctx", event.fields(specific));
        self.names = None;
        self.key("args");
        self.out.push(b'{');
        self.is_first = true;
        self.scope("", event.fields(Scope::EventPayload));
        self.out.extend_from_slice(b"}}");
        &self.out
    }

    fn key(&mut self, name: &str) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        push_text(&mut self.out, name);
        self.out.push(b':');
    }

    fn scope(&mut self, path: &str, fields: Fields<'_>) {
        self.path.clear();
        self.path.push_str(path);
        self.outer.clear();
        self.open.clear();
        for datum in fields {
            self.datum(&datum);
        }
    }

    fn datum(&mut self, datum: &Datum<'_>) {
        let field = datum.field;
        match datum.value {
            Value::StructBegin if self.open.is_empty() => self.enter(field),
            Value::VariantBegin { .. } | Value::OptionalBegin(_) if self.open.is_empty() => {
                self.enter(field);
            }
            Value::StructEnd | Value::VariantEnd | Value::OptionalEnd if self.open.is_empty() => {
                self.path.truncate(self.outer.pop().unwrap_or(0));
            }
            Value::StructBegin => self.begin(field, b"{", Open::Object { is_first: true }),
            Value::ArrayBegin(_) => self.begin(field, b"[", Open::Array { is_first: true }),
            Value::VariantBegin { .. } | Value::OptionalBegin(true) => {
                self.begin(field, b"", Open::Content);
            }
            Value::OptionalBegin(false) => self.begin(field, b"null", Open::Content),
            Value::StructEnd => self.end(b"}"),
            Value::ArrayEnd => self.end(b"]"),
            Value::VariantEnd | Value::OptionalEnd => self.end(b""),
            _ => {
                self.place(field);
                push_scalar(&mut self.out, datum);
            }
        }
    }

    /// Adds the name of a field to the path.
    fn enter(&mut self, field: Field<'_>) {
        self.outer.push(self.path.len());
        if let Some(name) = field.display_name() {
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(name);
        }
    }

    fn begin(&mut self, field: Field<'_>, text: &[u8], open: Open) {
        self.place(field);
        self.out.extend_from_slice(text);
        self.open.push(open);
    }

    fn end(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
        self.open.pop();
    }

    /// Writes what comes before the value of a field: a comma, and its name.
    fn place(&mut self, field: Field<'_>) {
        match self.open.last_mut() {
            None => {
                self.enter(field);
                let name = std::mem::take(&mut self.path);
                let names = self.names.as_mut();
                let is_new = names.is_none_or(|names| names.insert(name.clone()));
                if is_new {
                    self.key(&name);
                } else {
                    let field = name.strip_prefix("ctx.").unwrap_or(&name);
                    self.key(&format!("ctx.event.{field}"));
                }
                self.path = name;
                self.path.truncate(self.outer.pop().unwrap_or(0));
            }
            Some(Open::Array { is_first }) => {
                if !std::mem::take(is_first) {
                    self.out.push(b',');
                }
            }
            Some(Open::Object { is_first }) => {
                if !std::mem::take(is_first) {
                    self.out.push(b',');
                }
                push_text(&mut self.out, field.display_name().unwrap_or_default());
                self.out.push(b':');
            }
            Some(Open::Content) => {}
        }
    }
}

fn push_scalar(out: &mut Vec<u8>, datum: &Datum<'_>) {
    let kind = &datum.field.class().kind;
    match datum.value {
        Value::Unsigned(value) => match kind {
            FieldKind::Unsigned(_, class) | FieldKind::VariableUnsigned(class) => {
                let number = |out: &mut Vec<u8>| push_unsigned(out, value);
                push_integer(out, &class.mappings, value, number);
            }
            _ => push_unsigned(out, value),
        },
        Value::Signed(value) => match kind {
            FieldKind::Signed(_, class) | FieldKind::VariableSigned(class) => {
                let number = |out: &mut Vec<u8>| push_signed(out, value);
                push_integer(out, &class.mappings, value, number);
            }
            _ => push_signed(out, value),
        },
        Value::BitArray(value) | Value::BitMap(value) => push_unsigned(out, value),
        Value::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Value::Float(value) => push_number(out, value),
        Value::Text(_) => push_string(out, datum.text().unwrap_or_default(), kind),
        Value::Blob(bytes) => push_bytes(out, bytes),
        _ => {}
    }
}

/// A number, or for an enumeration `{"value":1,"labels":["A","B"]}`.
fn push_integer<T: Copy + Ord>(
    out: &mut Vec<u8>,
    mappings: &Mappings<T>,
    value: T,
    number: impl FnOnce(&mut Vec<u8>),
) {
    if mappings.is_empty() {
        return number(out);
    }
    out.extend_from_slice(b"{\"value\":");
    number(out);
    out.extend_from_slice(b",\"labels\":[");
    for (index, label) in mappings.names_of(value).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_text(out, label);
    }
    out.extend_from_slice(b"]}");
}

/// A number; text for those that JSON does not have.
fn push_number(out: &mut Vec<u8>, value: f64) {
    let special = if value.is_nan() {
        "NaN"
    } else if value == f64::INFINITY {
        "Infinity"
    } else if value == f64::NEG_INFINITY {
        "-Infinity"
    } else {
        return to_json(out, &value);
    };
    push_text(out, special);
}

/// Text, or bytes when it is not valid UTF-8.
fn push_string(out: &mut Vec<u8>, bytes: &[u8], kind: &FieldKind) {
    let encoding = match kind {
        FieldKind::String(class) => class.encoding,
        FieldKind::NullTerminatedString(encoding) => *encoding,
        _ => Encoding::Utf8,
    };
    let decoded;
    let bytes = match encoding {
        Encoding::Utf8 => bytes,
        encoding => {
            decoded = to_utf8(bytes, encoding);
            &decoded[..]
        }
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => push_text(out, text),
        Err(_) => push_bytes(out, bytes),
    }
}

/// `{"hex":"00ff"}`
fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"{\"hex\":\"");
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
    out.extend_from_slice(b"\"}");
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    to_json(out, text);
}

fn to_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("writing to a vector does not fail");
}
