//! Reading event records with projection.
//!
//! A [`Plan`] is a procedure lowered for the fields that a caller selects. Other fields are not
//! decoded: runs of fixed-size fields are skipped in one step. Time and event class are available
//! for every event record. Any number of [`EventReader`]s share a plan without locks, each over a
//! different slice of data, so packets can be read in parallel.

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
use crate::integer::{u64_from, usize_from};
pub use fields::{Datum, Fields, Value};
pub use lowering::Candidate;
pub use packet::Packet;
pub use plan::Plan;
use reader::scope_of;
pub use reader::{EventPosition, EventReader, Lost};

/// An event record with the fields that the plan selects. Valid until the reader advances.
#[derive(Clone, Copy, Debug)]
pub struct Event<'r> {
    reader: &'r EventReader<'r>,
}

impl<'r> Event<'r> {
    /// The class of the event record's stream.
    #[inline]
    pub fn stream_class(&self) -> &'r StreamClass {
        let reader = self.reader;
        let classes = reader.plan().procedure.trace_class().stream_classes();
        &classes[usize_from(reader.interpreter().stream)]
    }

    /// The class of the event record.
    #[inline]
    pub fn class(&self) -> &'r EventClass {
        self.stream_class().event_class(self.class_index())
    }

    /// The index of the event class in the stream class.
    #[inline]
    pub fn class_index(&self) -> EventClassIndex {
        EventClassIndex(self.reader.interpreter().event)
    }

    /// The name of the event class.
    #[inline]
    pub fn name(&self) -> Option<&'r str> {
        self.class().identity.name.as_deref()
    }

    /// Cycles of the default clock; `None` before the first timestamp of the packet.
    #[inline]
    pub fn clock(&self) -> Option<u64> {
        let interpreter = self.reader.interpreter();
        interpreter.has_clock.then_some(interpreter.clock)
    }

    /// Nanoseconds from the origin of the default clock; `None` without a clock or a timestamp, or
    /// when they exceed 64 bits.
    #[inline]
    pub fn nanoseconds(&self) -> Option<i64> {
        self.reader.clock_class()?.nanoseconds(self.clock()?)
    }

    /// Offset of the event record in the data, in bits.
    #[inline]
    pub fn offset(&self) -> u64 {
        u64_from(self.reader.packet().offset) * 8 + self.reader.record()
    }

    /// The selected values of a scope: the event header, a context, or the payload.
    #[inline]
    pub fn fields(&self, scope: Scope) -> Fields<'r> {
        scope_of(self.reader.interpreter(), self.reader.plan(), scope)
    }

    /// True when the event record has this scope and the plan selects some of its fields.
    #[inline]
    pub fn has_scope(&self, scope: Scope) -> bool {
        self.reader.interpreter().scopes[scope.index()] != interpreter::NO_SCOPE
    }

    /// The selected values of all scopes, in the order of the scopes.
    #[inline]
    pub fn all_fields(&self) -> Fields<'r> {
        let interpreter = self.reader.interpreter();
        Fields::new(self.reader.plan(), interpreter.bytes, &interpreter.tokens)
    }

    /// The packet that contains the event record.
    pub fn packet(&self) -> &'r Packet {
        self.reader.packet()
    }

    /// The reader, for the values of the packet.
    pub fn reader(&self) -> &'r EventReader<'r> {
        self.reader
    }
}

#[cfg(test)]
mod tests;
