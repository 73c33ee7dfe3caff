//! Processors of invocations: clones of their roots, and their spans one by one.

use trace_kinds::otlp::{AnyValue, Span, SpanEvent, SpanWriter};

use crate::outbox::Outbox;
use crate::packet::Derived;
use crate::processor::{Item, Processor, Row};

/// Code of the status `error`.
const STATUS_ERROR: u64 = 2;

/// Writes the root of each invocation without its children.
pub(super) struct Cloner;

impl Processor for Cloner {
    fn process(&mut self, item: Item<'_>, out: &mut Outbox) {
        if let Item::Invocation(invocation) = item
            && let Some(root) = invocation.members.first()
        {
            out.write_span(
                (invocation.agent, invocation.stream, Derived::Clone),
                (&root.resource.marked(Derived::Clone), &root.scope.plain()),
                &root.span,
            );
        }
    }
}

/// Passes every descendant of a root to its chain, and every exception of every span.
pub(super) struct Extractor {
    row: Row,
}

impl Extractor {
    pub(super) fn new(row: Row) -> Self {
        Self { row }
    }
}

impl Processor for Extractor {
    fn process(&mut self, item: Item<'_>, out: &mut Outbox) {
        let Item::Invocation(of) = item else { return };
        for (at, member) in of.members.iter().enumerate() {
            if at > 0 {
                let span = Item::Extracted {
                    of,
                    member,
                    derived: Derived::Span,
                    exception: &[],
                };
                self.row.process(span, out);
            }
            // A span with damaged events was refused on arrival.
            let _ = member.span.each_event(&mut |event| {
                if event.is_exception() {
                    let exception = Item::Extracted {
                        of,
                        member,
                        derived: Derived::Exception,
                        exception: &exception_span(&member.span, &event),
                    };
                    self.row.process(exception, out);
                }
            });
        }
    }

    fn tick(&mut self, out: &mut Outbox) {
        self.row.tick(out);
    }

    fn finish(&mut self, out: &mut Outbox) {
        self.row.finish(out);
    }

    fn memory(&self) -> usize {
        self.row.memory()
    }
}

/// An exception as a span without duration, named by its type, a child of the span in which it
/// happened.
fn exception_span(span: &Span<'_>, event: &SpanEvent<'_>) -> Vec<u8> {
    let mut name = &b"exception"[..];
    let mut attributes = Vec::new();
    let _ = event.each_attribute(&mut |attribute| {
        if let (b"exception.type", AnyValue::Text(text)) = (attribute.key, attribute.value) {
            name = text;
        }
        attributes.push(attribute.message());
    });
    let mut written = SpanWriter::new(name, 0, (event.time, event.time));
    written.ids(span.trace_id, &[], span.span_id);
    for attribute in attributes {
        written.attribute_message(attribute);
    }
    written.status(STATUS_ERROR, &[]);
    written.finish()
}
