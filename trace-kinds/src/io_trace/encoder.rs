//! The encoder of records into packets.

use ::io_trace::{Drained, Operation, Record};
use ctf::write::{FieldValue, PacketWriter};

use super::schema::{CACHE, FOUND, SCHEMA_OF_TRACES, VERSION};

/// One instant on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The tracer's clock, ns.
    pub clock: u64,
    /// The wall clock, ns since the epoch; not negative.
    pub wall: i64,
}

impl Anchor {
    /// Converts a time of the tracer's clock to the wall clock.
    fn wall_of(&self, clock: u64) -> i64 {
        let since = i128::from(clock) - i128::from(self.clock);
        i64::try_from(i128::from(self.wall) + since).unwrap_or(i64::MAX)
    }
}

/// How a trace was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// When, on both clocks.
    pub anchor: Anchor,
    /// `stop_at_limit` or `ring`.
    pub mode: String,
    /// Limit on the bytes of stored packets.
    pub bytes_max: u64,
    /// One in so many blocks is recorded.
    pub blocks_one_in: u32,
    /// One in so many of each operation is recorded, 0 for none.
    pub one_in: [u32; Operation::COUNT],
    /// Ids of the storages that are recorded, empty for all.
    pub storages: Vec<String>,
}

/// How a trace ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// `stopped`, `limit`, `shutdown` or `failed`.
    pub reason: &'static str,
    /// Counts of recorded and dropped operations.
    pub drained: Drained,
    /// Event records that were written and then overwritten (ring).
    pub overwritten: u64,
    /// When, on the tracer's clock.
    pub clock: u64,
}

/// A packet with its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The packet.
    pub bytes: Vec<u8>,
    /// Start of the first operation and end of the last, ns since the epoch; `None` without one.
    pub time_span: Option<(i64, i64)>,
    /// Operations in it.
    pub events: u64,
    /// Operations that were dropped since the end of the previous packet.
    pub dropped: u64,
}

/// Writes the packets of one trace.
#[derive(Debug)]
pub struct Encoder {
    writer: PacketWriter<'static>,
    anchor: Anchor,
    last: u64,
    time_span: Option<(i64, i64)>,
    events: u64,
    /// Drops that were reported already.
    dropped: u64,
    /// Records that could not be written.
    refused: u64,
}

impl Encoder {
    /// An encoder whose first packet contains how the trace was started.
    pub fn new(begin: &Begin) -> Self {
        let known = &*SCHEMA_OF_TRACES;
        let mut encoder = Self {
            writer: PacketWriter::new(&known.schema, 0),
            anchor: begin.anchor,
            last: 0,
            time_span: None,
            events: 0,
            dropped: 0,
            refused: 0,
        };
        let rates: Vec<_> = Operation::ALL
            .iter()
            .zip(begin.one_in)
            .map(|(operation, one_in)| format!("{}={one_in}", operation.name()))
            .collect();
        let values = [
            FieldValue::Unsigned(VERSION),
            FieldValue::Unsigned(begin.anchor.clock),
            FieldValue::Signed(begin.anchor.wall),
            FieldValue::Text(&begin.mode),
            FieldValue::Unsigned(begin.bytes_max),
            FieldValue::Unsigned(begin.blocks_one_in.into()),
            FieldValue::Text(&rates.join(",")),
            FieldValue::Text(&begin.storages.join(",")),
        ];
        let at = encoder.time(begin.anchor.clock);
        let written = encoder.writer.event(known.begin, at, &values);
        encoder.refused += u64::from(written.is_err());
        encoder
    }

    /// Bytes of the packet so far.
    pub fn bytes(&self) -> usize {
        self.writer.len()
    }

    /// Time of an event record that ended at `clock`; never before that of the previous record.
    fn time(&mut self, clock: u64) -> u64 {
        let wall = u64::try_from(self.anchor.wall_of(clock)).unwrap_or(0);
        self.last = self.last.max(wall);
        self.last
    }

    /// Appends an operation.
    pub fn put(&mut self, record: &Record<'_>) {
        let time = self.time(record.end());
        let start = self.anchor.wall_of(record.start);
        let access = &record.access;
        let tristate = |known: Option<bool>| match known {
            None => 0,
            Some(true) => 1,
            Some(false) => 2,
        };
        let of_operation = [
            FieldValue::Signed(start),
            FieldValue::Unsigned(record.latency),
            FieldValue::Unsigned(record.file.class() as u64),
            FieldValue::Unsigned(record.cause as u64),
            FieldValue::Text(record.file.path()),
            FieldValue::Unsigned(record.thread.into()),
            FieldValue::Unsigned(access.errno.into()),
            FieldValue::Bool(access.offset.is_some()),
            FieldValue::Unsigned(access.offset.unwrap_or(0)),
            FieldValue::Unsigned(access.asked),
            FieldValue::Unsigned(access.done),
            FieldValue::Unsigned(tristate(access.cache_hit)),
            FieldValue::Text(record.request.unwrap_or("")),
            FieldValue::Unsigned(record.requests.into()),
        ];
        let event = SCHEMA_OF_TRACES.operations[record.operation as usize];
        let written = match (&access.block, record.operation) {
            (Some(block), Operation::Lookup) => {
                let of_block = [
                    FieldValue::Unsigned(block.block_type as u64),
                    FieldValue::Unsigned(block.size),
                    FieldValue::Bool(block.not_inserted),
                    FieldValue::Unsigned(block.leaf),
                    FieldValue::Unsigned(block.entries),
                    FieldValue::Bool(block.immutable),
                    FieldValue::Unsigned(tristate(block.found)),
                ];
                let values = [of_operation.as_slice(), &of_block].concat();
                self.writer.event(event, time, &values)
            }
            _ => self.writer.event(event, time, &of_operation),
        };
        if written.is_err() {
            self.refused += 1;
            return;
        }
        self.events += 1;
        let (begin, end) = (start, self.anchor.wall_of(record.end()));
        self.time_span = Some(match self.time_span {
            Some((first, last)) => (first.min(begin), last.max(end)),
            None => (begin, end),
        });
    }

    /// Ends the packet; `drained` are the tracer's latest counts.
    pub fn finish(&mut self, drained: &Drained) -> Encoded {
        let dropped = drained.dropped_total() + self.refused;
        let reported = std::mem::replace(&mut self.dropped, dropped);
        Encoded {
            bytes: self.writer.finish(dropped),
            time_span: self.time_span.take(),
            events: std::mem::take(&mut self.events),
            dropped: dropped.saturating_sub(reported),
        }
    }

    /// Ends the trace with a packet that contains how it ended.
    pub fn end(&mut self, end: &End) -> Encoded {
        let by_operation: Vec<_> = Operation::ALL
            .iter()
            .zip(end.drained.dropped)
            .filter(|(_, dropped)| *dropped > 0)
            .map(|(operation, dropped)| format!("{}={dropped}", operation.name()))
            .collect();
        let values = [
            FieldValue::Text(end.reason),
            FieldValue::Unsigned(end.drained.recorded),
            FieldValue::Unsigned(end.drained.dropped_total() + self.refused),
            FieldValue::Text(&by_operation.join(",")),
            FieldValue::Unsigned(end.overwritten),
        ];
        let at = self.time(end.clock);
        let written = self.writer.event(SCHEMA_OF_TRACES.end, at, &values);
        self.refused += u64::from(written.is_err());
        self.finish(&end.drained)
    }
}

const _: () = assert!(CACHE.len() == FOUND.len());
