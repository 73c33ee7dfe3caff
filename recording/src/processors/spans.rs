//! Parts of packets of spans, and predicates on spans outside of packets.

use std::ops::ControlFlow;

use bytes::Bytes;
use storage_format::frame::Facts;
use trace_kinds::otlp::{Emitter, OtlpDecoder, OtlpEvent, RequestBuilder, Span};

use crate::packet::Packet;

/// The spans of a request for which `keep` is true, as a packet in the position of `packet`.
pub(super) enum Cut {
    /// No span, or the request is damaged.
    Nothing,
    /// All spans: the packet as it is.
    Whole,
    /// Some spans.
    Part(Box<Packet>),
}

/// Splits a packet of spans.
pub(super) fn cut(
    packet: &Packet,
    request: &[u8],
    decoder: &OtlpDecoder,
    mut keep: impl FnMut(&OtlpEvent<'_, '_>) -> bool,
) -> Cut {
    let mut builder = RequestBuilder::new();
    let decoded = decoder.walk(request, &mut |event| {
        if keep(event) {
            builder.add(event.resource(), event.scope(), &event.span());
        }
        ControlFlow::Continue(())
    });
    match decoded {
        Ok(decoded) if decoded.events == builder.span_count() && decoded.events > 0 => Cut::Whole,
        _ if builder.span_count() == 0 => Cut::Nothing,
        _ => {
            let facts = Facts {
                time_span: builder.time_span(),
                events: u32::try_from(builder.span_count()).ok(),
                ..Facts::default()
            };
            Cut::Part(Box::new(Packet {
                facts,
                payload: Bytes::from(builder.finish()),
                ..packet.clone()
            }))
        }
    }
}

/// Whether `is_it` is true for one of these spans.
pub(super) fn any<'s>(
    spans: impl Iterator<Item = (Emitter<'s>, Emitter<'s>, Span<'s>)>,
    decoder: &OtlpDecoder,
    mut is_it: impl FnMut(&OtlpEvent<'_, '_>) -> bool,
) -> bool {
    let mut builder = RequestBuilder::new();
    for (resource, scope, span) in spans {
        builder.add(&resource, &scope, &span);
    }
    let mut found = false;
    let walked = decoder.walk(&builder.finish(), &mut |event| {
        found = is_it(event);
        if found {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    // Spans that were decoded once can be decoded again.
    found && walked.is_ok()
}
