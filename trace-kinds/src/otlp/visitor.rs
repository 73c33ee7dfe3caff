//! The traversal of a request, from the outside in.

use std::ops::ControlFlow;

use super::emitter::Emitter;
use super::field::{request, spans};
use super::span::Span;
use super::wire::{Part, Wire};
use crate::DecodeError;

/// Receives the contents of a request.
pub(super) trait Visitor<'a> {
    /// The resource of the scopes that follow.
    fn resource(&mut self, resource: &Emitter<'a>) -> Result<(), DecodeError>;

    /// The scope of the spans that follow.
    fn scope(&mut self, scope: &Emitter<'a>) -> Result<(), DecodeError>;

    /// A span.
    fn span(&mut self, span: Span<'a>) -> Result<ControlFlow<()>, DecodeError>;
}

/// Visits an `ExportTraceServiceRequest`.
pub(super) fn walk<'a>(
    packet: &'a [u8],
    visitor: &mut impl Visitor<'a>,
) -> Result<ControlFlow<()>, DecodeError> {
    let mut fields = Part::whole(packet).fields();
    while let Some((number, value)) = fields.next()? {
        if let (request::RESOURCE_SPANS, Wire::Bytes(resource_spans)) = (number, value)
            && walk_resource(resource_spans, visitor)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Visits one message `ResourceSpans`.
pub(super) fn walk_resource<'a>(
    resource_spans: Part<'a>,
    visitor: &mut impl Visitor<'a>,
) -> Result<ControlFlow<()>, DecodeError> {
    visitor.resource(&Emitter::read(resource_spans)?)?;
    let mut fields = resource_spans.fields();
    while let Some((number, value)) = fields.next()? {
        let (spans::PARTS, Wire::Bytes(scope_spans)) = (number, value) else {
            continue;
        };
        visitor.scope(&Emitter::read(scope_spans)?)?;
        let mut of_scope = scope_spans.fields();
        while let Some((number, value)) = of_scope.next()? {
            if let (spans::PARTS, Wire::Bytes(span)) = (number, value)
                && visitor.span(Span::from_part(span)?)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}
