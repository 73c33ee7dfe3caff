//! The messages of a request as data: the numbers of their fields, their names in JSON, and what
//! they contain.

use super::field::{
    any_value, event, key_value, link, list, request, resource, scope, span, spans, status,
};
use super::limits::Counted;

/// The fields of a message in the order in which they are written.
pub(super) struct Message(pub(super) &'static [Field]);

/// A field: its number, its name in JSON, and the form of its value.
pub(super) struct Field(pub(super) u32, pub(super) &'static str, pub(super) Form);

/// What a field contains.
pub(super) enum Form {
    One(&'static Message),
    /// Messages, and the limit that their number counts against.
    List(&'static Message, Counted),
    Text,
    /// Bytes in hexadecimal digits.
    Id,
    Base64,
    Bool,
    /// Integers of up to 32 bits, and enums.
    Number,
    /// Integers of 64 bits are texts: not every reader of JSON keeps their last digits.
    Signed,
    Time,
    Double,
}

use Form::{Base64, Bool, Double, Id, List, Number, One, Signed, Text, Time};

pub(super) static REQUEST: Message = Message(&[Field(
    request::RESOURCE_SPANS,
    "resourceSpans",
    List(&RESOURCE_SPANS, Counted::Resources),
)]);
static RESOURCE_SPANS: Message = Message(&[
    Field(spans::EMITTER, "resource", One(&RESOURCE)),
    Field(
        spans::PARTS,
        "scopeSpans",
        List(&SCOPE_SPANS, Counted::Scopes),
    ),
    Field(spans::SCHEMA_URL, "schemaUrl", Text),
]);
static RESOURCE: Message = Message(&[
    Field(
        resource::ATTRIBUTES,
        "attributes",
        List(&KEY_VALUE, Counted::Attributes),
    ),
    Field(
        resource::DROPPED_ATTRIBUTES_COUNT,
        "droppedAttributesCount",
        Number,
    ),
]);
static SCOPE_SPANS: Message = Message(&[
    Field(spans::EMITTER, "scope", One(&SCOPE)),
    Field(spans::PARTS, "spans", List(&SPAN, Counted::Spans)),
    Field(spans::SCHEMA_URL, "schemaUrl", Text),
]);
static SCOPE: Message = Message(&[
    Field(scope::NAME, "name", Text),
    Field(scope::VERSION, "version", Text),
    Field(
        scope::ATTRIBUTES,
        "attributes",
        List(&KEY_VALUE, Counted::Attributes),
    ),
    Field(
        scope::DROPPED_ATTRIBUTES_COUNT,
        "droppedAttributesCount",
        Number,
    ),
]);
static SPAN: Message = Message(&[
    Field(span::TRACE_ID, "traceId", Id),
    Field(span::SPAN_ID, "spanId", Id),
    Field(span::TRACE_STATE, "traceState", Text),
    Field(span::PARENT_SPAN_ID, "parentSpanId", Id),
    Field(span::FLAGS, "flags", Number),
    Field(span::NAME, "name", Text),
    Field(span::KIND, "kind", Number),
    Field(span::START_TIME, "startTimeUnixNano", Time),
    Field(span::END_TIME, "endTimeUnixNano", Time),
    Field(
        span::ATTRIBUTES,
        "attributes",
        List(&KEY_VALUE, Counted::Attributes),
    ),
    Field(
        span::DROPPED_ATTRIBUTES_COUNT,
        "droppedAttributesCount",
        Number,
    ),
    Field(span::EVENTS, "events", List(&EVENT, Counted::Events)),
    Field(span::DROPPED_EVENTS_COUNT, "droppedEventsCount", Number),
    Field(span::LINKS, "links", List(&LINK, Counted::Events)),
    Field(span::DROPPED_LINKS_COUNT, "droppedLinksCount", Number),
    Field(span::STATUS, "status", One(&STATUS)),
]);
static EVENT: Message = Message(&[
    Field(event::TIME, "timeUnixNano", Time),
    Field(event::NAME, "name", Text),
    Field(
        event::ATTRIBUTES,
        "attributes",
        List(&KEY_VALUE, Counted::Attributes),
    ),
    Field(
        event::DROPPED_ATTRIBUTES_COUNT,
        "droppedAttributesCount",
        Number,
    ),
]);
static LINK: Message = Message(&[
    Field(link::TRACE_ID, "traceId", Id),
    Field(link::SPAN_ID, "spanId", Id),
    Field(link::TRACE_STATE, "traceState", Text),
    Field(
        link::ATTRIBUTES,
        "attributes",
        List(&KEY_VALUE, Counted::Attributes),
    ),
    Field(
        link::DROPPED_ATTRIBUTES_COUNT,
        "droppedAttributesCount",
        Number,
    ),
    Field(link::FLAGS, "flags", Number),
]);
static STATUS: Message = Message(&[
    Field(status::MESSAGE, "message", Text),
    Field(status::CODE, "code", Number),
]);
static KEY_VALUE: Message = Message(&[
    Field(key_value::KEY, "key", Text),
    Field(key_value::VALUE, "value", One(&ANY_VALUE)),
]);
static ANY_VALUE: Message = Message(&[
    Field(any_value::STRING, "stringValue", Text),
    Field(any_value::BOOL, "boolValue", Bool),
    Field(any_value::INT, "intValue", Signed),
    Field(any_value::DOUBLE, "doubleValue", Double),
    Field(any_value::ARRAY, "arrayValue", One(&ARRAY)),
    Field(any_value::KEY_VALUE_LIST, "kvlistValue", One(&MAP)),
    Field(any_value::BYTES, "bytesValue", Base64),
]);
pub(super) static ARRAY: Message = Message(&[Field(
    list::VALUES,
    "values",
    List(&ANY_VALUE, Counted::Attributes),
)]);
pub(super) static MAP: Message = Message(&[Field(
    list::VALUES,
    "values",
    List(&KEY_VALUE, Counted::Attributes),
)]);
