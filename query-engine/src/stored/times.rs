//! What the index of a storage itself knows of packets that no chunk index covers: when their
//! events are.
//!
//! The server read the times of a packet when it took it. Those of CTF depend on the trace metadata
//! of the agent, which may have changed since, and those of DFTracer on the unit of the stream,
//! which may have been declared since: so they are relied on where they were read with what the
//! query reads them with ([`TimeBasis`]). Other packets are read.

use std::io;
use std::ops::Range;

use chunk_index::{Chunk, Index, TimeRange};
use query_language::{FieldTable, Filter, Program};
use storage_format::frame::{Facts, HEADER_BYTES, frame_bytes};
use storage_format::index_part::PacketEntry;
use storage_format::{Kind, TimeBasis};
use trace_kinds::StreamContext;

use super::AgentTrace;

/// About how many chunks are made of a leaf at most; of fewer packets each is one.
const CHUNKS_MAX: u64 = 1 << 14;

/// What the index of a storage says of the packets of one leaf.
pub trait PacketTimes: Send + Sync {
    /// Shows what is known of packets whose frames end behind byte `from` of the data file, in the
    /// order of the file. Packets may be missing.
    ///
    /// # Errors
    ///
    /// When the index cannot be read.
    fn each(&self, from: u64, each: &mut dyn FnMut(&PacketEntry)) -> io::Result<()>;
}

/// What times in packets of a stream rest on, when they are read with this trace metadata and in
/// this context.
pub(super) fn basis(kind: Kind, trace: &AgentTrace, context: &StreamContext) -> TimeBasis {
    match kind {
        Kind::Ctf => TimeBasis::Number(trace.checksum),
        Kind::Dft => context.unit.time_basis(),
        _ => TimeBasis::of_kind(kind),
    }
}

/// Whether a filter asks when events are.
pub(super) fn asks_time(filter: &Filter) -> bool {
    let mut table = FieldTable::new();
    let _program = Program::compile(filter, &mut table);
    table.paths().iter().any(|path| path.as_str() == "ts")
}

/// The bytes `runs` of a data file as chunks with the times of their packets, which rest on
/// `basis`.
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
    let ended = times.each(at, &mut |entry| {
        let Some(start) = entry.offset.checked_sub(HEADER_BYTES as u64) else {
            return;
        };
        while start >= run.end {
            // Packets at the end of the run that were not shown.
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
        // The gap behind the last payload of a file may be cut off.
        at = start
            .saturating_add(frame_bytes(entry.stored_size))
            .min(run.end);
        let facts = basis.is_of(entry.facts.time_basis).then_some(&entry.facts);
        chunks.add(start..at, facts);
    });
    ended?;
    chunks.add(at..run.end, None);
    for run in rest {
        chunks.add(run.clone(), None);
    }
    chunks.cut();
    Ok(Index::of_chunks(chunks.done))
}

/// Chunks while they are made.
struct Chunks {
    done: Vec<Chunk>,
    open: Option<(Range<u64>, Known)>,
    bytes_max: u64,
}

/// What is known of the packets of a chunk: whether that is all, when their events are, and whether
/// there may be any.
#[derive(Debug, Clone, Copy)]
struct Known {
    all: bool,
    span: Option<(i64, i64)>,
    events: bool,
}

impl Known {
    fn of(facts: Option<&Facts>) -> Known {
        let (span, events) = match facts {
            Some(facts) => (facts.time_span, facts.events),
            None => (None, None),
        };
        Known {
            // A packet without a span has no event, or none that is known to have a time.
            all: span.is_some() || events == Some(0),
            span,
            events: events != Some(0),
        }
    }

    fn beside(self, other: Known) -> Known {
        let span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Known {
            all: self.all && other.all,
            span,
            events: self.events || other.events,
        }
    }
}

impl Chunks {
    /// Adds packets of which `facts` are known, if anything is.
    fn add(&mut self, range: Range<u64>, facts: Option<&Facts>) {
        if range.is_empty() {
            return;
        }
        let known = Known::of(facts);
        let is_crowded = self.done.len() as u64 > 3 * CHUNKS_MAX;
        match &mut self.open {
            // Packets of which nothing is known spoil what is known of their neighbours.
            Some((open, before))
                if open.end == range.start
                    && (before.all == known.all || is_crowded)
                    && range.end - open.start <= self.bytes_max =>
            {
                open.end = range.end;
                *before = before.beside(known);
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
            // How many events have a time is not known, so nothing follows for all of them.
            events: u64::from(known.events || !known.all),
            timed: 0,
            // What is not known may be any time.
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
