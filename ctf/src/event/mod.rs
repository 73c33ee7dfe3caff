//! Face (b) of the machine: event records with projection.
//!
//! A [`Plan`] is a procedure lowered for what a caller wants. Fields that nobody wants are not
//! decoded: runs of fixed-size ones are stepped over at once. Time and event class come with every
//! event record. Any number of [`EventReader`]s share a plan without locks, each over its own
//! slice of data, so packets can be read in parallel.

mod compiled_plan;
mod containers;
mod fields;
mod interpreter;
mod lowering;
mod op;
mod packet;
mod plan;
mod reader;
mod runs;
mod token;

use crate::class::{EventClass, EventClassIndex, Scope, StreamClass};
pub use fields::{Datum, Fields, Value};
pub use lowering::Candidate;
pub use packet::Packet;
pub use plan::Plan;
use reader::scope_of;
pub use reader::{EventPosition, EventReader, Lost};

/// An event record as far as the plan wants it. It lives until the reader goes on.
#[derive(Clone, Copy, Debug)]
pub struct Event<'r> {
    reader: &'r EventReader<'r>,
}

impl<'r> Event<'r> {
    /// The class of its stream.
    #[inline]
    pub fn stream_class(&self) -> &'r StreamClass {
        let reader = self.reader;
        let classes = reader.plan().procedure.trace_class().stream_classes();
        &classes[reader.interpreter().stream as usize]
    }

    /// Its class.
    #[inline]
    pub fn class(&self) -> &'r EventClass {
        self.stream_class().event_class(self.class_index())
    }

    /// The index of its class in its stream class.
    #[inline]
    pub fn class_index(&self) -> EventClassIndex {
        EventClassIndex(self.reader.interpreter().event)
    }

    /// The name of its class.
    #[inline]
    pub fn name(&self) -> Option<&'r str> {
        self.class().identity.name.as_deref()
    }

    /// Cycles of the default clock; none before the first timestamp of the packet.
    #[inline]
    pub fn clock(&self) -> Option<u64> {
        let interpreter = self.reader.interpreter();
        interpreter.has_clock.then_some(interpreter.clock)
    }

    /// Nanoseconds from the origin of the default clock; none without a clock or a timestamp, or
    /// when they do not fit 64 bits.
    #[inline]
    pub fn nanoseconds(&self) -> Option<i64> {
        self.reader.clock_class()?.nanoseconds(self.clock()?)
    }

    /// Where it begins, in bits from the beginning of the data.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.reader.packet().offset as u64 * 8 + self.reader.record()
    }

    /// The wanted values of a scope: the event header, a context, or the payload.
    #[inline]
    pub fn fields(&self, scope: Scope) -> Fields<'r> {
        scope_of(self.reader.interpreter(), self.reader.plan(), scope)
    }

    /// True when it has this scope and the plan wants something of it.
    #[inline]
    pub fn has_scope(&self, scope: Scope) -> bool {
        self.reader.interpreter().scopes[scope.index()] != interpreter::NO_SCOPE
    }

    /// The wanted values of all scopes, one scope after the other.
    #[inline]
    pub fn all_fields(&self) -> Fields<'r> {
        let interpreter = self.reader.interpreter();
        Fields::new(self.reader.plan(), interpreter.bytes, &interpreter.tokens)
    }

    /// The packet it is in.
    pub fn packet(&self) -> &'r Packet {
        self.reader.packet()
    }

    /// The reader it came from, for the values of its packet.
    pub fn reader(&self) -> &'r EventReader<'r> {
        self.reader
    }
}

#[cfg(test)]
mod tests;
