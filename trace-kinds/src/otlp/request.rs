//! A request as it arrives: checked through, and told apart by where its spans come from.

use std::ops::{ControlFlow, Range};

use super::message::{AnyValue, Source, Span, Visitor, each_resource_attribute, walk_resource};
use super::wire::{Part, Wire};
use crate::DecodeError;

/// One `ResourceSpans` of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcePart {
    /// Its bytes in the request, key and length included, so that parts side by side are a request.
    pub range: Range<usize>,
    /// Spans in it.
    pub spans: u64,
    /// Spans in it whose ids no reader may use.
    pub invalid: u64,
    /// First and last instant of its spans, ns since the epoch.
    pub time_span: Option<(i64, i64)>,
    /// What the resource says of itself.
    pub identity: Identity,
}

/// The attributes by which a resource is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// `service.namespace`.
    pub namespace: String,
    /// `service.name`.
    pub name: String,
}

impl Identity {
    fn of(resource: &Source<'_>) -> Result<Self, DecodeError> {
        let mut identity = Identity::default();
        resource.check_resource()?;
        each_resource_attribute(&resource.message, &mut |attribute| {
            let place = match attribute.key {
                b"service.namespace" => &mut identity.namespace,
                b"service.name" => &mut identity.name,
                _ => return,
            };
            if let AnyValue::Text(text) = attribute.value {
                *place = String::from_utf8_lossy(text).into_owned();
            }
        })?;
        Ok(identity)
    }
}

/// Reads a request in protobuf through, attributes and all, so that what is taken can be decoded.
///
/// # Errors
/// When anything in it is damaged.
pub fn check(request: &[u8]) -> Result<Vec<ResourcePart>, DecodeError> {
    let mut parts = Vec::new();
    let mut fields = Part::whole(request).fields();
    loop {
        let begin = fields.at();
        let Some((number, value)) = fields.next()? else {
            return Ok(parts);
        };
        if let (1, Wire::Bytes(resource_spans)) = (number, value) {
            let mut checker = Checker::default();
            // A checker never breaks off.
            let _end = walk_resource(resource_spans, &mut checker)?;
            parts.push(ResourcePart {
                range: begin..fields.at(),
                spans: checker.spans,
                invalid: checker.invalid,
                time_span: checker.time_span,
                identity: checker.identity,
            });
        }
    }
}

#[derive(Default)]
struct Checker {
    identity: Identity,
    spans: u64,
    invalid: u64,
    time_span: Option<(i64, i64)>,
}

impl<'a> Visitor<'a> for Checker {
    fn resource(&mut self, resource: &Source<'a>) -> Result<(), DecodeError> {
        self.identity = Identity::of(resource)?;
        Ok(())
    }

    fn scope(&mut self, scope: &Source<'a>) -> Result<(), DecodeError> {
        scope.check_scope()
    }

    #[inline]
    fn span(&mut self, span: Span<'a>) -> Result<ControlFlow<()>, DecodeError> {
        span.check()?;
        self.spans += 1;
        self.invalid += u64::from(!span.has_valid_ids());
        if let Some(begin) = span.ts() {
            let dur = span
                .dur()
                .and_then(|dur| i64::try_from(dur).ok())
                .unwrap_or(0);
            let end = begin.saturating_add(dur);
            let (first, last) = self.time_span.unwrap_or((begin, end));
            self.time_span = Some((first.min(begin), last.max(end)));
        }
        Ok(ControlFlow::Continue(()))
    }
}
