//! What is known of a packet from its header and context.

use uuid::Uuid;

use crate::class::{ClockClass, StreamClass, StreamClassIndex};

/// The facts of a packet: all that its header and context say about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Offset of the packet in the data, in bytes.
    pub offset: usize,
    /// Its stream class; none when the trace class has none.
    pub stream_class: Option<StreamClassIndex>,
    /// The id of the stream within its class.
    pub stream_id: Option<u64>,
    /// The magic number.
    pub magic: Option<u64>,
    /// The UUID of the metadata it was made with.
    pub uuid: Option<Uuid>,
    /// Length with padding, in bits.
    pub total_length: Option<u64>,
    /// Length without padding, in bits.
    pub content_length: Option<u64>,
    /// Length of header and context, in bits.
    pub preamble_length: u64,
    /// Cycles of the default clock at the beginning.
    pub begin_clock: Option<u64>,
    /// Cycles of the default clock at the end.
    pub end_clock: Option<u64>,
    /// Snapshot of the stream's counter of discarded event records, at the end of the packet.
    pub discarded_events: Option<u64>,
    /// Number of the packet in its stream.
    pub sequence: Option<u64>,
    /// Bytes of the packet in the data: its total length, or what the data holds of it.
    pub bytes: usize,
    /// True when the data ends before the packet does.
    pub is_truncated: bool,
}

impl Packet {
    /// The class of its stream in `trace`.
    pub fn class<'c>(&self, trace: &'c crate::class::TraceClass) -> Option<&'c StreamClass> {
        self.stream_class.map(|index| trace.stream_class(index))
    }

    /// Nanoseconds from the origin of `clock` at its beginning and its end, as far as they are
    /// known.
    pub fn time_span(&self, clock: &ClockClass) -> (Option<i64>, Option<i64>) {
        let nanoseconds = |cycles: Option<u64>| cycles.and_then(|cycles| clock.nanoseconds(cycles));
        (nanoseconds(self.begin_clock), nanoseconds(self.end_clock))
    }

    /// Offset of the next packet in the data, in bytes.
    pub fn end(&self) -> usize {
        self.offset.saturating_add(self.bytes)
    }
}
