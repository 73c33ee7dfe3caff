//! Slices to trace packets.

use std::borrow::Cow;

use query_language::Value;

use super::annotation;
use super::message::{clocks, message, packet, trace, track, track_event};
use crate::timeline::{Encoder, Place, Slice, Track};

/// Id of the only packet sequence of a trace.
const SEQUENCE: u64 = 1;
/// Name of the instant that says what the trace lacks.
const LACKING: &[u8] = b"Not everything could be read";

/// Writes trace packets.
#[derive(Debug, Default)]
pub(super) struct Packets;

impl Encoder for Packets {
    fn begin(&mut self, _: &mut Vec<u8>) {}

    fn first(&mut self, start: i64, out: &mut Vec<u8>) {
        put_packet(&clock_packet(start), out);
    }

    fn track(&mut self, track: Track, out: &mut Vec<u8>) {
        let descriptor = descriptor(&track);
        let new = message(|packet| {
            packet.number(packet::SEQUENCE_ID, SEQUENCE);
            packet.bytes(packet::TRACK_DESCRIPTOR, &descriptor);
        });
        put_packet(&new, out);
    }

    fn slice(&mut self, slice: Slice<'_>, out: &mut Vec<u8>) {
        let kind = match slice.dur {
            Some(_) => track_event::SLICE_BEGIN,
            None => track_event::INSTANT,
        };
        let mut fields = Cow::Borrowed(slice.fields);
        // The end of a slice is not before its begin.
        if let Some(dur) = slice.dur.filter(|dur| *dur < 0) {
            let dur = annotation("dur", Value::Int(dur));
            let dur = message(|event| event.bytes(track_event::DEBUG_ANNOTATIONS, &dur));
            fields.to_mut().extend(dur);
        }
        put_event(slice.start, kind, slice.track, &fields, out);
        if let Some(end) = slice.end() {
            put_event(end, track_event::SLICE_END, slice.track, &[], out);
        }
    }

    fn lacking(&mut self, track: u64, start: i64, lacks: &[String], out: &mut Vec<u8>) {
        let fields = message(|event| {
            event.text(track_event::NAME, LACKING);
            for (number, reason) in (1..).zip(lacks) {
                let reason = Value::Str(reason.as_bytes());
                let reason = annotation(&format!("{number}"), reason);
                event.bytes(track_event::DEBUG_ANNOTATIONS, &reason);
            }
        });
        put_event(start, track_event::INSTANT, track, &fields, out);
    }

    fn end(&mut self, _: &[String], _: &mut Vec<u8>) {}
}

fn descriptor(of: &Track) -> Vec<u8> {
    message(|descriptor| {
        descriptor.number(track::UUID, of.id);
        if let Some(parent) = of.parent {
            descriptor.number(track::PARENT_UUID, parent);
        }
        match &of.place {
            Place::Thread { pid, tid, text } => {
                let thread = message(|thread| {
                    thread.number(track::THREAD_PID, i64::from(*pid).cast_unsigned());
                    thread.number(track::THREAD_TID, tid.cast_unsigned());
                    if let Some(text) = text {
                        thread.text(track::THREAD_NAME, text.as_bytes());
                    }
                });
                descriptor.bytes(track::THREAD, &thread);
            }
            Place::Process { pid, agent, text } => {
                let words = [Some(agent.as_ref()), text.as_deref()]
                    .into_iter()
                    .flatten();
                let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
                let process = message(|process| {
                    process.number(track::PROCESS_PID, i64::from(*pid).cast_unsigned());
                    if !words.is_empty() {
                        process.text(track::PROCESS_NAME, words.join(" ").as_bytes());
                    }
                });
                descriptor.bytes(track::PROCESS, &process);
            }
            Place::Named(name) => descriptor.text(track::NAME, name.as_bytes()),
        }
    })
}

fn put_packet(packet: &[u8], out: &mut Vec<u8>) {
    out.extend(message(|message| message.bytes(trace::PACKET, packet)));
}

fn put_event(ts: i64, kind: u64, track: u64, fields: &[u8], out: &mut Vec<u8>) {
    let mut event = message(|event| {
        event.number(track_event::TYPE, kind);
        event.number(track_event::TRACK_UUID, track);
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
