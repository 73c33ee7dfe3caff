//! Writing requests: spans put together by resource and scope, and spans of our own.

use super::message::{Source, Span};
use super::wire::{
    field_length, put_bytes, put_fixed32, put_fixed64, put_head, put_number, put_text, put_varint,
};

/// Resources, and scopes of one, that are searched for an equal one before another is begun.
const SEARCHED_MAX: usize = 16;

/// Puts an `ExportTraceServiceRequest` together, span by span, each beside the others of its
/// resource and scope.
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
    /// Fields 2 of the message, one behind another.
    spans: Vec<u8>,
}

impl RequestBuilder {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a span message with where it comes from.
    pub fn add(&mut self, resource: &Source<'_>, scope: &Source<'_>, span: &Span<'_>) {
        self.add_message(resource, scope, span.message());
        if let Some(begin) = span.ts() {
            let dur = span.dur().and_then(|dur| i64::try_from(dur).ok());
            self.cover(begin, begin.saturating_add(dur.unwrap_or(0)));
        }
    }

    /// Adds a span that was written with a [`SpanWriter`]; it lasts from `begin` to `end`.
    pub fn add_written(
        &mut self,
        (resource, scope): (&Source<'_>, &Source<'_>),
        span: SpanWriter,
        (begin, end): (i64, i64),
    ) {
        self.add_message(resource, scope, &span.out);
        self.cover(begin, end);
    }

    fn add_message(&mut self, resource: &Source<'_>, scope: &Source<'_>, message: &[u8]) {
        let spans = self.place(resource, scope);
        let before = spans.capacity();
        put_bytes(spans, 2, message);
        let grown = spans.capacity() - before;
        self.bytes += grown;
        self.spans += 1;
    }

    fn cover(&mut self, begin: i64, end: i64) {
        let (first, last) = self.span.unwrap_or((begin, end));
        self.span = Some((first.min(begin), last.max(end)));
    }

    /// The spans of a scope, begun when there are none nearby.
    fn place(&mut self, resource: &Source<'_>, scope: &Source<'_>) -> &mut Vec<u8> {
        let same_resource = |known: &ResourceSpans| {
            known.resource == resource.message[..] && known.schema_url == resource.schema_url
        };
        let at = match last_where(&self.resources, same_resource) {
            Some(at) => at,
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
        let scopes = &mut self.resources[at].scopes;
        let same_scope = |known: &ScopeSpans| {
            known.scope == scope.message[..] && known.schema_url == scope.schema_url
        };
        let at = match last_where(scopes, same_scope) {
            Some(at) => at,
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
        &mut scopes[at].spans
    }

    /// Spans so far.
    pub fn span_count(&self) -> u64 {
        self.spans
    }

    /// Memory held, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// First and last instant of the spans so far, ns since the epoch.
    pub fn time_span(&self) -> Option<(i64, i64)> {
        self.span
    }

    /// The request; empty of no spans.
    pub fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes);
        for resource in self.resources {
            let optional = |number, bytes: &[u8]| match bytes.is_empty() {
                true => 0,
                false => field_length(number, bytes.len()),
            };
            let length_of = |scope: &ScopeSpans| {
                optional(1, &scope.scope) + scope.spans.len() + optional(3, &scope.schema_url)
            };
            let length = optional(1, &resource.resource)
                + resource
                    .scopes
                    .iter()
                    .map(|scope| field_length(2, length_of(scope)))
                    .sum::<usize>()
                + optional(3, &resource.schema_url);
            put_head(&mut out, 1, length);
            put_text(&mut out, 1, &resource.resource);
            for scope in &resource.scopes {
                put_head(&mut out, 2, length_of(scope));
                put_text(&mut out, 1, &scope.scope);
                out.extend_from_slice(&scope.spans);
                put_text(&mut out, 3, &scope.schema_url);
            }
            put_text(&mut out, 3, &resource.schema_url);
        }
        out
    }
}

fn last_where<T>(items: &[T], is_it: impl Fn(&T) -> bool) -> Option<usize> {
    let first = items.len().saturating_sub(SEARCHED_MAX);
    (first..items.len()).rev().find(|at| is_it(&items[*at]))
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
        NewValue::Text(text) => put_bytes(out, 1, text),
        NewValue::Bool(value) => out.extend_from_slice(&[2 << 3, u8::from(value)]),
        NewValue::Int(value) => {
            out.push(3 << 3);
            put_varint(out, value as u64);
        }
        NewValue::Double(value) => {
            out.push(4 << 3 | 1);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        NewValue::Bytes(bytes) => put_bytes(out, 7, bytes),
    }
}

/// Writes a field `KeyValue` with `number`.
pub(super) fn put_attribute(out: &mut Vec<u8>, number: u32, key: &[u8], value: &[u8]) {
    put_head(
        out,
        number,
        field_length(1, key.len()) + field_length(2, value.len()),
    );
    put_bytes(out, 1, key);
    put_bytes(out, 2, value);
}

/// A message `KeyValue`.
pub fn attribute_message(key: &str, value: NewValue<'_>) -> Vec<u8> {
    let mut message = Vec::with_capacity(key.len() + 24);
    put_bytes(&mut message, 1, key.as_bytes());
    let mut inner = Vec::with_capacity(16);
    put_value(&mut inner, value);
    put_bytes(&mut message, 2, &inner);
    message
}

/// Adds an attribute to a message `Resource`, behind those that it has.
pub fn add_resource_attribute(resource: &mut Vec<u8>, key: &str, value: &str) {
    let mut message = Vec::with_capacity(value.len() + 8);
    put_value(&mut message, NewValue::Text(value.as_bytes()));
    put_attribute(resource, 1, key.as_bytes(), &message);
}

/// A message `InstrumentationScope` that has but a name.
pub fn scope_named(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 4);
    put_text(&mut out, 1, name.as_bytes());
    out
}

/// Writes a span message of our own, field by field.
#[derive(Debug, Default)]
pub struct SpanWriter {
    out: Vec<u8>,
    value: Vec<u8>,
}

impl SpanWriter {
    /// A span of this name, from `start` to `end`, ns since the epoch.
    pub fn new(name: &[u8], kind: u64, (start, end): (u64, u64)) -> Self {
        let mut out = Vec::with_capacity(256);
        put_text(&mut out, 5, name);
        put_number(&mut out, 6, kind);
        put_fixed64(&mut out, 7, start);
        put_fixed64(&mut out, 8, end);
        SpanWriter {
            out,
            value: Vec::new(),
        }
    }

    /// The ids of the span; an empty one is left out.
    pub fn ids(&mut self, trace: &[u8], span: &[u8], parent: &[u8]) {
        put_text(&mut self.out, 1, trace);
        put_text(&mut self.out, 2, span);
        put_text(&mut self.out, 4, parent);
    }

    /// The flags of the span.
    pub fn flags(&mut self, flags: u32) {
        put_fixed32(&mut self.out, 16, flags);
    }

    /// The status: its code and its message.
    pub fn status(&mut self, code: u64, message: &[u8]) {
        self.value.clear();
        put_text(&mut self.value, 2, message);
        put_number(&mut self.value, 3, code);
        put_bytes(&mut self.out, 15, &self.value);
    }

    /// An attribute.
    pub fn attribute(&mut self, key: &str, value: NewValue<'_>) {
        self.value.clear();
        put_value(&mut self.value, value);
        put_attribute(&mut self.out, 9, key.as_bytes(), &self.value);
    }

    /// An attribute as it was sent: the message `KeyValue`.
    pub fn attribute_message(&mut self, message: &[u8]) {
        put_bytes(&mut self.out, 9, message);
    }

    /// The span message.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}
