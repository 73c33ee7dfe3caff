//! Parts of chunks, for rows in order of time.
//!
//! A chunk of compressed packets has megabytes of events, and those of many streams have the same
//! times. None of their rows can be written before all of these chunks are read, and most rows have
//! to be spilled. The index of the storage has the times of each packet, so a chunk is read in
//! parts of few packets, the earliest of all streams first.

use std::ops::Range;
use std::sync::Arc;

use chunk_index::{Chunk, Index};
use storage_format::{Kind, TimeBasis};

use super::ranges::inside;
use super::{PacketTimes, StoredLeaf, times};
use crate::source::{Task, first_ts};
use trace_kinds::StreamContext;

/// A part has about as many events, or more if a packet has more. Those of tests are short.
const PART_EVENTS: u64 = if cfg!(test) { 5 } else { 4096 };

/// The times of the packets of a leaf.
#[derive(Clone)]
pub(super) struct TimedPackets {
    times: Arc<dyn PacketTimes>,
    basis: TimeBasis,
}

impl TimedPackets {
    /// Those of a leaf; `None` if it is better read in whole chunks, or they are not known. A
    /// packet of CTF says itself what its times are, and none of its events need be in between.
    pub(super) fn of(stored: &StoredLeaf, context: &StreamContext) -> Option<TimedPackets> {
        let kind = stored.leaf.path.kind;
        if kind == Kind::Ctf || !stored.data.is_near() {
            return None;
        }
        Some(TimedPackets {
            times: Arc::clone(stored.times.as_ref()?),
            basis: times::basis(kind, &stored.trace, context),
        })
    }

    /// Tasks that read what of the chunks is in `within`, in the order of their bytes. `None` if
    /// the index of the storage cannot be read.
    pub(super) fn tasks(
        &self,
        index: &Index,
        chunks: &[usize],
        within: &Range<u64>,
    ) -> Option<Vec<Task>> {
        let whole = chunks.iter().filter_map(|number| {
            let chunk = index.chunks().get(*number)?;
            let range = inside(&(chunk.offset..chunk.offset + chunk.length), within)?;
            Some((*number, chunk, range))
        });
        let whole: Vec<(usize, &Chunk, Range<u64>)> = whole.collect();
        let runs: Vec<Range<u64>> = whole.iter().map(|(.., range)| range.clone()).collect();
        let packets = times::timed_chunks(&*self.times, self.basis, &runs).ok()?;
        let mut packets = packets.chunks().iter().peekable();
        let mut tasks = Vec::new();
        for (number, chunk, range) in whole {
            let mut parts = Parts::new(number, chunk);
            while let Some(packet) = packets.next_if(|packet| packet.offset < range.end) {
                parts.add(packet);
            }
            tasks.append(&mut parts.tasks);
        }
        Some(tasks)
    }
}

/// The parts of one chunk in the making.
struct Parts<'c> {
    number: usize,
    chunk: &'c Chunk,
    tasks: Vec<Task>,
    /// Events of the last one.
    events: u64,
}

impl<'c> Parts<'c> {
    fn new(number: usize, chunk: &'c Chunk) -> Parts<'c> {
        Parts {
            number,
            chunk,
            tasks: Vec::new(),
            events: PART_EVENTS,
        }
    }

    /// Adds a packet, or several small ones.
    fn add(&mut self, packet: &Chunk) {
        let end = packet.offset + packet.length;
        // Events without a time come first, and only the chunk says that there are none. No event
        // of a packet with unknown times is earlier than the first of its chunk.
        let first = first_ts(self.chunk).map(|of_chunk| match packet.times {
            Some(times) if packet.odd == 0 => times.first.max(of_chunk),
            _ => of_chunk,
        });
        let bytes = u128::from(packet.length) * u128::from(self.chunk.raw_length);
        let bytes = bytes / u128::from(self.chunk.length.max(1));
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.events < PART_EVENTS
            && let Some(task) = self.tasks.last_mut()
            && let Some(within) = &mut task.within
            && within.end == packet.offset
        {
            within.end = end;
            task.first_ts = task.first_ts.zip(first).map(|(a, b)| a.min(b));
            task.bytes = task.bytes.saturating_add(bytes);
            self.events = self.events.saturating_add(packet.events);
            return;
        }
        self.tasks.push(Task {
            chunks: vec![self.number],
            within: Some(packet.offset..end),
            first_ts: first,
            bytes,
            records: None,
        });
        self.events = packet.events;
    }
}
