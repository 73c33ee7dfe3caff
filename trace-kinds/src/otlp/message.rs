//! Messages of OTLP traces as parts of a packet: requests, resources, scopes, spans, attributes.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::wire::{FORMAT, Part, Wire};
use crate::DecodeError;

/// Values nest no deeper than this; more is refused wherever values are looked into.
pub(super) const VALUE_DEPTH_MAX: usize = 32;

/// Where spans come from: a resource, or a scope within it.
#[derive(Debug, Clone, Default)]
pub struct Source<'a> {
    /// The message `Resource` or `InstrumentationScope`; empty when it is not there.
    pub message: Cow<'a, [u8]>,
    /// URL of the schema of what is in it; empty when it is not there.
    pub schema_url: &'a [u8],
    /// Offset of the message in its packet.
    base: usize,
}

impl<'a> Source<'a> {
    /// A message of our own; it may be empty.
    pub fn new(message: impl Into<Cow<'a, [u8]>>, schema_url: &'a [u8]) -> Self {
        Source {
            message: message.into(),
            schema_url,
            base: 0,
        }
    }

    /// The message as a part of its packet.
    fn part(&self) -> Part<'_> {
        Part {
            bytes: &self.message,
            base: self.base,
        }
    }

    /// Looks into everything that a reader may ask a resource for.
    pub(super) fn check_resource(&self) -> Result<(), DecodeError> {
        check_attributes(self.part(), 1)
    }

    /// Looks into everything that a reader may ask a scope for.
    pub(super) fn check_scope(&self) -> Result<(), DecodeError> {
        let part = self.part();
        let (name, version) = read_scope(&self.message, &mut |_| {})?;
        check_text(name, part)?;
        check_text(version, part)?;
        check_attributes(part, 3)
    }

    /// The fields 1 and 3 of `ResourceSpans` and `ScopeSpans`, which may stand anywhere in them.
    fn read(part: Part<'a>) -> Result<Self, DecodeError> {
        let mut source = Source::default();
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Wire::Bytes(message)) if source.message.is_empty() => {
                    source.message = Cow::Borrowed(message.bytes);
                    source.base = message.base;
                }
                // A message that stands there twice is one that was cut.
                (1, Wire::Bytes(more)) => source.message.to_mut().extend_from_slice(more.bytes),
                (3, Wire::Bytes(url)) => source.schema_url = url.bytes,
                _ => {}
            }
        }
        Ok(source)
    }
}

/// A span, borrowed from its packet: what every reader needs, and the rest by asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span<'a> {
    part: Part<'a>,
    /// 16 bytes in a sound span.
    pub trace_id: &'a [u8],
    /// 8 bytes in a sound span.
    pub span_id: &'a [u8],
    /// 8 bytes, or none in the root of a trace.
    pub parent_span_id: &'a [u8],
    /// What was done.
    pub name: &'a [u8],
    /// Code of the span kind.
    pub kind: u64,
    /// Nanoseconds since the epoch; 0 when not known.
    pub start: u64,
    /// Nanoseconds since the epoch; 0 when not known.
    pub end: u64,
    /// Code of the status: 0 unset, 1 ok, 2 error.
    pub status: u64,
    /// What went wrong.
    pub status_message: &'a [u8],
    /// Bits of the W3C trace flags, and whether the parent is remote.
    pub flags: u32,
    /// Whether the span has attributes, events or links.
    pub(super) has_details: bool,
}

/// Bits of [`Span::flags`]: whether it is known that the parent is remote, and whether it is.
const PARENT_REMOTE_KNOWN: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x200;

impl<'a> Span<'a> {
    /// Reads a span message.
    ///
    /// # Errors
    /// When its fields cannot be told apart. Attributes, events and links are not looked into.
    pub fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        Self::of(Part::whole(message))
    }

    #[inline]
    pub(super) fn of(part: Part<'a>) -> Result<Self, DecodeError> {
        let mut span = Span {
            part,
            trace_id: &[],
            span_id: &[],
            parent_span_id: &[],
            name: &[],
            kind: 0,
            start: 0,
            end: 0,
            status: 0,
            status_message: &[],
            flags: 0,
            has_details: false,
        };
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (9 | 11 | 13, Wire::Bytes(_)) => span.has_details = true,
                (1, Wire::Bytes(id)) => span.trace_id = id.bytes,
                (2, Wire::Bytes(id)) => span.span_id = id.bytes,
                (4, Wire::Bytes(id)) => span.parent_span_id = id.bytes,
                (5, Wire::Bytes(name)) => span.name = name.bytes,
                (6, Wire::Varint(kind)) => span.kind = kind,
                (7, Wire::Fixed64(start)) => span.start = start,
                (8, Wire::Fixed64(end)) => span.end = end,
                (15, Wire::Bytes(status)) => span.read_status(status)?,
                (16, Wire::Fixed32(flags)) => span.flags = flags,
                _ => {}
            }
        }
        Ok(span)
    }

    fn read_status(&mut self, part: Part<'a>) -> Result<(), DecodeError> {
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (2, Wire::Bytes(text)) => self.status_message = text.bytes,
                (3, Wire::Varint(code)) => self.status = code,
                _ => {}
            }
        }
        Ok(())
    }

    /// The whole message, as it was sent.
    #[inline]
    pub fn message(&self) -> &'a [u8] {
        self.part.bytes
    }

    /// Start, ns since the epoch; `None` when the span does not tell it.
    #[inline]
    pub fn ts(&self) -> Option<i64> {
        i64::try_from(self.start).ok().filter(|start| *start != 0)
    }

    /// Nanoseconds from start to end; `None` when either is not known or they are in disorder.
    #[inline]
    pub fn dur(&self) -> Option<u64> {
        match self.start != 0 && self.end != 0 {
            true => self.end.checked_sub(self.start),
            false => None,
        }
    }

    /// Whether both ids are such as the specification allows: of their length, and not all zero.
    #[inline]
    pub fn has_valid_ids(&self) -> bool {
        let valid = |id: &[u8], length| id.len() == length && id.iter().any(|byte| *byte != 0);
        valid(self.trace_id, 16) && valid(self.span_id, 8)
    }

    /// Whether the span begins an invocation as far as it says itself: it has no parent, or one in
    /// another process.
    #[inline]
    pub fn is_local_root(&self) -> bool {
        let remote = PARENT_REMOTE_KNOWN | PARENT_REMOTE;
        self.parent_span_id.is_empty() || self.flags & remote == remote
    }

    /// Shows the attributes in their order.
    ///
    /// # Errors
    /// When one of them is damaged.
    pub fn each_attribute(&self, each: &mut dyn FnMut(Attribute<'a>)) -> Result<(), DecodeError> {
        each_attribute(self.part, 9, each)
    }

    /// Shows the events of the span in their order.
    ///
    /// # Errors
    /// When one of them is damaged.
    pub fn each_event(&self, each: &mut dyn FnMut(SpanEvent<'a>)) -> Result<(), DecodeError> {
        let mut fields = self.part.fields();
        while let Some((number, value)) = fields.next()? {
            if let (11, Wire::Bytes(part)) = (number, value) {
                each(SpanEvent::of(part)?);
            }
        }
        Ok(())
    }

    /// Numbers of events and of links.
    pub(super) fn counts(&self) -> Result<(u64, u64), DecodeError> {
        let (mut events, mut links) = (0, 0);
        let mut fields = self.part.fields();
        while let Some((number, _)) = fields.next()? {
            match number {
                11 => events += 1,
                13 => links += 1,
                _ => {}
            }
        }
        Ok((events, links))
    }

    /// Looks into everything that a reader may ask for later.
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        check_text(self.name, self.part)?;
        check_text(self.status_message, self.part)?;
        if !self.has_details {
            return Ok(());
        }
        let mut fields = self.part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (9, Wire::Bytes(attribute)) => Attribute::of(attribute)?.check()?,
                (11, Wire::Bytes(event)) => check_attributes(event, 3)?,
                (13, Wire::Bytes(link)) => check_attributes(link, 4)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Something that happened at an instant of a span, such as an exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanEvent<'a> {
    part: Part<'a>,
    /// Nanoseconds since the epoch.
    pub time: u64,
    /// What happened.
    pub name: &'a [u8],
}

impl<'a> SpanEvent<'a> {
    fn of(part: Part<'a>) -> Result<Self, DecodeError> {
        let (mut time, mut name) = (0, &b""[..]);
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Wire::Fixed64(nanos)) => time = nanos,
                (2, Wire::Bytes(text)) => name = text.bytes,
                _ => {}
            }
        }
        Ok(SpanEvent { part, time, name })
    }

    /// Whether it is an exception, by the name that OpenTelemetry gives those.
    pub fn is_exception(&self) -> bool {
        self.name == b"exception"
    }

    /// Shows the attributes in their order.
    ///
    /// # Errors
    /// When one of them is damaged.
    pub fn each_attribute(&self, each: &mut dyn FnMut(Attribute<'a>)) -> Result<(), DecodeError> {
        each_attribute(self.part, 3, each)
    }
}

/// A key and its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attribute<'a> {
    part: Part<'a>,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: AnyValue<'a>,
}

impl<'a> Attribute<'a> {
    #[inline]
    fn of(part: Part<'a>) -> Result<Self, DecodeError> {
        let (mut key, mut found) = (&b""[..], AnyValue::Empty);
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Wire::Bytes(text)) => key = text.bytes,
                (2, Wire::Bytes(message)) => found = AnyValue::of(message)?,
                _ => {}
            }
        }
        Ok(Attribute {
            part,
            key,
            value: found,
        })
    }

    /// The message `KeyValue`, as it was sent.
    pub fn message(&self) -> &'a [u8] {
        self.part.bytes
    }

    fn check(&self) -> Result<(), DecodeError> {
        self.check_within(VALUE_DEPTH_MAX)
    }

    fn check_within(&self, depth: usize) -> Result<(), DecodeError> {
        check_text(self.key, self.part)?;
        if let AnyValue::Text(text) = self.value {
            check_text(text, self.part)?;
        }
        self.value.check(depth)
    }
}

/// A value of any of the types that OTLP has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AnyValue<'a> {
    /// No value.
    Empty,
    /// Text.
    Text(&'a [u8]),
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// The message of a list of values.
    Array(List<'a>),
    /// The message of a list of attributes.
    Map(List<'a>),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// Values or attributes within a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List<'a>(Part<'a>);

impl<'a> List<'a> {
    /// The list as the values of an array.
    pub(super) fn each_value(self, each: &mut dyn FnMut(AnyValue<'a>)) -> Result<(), DecodeError> {
        let mut fields = self.0.fields();
        while let Some((number, value)) = fields.next()? {
            if let (1, Wire::Bytes(part)) = (number, value) {
                each(AnyValue::of(part)?);
            }
        }
        Ok(())
    }

    /// The list as the attributes of a map.
    pub(super) fn each_attribute(
        self,
        each: &mut dyn FnMut(Attribute<'a>),
    ) -> Result<(), DecodeError> {
        each_attribute(self.0, 1, each)
    }

    fn too_deep(self) -> DecodeError {
        DecodeError::Damaged {
            format: FORMAT,
            offset: self.0.base as u64,
            reason: format!("values nest deeper than {VALUE_DEPTH_MAX}"),
        }
    }
}

impl<'a> AnyValue<'a> {
    #[inline]
    fn of(part: Part<'a>) -> Result<Self, DecodeError> {
        let mut found = AnyValue::Empty;
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            found = match (number, value) {
                (1, Wire::Bytes(text)) => AnyValue::Text(text.bytes),
                (2, Wire::Varint(value)) => AnyValue::Bool(value != 0),
                (3, Wire::Varint(value)) => AnyValue::Int(value as i64),
                (4, Wire::Fixed64(bits)) => AnyValue::Double(f64::from_bits(bits)),
                (5, Wire::Bytes(list)) => AnyValue::Array(List(list)),
                (6, Wire::Bytes(list)) => AnyValue::Map(List(list)),
                (7, Wire::Bytes(bytes)) => AnyValue::Bytes(bytes.bytes),
                _ => found,
            };
        }
        Ok(found)
    }

    fn check(self, depth: usize) -> Result<(), DecodeError> {
        let (list, is_map) = match self {
            AnyValue::Array(list) => (list, false),
            AnyValue::Map(list) => (list, true),
            _ => return Ok(()),
        };
        let Some(depth) = depth.checked_sub(1) else {
            return Err(list.too_deep());
        };
        let mut outcome = Ok(());
        match is_map {
            true => list.each_attribute(&mut |attribute| {
                if outcome.is_ok() {
                    outcome = attribute.check_within(depth);
                }
            })?,
            false => list.each_value(&mut |value| {
                if outcome.is_ok() {
                    outcome = match value {
                        AnyValue::Text(text) => check_text(text, list.0),
                        value => value.check(depth),
                    };
                }
            })?,
        }
        outcome
    }
}

/// Texts of protobuf are UTF-8.
fn check_text(text: &[u8], part: Part<'_>) -> Result<(), DecodeError> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(()),
        Err(_) => Err(DecodeError::Damaged {
            format: FORMAT,
            offset: part.base as u64,
            reason: "a text in this message is not UTF-8".to_owned(),
        }),
    }
}

fn each_attribute<'a>(
    part: Part<'a>,
    wanted: u32,
    each: &mut dyn FnMut(Attribute<'a>),
) -> Result<(), DecodeError> {
    let mut fields = part.fields();
    while let Some((number, value)) = fields.next()? {
        if let Wire::Bytes(attribute) = value
            && number == wanted
        {
            each(Attribute::of(attribute)?);
        }
    }
    Ok(())
}

fn check_attributes(part: Part<'_>, wanted: u32) -> Result<(), DecodeError> {
    let mut outcome = Ok(());
    each_attribute(part, wanted, &mut |attribute| {
        if outcome.is_ok() {
            outcome = attribute.check();
        }
    })?;
    outcome
}

/// Shows the attributes of a message `Resource`.
///
/// # Errors
/// When one of them is damaged.
pub fn each_resource_attribute<'a>(
    message: &'a [u8],
    each: &mut dyn FnMut(Attribute<'a>),
) -> Result<(), DecodeError> {
    each_attribute(Part::whole(message), 1, each)
}

/// Name, version and attributes of a message `InstrumentationScope`.
pub(super) fn read_scope<'a>(
    message: &'a [u8],
    each: &mut dyn FnMut(Attribute<'a>),
) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let (mut name, mut version) = (&b""[..], &b""[..]);
    let part = Part::whole(message);
    let mut fields = part.fields();
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Wire::Bytes(text)) => name = text.bytes,
            (2, Wire::Bytes(text)) => version = text.bytes,
            _ => {}
        }
    }
    each_attribute(part, 3, each)?;
    Ok((name, version))
}

/// What is shown the contents of a request, from the outside in.
pub(super) trait Visitor<'a> {
    /// The resource of the scopes that follow.
    fn resource(&mut self, resource: &Source<'a>) -> Result<(), DecodeError>;

    /// The scope of the spans that follow.
    fn scope(&mut self, scope: &Source<'a>) -> Result<(), DecodeError>;

    /// A span.
    fn span(&mut self, span: Span<'a>) -> Result<ControlFlow<()>, DecodeError>;
}

/// Shows what is in an `ExportTraceServiceRequest`.
pub(super) fn walk<'a>(
    request: &'a [u8],
    visitor: &mut impl Visitor<'a>,
) -> Result<ControlFlow<()>, DecodeError> {
    let mut fields = Part::whole(request).fields();
    while let Some((number, value)) = fields.next()? {
        if let (1, Wire::Bytes(resource_spans)) = (number, value)
            && walk_resource(resource_spans, visitor)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Shows what is in one message `ResourceSpans`.
pub(super) fn walk_resource<'a>(
    resource_spans: Part<'a>,
    visitor: &mut impl Visitor<'a>,
) -> Result<ControlFlow<()>, DecodeError> {
    visitor.resource(&Source::read(resource_spans)?)?;
    let mut fields = resource_spans.fields();
    while let Some((number, value)) = fields.next()? {
        let (2, Wire::Bytes(scope_spans)) = (number, value) else {
            continue;
        };
        visitor.scope(&Source::read(scope_spans)?)?;
        let mut spans = scope_spans.fields();
        while let Some((number, value)) = spans.next()? {
            if let (2, Wire::Bytes(span)) = (number, value)
                && visitor.span(Span::of(span)?)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}
