//! A step of a chain, and what it takes.

use crate::invocation::{Invocation, Member};
use crate::outbox::Outbox;
use crate::packet::{Derived, Packet};

/// What goes through a chain.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    /// A packet. Of one in OTLP's JSON, `request` is the protobuf form; else it is the payload.
    Packet {
        /// The packet.
        packet: &'a Packet,
        /// Its bytes as a reader of spans takes them.
        request: &'a [u8],
    },
    /// A local root with its descendants.
    Invocation(&'a Invocation<'a>),
    /// A span, or an exception, taken out of an invocation.
    Extracted {
        /// The invocation.
        of: &'a Invocation<'a>,
        /// The span; of an exception, the span in which it happened.
        member: &'a Member<'a>,
        /// [`Derived::Span`] or [`Derived::Exception`].
        derived: Derived,
        /// The exception as a span message; empty of a span.
        exception: &'a [u8],
    },
}

/// A step of a chain. It keeps what it needs in bounded memory, and writes into the [`Outbox`].
pub trait Processor: Send {
    /// Takes an item.
    fn process(&mut self, item: Item<'_>, out: &mut Outbox);

    /// Time has passed: the clock of the chain is [`Outbox`]'s.
    fn tick(&mut self, _out: &mut Outbox) {}

    /// Nothing more comes.
    fn finish(&mut self, _out: &mut Outbox) {}
}

/// Processors in a row; each takes every item.
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
}
