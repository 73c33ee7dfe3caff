//! The decoder: the spans of a packet as events with the requested fields.

use std::ops::ControlFlow;

use query_language::{FieldId, FieldSource, FieldTable, Value};

use super::attribute::{Attribute, VALUE_DEPTH_MAX};
use super::emitter::{Emitter, each_resource_attribute, read_scope};
use super::field_value::{FieldValue, each_flat, value_at};
use super::json::{is_json, to_protobuf};
use super::span::Span;
use super::visitor::{Visitor, walk};
use super::wire::FORMAT;
use crate::{DamagedBytes, DecodeError, Decoded, Decoder, EachEvent, Event};

/// Names of the span kinds, by their codes.
const KINDS: [&str; 6] = [
    "unspecified",
    "internal",
    "server",
    "client",
    "producer",
    "consumer",
];
/// Names of the status codes.
const STATUSES: [&str; 3] = ["unset", "ok", "error"];

fn named(names: &'static [&'static str], code: u64) -> FieldValue<'static> {
    let known = usize::try_from(code).ok().and_then(|code| names.get(code));
    known.map_or(FieldValue::Uint(code), |name| {
        FieldValue::Text(name.as_bytes())
    })
}

/// The name of a span kind; `None` for an unknown code.
pub fn kind_name(code: u64) -> Option<&'static str> {
    KINDS.get(usize::try_from(code).ok()?).copied()
}

/// Reads the value of one field of a span.
type ReadSpan = for<'a> fn(&Span<'a>) -> Result<FieldValue<'a>, DecodeError>;

/// The fields that every span has.
const SPAN_FIELDS: [(&str, ReadSpan); 11] = [
    ("name", |span| Ok(FieldValue::Text(span.name))),
    ("cat", |span| Ok(named(&KINDS, span.kind))),
    ("ts", |span| {
        Ok(span.ts().map_or(FieldValue::Missing, FieldValue::Int))
    }),
    ("dur", |span| {
        Ok(span.dur().map_or(FieldValue::Missing, FieldValue::Uint))
    }),
    ("args.trace_id", |span| Ok(FieldValue::id(span.trace_id))),
    ("args.span_id", |span| Ok(FieldValue::id(span.span_id))),
    ("args.parent_span_id", |span| {
        Ok(FieldValue::id(span.parent_span_id))
    }),
    ("args.status", |span| Ok(named(&STATUSES, span.status))),
    ("args.status_message", |span| {
        Ok(FieldValue::text(span.status_message))
    }),
    ("args.events", |span| Ok(FieldValue::Uint(span.counts()?.0))),
    ("args.links", |span| Ok(FieldValue::Uint(span.counts()?.1))),
];

/// Attributes that are top-level fields of an event.
const PID: &[u8] = b"process.pid";
const TID: &[u8] = b"thread.id";
/// Prefix of the attributes of an exception.
const EXCEPTION: &[u8] = b"exception.";

/// Where the value of each field of a table comes from.
#[derive(Debug, Clone, Default)]
struct Layout {
    count: usize,
    span_fields: Vec<(usize, ReadSpan)>,
    /// Fields and the paths of span attributes.
    attributes: Vec<(usize, Box<[u8]>)>,
    /// Fields and the paths of resource and scope attributes.
    context: Vec<(usize, Box<[u8]>)>,
    scope_name: Option<usize>,
    scope_version: Option<usize>,
    /// Whether attributes of an exception may be requested.
    wants_exception: bool,
}

impl Layout {
    fn new(table: &FieldTable) -> Self {
        let mut layout = Layout {
            count: table.len(),
            ..Layout::default()
        };
        for (id, path) in table.iter() {
            let at = id.index();
            let text = path.as_str();
            if let Some((_, read)) = SPAN_FIELDS.iter().find(|(name, _)| *name == text) {
                layout.span_fields.push((at, *read));
            }
            match text {
                "pid" => layout.context.push((at, PID.into())),
                "tid" => layout.attributes.push((at, TID.into())),
                "ctx.scope.name" => layout.scope_name = Some(at),
                "ctx.scope.version" => layout.scope_version = Some(at),
                _ => {}
            }
            if let Some(key) = text.strip_prefix("ctx.") {
                layout.context.push((at, key.as_bytes().into()));
            } else if let Some(key) = path.argument() {
                layout.wants_exception |= key.starts_with("exception.");
                layout.attributes.push((at, key.as_bytes().into()));
            }
        }
        layout
    }
}

/// Decodes packets of OpenTelemetry spans, in protobuf or JSON.
#[derive(Debug)]
pub struct OtlpDecoder {
    layout: Layout,
}

impl OtlpDecoder {
    /// A decoder for the fields of `table`.
    pub fn new(table: &FieldTable) -> OtlpDecoder {
        OtlpDecoder {
            layout: Layout::new(table),
        }
    }

    /// Calls `each` for every span of a request in protobuf.
    ///
    /// # Errors
    ///
    /// When the request is damaged, after the spans before the damage.
    pub fn walk<'a>(
        &self,
        request: &'a [u8],
        each: &mut dyn FnMut(&OtlpEvent<'_, 'a>) -> ControlFlow<()>,
    ) -> Result<Decoded, DecodeError> {
        let mut reader = Reader {
            layout: &self.layout,
            of_resource: vec![FieldValue::Missing; self.layout.count],
            of_scope: vec![FieldValue::Missing; self.layout.count],
            values: vec![FieldValue::Missing; self.layout.count],
            resource: Emitter::default(),
            scope: Emitter::default(),
            decoded: Decoded::default(),
            each,
        };
        // `each` may end the walk; that is not an error.
        let _flow = walk(request, &mut reader)?;
        Ok(reader.decoded)
    }
}

impl Decoder for OtlpDecoder {
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError> {
        DamagedBytes::refuse(packet, FORMAT)?;
        if is_json(packet) {
            self.walk(&to_protobuf(packet)?, &mut |event| each(event))
        } else {
            self.walk(packet, &mut |event| each(event))
        }
    }
}

struct Reader<'r, 'a> {
    layout: &'r Layout,
    of_resource: Vec<FieldValue<'a>>,
    of_scope: Vec<FieldValue<'a>>,
    values: Vec<FieldValue<'a>>,
    resource: Emitter<'a>,
    scope: Emitter<'a>,
    decoded: Decoded,
    each: &'r mut dyn FnMut(&OtlpEvent<'_, 'a>) -> ControlFlow<()>,
}

/// Sets the fields whose value an attribute is or contains.
fn fill<'a>(keys: &[(usize, Box<[u8]>)], attribute: &Attribute<'a>, values: &mut [FieldValue<'a>]) {
    for (at, key) in keys {
        if let Some(value) = value_at(attribute, key, VALUE_DEPTH_MAX) {
            values[*at] = value;
        }
    }
}

impl<'a> Visitor<'a> for Reader<'_, 'a> {
    fn resource(&mut self, resource: &Emitter<'a>) -> Result<(), DecodeError> {
        self.resource = resource.clone();
        self.of_resource.fill(FieldValue::Missing);
        if self.layout.context.is_empty() {
            return Ok(());
        }
        fill_context(
            self.layout,
            resource,
            &mut self.of_resource,
            |message, each| each_resource_attribute(message, each),
        )
    }

    fn scope(&mut self, scope: &Emitter<'a>) -> Result<(), DecodeError> {
        self.scope = scope.clone();
        self.of_scope.clone_from(&self.of_resource);
        if self.layout.context.is_empty() {
            return Ok(());
        }
        let layout = self.layout;
        let of_scope = &mut self.of_scope;
        fill_context(layout, scope, of_scope, |message, each| {
            read_scope(message, each).map(drop)
        })?;
        let message: &[u8] = &scope.message;
        let (name, version) = read_scope(message, &mut |_| {})?;
        for (at, text) in [(layout.scope_name, name), (layout.scope_version, version)] {
            if let Some(at) = at.filter(|_| !text.is_empty()) {
                of_scope[at] = FieldValue::lossy(text);
            }
        }
        Ok(())
    }

    #[inline]
    fn span(&mut self, span: Span<'a>) -> Result<ControlFlow<()>, DecodeError> {
        let layout = self.layout;
        if layout.context.is_empty() {
            self.values.fill(FieldValue::Missing);
        } else {
            self.values.clone_from(&self.of_scope);
        }
        for (at, read) in &layout.span_fields {
            self.values[*at] = read(&span)?;
        }
        if !layout.attributes.is_empty() && span.has_details {
            let values = &mut self.values;
            if layout.wants_exception {
                span.each_event(&mut |event| {
                    if event.is_exception() {
                        // `check` refuses damaged events, and `each_attribute` below reports damage
                        // in the span.
                        let _ = event.each_attribute(&mut |attribute| {
                            if attribute.key.starts_with(EXCEPTION) {
                                fill(&layout.attributes, &attribute, values);
                            }
                        });
                    }
                })?;
            }
            span.each_attribute(&mut |attribute| fill(&layout.attributes, &attribute, values))?;
        }
        self.decoded.events += 1;
        let event = OtlpEvent {
            span,
            values: &self.values,
            resource: &self.resource,
            scope: &self.scope,
        };
        Ok((self.each)(&event))
    }
}

/// Sets the fields whose values the attributes of a resource or scope contain. The values are
/// copied: a message that was merged from several does not live as long as the packet.
fn fill_context<'a>(
    layout: &Layout,
    source: &Emitter<'a>,
    values: &mut [FieldValue<'a>],
    each: impl Fn(&[u8], &mut dyn FnMut(Attribute<'_>)) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    each(&source.message, &mut |attribute| {
        for (at, key) in &layout.context {
            let value = match value_at(&attribute, key, VALUE_DEPTH_MAX) {
                None => continue,
                Some(value) => value.into_owned(),
            };
            values[*at] = value;
        }
    })
}

/// A span as an event.
pub struct OtlpEvent<'v, 'a> {
    span: Span<'a>,
    values: &'v [FieldValue<'a>],
    resource: &'v Emitter<'a>,
    scope: &'v Emitter<'a>,
}

impl<'a> OtlpEvent<'_, 'a> {
    /// The span.
    pub fn span(&self) -> Span<'a> {
        self.span
    }

    /// Its resource.
    pub fn resource(&self) -> &Emitter<'a> {
        self.resource
    }

    /// Its scope.
    pub fn scope(&self) -> &Emitter<'a> {
        self.scope
    }
}

impl FieldSource for OtlpEvent<'_, '_> {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        self.values.get(id.index())?.value()
    }
}

impl Event for OtlpEvent<'_, '_> {
    #[inline]
    fn ts(&self) -> Option<i64> {
        self.span.ts()
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        self.visit(&mut |path, value| {
            if let Some(value) = value.value() {
                visit(path, value);
            }
        });
    }

    fn each_nested(&self, visit: &mut dyn FnMut(&str)) {
        self.visit(&mut |path, value| {
            if matches!(value, FieldValue::Json(_)) {
                visit(path);
            }
        });
    }
}

type Visit<'f> = dyn FnMut(&str, FieldValue<'_>) + 'f;

fn visit_if(attribute: &Attribute<'_>, key: &[u8], path: &str, visit: &mut Visit<'_>) {
    if attribute.key == key {
        visit(path, FieldValue::of(attribute.value));
    }
}

impl OtlpEvent<'_, '_> {
    /// Visits all fields; some are missing.
    fn visit(&self, visit: &mut Visit<'_>) {
        // The check on arrival reports damage; here, what can be read is visited.
        let mut keys: Vec<&[u8]> = Vec::new();
        let _ = self
            .span
            .each_attribute(&mut |attribute| keys.push(attribute.key));
        let (top, arguments) = SPAN_FIELDS.split_at(4);
        self.visit_span_fields(top, &[], visit);
        let resource = &self.resource.message;
        let _ = each_resource_attribute(resource, &mut |attribute| {
            visit_if(&attribute, PID, "pid", visit);
        });
        let _ = self
            .span
            .each_attribute(&mut |attribute| visit_if(&attribute, TID, "tid", visit));
        self.visit_span_fields(arguments, &keys, visit);
        self.visit_arguments(&keys, visit);
        let mut path = String::from("ctx.");
        let _ = each_resource_attribute(resource, &mut |attribute| {
            each_flat(&mut path, &attribute, VALUE_DEPTH_MAX, visit);
        });
        let scope = read_scope(&self.scope.message, &mut |attribute| {
            each_flat(&mut path, &attribute, VALUE_DEPTH_MAX, visit);
        });
        if let Ok((name, version)) = scope {
            visit("ctx.scope.name", FieldValue::text(name));
            visit("ctx.scope.version", FieldValue::text(version));
        }
    }

    /// Visits fields of the span, except those whose name an attribute has.
    fn visit_span_fields(
        &self,
        fields: &[(&str, ReadSpan)],
        attributes: &[&[u8]],
        visit: &mut Visit<'_>,
    ) {
        for (name, read) in fields {
            let key = name.strip_prefix("args.").unwrap_or_default();
            if !attributes.contains(&key.as_bytes())
                && let Ok(value) = read(&self.span)
            {
                visit(name, value);
            }
        }
    }

    /// Visits the attributes of the span, and those of its last exception whose name the span does
    /// not have.
    fn visit_arguments(&self, keys: &[&[u8]], visit: &mut Visit<'_>) {
        let mut path = String::from("args.");
        let _ = self.span.each_attribute(&mut |attribute| {
            each_flat(&mut path, &attribute, VALUE_DEPTH_MAX, visit);
        });
        let mut last = None;
        let _ = self.span.each_event(&mut |event| {
            if event.is_exception() {
                last = Some(event);
            }
        });
        let Some(exception) = last else { return };
        let _ = exception.each_attribute(&mut |attribute| {
            if attribute.key.starts_with(EXCEPTION) && !keys.contains(&attribute.key) {
                each_flat(&mut path, &attribute, VALUE_DEPTH_MAX, visit);
            }
        });
    }
}
