//! A step of a chain, and its input.

use crate::invocation::{Invocation, Member};
use crate::outbox::Outbox;
use crate::packet::{Derived, Packet};

/// What passes a chain.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    /// A packet. For OTLP in JSON, `request` is the protobuf form, else the payload.
    Packet {
        /// The packet.
        packet: &'a Packet,
        /// Its bytes for readers of spans.
        request: &'a [u8],
    },
    /// A local root with its descendants.
    Invocation(&'a Invocation<'a>),
    /// A span, or an exception, extracted from an invocation.
    Extracted {
        /// The invocation.
        of: &'a Invocation<'a>,
        /// The span; for an exception, the span in which it happened.
        member: &'a Member<'a>,
        /// [`Derived::Span`] or [`Derived::Exception`].
        derived: Derived,
        /// The exception as a span message; empty for a span.
        exception: &'a [u8],
    },
}

/// A step of a chain. It has bounded memory and writes to the [`Outbox`].
pub trait Processor: Send {
    /// Processes an item.
    fn process(&mut self, item: Item<'_>, out: &mut Outbox);

    /// Called when time has passed; [`Outbox`] has the clock.
    fn tick(&mut self, _out: &mut Outbox) {}

    /// Called after the last item, and when memory is short: writes what it has collected.
    fn finish(&mut self, _out: &mut Outbox) {}

    /// Memory of what it has collected, bytes.
    fn memory(&self) -> usize {
        0
    }
}

/// Processors in order; each gets every item.
pub(crate) struct Row(pub(crate) Vec<Box<dyn Processor>>);

impl Row {
    pub(crate) fn process(&mut self, item: Item<'_>, out: &mut Outbox) {
        for processor in &mut self.0 {
            processor.process(item, out);
        }
    }

    pub(crate) fn tick(&mut self, out: &mut Outbox) {
        self.0.iter_mut().for_each(|processor| processor.tick(out));
    }

    pub(crate) fn finish(&mut self, out: &mut Outbox) {
        self.0
            .iter_mut()
            .for_each(|processor| processor.finish(out));
    }

    pub(crate) fn memory(&self) -> usize {
        self.0.iter().map(|processor| processor.memory()).sum()
    }
}
