//! Writers of requests, spans and attributes.

use super::emitter::Emitter;
use super::field::{any_value, key_value, request, resource, scope, span, spans, status};
use super::span::Span;
use crate::protobuf::{
    field_length, put_bytes, put_double, put_fixed32_nonzero, put_fixed64_nonzero, put_head,
    put_nonzero, put_number, put_text,
};

/// How many of the last resources, and of the last scopes of a resource, are compared with the next
/// span's before a new one is started.
const SEARCHED_MAX: usize = 16;

/// Builds an `ExportTraceServiceRequest` span by span, grouped by resource and scope.
#[derive(Debug, Default)]
pub struct RequestBuilder {
    resources: Vec<ResourceSpans>,
    spans: u64,
    bytes: usize,
    span: Option<(i64, i64)>,
}

#[derive(Debug)]
struct ResourceSpans {
    resource: Vec<u8>,
    schema_url: Vec<u8>,
    scopes: Vec<ScopeSpans>,
}

#[derive(Debug)]
struct ScopeSpans {
    scope: Vec<u8>,
    schema_url: Vec<u8>,
    /// The fields with the spans, concatenated.
    spans: Vec<u8>,
}

impl RequestBuilder {
    /// An empty request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a span with its emitters.
    pub fn add(&mut self, resource: &Emitter<'_>, scope: &Emitter<'_>, span: &Span<'_>) {
        self.add_message(resource, scope, span.message());
        if let Some(begin) = span.ts() {
            let dur = span.dur().and_then(|dur| i64::try_from(dur).ok());
            self.cover(begin, begin.saturating_add(dur.unwrap_or(0)));
        }
    }

    /// Adds a span written with a [`SpanWriter`], which lasts from `begin` to `end`.
    pub fn add_written(
        &mut self,
        (resource, scope): (&Emitter<'_>, &Emitter<'_>),
        span: SpanWriter,
        (begin, end): (i64, i64),
    ) {
        self.add_message(resource, scope, &span.out);
        self.cover(begin, end);
    }

    fn add_message(&mut self, resource: &Emitter<'_>, scope: &Emitter<'_>, message: &[u8]) {
        let spans = self.spans_of(resource, scope);
        let before = spans.capacity();
        put_bytes(spans, spans::PARTS, message);
        let grown = spans.capacity() - before;
        self.bytes += grown;
        self.spans += 1;
    }

    fn cover(&mut self, begin: i64, end: i64) {
        let (first, last) = self.span.unwrap_or((begin, end));
        self.span = Some((first.min(begin), last.max(end)));
    }

    /// The spans of a scope, which is added unless one of the last is equal.
    fn spans_of(&mut self, resource: &Emitter<'_>, scope: &Emitter<'_>) -> &mut Vec<u8> {
        let same_resource = |known: &ResourceSpans| {
            known.resource == resource.message[..] && known.schema_url == resource.schema_url
        };
        let index = match last_where(&self.resources, same_resource) {
            Some(index) => index,
            None => {
                self.bytes += resource.message.len() + resource.schema_url.len() + 64;
                self.resources.push(ResourceSpans {
                    resource: resource.message.to_vec(),
                    schema_url: resource.schema_url.to_vec(),
                    scopes: Vec::new(),
                });
                self.resources.len() - 1
            }
        };
        let scopes = &mut self.resources[index].scopes;
        let same_scope = |known: &ScopeSpans| {
            known.scope == scope.message[..] && known.schema_url == scope.schema_url
        };
        let index = match last_where(scopes, same_scope) {
            Some(index) => index,
            None => {
                self.bytes += scope.message.len() + scope.schema_url.len() + 96;
                scopes.push(ScopeSpans {
                    scope: scope.message.to_vec(),
                    schema_url: scope.schema_url.to_vec(),
                    spans: Vec::new(),
                });
                scopes.len() - 1
            }
        };
        &mut scopes[index].spans
    }

    /// Spans so far.
    pub fn span_count(&self) -> u64 {
        self.spans
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Start of the first and end of the last of the spans so far, ns since the epoch.
    pub fn time_span(&self) -> Option<(i64, i64)> {
        self.span
    }

    /// The request; without spans it is empty.
    pub fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes);
        for resource in self.resources {
            let optional = |number, bytes: &[u8]| {
                if bytes.is_empty() {
                    0
                } else {
                    field_length(number, bytes.len())
                }
            };
            let length_of = |scope: &ScopeSpans| {
                optional(spans::EMITTER, &scope.scope)
                    + scope.spans.len()
                    + optional(spans::SCHEMA_URL, &scope.schema_url)
            };
            let scopes = resource.scopes.iter();
            let length = optional(spans::EMITTER, &resource.resource)
                + scopes
                    .map(|scope| field_length(spans::PARTS, length_of(scope)))
                    .sum::<usize>()
                + optional(spans::SCHEMA_URL, &resource.schema_url);
            put_head(&mut out, request::RESOURCE_SPANS, length);
            put_text(&mut out, spans::EMITTER, &resource.resource);
            for scope in &resource.scopes {
                put_head(&mut out, spans::PARTS, length_of(scope));
                put_text(&mut out, spans::EMITTER, &scope.scope);
                out.extend_from_slice(&scope.spans);
                put_text(&mut out, spans::SCHEMA_URL, &scope.schema_url);
            }
            put_text(&mut out, spans::SCHEMA_URL, &resource.schema_url);
        }
        out
    }
}

fn last_where<T>(items: &[T], matches: impl Fn(&T) -> bool) -> Option<usize> {
    let first = items.len().saturating_sub(SEARCHED_MAX);
    (first..items.len()).rev().find(|at| matches(&items[*at]))
}

/// A value to be written.
#[derive(Debug, Clone, Copy)]
pub enum NewValue<'a> {
    /// Text.
    Text(&'a [u8]),
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// Writes a message `AnyValue`.
pub(super) fn put_value(out: &mut Vec<u8>, value: NewValue<'_>) {
    match value {
        NewValue::Text(text) => put_bytes(out, any_value::STRING, text),
        NewValue::Bool(value) => put_number(out, any_value::BOOL, u64::from(value)),
        NewValue::Int(value) => put_number(out, any_value::INT, value.cast_unsigned()),
        NewValue::Double(value) => put_double(out, any_value::DOUBLE, value),
        NewValue::Bytes(bytes) => put_bytes(out, any_value::BYTES, bytes),
    }
}

/// Writes a field `KeyValue` with `number`.
pub(super) fn put_attribute(out: &mut Vec<u8>, number: u32, key: &[u8], value: &[u8]) {
    put_head(
        out,
        number,
        field_length(key_value::KEY, key.len()) + field_length(key_value::VALUE, value.len()),
    );
    put_bytes(out, key_value::KEY, key);
    put_bytes(out, key_value::VALUE, value);
}

/// A message `KeyValue`.
pub fn attribute_message(key: &str, value: NewValue<'_>) -> Vec<u8> {
    let mut message = Vec::with_capacity(key.len() + 24);
    put_bytes(&mut message, key_value::KEY, key.as_bytes());
    let mut inner = Vec::with_capacity(16);
    put_value(&mut inner, value);
    put_bytes(&mut message, key_value::VALUE, &inner);
    message
}

/// Appends an attribute to a message `Resource`.
pub fn add_resource_attribute(resource: &mut Vec<u8>, key: &str, value: &str) {
    let mut message = Vec::with_capacity(value.len() + 8);
    put_value(&mut message, NewValue::Text(value.as_bytes()));
    put_attribute(resource, resource::ATTRIBUTES, key.as_bytes(), &message);
}

/// A message `InstrumentationScope` with a name and nothing else.
pub fn scope_named(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 4);
    put_text(&mut out, scope::NAME, name.as_bytes());
    out
}

/// Writes a span message field by field.
#[derive(Debug, Default)]
pub struct SpanWriter {
    out: Vec<u8>,
    value: Vec<u8>,
}

impl SpanWriter {
    /// A span of this name, from `start` to `end`, ns since the epoch.
    pub fn new(name: &[u8], kind: u64, (start, end): (u64, u64)) -> Self {
        let mut out = Vec::with_capacity(256);
        put_text(&mut out, span::NAME, name);
        put_nonzero(&mut out, span::KIND, kind);
        put_fixed64_nonzero(&mut out, span::START_TIME, start);
        put_fixed64_nonzero(&mut out, span::END_TIME, end);
        SpanWriter {
            out,
            value: Vec::new(),
        }
    }

    /// The ids of the span; an empty one is omitted.
    pub fn ids(&mut self, trace: &[u8], id: &[u8], parent: &[u8]) {
        put_text(&mut self.out, span::TRACE_ID, trace);
        put_text(&mut self.out, span::SPAN_ID, id);
        put_text(&mut self.out, span::PARENT_SPAN_ID, parent);
    }

    /// The flags of the span.
    pub fn flags(&mut self, flags: u32) {
        put_fixed32_nonzero(&mut self.out, span::FLAGS, flags);
    }

    /// The status: its code and its message.
    pub fn status(&mut self, code: u64, message: &[u8]) {
        self.value.clear();
        put_text(&mut self.value, status::MESSAGE, message);
        put_nonzero(&mut self.value, status::CODE, code);
        put_bytes(&mut self.out, span::STATUS, &self.value);
    }

    /// An attribute.
    pub fn attribute(&mut self, key: &str, value: NewValue<'_>) {
        self.value.clear();
        put_value(&mut self.value, value);
        let key = key.as_bytes();
        put_attribute(&mut self.out, span::ATTRIBUTES, key, &self.value);
    }

    /// An attribute as it was sent: the message `KeyValue`.
    pub fn attribute_message(&mut self, message: &[u8]) {
        put_bytes(&mut self.out, span::ATTRIBUTES, message);
    }

    /// The span message.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}
