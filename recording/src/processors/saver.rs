//! Writes its input unchanged.

use std::str::FromStr;

use storage_format::Kind;
use trace_kinds::otlp::Span;

use crate::outbox::Outbox;
use crate::packet::{Derived, OutPacket};
use crate::processor::{Item, Processor};

/// Writes packets as they were sent; in the chain of an extractor, spans and exceptions. It ignores
/// invocations, whose spans arrive in packets.
pub(super) struct Saver {
    kinds: Vec<Kind>,
    takes_spans: bool,
    takes_exceptions: bool,
}

impl Saver {
    pub(super) fn new(kinds: Option<&[String]>) -> Self {
        let named = |name: &str| kinds.is_none_or(|kinds| kinds.iter().any(|kind| kind == name));
        Self {
            kinds: match kinds {
                None => Kind::ALL.to_vec(),
                Some(kinds) => (kinds.iter())
                    .filter_map(|kind| Kind::from_str(kind).ok())
                    .collect(),
            },
            takes_spans: named("span"),
            takes_exceptions: named("exception"),
        }
    }
}

impl Processor for Saver {
    fn process(&mut self, item: Item<'_>, out: &mut Outbox) {
        match item {
            Item::Packet { packet, .. } if self.kinds.contains(&packet.kind) => {
                out.write(OutPacket::of(packet));
            }
            Item::Extracted {
                of,
                member,
                derived,
                exception,
            } => {
                let span = match derived {
                    Derived::Exception if self.takes_exceptions => Span::read(exception).ok(),
                    Derived::Span if self.takes_spans => Some(member.span),
                    _ => None,
                };
                if let Some(span) = span {
                    let sources = (&member.resource.marked(derived), &member.scope.plain());
                    out.write_span((of.agent, of.stream, derived), sources, &span);
                }
            }
            Item::Packet { .. } | Item::Invocation(_) => {}
        }
    }
}
