//! The check of a request on arrival, which divides it by resource.

use std::ops::{ControlFlow, Range};

use super::attribute::AnyValue;
use super::emitter::{Emitter, each_resource_attribute};
use super::field::request::RESOURCE_SPANS;
use super::limits::{RequestError, RequestLimits};
use super::span::Span;
use super::validate::validate;
use super::visitor::{Visitor, walk_resource};
use super::wire::{Part, Wire};
use crate::DecodeError;

/// What one resource of a request takes in memory when it is divided by agent, apart from the bytes
/// of the request: the part, and the agent with its text.
pub const RESOURCE_MEMORY_BYTES: usize = 1024;

/// One `ResourceSpans` of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcePart {
    /// Its bytes in the request with key and length, so that concatenated parts are a request.
    pub range: Range<usize>,
    /// Spans in it.
    pub spans: u64,
    /// Spans in it with invalid ids.
    pub invalid: u64,
    /// First and last instant of its spans, ns since the epoch.
    pub time_span: Option<(i64, i64)>,
    /// The service that the resource names.
    pub identity: Identity,
}

/// The attributes that identify a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// `service.namespace`.
    pub namespace: String,
    /// `service.name`.
    pub name: String,
}

impl Identity {
    fn of(resource: &Emitter<'_>) -> Result<Self, DecodeError> {
        let mut identity = Identity::default();
        each_resource_attribute(&resource.message, &mut |attribute| {
            let text_of = match attribute.key {
                b"service.namespace" => &mut identity.namespace,
                b"service.name" => &mut identity.name,
                _ => return,
            };
            if let AnyValue::Text(text) = attribute.value {
                *text_of = String::from_utf8_lossy(text).into_owned();
            }
        })?;
        Ok(identity)
    }
}

/// Checks a complete request in protobuf, including attributes, so that every accepted request can
/// be decoded.
///
/// # Errors
///
/// When anything in it is damaged, or it has more of something than `limits` allow. Nothing is
/// allocated before that is known.
pub fn check(request: &[u8], limits: &RequestLimits) -> Result<Vec<ResourcePart>, RequestError> {
    validate(request, limits)?;
    Ok(divide(request)?)
}

/// The number of resources of a request, as far as it can be read.
pub fn resource_count(request: &[u8]) -> usize {
    let mut fields = Part::whole(request).fields();
    let mut count = 0;
    while let Ok(Some((number, value))) = fields.next() {
        count += usize::from(matches!((number, value), (RESOURCE_SPANS, Wire::Bytes(_))));
    }
    count
}

fn divide(request: &[u8]) -> Result<Vec<ResourcePart>, DecodeError> {
    let mut parts = Vec::new();
    let mut fields = Part::whole(request).fields();
    loop {
        let begin = fields.at();
        let Some((number, value)) = fields.next()? else {
            return Ok(parts);
        };
        if let (RESOURCE_SPANS, Wire::Bytes(resource_spans)) = (number, value) {
            let mut checker = Checker::default();
            // The checker never breaks.
            let _flow = walk_resource(resource_spans, &mut checker)?;
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
    fn resource(&mut self, resource: &Emitter<'a>) -> Result<(), DecodeError> {
        self.identity = Identity::of(resource)?;
        Ok(())
    }

    fn scope(&mut self, _scope: &Emitter<'a>) -> Result<(), DecodeError> {
        Ok(())
    }

    #[inline]
    fn span(&mut self, span: Span<'a>) -> Result<ControlFlow<()>, DecodeError> {
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
