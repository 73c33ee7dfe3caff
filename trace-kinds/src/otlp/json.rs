//! The JSON form of a request, as the protobuf form that says the same.
//!
//! The JSON mapping is that of Protocol Buffers with what OTLP changes of it: ids are hexadecimal,
//! enums are numbers. Integers of 64 bits come as text or as numbers, what is `null` is not there,
//! and unknown names are passed over.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::encode::{NewValue, put_attribute, put_value};
use super::list::{Counted, within};
use super::wire::{FORMAT, put_bytes, put_fixed32, put_fixed64, put_number, put_text};
use crate::DecodeError;

/// Whether a packet is in JSON: a message of protobuf never begins so, because that would be a
/// group, which proto3 does not have.
pub fn is_json(packet: &[u8]) -> bool {
    packet.first() == Some(&b'{')
}

/// Memory of the elements of a request's lists, as a multiple of its length: no request needs more
/// that says something with each element.
pub const JSON_MEMORY_RATIO: usize = 16;
/// On top of it, so that short requests of odd forms are read.
const MEMORY_MIN: usize = 64 << 10;

/// The request in protobuf.
///
/// # Errors
/// When it is not JSON, a value is not of its type, or it takes more than [`JSON_MEMORY_RATIO`]
/// times its length in memory.
pub fn to_protobuf(json: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let read = to_protobuf_within(json, JSON_MEMORY_RATIO)?;
    read.ok_or_else(|| DecodeError::Damaged {
        format: FORMAT,
        offset: 0,
        reason: format!(
            "its lists take more than {JSON_MEMORY_RATIO} times its length in memory: most of \
             their elements are empty"
        ),
    })
}

/// The request in protobuf; `None` when its lists take more than `ratio` times its length in
/// memory.
///
/// # Errors
/// When it is not JSON, or a value is not of its type.
pub fn to_protobuf_within(json: &[u8], ratio: usize) -> Result<Option<Vec<u8>>, DecodeError> {
    let memory = json.len().saturating_mul(ratio).saturating_add(MEMORY_MIN);
    let Some(read) = within(memory, || serde_json::from_slice(json)) else {
        return Ok(None);
    };
    let request: Request = read.map_err(|error: serde_json::Error| DecodeError::Damaged {
        format: FORMAT,
        offset: offset_of(json, error.line(), error.column()),
        reason: error.to_string(),
    })?;
    let mut out = Vec::with_capacity(json.len() / 2);
    for resource in list(request.resource_spans) {
        put_message(&mut out, 1, |out| put_resource_spans(out, resource));
    }
    Ok(Some(out))
}

/// Offset of a place that is told by line and column, both from 1.
fn offset_of(json: &[u8], line: usize, column: usize) -> u64 {
    let lines = json.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (before + column.saturating_sub(1)) as u64
}

/// A list, or nothing where it is null or missing.
fn list<T>(items: Option<Counted<T>>) -> Vec<T> {
    items.map(|items| items.0).unwrap_or_default()
}

fn put_message(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    write(&mut message);
    put_bytes(out, number, &message);
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Request<'a> {
    resource_spans: Option<Counted<ResourceSpans<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ResourceSpans<'a> {
    resource: Option<Resource<'a>>,
    scope_spans: Option<Counted<ScopeSpans<'a>>>,
    schema_url: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Resource<'a> {
    attributes: Option<Counted<KeyValue<'a>>>,
    dropped_attributes_count: Option<Integer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ScopeSpans<'a> {
    scope: Option<Scope<'a>>,
    spans: Option<Counted<Span<'a>>>,
    schema_url: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Scope<'a> {
    name: Option<Text<'a>>,
    version: Option<Text<'a>>,
    attributes: Option<Counted<KeyValue<'a>>>,
    dropped_attributes_count: Option<Integer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Span<'a> {
    trace_id: Option<Hex>,
    span_id: Option<Hex>,
    trace_state: Option<Text<'a>>,
    parent_span_id: Option<Hex>,
    flags: Option<Integer>,
    name: Option<Text<'a>>,
    kind: Option<Integer>,
    start_time_unix_nano: Option<Integer>,
    end_time_unix_nano: Option<Integer>,
    attributes: Option<Counted<KeyValue<'a>>>,
    dropped_attributes_count: Option<Integer>,
    events: Option<Counted<SpanEvent<'a>>>,
    dropped_events_count: Option<Integer>,
    links: Option<Counted<Link<'a>>>,
    dropped_links_count: Option<Integer>,
    status: Option<Status<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct SpanEvent<'a> {
    time_unix_nano: Option<Integer>,
    name: Option<Text<'a>>,
    attributes: Option<Counted<KeyValue<'a>>>,
    dropped_attributes_count: Option<Integer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Link<'a> {
    trace_id: Option<Hex>,
    span_id: Option<Hex>,
    trace_state: Option<Text<'a>>,
    attributes: Option<Counted<KeyValue<'a>>>,
    dropped_attributes_count: Option<Integer>,
    flags: Option<Integer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Status<'a> {
    message: Option<Text<'a>>,
    code: Option<Integer>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct KeyValue<'a> {
    key: Option<Text<'a>>,
    value: Option<AnyValue<'a>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Values<'a> {
    values: Option<Counted<AnyValue<'a>>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct KeyValues<'a> {
    values: Option<Counted<KeyValue<'a>>>,
}

/// Text, borrowed where nothing in it is escaped.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// An integer of at most 64 bits, as text or number, kept as its bits.
struct Integer(u64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Bits;
        impl Visitor<'_> for Bits {
            type Value = u64;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an integer of 64 bits, as a number or in quotes")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
                Ok(value)
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
                Ok(value as u64)
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<u64, E> {
                // 1e3 and 5.0 are spellings of integers too.
                match value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 {
                    true => Ok(value as i64 as u64),
                    false => Err(E::custom("a fraction where an integer is wanted")),
                }
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
                let signed = || text.parse::<i64>().map(|value| value as u64);
                text.parse::<u64>()
                    .or_else(|_| signed())
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        input.deserialize_any(Bits).map(Integer)
    }
}

/// Bytes of an id.
struct Hex(Vec<u8>);

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(input)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.0.as_bytes().chunks(2).map(pair).collect();
        bytes
            .map(Hex)
            .ok_or_else(|| D::Error::custom("an id is written in pairs of hexadecimal digits"))
    }
}

/// A float, which may be spelled as text when it is no number.
struct Double(f64);

impl<'de> Deserialize<'de> for Double {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Float;
        impl Visitor<'_> for Float {
            type Value = f64;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
                Ok(value as f64)
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
                Ok(value as f64)
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
                Ok(value)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
                text.parse()
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        input.deserialize_any(Float).map(Double)
    }
}

enum AnyValue<'a> {
    Empty,
    Text(Text<'a>),
    Bool(bool),
    Int(Integer),
    Double(Double),
    Array(Vec<AnyValue<'a>>),
    Map(Vec<KeyValue<'a>>),
    Bytes(Vec<u8>),
}

impl<'de: 'a, 'a> Deserialize<'de> for AnyValue<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct OneOf;
        impl<'de> Visitor<'de> for OneOf {
            type Value = AnyValue<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object with one of the fields of AnyValue")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyValue<'de>, A::Error> {
                let mut found = AnyValue::Empty;
                while let Some(Text(key)) = map.next_key()? {
                    let value = match &*key {
                        "stringValue" => map.next_value::<Option<_>>()?.map(AnyValue::Text),
                        "boolValue" => map.next_value::<Option<_>>()?.map(AnyValue::Bool),
                        "intValue" => map.next_value::<Option<_>>()?.map(AnyValue::Int),
                        "doubleValue" => map.next_value::<Option<_>>()?.map(AnyValue::Double),
                        "arrayValue" => map
                            .next_value::<Option<Values<'de>>>()?
                            .map(|array| AnyValue::Array(list(array.values))),
                        "kvlistValue" => map
                            .next_value::<Option<KeyValues<'de>>>()?
                            .map(|map| AnyValue::Map(list(map.values))),
                        "bytesValue" => match map.next_value::<Option<Text<'de>>>()? {
                            Some(text) => Some(AnyValue::Bytes(
                                base64(text.0.as_bytes())
                                    .ok_or_else(|| A::Error::custom("bytesValue is not base64"))?,
                            )),
                            None => None,
                        },
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            None
                        }
                    };
                    found = value.unwrap_or(found);
                }
                Ok(found)
            }
        }
        input.deserialize_map(OneOf)
    }
}

/// Undoes base64, of either alphabet, with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text
        .iter()
        .rposition(|byte| *byte != b'=')
        .map_or(0, |last| last + 1);
    let mut out = Vec::with_capacity(end * 3 / 4);
    for group in text[..end].chunks(4) {
        let mut bits = 0_u32;
        for &byte in group {
            let sextet = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(sextet);
        }
        bits <<= 6 * (4 - group.len());
        match group.len() {
            4 => out.extend_from_slice(&bits.to_be_bytes()[1..]),
            3 => out.extend_from_slice(&bits.to_be_bytes()[1..3]),
            2 => out.push(bits.to_be_bytes()[1]),
            _ => return None,
        }
    }
    Some(out)
}

fn bits(value: Option<Integer>) -> u64 {
    value.map_or(0, |value| value.0)
}

fn put_optional(out: &mut Vec<u8>, number: u32, text: Option<Text<'_>>) {
    if let Some(text) = text {
        put_text(out, number, text.0.as_bytes());
    }
}

fn put_id(out: &mut Vec<u8>, number: u32, id: Option<Hex>) {
    if let Some(id) = id {
        put_text(out, number, &id.0);
    }
}

fn put_any(out: &mut Vec<u8>, value: AnyValue<'_>) {
    match value {
        AnyValue::Empty => {}
        AnyValue::Text(text) => put_value(out, NewValue::Text(text.0.as_bytes())),
        AnyValue::Bool(value) => put_value(out, NewValue::Bool(value)),
        AnyValue::Int(value) => put_value(out, NewValue::Int(value.0 as i64)),
        AnyValue::Double(value) => put_value(out, NewValue::Double(value.0)),
        AnyValue::Bytes(bytes) => put_value(out, NewValue::Bytes(&bytes)),
        AnyValue::Array(values) => put_message(out, 5, |out| {
            for value in values {
                put_message(out, 1, |out| put_any(out, value));
            }
        }),
        AnyValue::Map(values) => {
            put_message(out, 6, |out| put_attributes(out, 1, Some(Counted(values))));
        }
    }
}

fn put_attributes(out: &mut Vec<u8>, number: u32, attributes: Option<Counted<KeyValue<'_>>>) {
    let mut message = Vec::new();
    for attribute in list(attributes) {
        message.clear();
        put_any(&mut message, attribute.value.unwrap_or(AnyValue::Empty));
        let key = attribute.key.map_or(Cow::Borrowed(""), |key| key.0);
        put_attribute(out, number, key.as_bytes(), &message);
    }
}

fn put_resource_spans(out: &mut Vec<u8>, spans: ResourceSpans<'_>) {
    if let Some(resource) = spans.resource {
        put_message(out, 1, |out| {
            put_attributes(out, 1, resource.attributes);
            put_number(out, 2, bits(resource.dropped_attributes_count));
        });
    }
    for scope_spans in list(spans.scope_spans) {
        put_message(out, 2, |out| {
            if let Some(scope) = scope_spans.scope {
                put_message(out, 1, |out| {
                    put_optional(out, 1, scope.name);
                    put_optional(out, 2, scope.version);
                    put_attributes(out, 3, scope.attributes);
                    put_number(out, 4, bits(scope.dropped_attributes_count));
                });
            }
            for span in list(scope_spans.spans) {
                put_message(out, 2, |out| put_span(out, span));
            }
            put_optional(out, 3, scope_spans.schema_url);
        });
    }
    put_optional(out, 3, spans.schema_url);
}

fn put_span(out: &mut Vec<u8>, span: Span<'_>) {
    put_id(out, 1, span.trace_id);
    put_id(out, 2, span.span_id);
    put_optional(out, 3, span.trace_state);
    put_id(out, 4, span.parent_span_id);
    put_optional(out, 5, span.name);
    put_number(out, 6, bits(span.kind));
    put_fixed64(out, 7, bits(span.start_time_unix_nano));
    put_fixed64(out, 8, bits(span.end_time_unix_nano));
    put_attributes(out, 9, span.attributes);
    put_number(out, 10, bits(span.dropped_attributes_count));
    for event in list(span.events) {
        put_message(out, 11, |out| {
            put_fixed64(out, 1, bits(event.time_unix_nano));
            put_optional(out, 2, event.name);
            put_attributes(out, 3, event.attributes);
            put_number(out, 4, bits(event.dropped_attributes_count));
        });
    }
    put_number(out, 12, bits(span.dropped_events_count));
    for link in list(span.links) {
        put_message(out, 13, |out| {
            put_id(out, 1, link.trace_id);
            put_id(out, 2, link.span_id);
            put_optional(out, 3, link.trace_state);
            put_attributes(out, 4, link.attributes);
            put_number(out, 5, bits(link.dropped_attributes_count));
            put_fixed32(out, 6, bits(link.flags) as u32);
        });
    }
    put_number(out, 14, bits(span.dropped_links_count));
    if let Some(status) = span.status {
        put_message(out, 15, |out| {
            put_optional(out, 2, status.message);
            put_number(out, 3, bits(status.code));
        });
    }
    put_fixed32(out, 16, bits(span.flags) as u32);
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_undone() {
        let check = |text: &str, wanted: Option<&[u8]>| {
            assert_eq!(base64(text.as_bytes()).as_deref(), wanted, "{text}");
        };
        check("", Some(b""));
        check("TQ==", Some(b"M"));
        check("TWE", Some(b"Ma"));
        check("TWFu", Some(b"Man"));
        check("-_+/", Some(&[0xfb, 0xff, 0xbf]));
        check("T", None);
        check("T*==", None);
    }
}
