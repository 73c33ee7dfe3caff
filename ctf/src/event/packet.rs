//! The properties of a packet that its header and context define.

use uuid::Uuid;

use crate::class::{ClockClass, StreamClass, StreamClassIndex};

/// The properties of a packet, from its header and context.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Offset of the packet in the data, in bytes.
    pub offset: usize,
    /// The stream class; `None` when the trace class has no stream classes.
    pub stream_class: Option<StreamClassIndex>,
    /// The id of the stream in its class.
    pub stream_id: Option<u64>,
    /// The magic number.
    pub magic: Option<u64>,
    /// The UUID of the metadata that describes the packet.
    pub uuid: Option<Uuid>,
    /// Length including padding, in bits.
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
    /// Sequence number of the packet in its stream.
    pub sequence: Option<u64>,
    /// Bytes of the packet in the data: the total length, or less when the data is truncated.
    pub bytes: usize,
    /// True when the data ends before the packet does.
    pub is_truncated: bool,
}

impl Packet {
    /// A packet at `offset` of which nothing is known yet.
    pub(super) fn at(offset: usize) -> Self {
        Self {
            offset,
            stream_class: None,
            stream_id: None,
            magic: None,
            uuid: None,
            total_length: None,
            content_length: None,
            preamble_length: 0,
            begin_clock: None,
            end_clock: None,
            discarded_events: None,
            sequence: None,
            bytes: 0,
            is_truncated: false,
        }
    }

    /// The stream class in `trace`.
    pub fn class<'c>(&self, trace: &'c crate::class::TraceClass) -> Option<&'c StreamClass> {
        self.stream_class.map(|index| trace.stream_class(index))
    }

    /// Nanoseconds from the origin of `clock` at the beginning and the end, when known.
    pub fn time_span(&self, clock: &ClockClass) -> (Option<i64>, Option<i64>) {
        let nanoseconds = |cycles: Option<u64>| cycles.and_then(|cycles| clock.nanoseconds(cycles));
        (nanoseconds(self.begin_clock), nanoseconds(self.end_clock))
    }

    /// Offset of the next packet in the data, in bytes.
    pub fn end(&self) -> usize {
        self.offset.saturating_add(self.bytes)
    }
}
