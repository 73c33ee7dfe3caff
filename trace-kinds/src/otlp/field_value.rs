//! Values of the fields of a span, valid for one call of the event's consumer.

use std::fmt::Write;

use query_language::Value;

use super::attribute::{AnyValue, Attribute, List, VALUE_DEPTH_MAX};

/// Bytes of the longest id whose digits are stored inline.
const ID_BYTES_MAX: usize = 16;

/// A value, borrowed from the packet where the packet contains it in the requested form.
#[derive(Debug, Clone, Default)]
pub(super) enum FieldValue<'a> {
    /// The event does not have the field.
    #[default]
    Missing,
    Text(&'a [u8]),
    Owned(String),
    /// A list or an empty map as JSON text.
    Json(String),
    /// Hexadecimal digits of an id.
    Id([u8; 2 * ID_BYTES_MAX], usize),
    Int(i64),
    Uint(u64),
    Float(f64),
    Bool(bool),
}

impl<'a> FieldValue<'a> {
    pub(super) fn value(&self) -> Option<Value<'_>> {
        Some(match self {
            FieldValue::Missing => return None,
            FieldValue::Text(text) => Value::Str(text),
            FieldValue::Owned(text) | FieldValue::Json(text) => Value::Str(text.as_bytes()),
            FieldValue::Id(digits, length) => Value::Str(&digits[..*length]),
            FieldValue::Int(value) => Value::Int(*value),
            FieldValue::Uint(value) => Value::Uint(*value),
            FieldValue::Float(value) => Value::Float(*value),
            FieldValue::Bool(value) => Value::Bool(*value),
        })
    }

    /// An id as hexadecimal digits; an empty one is missing.
    pub(super) fn id(id: &'a [u8]) -> FieldValue<'a> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        if id.is_empty() {
            return FieldValue::Missing;
        }
        if id.len() > ID_BYTES_MAX {
            return FieldValue::Owned(hex(id));
        }
        let mut digits = [0; 2 * ID_BYTES_MAX];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(id) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        FieldValue::Id(digits, 2 * id.len())
    }

    /// A text; an empty one is missing, because proto3 does not distinguish them.
    pub(super) fn text(text: &'a [u8]) -> FieldValue<'a> {
        if text.is_empty() {
            FieldValue::Missing
        } else {
            FieldValue::Text(text)
        }
    }

    /// The value of an attribute that is asked for: also a map with entries, as text.
    fn whole(value: AnyValue<'a>) -> FieldValue<'a> {
        match value {
            AnyValue::Map(list) if !list.is_empty() => FieldValue::Json(json_text(value)),
            value => FieldValue::of(value),
        }
    }

    /// The value of an attribute. A map with entries has none: these are separate fields.
    pub(super) fn of(value: AnyValue<'a>) -> FieldValue<'a> {
        match value {
            AnyValue::Map(list) if list.is_empty() => FieldValue::Json("{}".to_owned()),
            AnyValue::Empty | AnyValue::Map(_) => FieldValue::Missing,
            AnyValue::Text(text) => FieldValue::Text(text),
            AnyValue::Bool(value) => FieldValue::Bool(value),
            AnyValue::Int(value) => FieldValue::Int(value),
            AnyValue::Double(value) => FieldValue::Float(value),
            AnyValue::Array(_) => FieldValue::Json(json_text(value)),
            AnyValue::Bytes(bytes) => FieldValue::Owned(hex(bytes)),
        }
    }
}

impl FieldValue<'_> {
    /// The value without borrowing from the packet.
    pub(super) fn into_owned<'b>(self) -> FieldValue<'b> {
        match self {
            FieldValue::Text(text) => FieldValue::lossy(text),
            FieldValue::Missing => FieldValue::Missing,
            FieldValue::Owned(text) => FieldValue::Owned(text),
            FieldValue::Json(text) => FieldValue::Json(text),
            FieldValue::Id(digits, length) => FieldValue::Id(digits, length),
            FieldValue::Int(value) => FieldValue::Int(value),
            FieldValue::Uint(value) => FieldValue::Uint(value),
            FieldValue::Float(value) => FieldValue::Float(value),
            FieldValue::Bool(value) => FieldValue::Bool(value),
        }
    }

    /// Text with bytes that are not UTF-8 replaced.
    pub(super) fn lossy<'b>(text: &[u8]) -> FieldValue<'b> {
        FieldValue::Owned(String::from_utf8_lossy(text).into_owned())
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

/// A list or a map as JSON text.
fn json_text(value: AnyValue<'_>) -> String {
    json_of(value, VALUE_DEPTH_MAX).to_string()
}

/// A value as JSON; damaged or too deeply nested ones become null.
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
        AnyValue::Double(value) if value.is_finite() => value.into(),
        // As in the JSON form of OTLP.
        AnyValue::Double(value) if value.is_nan() => "NaN".into(),
        AnyValue::Double(value) if value > 0.0 => "Infinity".into(),
        AnyValue::Double(_) => "-Infinity".into(),
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

/// Calls `visit` for an attribute with its key appended to `path`, for a map once per entry.
pub(super) fn each_flat(
    path: &mut String,
    attribute: &Attribute<'_>,
    depth: usize,
    visit: &mut dyn FnMut(&str, FieldValue<'_>),
) {
    let before = path.len();
    path.push_str(&String::from_utf8_lossy(attribute.key));
    match (attribute.value, depth.checked_sub(1)) {
        (AnyValue::Map(list), Some(depth)) if !list.is_empty() => {
            path.push('.');
            // The check on arrival or the decoder reports damage.
            let _ = list.each_attribute(&mut |inner| each_flat(path, &inner, depth, visit));
        }
        (value, _) => visit(path, FieldValue::of(value)),
    }
    path.truncate(before);
}

/// The entry of a map at `path`.
fn entry_at<'a>(list: List<'a>, path: &[u8], depth: usize) -> FieldValue<'a> {
    let mut found = FieldValue::Missing;
    let Some(depth) = depth.checked_sub(1) else {
        return found;
    };
    // As above: damage is reported elsewhere.
    let _ = list.each_attribute(&mut |attribute| {
        if let Some(value) = value_at(&attribute, path, depth) {
            found = value;
        }
    });
    found
}

/// The value at `path`: that of the attribute, or of an entry of its map; `None` if the path is
/// that of another attribute.
#[inline]
pub(super) fn value_at<'a>(
    attribute: &Attribute<'a>,
    path: &[u8],
    depth: usize,
) -> Option<FieldValue<'a>> {
    if attribute.key == path {
        return Some(FieldValue::whole(attribute.value));
    }
    let AnyValue::Map(list) = attribute.value else {
        return None;
    };
    let inner = path.strip_prefix(attribute.key)?.strip_prefix(b".")?;
    match entry_at(list, inner, depth) {
        FieldValue::Missing => None,
        value => Some(value),
    }
}
