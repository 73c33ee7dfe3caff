//! Times of packets without a chunk index, from the index of the storage.
//!
//! The server read the times of a packet when it accepted the packet. Times of CTF packets depend
//! on the trace metadata of the agent, which may have changed since, and times of DFTracer packets
//! on the unit of the stream, which may have been declared since. So stored times are used only if
//! they were read with the same time basis as the query's ([`TimeBasis`]). Other packets are read.

use std::io;
use std::ops::Range;

use chunk_index::{Chunk, Index, TimeRange};
use query_language::{FieldTable, Filter, Program};
use storage_format::frame::{Facts, HEADER_BYTES, frame_bytes};
use storage_format::index_part::PacketEntry;
use storage_format::{Kind, TimeBasis};
use trace_kinds::StreamContext;

use super::AgentTrace;

/// Approximate limit on the chunks of a leaf. With fewer packets, each packet is a chunk.
const CHUNKS_MAX: u64 = 1 << 14;

/// The packets of one leaf in the index of its storage.
pub trait PacketTimes: Send + Sync {
    /// Calls `each` for packets whose frames end after byte `from` of the data file, in the order
    /// of the file. Packets may be missing.
    ///
    /// # Errors
    ///
    /// When the index cannot be read.
    fn each(&self, from: u64, each: &mut dyn FnMut(&PacketEntry)) -> io::Result<()>;
}

/// The time basis of a stream that is read with this trace metadata and in this context.
pub(super) fn basis(kind: Kind, trace: &AgentTrace, context: &StreamContext) -> TimeBasis {
    match kind {
        Kind::Ctf => TimeBasis::Number(trace.checksum),
        Kind::Dft => context.unit.time_basis(),
        _ => TimeBasis::of_kind(kind),
    }
}

/// Whether a filter uses the start of events.
pub(super) fn uses_time(filter: &Filter) -> bool {
    let mut table = FieldTable::new();
    let _program = Program::compile(filter, &mut table);
    table.paths().iter().any(|path| path.as_str() == "ts")
}

/// Divides `runs` of a data file into chunks with the times of their packets, as far as these were
/// read with `basis`.
///
/// # Errors
///
/// When the index of the storage cannot be read.
pub(super) fn timed_chunks(
    times: &dyn PacketTimes,
    basis: TimeBasis,
    runs: &[Range<u64>],
) -> io::Result<Index> {
    let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
    let mut chunks = Chunks {
        done: Vec::new(),
        open: None,
        bytes_max: bytes / CHUNKS_MAX,
    };
    let Some((mut run, mut rest)) = runs.split_first() else {
        return Ok(Index::default());
    };
    let mut at = run.start;
    let result = times.each(at, &mut |entry| {
        let Some(start) = entry.offset.checked_sub(HEADER_BYTES as u64) else {
            return;
        };
        while start >= run.end {
            // Packets at the end of the run that the index does not contain.
            chunks.add(at..run.end, None);
            let Some((next, others)) = rest.split_first() else {
                at = run.end;
                return;
            };
            (run, rest, at) = (next, others, next.start);
        }
        if start < at {
            return;
        }
        chunks.add(at..start, None);
        // The padding after the last payload of a file may be missing.
        at = start
            .saturating_add(frame_bytes(entry.stored_size))
            .min(run.end);
        let facts = basis.is_of(entry.facts.time_basis).then_some(&entry.facts);
        chunks.add(start..at, facts);
    });
    result?;
    chunks.add(at..run.end, None);
    for run in rest {
        chunks.add(run.clone(), None);
    }
    chunks.cut();
    Ok(Index::of_chunks(chunks.done))
}

/// Chunks in the making.
struct Chunks {
    done: Vec<Chunk>,
    open: Option<(Range<u64>, Known)>,
    bytes_max: u64,
}

/// What is known about the packets of a chunk: whether the times of all events are known, the time
/// span, whether there may be events, and how many are known.
#[derive(Debug, Clone, Copy)]
struct Known {
    all: bool,
    span: Option<(i64, i64)>,
    events: bool,
    count: u64,
}

impl Known {
    fn of(facts: Option<&Facts>) -> Known {
        let (span, events) = match facts {
            Some(facts) => (facts.time_span, facts.events),
            None => (None, None),
        };
        let may_have_more = facts.is_some_and(|facts| facts.has_unreadable);
        Known {
            // Without a span, a packet has no events, or their times are unknown.
            all: (span.is_some() || events == Some(0)) && !may_have_more,
            span,
            events: events != Some(0) || may_have_more,
            count: events.map_or(0, u64::from),
        }
    }

    fn merge(self, other: Known) -> Known {
        let span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Known {
            all: self.all && other.all,
            span,
            events: self.events || other.events,
            count: self.count.saturating_add(other.count),
        }
    }
}

impl Chunks {
    /// Adds packets; `facts` is `None` if nothing is known about them.
    fn add(&mut self, range: Range<u64>, facts: Option<&Facts>) {
        if range.is_empty() {
            return;
        }
        let known = Known::of(facts);
        let is_crowded = self.done.len() as u64 > 3 * CHUNKS_MAX;
        match &mut self.open {
            // Do not merge unknown packets with known ones: the times of the latter would be lost.
            Some((open, before))
                if open.end == range.start
                    && (before.all == known.all || is_crowded)
                    && range.end - open.start <= self.bytes_max =>
            {
                open.end = range.end;
                *before = before.merge(known);
            }
            _ => {
                self.cut();
                self.open = Some((range, known));
            }
        }
    }

    fn cut(&mut self) {
        let Some((range, known)) = self.open.take() else {
            return;
        };
        let (first, last) = known
            .span
            .filter(|_| known.all)
            .unwrap_or((i64::MIN, i64::MAX));
        let length = range.end - range.start;
        self.done.push(Chunk {
            offset: range.start,
            length,
            raw_length: length,
            number: self.done.len() as u64,
            // Not all of them have a known time, so no predicate is true of all.
            events: known.count.max(u64::from(known.events || !known.all)),
            timed: 0,
            // Unknown events may have any time.
            odd: u64::from(!known.all),
            times: Some(TimeRange {
                first,
                last,
                end: last,
            }),
            ..Chunk::default()
        });
    }
}
