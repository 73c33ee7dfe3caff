//! Rows in order to trace packets.

use std::cmp::Reverse;
use std::io;

use query_language::{Number, Value};

use super::message::{clocks, message, packet, trace, track_event};
use super::tracks::{TrackKey, Tracks};
use crate::cells::Cells;
use crate::{Out, RowSink};

/// Events with the same start that are sorted by their end; more are written in batches of this
/// size.
const SAME_START_MAX: usize = 4096;
/// Id of the only packet sequence of a trace.
const SEQUENCE: u64 = 1;

/// Writes trace packets and assigns events to tracks.
#[derive(Debug, Default)]
pub(super) struct PerfettoSink {
    tracks: Tracks,
    /// Start of the pending events.
    start: Option<i64>,
    pending: Vec<PendingEvent>,
    has_clock: bool,
    without_time: u64,
}

#[derive(Debug)]
struct PendingEvent {
    track: TrackKey,
    end: Option<i64>,
    /// Fields of its `TrackEvent` other than track and time.
    fields: Vec<u8>,
}

impl PerfettoSink {
    fn flush(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let Some(start) = self.start else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        if !self.has_clock {
            self.has_clock = true;
            put_packet(&clock_packet(start), &mut bytes);
        }
        // A slice that contains another one with the same start must be written first.
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|event| Reverse(event.end));
        for event in pending.drain(..) {
            let uuid = self.tracks.track(&event.track, start, event.end)?;
            for descriptor in self.tracks.new_descriptors.drain(..) {
                let new = message(|packet| {
                    packet.number(packet::SEQUENCE_ID, SEQUENCE);
                    packet.bytes(packet::TRACK_DESCRIPTOR, &descriptor);
                });
                put_packet(&new, &mut bytes);
            }
            let kind = match event.end {
                Some(_) => track_event::SLICE_BEGIN,
                None => track_event::INSTANT,
            };
            put_event(start, kind, uuid, &event.fields, &mut bytes);
            if let Some(end) = event.end {
                put_event(end, track_event::SLICE_END, uuid, &[], &mut bytes);
            }
            out(&bytes)?;
            bytes.clear();
        }
        self.pending = pending;
        Ok(())
    }
}

fn put_packet(packet: &[u8], out: &mut Vec<u8>) {
    out.extend(message(|message| message.bytes(trace::PACKET, packet)));
}

fn put_event(ts: i64, kind: u64, uuid: u64, fields: &[u8], out: &mut Vec<u8>) {
    let mut event = message(|event| {
        event.number(track_event::TYPE, kind);
        event.number(track_event::TRACK_UUID, uuid);
    });
    event.extend_from_slice(fields);
    let packet = message(|packet| {
        packet.number(packet::TIMESTAMP, ts.cast_unsigned());
        packet.number(packet::SEQUENCE_ID, SEQUENCE);
        packet.bytes(packet::TRACK_EVENT, &event);
    });
    put_packet(&packet, out);
}

/// A clock snapshot that equates the default clock of a trace with the wall clock.
fn clock_packet(now: i64) -> Vec<u8> {
    let clock = |id: u64| {
        message(|clock| {
            clock.number(clocks::CLOCK_ID, id);
            clock.number(clocks::CLOCK_TIMESTAMP, now.cast_unsigned());
        })
    };
    let snapshot = message(|snapshot| {
        snapshot.bytes(clocks::CLOCKS, &clock(clocks::REALTIME));
        snapshot.bytes(clocks::CLOCKS, &clock(clocks::BOOTTIME));
    });
    message(|packet| {
        packet.number(packet::TIMESTAMP, now.cast_unsigned());
        packet.number(packet::SEQUENCE_ID, SEQUENCE);
        packet.number(packet::SEQUENCE_FLAGS, packet::INCREMENTAL_STATE_CLEARED);
        packet.bytes(packet::CLOCK_SNAPSHOT, &snapshot);
    })
}

fn nanos(value: Option<Value<'_>>) -> Option<i64> {
    match value?.as_number()?.normalize() {
        Number::Int(value) => i64::try_from(value).ok(),
        Number::Float(_) => None,
    }
}

impl RowSink for PerfettoSink {
    fn begin(&mut self, _: &mut Out<'_>) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, row: &[u8], out: &mut Out<'_>) -> io::Result<()> {
        let mut cells = Cells::new(row);
        let (ts, dur) = (nanos(cells.next()?), nanos(cells.next()?));
        let track = [cells.next()?, cells.next()?, cells.next()?, cells.next()?];
        // Timestamps of the format are unsigned.
        let Some(ts) = ts.filter(|ts| *ts >= 0) else {
            self.without_time += 1;
            return Ok(());
        };
        if self.start != Some(ts) || self.pending.len() >= SAME_START_MAX {
            self.flush(out)?;
            self.start = Some(ts);
        }
        self.pending.push(PendingEvent {
            track: TrackKey::of(track),
            end: dur.map(|dur| ts.saturating_add(dur.max(0))),
            fields: cells.rest().to_vec(),
        });
        Ok(())
    }

    fn end(&mut self, out: &mut Out<'_>) -> io::Result<Vec<String>> {
        self.flush(out)?;
        Ok(match self.without_time {
            0 => Vec::new(),
            count => vec![format!(
                "{count} events without a time were skipped: a timeline cannot show them"
            )],
        })
    }
}
