//! From rows in order to packets.

use std::cmp::Reverse;
use std::io;

use query_language::{Number, Value};

use super::message::{clocks, message, packet, trace, track_event};
use super::tracks::{Place, Tracks};
use crate::cells::Cells;
use crate::{Out, RowSink};

/// Events of one begin that are put in order by their length; those behind are taken as they come.
const TOGETHER_MAX: usize = 4096;
/// The one sequence of packets that an answer has.
const SEQUENCE: u64 = 1;

/// Writes packets, and knows which tracks there are.
#[derive(Debug, Default)]
pub(super) struct PerfettoSink {
    tracks: Tracks,
    /// When the events that wait begin.
    begin: Option<i64>,
    waiting: Vec<Waiting>,
    has_clock: bool,
    without_time: u64,
}

#[derive(Debug)]
struct Waiting {
    place: Place,
    end: Option<i64>,
    /// What is told of the event besides place and time.
    event: Vec<u8>,
}

impl PerfettoSink {
    fn flush(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let Some(begin) = self.begin else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        if !self.has_clock {
            self.has_clock = true;
            put_packet(&clock_packet(begin), &mut bytes);
        }
        // An event that contains others begins with the first of these.
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|event| Reverse(event.end));
        for event in waiting.drain(..) {
            let uuid = self.tracks.track(&event.place, begin, event.end)?;
            for descriptor in self.tracks.news.drain(..) {
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
            put_event(begin, kind, uuid, &event.event, &mut bytes);
            if let Some(end) = event.end {
                put_event(end, track_event::SLICE_END, uuid, &[], &mut bytes);
            }
            out(&bytes)?;
            bytes.clear();
        }
        self.waiting = waiting;
        Ok(())
    }
}

fn put_packet(packet: &[u8], out: &mut Vec<u8>) {
    out.extend(message(|whole| whole.bytes(trace::PACKET, packet)));
}

fn put_event(ts: i64, kind: u64, uuid: u64, more: &[u8], out: &mut Vec<u8>) {
    let mut event = message(|event| {
        event.number(track_event::TYPE, kind);
        event.number(track_event::TRACK_UUID, uuid);
    });
    event.extend_from_slice(more);
    let packet = message(|packet| {
        packet.number(packet::TIMESTAMP, ts.cast_unsigned());
        packet.number(packet::SEQUENCE_ID, SEQUENCE);
        packet.bytes(packet::TRACK_EVENT, &event);
    });
    put_packet(&packet, out);
}

/// Says that the clock of the trace is that of the wall.
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
        let place = [cells.next()?, cells.next()?, cells.next()?, cells.next()?];
        // Times of the format have no sign.
        let Some(ts) = ts.filter(|ts| *ts >= 0) else {
            self.without_time += 1;
            return Ok(());
        };
        if self.begin != Some(ts) || self.waiting.len() >= TOGETHER_MAX {
            self.flush(out)?;
            self.begin = Some(ts);
        }
        self.waiting.push(Waiting {
            place: Place::of(place),
            end: dur.map(|dur| ts.saturating_add(dur.max(0))),
            event: cells.rest().to_vec(),
        });
        Ok(())
    }

    fn end(&mut self, out: &mut Out<'_>) -> io::Result<Vec<String>> {
        self.flush(out)?;
        Ok(match self.without_time {
            0 => Vec::new(),
            count => vec![format!(
                "{count} events without a time are left out: a timeline has no place for them"
            )],
        })
    }
}
