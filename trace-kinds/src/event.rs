//! One view of events for every kind of trace.

use std::ops::ControlFlow;

use query_language::{FieldSource, Value};

use crate::DecodeError;

/// One decoded record, borrowed from its packet for the duration of one call.
///
/// As a [`FieldSource`] it has the fields of its decoder's table; no others are decoded.
/// `docs/fields.md` defines names and units of fields: `ts` and `dur` are nanoseconds, all other
/// values are those of the trace.
pub trait Event: FieldSource {
    /// Start in nanoseconds since the epoch; `None` for a record without a clock.
    fn ts(&self) -> Option<i64>;

    /// Calls `visit` with the canonical path and value of every field, in the order of the record.
    /// This may decode the record a second time; call it only for records that are printed.
    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>));

    /// Calls `visit` with the paths of the fields whose value is the JSON text of a list or an
    /// object, and not a text that looks like one.
    fn each_nested(&self, _visit: &mut dyn FnMut(&str)) {}

    /// A number that two events of one pass share only if some fields, which the adapter lists,
    /// have the same values in both; `None` if unknown.
    #[inline]
    fn shape(&self) -> Option<u32> {
        None
    }
}

/// Receives the events of a packet. `Break` ends the decoding without an error.
pub type EachEvent<'f> = dyn FnMut(&dyn Event) -> ControlFlow<()> + 'f;

/// Decodes the packets of one stream, one after another.
///
/// A decoder retains what a stream needs across packets (dictionaries, clocks, scratch space) but
/// no events, so its memory does not grow with the number of packets.
pub trait Decoder: Send {
    /// Calls `each` for every event of `packet`, in the order of the bytes.
    ///
    /// # Errors
    ///
    /// When the packet cannot be decoded further, after the events before the damage. Records
    /// that can be skipped are counted in [`Decoded`] instead.
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError>;

    /// Says where the next packet is in its stream, for kinds whose packets depend on others.
    fn set_position(&mut self, _position: u64) {}

    /// Events so far whose duration was requested and is unknown, because no end is known.
    fn unpaired(&self) -> u64 {
        0
    }
}

/// Numbers of records in a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Events passed to the caller.
    pub events: u64,
    /// Records that describe the trace.
    pub metadata: u64,
    /// Invalid records, which were skipped.
    pub broken: u64,
}

impl std::ops::AddAssign for Decoded {
    fn add_assign(&mut self, other: Decoded) {
        self.events += other.events;
        self.metadata += other.metadata;
        self.broken += other.broken;
    }
}
