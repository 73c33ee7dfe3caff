//! Values of fields, held while an event is shown.

use std::fmt::Write;

use query_language::Value;

use super::message::{AnyValue, Attribute, List, VALUE_DEPTH_MAX};

/// Longest id in bytes whose digits are kept in place.
const ID_BYTES_MAX: usize = 16;

/// A value, borrowed from the packet where the packet has it as it is asked for.
#[derive(Debug, Clone, Default)]
pub(super) enum Held<'a> {
    /// The event does not have the field.
    #[default]
    Nothing,
    Text(&'a [u8]),
    Made(String),
    /// Hexadecimal digits of an id.
    Id([u8; 2 * ID_BYTES_MAX], usize),
    Int(i64),
    Uint(u64),
    Float(f64),
    Bool(bool),
}

impl<'a> Held<'a> {
    pub(super) fn value(&self) -> Option<Value<'_>> {
        Some(match self {
            Held::Nothing => return None,
            Held::Text(text) => Value::Str(text),
            Held::Made(text) => Value::Str(text.as_bytes()),
            Held::Id(digits, length) => Value::Str(&digits[..*length]),
            Held::Int(value) => Value::Int(*value),
            Held::Uint(value) => Value::Uint(*value),
            Held::Float(value) => Value::Float(*value),
            Held::Bool(value) => Value::Bool(*value),
        })
    }

    /// An id as hexadecimal digits; nothing when it is empty.
    pub(super) fn id(id: &'a [u8]) -> Held<'a> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        if id.is_empty() {
            return Held::Nothing;
        }
        if id.len() > ID_BYTES_MAX {
            return Held::Made(hex(id));
        }
        let mut digits = [0; 2 * ID_BYTES_MAX];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(id) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Held::Id(digits, 2 * id.len())
    }

    /// A text; nothing when it is empty, which in proto3 is the same as not there.
    pub(super) fn text(text: &'a [u8]) -> Held<'a> {
        match text.is_empty() {
            true => Held::Nothing,
            false => Held::Text(text),
        }
    }

    /// The value of an attribute. A map as such has none: its entries are fields of their own.
    pub(super) fn of(value: AnyValue<'a>) -> Held<'a> {
        match value {
            AnyValue::Empty | AnyValue::Map(_) => Held::Nothing,
            AnyValue::Text(text) => Held::Text(text),
            AnyValue::Bool(value) => Held::Bool(value),
            AnyValue::Int(value) => Held::Int(value),
            AnyValue::Double(value) => Held::Float(value),
            AnyValue::Array(list) => Held::Made(array_text(list)),
            AnyValue::Bytes(bytes) => Held::Made(hex(bytes)),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// A list as JSON text.
fn array_text(list: List<'_>) -> String {
    json_of(AnyValue::Array(list), VALUE_DEPTH_MAX).to_string()
}

/// A value as JSON; what is damaged or too deep is null.
fn json_of(value: AnyValue<'_>, depth: usize) -> serde_json::Value {
    use serde_json::Value as Json;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(depth) = depth.checked_sub(1) else {
        return Json::Null;
    };
    match value {
        AnyValue::Empty => Json::Null,
        AnyValue::Text(bytes) => Json::String(text(bytes)),
        AnyValue::Bool(value) => Json::Bool(value),
        AnyValue::Int(value) => value.into(),
        AnyValue::Double(value) => value.into(),
        AnyValue::Bytes(bytes) => Json::String(hex(bytes)),
        AnyValue::Array(list) => {
            let mut values = Vec::new();
            let read = list.each_value(&mut |value| values.push(json_of(value, depth)));
            read.map_or(Json::Null, |()| Json::Array(values))
        }
        AnyValue::Map(list) => {
            let mut values = serde_json::Map::new();
            let read = list.each_attribute(&mut |attribute| {
                values.insert(text(attribute.key), json_of(attribute.value, depth));
            });
            read.map_or(Json::Null, |()| Json::Object(values))
        }
    }
}

/// Shows an attribute under its dotted path behind `prefix`; the entries of a map one by one.
pub(super) fn each_flat(
    path: &mut String,
    attribute: &Attribute<'_>,
    depth: usize,
    visit: &mut dyn FnMut(&str, Value<'_>),
) {
    let before = path.len();
    path.push_str(&String::from_utf8_lossy(attribute.key));
    match (attribute.value, depth.checked_sub(1)) {
        (AnyValue::Map(list), Some(depth)) => {
            path.push('.');
            // Damage was found when the packet was taken, or is told by the decoding.
            let _ = list.each_attribute(&mut |inner| each_flat(path, &inner, depth, visit));
        }
        (value, _) => {
            if let Some(value) = Held::of(value).value() {
                visit(path, value);
            }
        }
    }
    path.truncate(before);
}

/// The entry of a map that `path` leads to.
pub(super) fn entry_at<'a>(list: List<'a>, path: &[u8], depth: usize) -> Held<'a> {
    let mut found = Held::Nothing;
    let Some(depth) = depth.checked_sub(1) else {
        return found;
    };
    // As above: damage is told elsewhere.
    let _ = list.each_attribute(&mut |attribute| {
        if let Some(held) = held_at(&attribute, path, depth) {
            found = held;
        }
    });
    found
}

/// What `path` means in an attribute: all of it, or an entry of its map; `None` when it is another
/// attribute.
#[inline]
pub(super) fn held_at<'a>(
    attribute: &Attribute<'a>,
    path: &[u8],
    depth: usize,
) -> Option<Held<'a>> {
    if attribute.key == path {
        return Some(Held::of(attribute.value));
    }
    let AnyValue::Map(list) = attribute.value else {
        return None;
    };
    let inner = path.strip_prefix(attribute.key)?.strip_prefix(b".")?;
    match entry_at(list, inner, depth) {
        Held::Nothing => None,
        held => Some(held),
    }
}
