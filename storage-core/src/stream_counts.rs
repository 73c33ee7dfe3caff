//! What arrives in each stream, and what is lost of it, since the server started.
//!
//! The counts of a stream are shared by the writers of all storages that it is pushed into. There
//! are counts for so many streams at once; others are stored as well, and not counted.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use storage_format::{AgentId, StreamId, frame::FrameHeader};

use crate::clock::now_ns;

/// Streams that are counted at once: at most 6 MiB.
const STREAMS_MAX: usize = 4096;
/// Counts of a stream without a writer are forgotten after this time of silence, when others need
/// the room.
const SILENCE_SECONDS: i64 = 600;
/// Time between two searches for room.
const SEARCH_SECONDS: i64 = 10;

/// Rates are those of this time.
const WINDOW_SECONDS: i64 = 30;
/// One slot more, so that the second that has begun replaces none of the window.
const SLOTS: usize = 31;
const SLOT_COUNT: i64 = 31;

/// What arrived in a stream since the server started, in all storages.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamActivity {
    /// Packets that became durable; a packet that several recordings store counts in each.
    pub packets: u64,
    /// Their bytes as the agent sent them.
    pub bytes: u64,
    /// Their events, where packets give a number.
    pub events: u64,
    /// Packets that became durable per second over the last 30 s.
    pub packets_per_second: f64,
    /// Their bytes per second.
    pub bytes_per_second: f64,
    /// Their events per second.
    pub events_per_second: f64,
    /// Events that the producer lost, where packets give a number.
    pub lost_events: u64,
    /// Pushes that were refused because packets before them are missing.
    pub gaps: u64,
    /// Other pushes that were refused.
    pub refused_pushes: u64,
    /// Packets that were accepted and not written.
    pub failed_packets: u64,
    /// Droppable packets that were dropped.
    pub dropped_packets: u64,
    /// Bytes of these packets.
    pub dropped_bytes: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Second {
    second: i64,
    packets: u64,
    bytes: u64,
    events: u64,
}

/// The counts of one stream.
#[derive(Debug, Default)]
pub(crate) struct StreamCount {
    window: Mutex<Window>,
    lost_events: AtomicU64,
    gaps: AtomicU64,
    refused_pushes: AtomicU64,
    failed_packets: AtomicU64,
}

#[derive(Debug, Default)]
struct Window {
    slots: [Second; SLOTS],
    packets: u64,
    bytes: u64,
    events: u64,
    /// When something was counted last.
    last: i64,
}

impl StreamCount {
    /// Counts packets that became durable.
    pub(crate) fn durable(&self, packets: &[FrameHeader]) {
        let sum = |number: fn(&FrameHeader) -> Option<u32>| {
            let numbers = packets.iter().filter_map(number).map(u64::from);
            numbers.fold(0, u64::saturating_add)
        };
        let counted = Second {
            second: seconds(now_ns()),
            packets: packets.len() as u64,
            bytes: sum(|packet| Some(packet.raw_size)),
            events: sum(|packet| packet.facts.events),
        };
        self.add(counted, sum(|packet| packet.facts.lost));
    }

    fn add(&self, counted: Second, lost_events: u64) {
        self.lost_events.fetch_add(lost_events, Ordering::Relaxed);
        self.window.lock().add(counted);
    }

    /// Counts packets that were accepted and not written.
    pub(crate) fn failed(&self, packets: u64) {
        self.failed_packets.fetch_add(packets, Ordering::Relaxed);
        self.window.lock().last = seconds(now_ns());
    }

    fn refused(&self, is_gap: bool) {
        let counter = if is_gap {
            &self.gaps
        } else {
            &self.refused_pushes
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.window.lock().last = seconds(now_ns());
    }

    fn activity(&self, now: i64) -> StreamActivity {
        let window = self.window.lock();
        let recent = window.recent(now);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate is a rounded number anyway"
        )]
        let rate = |number: u64| number as f64 / WINDOW_SECONDS as f64;
        StreamActivity {
            packets: window.packets,
            bytes: window.bytes,
            events: window.events,
            packets_per_second: rate(recent.packets),
            bytes_per_second: rate(recent.bytes),
            events_per_second: rate(recent.events),
            lost_events: self.lost_events.load(Ordering::Relaxed),
            gaps: self.gaps.load(Ordering::Relaxed),
            refused_pushes: self.refused_pushes.load(Ordering::Relaxed),
            failed_packets: self.failed_packets.load(Ordering::Relaxed),
            dropped_packets: 0,
            dropped_bytes: 0,
        }
    }
}

impl Window {
    fn add(&mut self, counted: Second) {
        let Second {
            second,
            packets,
            bytes,
            events,
        } = counted;
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
        self.events = self.events.saturating_add(events);
        self.last = second;
        let slot = usize::try_from(second.rem_euclid(SLOT_COUNT)).unwrap_or(0);
        let Some(slot) = self.slots.get_mut(slot) else {
            return;
        };
        if slot.second != second {
            *slot = Second {
                second,
                ..Second::default()
            };
        }
        slot.packets = slot.packets.saturating_add(packets);
        slot.bytes = slot.bytes.saturating_add(bytes);
        slot.events = slot.events.saturating_add(events);
    }

    /// Sums over the last 30 s.
    fn recent(&self, now: i64) -> Second {
        let is_recent =
            |slot: &&Second| (0..WINDOW_SECONDS).contains(&now.saturating_sub(slot.second));
        let recent = self.slots.iter().filter(is_recent);
        recent.fold(Second::default(), |sum, slot| Second {
            second: now,
            packets: sum.packets.saturating_add(slot.packets),
            bytes: sum.bytes.saturating_add(slot.bytes),
            events: sum.events.saturating_add(slot.events),
        })
    }
}

fn seconds(ns: i64) -> i64 {
    ns.div_euclid(1_000_000_000)
}

/// The counts of all streams.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    streams: HashMap<AgentId, HashMap<StreamId, Arc<StreamCount>>>,
    count: usize,
    searched: i64,
}

impl StreamCounts {
    /// The counts of a stream; `None` if too many others are counted.
    pub(crate) fn of(&self, agent: &AgentId, stream: &StreamId) -> Option<Arc<StreamCount>> {
        self.of_at(seconds(now_ns()), (agent, stream))
    }

    fn of_at(&self, now: i64, (agent, stream): (&AgentId, &StreamId)) -> Option<Arc<StreamCount>> {
        let mut state = self.state.lock();
        if let Some(count) = state.get(agent, stream) {
            return Some(count);
        }
        if state.count >= STREAMS_MAX {
            state.forget_silent(now);
        }
        if state.count >= STREAMS_MAX {
            return None;
        }
        let count = Arc::<StreamCount>::default();
        count.window.lock().last = now;
        let of_agent = state.streams.entry(agent.clone()).or_default();
        of_agent.insert(stream.clone(), Arc::clone(&count));
        state.count = state.count.saturating_add(1);
        Some(count)
    }

    /// Counts a push that was refused.
    pub(crate) fn refused(&self, agent: &AgentId, stream: &StreamId, is_gap: bool) {
        if let Some(count) = self.of(agent, stream) {
            count.refused(is_gap);
        }
    }

    /// What arrived; `None` if nothing did, or if the stream is not counted.
    pub(crate) fn activity(&self, agent: &AgentId, stream: &StreamId) -> Option<StreamActivity> {
        let count = self.state.lock().get(agent, stream)?;
        Some(count.activity(seconds(now_ns())))
    }

    /// Forgets the streams of an agent that is deleted.
    pub(crate) fn forget(&self, agent: &AgentId) {
        let mut state = self.state.lock();
        let removed = state
            .streams
            .remove(agent)
            .map_or(0, |streams| streams.len());
        state.count = state.count.saturating_sub(removed);
    }
}

impl State {
    fn get(&self, agent: &AgentId, stream: &StreamId) -> Option<Arc<StreamCount>> {
        self.streams.get(agent)?.get(stream).cloned()
    }

    /// Forgets streams that no writer has and that were silent.
    fn forget_silent(&mut self, now: i64) {
        if now.saturating_sub(self.searched) < SEARCH_SECONDS {
            return;
        }
        self.searched = now;
        for streams in self.streams.values_mut() {
            streams.retain(|_, count| {
                let silence = now.saturating_sub(count.window.lock().last);
                Arc::strong_count(count) > 1 || silence < SILENCE_SECONDS
            });
        }
        self.streams.retain(|_, streams| !streams.is_empty());
        self.count = self.streams.values().map(HashMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(second: i64, [packets, bytes, events]: [u64; 3]) -> Second {
        Second {
            second,
            packets,
            bytes,
            events,
        }
    }

    #[test]
    fn rates_are_those_of_30_seconds_and_counts_stay() {
        let count = StreamCount::default();
        count.add(arrived(100, [2, 90, 3]), 2);
        count.add(arrived(115, [1, 30, 3]), 5);
        for (now, packets, bytes, events) in [
            (100, 2, 90, 3),
            (115, 3, 120, 6),
            (129, 3, 120, 6),
            (130, 1, 30, 3),
            (144, 1, 30, 3),
            (145, 0, 0, 0),
            // The clock went back.
            (99, 0, 0, 0),
        ] {
            let found = count.activity(now);
            let rates = [
                found.packets_per_second,
                found.bytes_per_second,
                found.events_per_second,
            ];
            let sums = rates.map(|rate| (rate * 30.0).round() as u64);
            // What is after the time that is asked for is not of the window.
            assert_eq!(sums, [packets, bytes, events], "at {now}");
            let all = (found.packets, found.bytes, found.events, found.lost_events);
            assert_eq!(all, (3, 120, 6, 7));
        }
    }

    #[test]
    fn so_many_streams_are_counted_and_silent_ones_make_room() {
        let counts = StreamCounts::default();
        let agent: AgentId = "a".parse().unwrap();
        let stream = |number: usize| format!("s{number}").parse::<StreamId>().unwrap();
        let held = counts.of_at(1000, (&agent, &stream(0))).unwrap();
        for number in 1..STREAMS_MAX {
            assert!(counts.of_at(1000, (&agent, &stream(number))).is_some());
        }
        let new = stream(STREAMS_MAX);
        for (now, is_counted) in [(1000, false), (1599, false), (1605, false), (1620, true)] {
            let found = counts.of_at(now, (&agent, &new)).is_some();
            assert_eq!(found, is_counted, "at {now}");
        }
        // A writer has this one, and the new one has come since.
        assert_eq!(counts.state.lock().count, 2);
        assert!(Arc::ptr_eq(&held, &counts.of(&agent, &stream(0)).unwrap()));
        counts.forget(&agent);
        assert_eq!(counts.state.lock().count, 0);
    }
}
