//! Requests in JSON, converted to protobuf.
//!
//! The mapping is the JSON mapping of Protocol Buffers with the changes of OTLP: ids are
//! hexadecimal, enums are numbers. Integers of 64 bits are text or numbers, `null` means missing,
//! and unknown names are ignored.

mod base64;
mod bounded_list;
mod line;
mod message;
mod value;

use std::borrow::Cow;

pub use self::line::to_json_line;

use self::bounded_list::{BoundedList, Exceeded, items, with_limits};
use self::message::{Request, ResourceSpans, Span};
use self::value::{AnyValue, Hex, Integer, KeyValue, Text};
use super::field::{any_value, event, link, list, request, resource, scope, span, spans, status};
use super::limits::{Counted, RequestError, RequestLimits};
use super::wire::FORMAT;
use super::writer::{NewValue, put_attribute, put_value};
use crate::DecodeError;
use crate::protobuf::{put_bytes, put_fixed32_nonzero, put_fixed64_nonzero, put_nonzero, put_text};

/// Whether a packet is JSON. A protobuf message never starts with a brace: that is the key of a
/// group, which proto3 does not have.
pub fn is_json(packet: &[u8]) -> bool {
    packet.first() == Some(&b'{')
}

/// Limit on the memory of a request's list elements, as a multiple of its length. Only requests in
/// which most elements are empty exceed it.
pub const JSON_MEMORY_RATIO: usize = 16;
/// Added to the limit, so that short requests of unusual form are read.
const MEMORY_MIN: usize = 64 << 10;

/// The request in protobuf.
///
/// # Errors
///
/// When it is not JSON, a value has the wrong type, its values are too deep, or the lists take more
/// than [`JSON_MEMORY_RATIO`] times its length in memory.
pub fn to_protobuf(json: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let memory = json.len().saturating_mul(JSON_MEMORY_RATIO);
    let damaged = |reason: String| DecodeError::Damaged {
        format: FORMAT,
        offset: 0,
        reason,
    };
    match to_protobuf_within(json, memory, &RequestLimits::READABLE) {
        Ok(Some(request)) => Ok(request),
        Ok(None) => Err(damaged(format!(
            "its lists take more than {JSON_MEMORY_RATIO} times its length in memory: most of \
             their elements are empty"
        ))),
        Err(RequestError::Malformed { error, .. }) => Err(error),
        Err(exceeded) => Err(damaged(exceeded.to_string())),
    }
}

/// The request in protobuf; `None` if its lists take more than `memory` bytes.
///
/// # Errors
///
/// When it is not JSON, a value has the wrong type, or its values are deeper than `limits` allow.
pub fn to_protobuf_within(
    json: &[u8],
    memory: usize,
    limits: &RequestLimits,
) -> Result<Option<Vec<u8>>, RequestError> {
    let memory = memory.saturating_add(MEMORY_MIN);
    let read = with_limits(memory, limits.value_depth, || serde_json::from_slice(json));
    let read: Request = match read {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => return Err(malformed(json, &error, memory, limits)),
        Err(Exceeded::Memory) => return Ok(None),
        Err(Exceeded::Depth) => {
            return Err(RequestError::Exceeded {
                counted: Counted::Depth,
                max: limits.value_depth,
            });
        }
    };
    let mut out = Vec::with_capacity(json.len() / 2);
    for of_resource in items(read.resource_spans) {
        put_message(&mut out, request::RESOURCE_SPANS, |out| {
            put_resource_spans(out, of_resource);
        });
    }
    Ok(Some(out))
}

/// Why a request cannot be read, and the field at which that is. Paths cost time on the way to
/// every value, so they are only followed when something is known to be wrong.
fn malformed(
    json: &[u8],
    error: &serde_json::Error,
    memory: usize,
    limits: &RequestLimits,
) -> RequestError {
    let read = with_limits(memory, limits.value_depth, || {
        let mut input = serde_json::Deserializer::from_slice(json);
        serde_path_to_error::deserialize::<_, Request>(&mut input).map(drop)
    });
    let field = match read {
        Ok(Err(refused)) => {
            let path = refused.path().to_string();
            // The path does not know which of the alternatives of a value it was.
            let path = path.strip_suffix(".?").unwrap_or(&path);
            Some(path.to_owned()).filter(|path| path != ".")
        }
        _ => None,
    };
    RequestError::Malformed {
        field,
        error: DecodeError::Damaged {
            format: FORMAT,
            offset: offset_of(json, error.line(), error.column()),
            reason: error.to_string(),
        },
    }
}

/// Offset of a line and column, both counted from 1.
fn offset_of(json: &[u8], line: usize, column: usize) -> u64 {
    let lines = json.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (before + column.saturating_sub(1)) as u64
}

fn put_message(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    write(&mut message);
    put_bytes(out, number, &message);
}

/// The value, or the default of proto3.
fn number<T: Default>(value: Option<Integer<T>>) -> T {
    value.map(|value| value.0).unwrap_or_default()
}

/// The bits of an enum on the wire.
fn enum_bits(value: Option<Integer<i32>>) -> u64 {
    i64::from(number(value)).cast_unsigned()
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
        AnyValue::Int(value) => put_value(out, NewValue::Int(value.0)),
        AnyValue::Double(value) => put_value(out, NewValue::Double(value.0)),
        AnyValue::Bytes(bytes) => put_value(out, NewValue::Bytes(&bytes)),
        AnyValue::Array(values) => put_message(out, any_value::ARRAY, |out| {
            for value in values {
                put_message(out, list::VALUES, |out| put_any(out, value));
            }
        }),
        AnyValue::Map(values) => put_message(out, any_value::KEY_VALUE_LIST, |out| {
            put_attributes(out, list::VALUES, Some(BoundedList(values)));
        }),
    }
}

fn put_attributes(out: &mut Vec<u8>, number: u32, attributes: Option<BoundedList<KeyValue<'_>>>) {
    let mut message = Vec::new();
    for attribute in items(attributes) {
        message.clear();
        put_any(&mut message, attribute.value.unwrap_or(AnyValue::Empty));
        let key = attribute.key.map_or(Cow::Borrowed(""), |key| key.0);
        put_attribute(out, number, key.as_bytes(), &message);
    }
}

fn put_resource_spans(out: &mut Vec<u8>, of_resource: ResourceSpans<'_>) {
    if let Some(from) = of_resource.resource {
        put_message(out, spans::EMITTER, |out| {
            put_attributes(out, resource::ATTRIBUTES, from.attributes);
            let dropped = number(from.dropped_attributes_count).into();
            put_nonzero(out, resource::DROPPED_ATTRIBUTES_COUNT, dropped);
        });
    }
    for of_scope in items(of_resource.scope_spans) {
        put_message(out, spans::PARTS, |out| {
            if let Some(from) = of_scope.scope {
                put_message(out, spans::EMITTER, |out| {
                    put_optional(out, scope::NAME, from.name);
                    put_optional(out, scope::VERSION, from.version);
                    put_attributes(out, scope::ATTRIBUTES, from.attributes);
                    let dropped = number(from.dropped_attributes_count).into();
                    put_nonzero(out, scope::DROPPED_ATTRIBUTES_COUNT, dropped);
                });
            }
            for from in items(of_scope.spans) {
                put_message(out, spans::PARTS, |out| put_span(out, from));
            }
            put_optional(out, spans::SCHEMA_URL, of_scope.schema_url);
        });
    }
    put_optional(out, spans::SCHEMA_URL, of_resource.schema_url);
}

fn put_span(out: &mut Vec<u8>, from: Span<'_>) {
    put_id(out, span::TRACE_ID, from.trace_id);
    put_id(out, span::SPAN_ID, from.span_id);
    put_optional(out, span::TRACE_STATE, from.trace_state);
    put_id(out, span::PARENT_SPAN_ID, from.parent_span_id);
    put_optional(out, span::NAME, from.name);
    put_nonzero(out, span::KIND, enum_bits(from.kind));
    put_fixed64_nonzero(out, span::START_TIME, number(from.start_time_unix_nano));
    put_fixed64_nonzero(out, span::END_TIME, number(from.end_time_unix_nano));
    put_attributes(out, span::ATTRIBUTES, from.attributes);
    let dropped = number(from.dropped_attributes_count).into();
    put_nonzero(out, span::DROPPED_ATTRIBUTES_COUNT, dropped);
    for from in items(from.events) {
        put_message(out, span::EVENTS, |out| {
            put_fixed64_nonzero(out, event::TIME, number(from.time_unix_nano));
            put_optional(out, event::NAME, from.name);
            put_attributes(out, event::ATTRIBUTES, from.attributes);
            let dropped = number(from.dropped_attributes_count).into();
            put_nonzero(out, event::DROPPED_ATTRIBUTES_COUNT, dropped);
        });
    }
    put_nonzero(
        out,
        span::DROPPED_EVENTS_COUNT,
        number(from.dropped_events_count).into(),
    );
    for from in items(from.links) {
        put_message(out, span::LINKS, |out| {
            put_id(out, link::TRACE_ID, from.trace_id);
            put_id(out, link::SPAN_ID, from.span_id);
            put_optional(out, link::TRACE_STATE, from.trace_state);
            put_attributes(out, link::ATTRIBUTES, from.attributes);
            let dropped = number(from.dropped_attributes_count).into();
            put_nonzero(out, link::DROPPED_ATTRIBUTES_COUNT, dropped);
            put_fixed32_nonzero(out, link::FLAGS, number(from.flags));
        });
    }
    put_nonzero(
        out,
        span::DROPPED_LINKS_COUNT,
        number(from.dropped_links_count).into(),
    );
    if let Some(from) = from.status {
        put_message(out, span::STATUS, |out| {
            put_optional(out, status::MESSAGE, from.message);
            put_nonzero(out, status::CODE, enum_bits(from.code));
        });
    }
    put_fixed32_nonzero(out, span::FLAGS, number(from.flags));
}
