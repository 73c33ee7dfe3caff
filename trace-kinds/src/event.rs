//! One view of events for every kind of trace.

use std::ops::ControlFlow;

use query_language::{FieldSource, Value};

use crate::DecodeError;

/// One decoded record, borrowed from its packet for the length of one call.
///
/// As a [`FieldSource`] it answers for the fields of the table that its decoder was made with, and
/// only those were decoded. Field names, units and kinds are those of `docs/fields.md`: `ts` and
/// `dur` are nanoseconds, everything else stands as the trace wrote it.
pub trait Event: FieldSource {
    /// Start in nanoseconds since the epoch; `None` for a record without a clock.
    fn ts(&self) -> Option<i64>;

    /// Shows every field of the record, in the order in which the record has them, under its
    /// canonical path. This may decode the record a second time: call it for what is printed.
    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>));

    /// A number that events of one reading share when they are known to have the same values of
    /// some fields, which the adapter names; `None` where nothing is known.
    #[inline]
    fn shape(&self) -> Option<u32> {
        None
    }
}

/// What receives the events of a packet. `Break` ends the decoding without an error.
pub type EachEvent<'f> = dyn FnMut(&dyn Event) -> ControlFlow<()> + 'f;

/// Turns packets of one stream into events, one packet after another.
///
/// A decoder keeps what a stream needs from packet to packet (dictionaries, clocks, scratch
/// space) and no events, so its memory does not grow with the packets it has seen.
pub trait Decoder: Send {
    /// Gives each event of `packet` to `each`, in the order of the bytes.
    ///
    /// # Errors
    ///
    /// When the packet cannot be decoded any further; the events in front of the fault were given
    /// already. Faults that a reader can step over are counted in [`Decoded`] instead.
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError>;
}

/// What one packet held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Events given to the caller.
    pub events: u64,
    /// Records that describe the trace and are no events.
    pub metadata: u64,
    /// Records that no reader can make sense of, stepped over.
    pub broken: u64,
}

impl std::ops::AddAssign for Decoded {
    fn add_assign(&mut self, other: Decoded) {
        self.events += other.events;
        self.metadata += other.metadata;
        self.broken += other.broken;
    }
}
