//! Known defects of producers in the times of packets, and their correction.
//!
//! | defect | producers | correction |
//! | --- | --- | --- |
//! | events later than the end of their packet | lttng-ust before 2.11; lttng-modules before 2.9.13, 2.10 before 2.10.10 | the packet ends when the next one begins |
//! | events earlier than the beginning of their packet | barectf before 2.3.1 | the packet begins with its first event |
//! | packets that end at zero | lttng-crash, in the packet that was being written | the packet ends when the next one begins |
//!
//! The corrected end of the last packet of a stream is unknown; where it is needed, it is the last
//! event.

use super::stream::{PacketEntry, StreamFile};
use super::text::TextPlan;
use ctf::class::{EnvironmentValue, TraceClass};
use ctf::{EventReader, Plan};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes that are searched for the first event of a packet.
const FIRST_EVENT_BYTES: u64 = 64 * 1024;

/// The known defects of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Defects {
    /// Events are later than the end of their packet.
    events_after: bool,
    /// Events are earlier than the beginning of their packet.
    events_before: bool,
}

impl Defects {
    /// The defects of the producer that the environment of a trace names.
    pub(super) fn of(trace: &TraceClass) -> Self {
        let Some(EnvironmentValue::String(name)) = trace.environment_entry("tracer_name") else {
            return Self::default();
        };
        let number = |key| match trace.environment_entry(key) {
            Some(EnvironmentValue::Integer(value)) => Some(*value),
            _ => None,
        };
        let Some(major) = number("tracer_major") else {
            return Self::default();
        };
        let patch = number("tracer_patch").or_else(|| number("tracer_patchlevel"));
        let version = (
            major,
            number("tracer_minor").unwrap_or(0),
            patch.unwrap_or(0),
        );
        let events_after = match &**name {
            "lttng-ust" => version < (2, 11, 0),
            "lttng-modules" => version < (2, 9, 13) || ((2, 10, 0)..(2, 10, 10)).contains(&version),
            _ => false,
        };
        Self {
            events_after,
            events_before: &**name == "barectf" && version < (2, 3, 1),
        }
    }

    /// Corrects the times of the packets of a stream, which are sorted by time.
    pub(super) fn correct(
        self,
        plan: &TextPlan,
        files: &[StreamFile],
        packets: &mut [PacketEntry],
    ) {
        if self.events_before {
            for packet in packets.iter_mut().skip(1) {
                let first = first_event_time(plan, files, packet);
                packet.begin = packet.begin.min(first);
            }
        }
        let begins: Vec<_> = packets.iter().skip(1).map(|packet| packet.begin).collect();
        for (packet, next) in packets.iter_mut().zip(begins.into_iter().chain([None])) {
            if packet.preamble.info.end_clock.is_none() {
                continue;
            }
            let is_before_begin = packet.end < packet.begin;
            if is_before_begin {
                packet.end = next;
            } else if self.events_after {
                packet.end = next.and_then(|next| Some(next.max(packet.end?)));
            }
        }
    }
}

/// The end of the last packet of a stream. Babeltrace takes its last event when the end in the
/// packet is wrong.
pub(super) fn end_of_last(
    plan: &TextPlan,
    files: &[StreamFile],
    packet: &PacketEntry,
) -> Option<i64> {
    let is_wrong = packet.end.is_none() && packet.preamble.info.end_clock.is_some();
    if !is_wrong {
        return packet.end;
    }
    event_time(plan, files, packet, packet.length, Which::Last)
}

/// The time of the first event of a packet; `None` when the packet has no event or cannot be
/// decoded up to it.
fn first_event_time(plan: &TextPlan, files: &[StreamFile], packet: &PacketEntry) -> Option<i64> {
    let length = packet.length.min(FIRST_EVENT_BYTES);
    event_time(plan, files, packet, length, Which::First)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    First,
    Last,
}

/// The time of the first event, or of the last one that can be decoded, in the first `length` bytes
/// of a packet.
fn event_time(
    plan: &TextPlan,
    files: &[StreamFile],
    packet: &PacketEntry,
    length: u64,
    which: Which,
) -> Option<i64> {
    let file = File::open(&files.get(packet.file)?.path).ok()?;
    let mut data = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut data, packet.offset).ok()?;
    let nothing = Plan::nothing(plan.procedure());
    let mut reader = EventReader::new(&nothing, &data);
    reader.next_packet().ok()??;
    let mut clock = None;
    while let Ok(Some(event)) = reader.next_event() {
        clock = event.clock();
        if which == Which::First {
            break;
        }
    }
    plan.clock(packet.preamble.class)?.nanoseconds(clock?)
}
