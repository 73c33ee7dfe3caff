//! The walk over the spans of a packet, with the fields that were asked for.

use std::ops::ControlFlow;

use query_language::{FieldId, FieldSource, FieldTable, Value};

use super::held::{Held, each_flat, held_at};
use super::json::{is_json, to_protobuf};
use super::message::{
    Attribute, Source, Span, VALUE_DEPTH_MAX, Visitor, each_resource_attribute, read_scope, walk,
};
use crate::{DecodeError, Decoded, Decoder, EachEvent, Event};

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

fn named(names: &'static [&'static str], code: u64) -> Held<'static> {
    let known = usize::try_from(code).ok().and_then(|code| names.get(code));
    known.map_or(Held::Uint(code), |name| Held::Text(name.as_bytes()))
}

/// The name of a span kind; none of a code that has none.
pub fn kind_name(code: u64) -> Option<&'static str> {
    KINDS.get(usize::try_from(code).ok()?).copied()
}

/// Where a field that every span has is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    Cat,
    Ts,
    Dur,
    TraceId,
    SpanId,
    ParentSpanId,
    Status,
    StatusMessage,
    Events,
    Links,
}

const PLACES: [(&str, Place); 11] = [
    ("name", Place::Name),
    ("cat", Place::Cat),
    ("ts", Place::Ts),
    ("dur", Place::Dur),
    ("args.trace_id", Place::TraceId),
    ("args.span_id", Place::SpanId),
    ("args.parent_span_id", Place::ParentSpanId),
    ("args.status", Place::Status),
    ("args.status_message", Place::StatusMessage),
    ("args.events", Place::Events),
    ("args.links", Place::Links),
];

/// Attributes of resources that stand at the top of an event.
const PID: &[u8] = b"process.pid";
const TID: &[u8] = b"thread.id";
/// Attributes of an exception begin so.
const EXCEPTION: &[u8] = b"exception.";

/// Where each field of a table is found.
#[derive(Debug, Clone, Default)]
struct Layout {
    count: usize,
    places: Vec<(usize, Place)>,
    /// Fields and the paths of span attributes.
    attributes: Vec<(usize, Box<[u8]>)>,
    /// Fields and the paths of resource and scope attributes.
    context: Vec<(usize, Box<[u8]>)>,
    scope_name: Option<usize>,
    scope_version: Option<usize>,
    /// Whether attributes of an exception may be asked for.
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
            if let Some((_, place)) = PLACES.iter().find(|(name, _)| *name == text) {
                layout.places.push((at, *place));
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

    /// Shows every span of a request in protobuf as an event, with the message it came from.
    ///
    /// # Errors
    /// When the request is damaged; the spans before the damage were shown.
    pub fn walk<'a>(
        &self,
        request: &'a [u8],
        each: &mut dyn FnMut(&OtlpEvent<'_, 'a>) -> ControlFlow<()>,
    ) -> Result<Decoded, DecodeError> {
        let mut reader = Reader {
            layout: &self.layout,
            of_resource: vec![Held::Nothing; self.layout.count],
            of_scope: vec![Held::Nothing; self.layout.count],
            values: vec![Held::Nothing; self.layout.count],
            resource: Source::default(),
            scope: Source::default(),
            decoded: Decoded::default(),
            each,
        };
        // An end that was asked for is no fault.
        let _end = walk(request, &mut reader)?;
        Ok(reader.decoded)
    }
}

impl Decoder for OtlpDecoder {
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError> {
        match is_json(packet) {
            true => self.walk(&to_protobuf(packet)?, &mut |event| each(event)),
            false => self.walk(packet, &mut |event| each(event)),
        }
    }
}

struct Reader<'r, 'a> {
    layout: &'r Layout,
    of_resource: Vec<Held<'a>>,
    of_scope: Vec<Held<'a>>,
    values: Vec<Held<'a>>,
    resource: Source<'a>,
    scope: Source<'a>,
    decoded: Decoded,
    each: &'r mut dyn FnMut(&OtlpEvent<'_, 'a>) -> ControlFlow<()>,
}

/// Fills the fields that an attribute answers.
fn fill<'a>(keys: &[(usize, Box<[u8]>)], attribute: &Attribute<'a>, values: &mut [Held<'a>]) {
    for (at, key) in keys {
        if let Some(held) = held_at(attribute, key, VALUE_DEPTH_MAX) {
            values[*at] = held;
        }
    }
}

impl<'a> Visitor<'a> for Reader<'_, 'a> {
    fn resource(&mut self, resource: &Source<'a>) -> Result<(), DecodeError> {
        self.resource = resource.clone();
        self.of_resource.fill(Held::Nothing);
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

    fn scope(&mut self, scope: &Source<'a>) -> Result<(), DecodeError> {
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
        let owned = |text: &[u8]| Held::Made(String::from_utf8_lossy(text).into_owned());
        for (at, text) in [(layout.scope_name, name), (layout.scope_version, version)] {
            if let Some(at) = at.filter(|_| !text.is_empty()) {
                of_scope[at] = owned(text);
            }
        }
        Ok(())
    }

    #[inline]
    fn span(&mut self, span: Span<'a>) -> Result<ControlFlow<()>, DecodeError> {
        let layout = self.layout;
        if layout.context.is_empty() {
            self.values.fill(Held::Nothing);
        } else {
            self.values.clone_from(&self.of_scope);
        }
        for (at, place) in &layout.places {
            self.values[*at] = field_of(&span, *place)?;
        }
        if !layout.attributes.is_empty() && span.has_details {
            let values = &mut self.values;
            if layout.wants_exception {
                span.each_event(&mut |event| {
                    if event.is_exception() {
                        // Damage is found by `check`, and told below where it is in the span.
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

/// Fills the fields that the attributes of a resource or scope answer. What was cut and put
/// together again does not live as long as the packet, so its values are copied.
fn fill_context<'a>(
    layout: &Layout,
    source: &Source<'a>,
    values: &mut [Held<'a>],
    each: impl Fn(&[u8], &mut dyn FnMut(Attribute<'_>)) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    each(&source.message, &mut |attribute| {
        for (at, key) in &layout.context {
            let held = match held_at(&attribute, key, VALUE_DEPTH_MAX) {
                None => continue,
                Some(Held::Text(text)) => Held::Made(String::from_utf8_lossy(text).into_owned()),
                Some(Held::Made(text)) => Held::Made(text),
                Some(Held::Id(digits, length)) => Held::Id(digits, length),
                Some(Held::Int(value)) => Held::Int(value),
                Some(Held::Uint(value)) => Held::Uint(value),
                Some(Held::Float(value)) => Held::Float(value),
                Some(Held::Bool(value)) => Held::Bool(value),
                Some(Held::Nothing) => Held::Nothing,
            };
            values[*at] = held;
        }
    })
}

fn field_of<'a>(span: &Span<'a>, place: Place) -> Result<Held<'a>, DecodeError> {
    Ok(match place {
        Place::Name => Held::Text(span.name),
        Place::Cat => named(&KINDS, span.kind),
        Place::Ts => span.ts().map_or(Held::Nothing, Held::Int),
        Place::Dur => span.dur().map_or(Held::Nothing, Held::Uint),
        Place::TraceId => Held::id(span.trace_id),
        Place::SpanId => Held::id(span.span_id),
        Place::ParentSpanId => Held::id(span.parent_span_id),
        Place::Status => named(&STATUSES, span.status),
        Place::StatusMessage => Held::text(span.status_message),
        Place::Events => Held::Uint(span.counts()?.0),
        Place::Links => Held::Uint(span.counts()?.1),
    })
}

/// A span as an event.
pub struct OtlpEvent<'v, 'a> {
    span: Span<'a>,
    values: &'v [Held<'a>],
    resource: &'v Source<'a>,
    scope: &'v Source<'a>,
}

impl<'a> OtlpEvent<'_, 'a> {
    /// The span.
    pub fn span(&self) -> Span<'a> {
        self.span
    }

    /// Its resource.
    pub fn resource(&self) -> &Source<'a> {
        self.resource
    }

    /// Its scope.
    pub fn scope(&self) -> &Source<'a> {
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
        // Damage in here was told when the packet was taken; what can be read is shown.
        let mut keys: Vec<&[u8]> = Vec::new();
        let _ = self
            .span
            .each_attribute(&mut |attribute| keys.push(attribute.key));
        let (top, arguments) = PLACES.split_at(4);
        self.show_places(top, &[], visit);
        let resource = &self.resource.message;
        let _ = each_resource_attribute(resource, &mut |attribute| {
            show_if(&attribute, PID, "pid", visit);
        });
        let _ = self
            .span
            .each_attribute(&mut |attribute| show_if(&attribute, TID, "tid", visit));
        self.show_places(arguments, &keys, visit);
        self.show_arguments(&keys, visit);
        let mut path = String::from("ctx.");
        let _ = each_resource_attribute(resource, &mut |attribute| {
            each_flat(&mut path, &attribute, VALUE_DEPTH_MAX, visit);
        });
        let scope = read_scope(&self.scope.message, &mut |attribute| {
            each_flat(&mut path, &attribute, VALUE_DEPTH_MAX, visit);
        });
        if let Ok((name, version)) = scope {
            for (field, text) in [("ctx.scope.name", name), ("ctx.scope.version", version)] {
                if let Some(value) = Held::text(text).value() {
                    visit(field, value);
                }
            }
        }
    }
}

type Visit<'f> = dyn FnMut(&str, Value<'_>) + 'f;

fn show_if(attribute: &Attribute<'_>, wanted: &[u8], path: &str, visit: &mut Visit<'_>) {
    if attribute.key == wanted
        && let Some(value) = Held::of(attribute.value).value()
    {
        visit(path, value);
    }
}

impl OtlpEvent<'_, '_> {
    /// Fields of the span itself, but for those that an attribute has taken the name of.
    fn show_places(&self, places: &[(&str, Place)], taken: &[&[u8]], visit: &mut Visit<'_>) {
        for (name, place) in places {
            let key = name.strip_prefix("args.").unwrap_or_default();
            if !taken.contains(&key.as_bytes())
                && let Ok(held) = field_of(&self.span, *place)
                && let Some(value) = held.value()
            {
                visit(name, value);
            }
        }
    }

    /// Attributes of the span, and of its last exception where the span has none of that name.
    fn show_arguments(&self, keys: &[&[u8]], visit: &mut Visit<'_>) {
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
