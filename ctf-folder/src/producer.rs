//! Producers that say wrong things about their packets, and what is done about it.
//!
//! | fault | producers | mended by |
//! | --- | --- | --- |
//! | events later than the end of their packet | lttng-ust before 2.11; lttng-modules before 2.9.13, 2.10 before 2.10.10 | the packet ends when the next one begins |
//! | events earlier than the beginning of their packet | barectf before 2.3.1 | the packet begins with its first event |
//! | packets that end at zero | lttng-crash, in the packet that was being written | the packet ends when the next one begins |
//!
//! What the last packet of a stream is then said to end at is not known.

use super::folder::{PacketEntry, StreamFile};
use super::text::TextPlan;
use ctf::class::{EnvironmentValue, TraceClass};
use ctf::{EventReader, Plan};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes in which the first event of a packet is looked for.
const HEAD_BYTES: u64 = 64 * 1024;

/// What a producer is known to do wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Events are later than the end of their packet.
    events_after: bool,
    /// Events are earlier than the beginning of their packet.
    events_before: bool,
}

impl Faults {
    /// Those of the producer that the environment of a trace names.
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

    /// Mends the times of the packets of a stream, which are in their order.
    pub(super) fn mend(self, plan: &TextPlan, files: &[StreamFile], packets: &mut [PacketEntry]) {
        if self.events_before {
            for packet in packets.iter_mut().skip(1) {
                let first = first_event(plan, files, packet);
                packet.begin = packet.begin.min(first);
            }
        }
        let begins: Vec<_> = packets.iter().skip(1).map(|packet| packet.begin).collect();
        for (packet, next) in packets.iter_mut().zip(begins.into_iter().chain([None])) {
            if packet.facts.info.end_clock.is_none() {
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

/// The time of the first event of a packet; none when there is none, or when it cannot be told.
fn first_event(plan: &TextPlan, files: &[StreamFile], packet: &PacketEntry) -> Option<i64> {
    let file = File::open(&files.get(packet.file)?.path).ok()?;
    let length = packet.length.min(HEAD_BYTES);
    let mut head = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut head, packet.offset).ok()?;
    let nothing = Plan::nothing(plan.procedure());
    let mut reader = EventReader::new(&nothing, &head);
    reader.next_packet().ok()??;
    let clock = reader.next_event().ok()??.clock()?;
    Some(plan.clock(packet.facts.class)?.nanoseconds(clock))
}
