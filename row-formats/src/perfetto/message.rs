//! Field numbers of a Perfetto trace, and writing its messages.

use trace_kinds::protobuf::{put_bytes, put_double, put_number};

/// Fields of `Trace`.
pub(super) mod trace {
    pub(crate) const PACKET: u32 = 1;
}

/// Fields of `TracePacket`.
pub(super) mod packet {
    pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const SEQUENCE_ID: u32 = 10;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const SEQUENCE_FLAGS: u32 = 13;
    pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
    /// The first packet of a sequence: readers drop earlier state of the sequence.
    pub(crate) const INCREMENTAL_STATE_CLEARED: u64 = 1;
}

/// Fields of `ClockSnapshot` and of its `Clock`.
pub(super) mod clocks {
    pub(crate) const CLOCKS: u32 = 1;
    pub(crate) const CLOCK_ID: u32 = 1;
    pub(crate) const CLOCK_TIMESTAMP: u32 = 2;
    pub(crate) const REALTIME: u64 = 1;
    /// The clock of timestamps without a clock id.
    pub(crate) const BOOTTIME: u64 = 6;
}

/// Fields of `TrackEvent`.
pub(super) mod track_event {
    pub(crate) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(crate) const TYPE: u32 = 9;
    pub(crate) const TRACK_UUID: u32 = 11;
    pub(crate) const CATEGORIES: u32 = 22;
    pub(crate) const NAME: u32 = 23;
    pub(crate) const SLICE_BEGIN: u64 = 1;
    pub(crate) const SLICE_END: u64 = 2;
    pub(crate) const INSTANT: u64 = 3;
}

/// Fields of `DebugAnnotation`.
pub(super) mod debug_annotation {
    pub(crate) const BOOL_VALUE: u32 = 2;
    pub(crate) const UINT_VALUE: u32 = 3;
    pub(crate) const INT_VALUE: u32 = 4;
    pub(crate) const DOUBLE_VALUE: u32 = 5;
    pub(crate) const STRING_VALUE: u32 = 6;
    pub(crate) const NAME: u32 = 10;
}

/// Fields of `TrackDescriptor`, `ProcessDescriptor` and `ThreadDescriptor`.
pub(super) mod track {
    pub(crate) const UUID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const PROCESS: u32 = 3;
    pub(crate) const THREAD: u32 = 4;
    pub(crate) const PARENT_UUID: u32 = 5;
    pub(crate) const PROCESS_PID: u32 = 1;
    pub(crate) const PROCESS_NAME: u32 = 6;
    pub(crate) const THREAD_PID: u32 = 1;
    pub(crate) const THREAD_TID: u32 = 2;
    pub(crate) const THREAD_NAME: u32 = 5;
}

/// Appends the fields of a message. The format is proto2: a field that is set is written, even if
/// it is zero.
pub(super) struct Message<'o>(&'o mut Vec<u8>);

impl<'o> Message<'o> {
    pub(super) fn append_to(out: &'o mut Vec<u8>) -> Message<'o> {
        Message(out)
    }

    /// An integer, an enum or a bool; negative integers in two's complement.
    pub(super) fn number(&mut self, number: u32, value: u64) {
        put_number(self.0, number, value);
    }

    pub(super) fn double(&mut self, number: u32, value: f64) {
        put_double(self.0, number, value);
    }

    /// Bytes or a nested message.
    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        put_bytes(self.0, number, bytes);
    }

    /// Text. Invalid UTF-8 is replaced, because readers refuse it.
    pub(super) fn text(&mut self, number: u32, text: &[u8]) {
        match std::str::from_utf8(text) {
            Ok(text) => self.bytes(number, text.as_bytes()),
            Err(_) => self.bytes(number, String::from_utf8_lossy(text).as_bytes()),
        }
    }
}

/// The bytes of a message whose fields `write` appends.
pub(super) fn message(write: impl FnOnce(&mut Message<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Message(&mut bytes));
    bytes
}
