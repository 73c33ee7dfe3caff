//! The cutter of trace files into packets that can each be decoded alone.

use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;

use super::envelope::{Envelope, split_envelope};
use super::header::{Continuation, is_trace};
use super::io::{anchored_ns, latency};
use super::{CONTINUATION_BYTES, HEADER_BYTES, RocksdbError, TraceHeader, TraceKind};

/// A part of a trace file, after a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The header or continuation header, then complete records.
    pub bytes: Vec<u8>,
    /// The offset in the trace file of the first record.
    pub offset: u64,
    /// The range of its bytes in the input: including the header in the first packet, without the
    /// continuation header in others.
    pub input_range: Range<u64>,
    /// How many records it has.
    pub records: u64,
    /// When the earliest record starts, ns since the epoch.
    pub start_ns: i64,
    /// When the latest record ends, ns since the epoch. Records are not ordered by time.
    pub end_ns: i64,
}

/// Cuts the bytes of a trace file, passed in pieces of any size, into packets.
///
/// Memory contains at most one incomplete packet, one incomplete record and the packets that the
/// caller has not fetched. [`Cutter::push`] adds bytes and [`Cutter::next_packet`] returns packets;
/// at the end of the file, [`Cutter::flush`] returns the last packet and [`Cutter::torn_end`]
/// whether the file ends inside a record. A growing file is cut in the same way: flush whenever it
/// pauses, push when there is more.
///
/// ```
/// use trace_kinds::rocksdb::{Cutter, TraceHeader};
///
/// let mut file = Vec::new();
/// TraceHeader { start_us: 7, major: 7, minor: 8, continuation: None }.put(&mut file);
/// let mut cutter = Cutter::new(1 << 20);
/// cutter.push(&file)?;
/// let packet = cutter.flush().expect("the header alone is a packet");
/// assert_eq!((packet.bytes, packet.records), (file, 0));
/// assert_eq!(cutter.torn_end(), None);
/// # Ok::<(), trace_kinds::rocksdb::RocksdbError>(())
/// ```
#[derive(Debug)]
pub struct Cutter {
    target: usize,
    partial: Vec<u8>,
    trace: Option<Trace>,
    current: Packet,
    /// The current packet is the first one, so its header alone makes it a packet.
    header_waits: bool,
    ready: VecDeque<Packet>,
    /// The offset in the trace file after the last complete record.
    offset: u64,
    /// Bytes that were pushed before the current record, including headers of packets.
    pushed: u64,
}

/// The trace, once its header was read.
#[derive(Debug, Clone, Copy)]
struct Trace {
    header: TraceHeader,
    kind: Option<TraceKind>,
    first_time: Option<u64>,
}

impl Cutter {
    /// A cutter whose packets end with the record that brings them to `target_bytes`.
    pub fn new(target_bytes: usize) -> Self {
        Self {
            target: target_bytes.max(CONTINUATION_BYTES + 1),
            partial: Vec::new(),
            trace: None,
            current: empty_packet(0),
            header_waits: false,
            ready: VecDeque::new(),
            offset: 0,
            pushed: 0,
        }
    }

    /// The kind of the trace; known after its first record.
    pub fn kind(&self) -> Option<TraceKind> {
        self.trace.and_then(|trace| trace.kind)
    }

    /// The header of the trace.
    pub fn header(&self) -> Option<TraceHeader> {
        self.trace.map(|trace| trace.header)
    }

    /// The header of packets after the first, except for the offset at which each continues; known
    /// after the first record.
    pub fn continuation(&self) -> Option<TraceHeader> {
        let trace = self.trace?;
        Some(TraceHeader {
            continuation: Some(Continuation {
                first_time: trace.first_time?,
                offset: 0,
            }),
            ..trace.header
        })
    }

    /// Reads the next bytes of the file.
    ///
    /// # Errors
    ///
    /// When the bytes are not those of a trace, or damaged. The packets before the damage can
    /// still be fetched, but no more bytes pushed.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), RocksdbError> {
        let mut rest = bytes;
        while !self.partial.is_empty() && !rest.is_empty() {
            let needed = match split_envelope(&self.partial, self.offset) {
                Err(RocksdbError::Torn { left, needed, .. }) => needed - left,
                Err(other) => return Err(other),
                Ok(_) => 0,
            };
            let take = usize::try_from(needed)
                .unwrap_or(usize::MAX)
                .min(rest.len());
            self.partial.extend_from_slice(&rest[..take]);
            rest = &rest[take..];
            let whole = std::mem::take(&mut self.partial);
            let used = self.take_records(&whole)?;
            self.partial = whole;
            self.partial.drain(..used);
        }
        let used = self.take_records(rest)?;
        self.partial.extend_from_slice(&rest[used..]);
        Ok(())
    }

    /// A packet that is full.
    pub fn next_packet(&mut self) -> Option<Packet> {
        self.ready.pop_front()
    }

    /// The incomplete packet with its complete records (or the header of a trace without any),
    /// after all full packets.
    pub fn flush(&mut self) -> Option<Packet> {
        if self.ready.is_empty() {
            self.close_packet();
        }
        self.ready.pop_front()
    }

    /// [`RocksdbError::Torn`] if the bytes so far end inside a record.
    pub fn torn_end(&self) -> Option<RocksdbError> {
        if self.partial.is_empty() {
            return None;
        }
        split_envelope(&self.partial, self.offset).err()
    }

    /// Bytes of the input up to the end of the last complete record.
    pub fn complete_bytes(&self) -> u64 {
        self.pushed
    }

    /// Adds the complete records at the start of `bytes`; returns their length.
    fn take_records(&mut self, bytes: &[u8]) -> Result<usize, RocksdbError> {
        if self.trace.is_none() && !is_trace(bytes) {
            let what = "it does not start with RocksDB's magic text";
            return Err(RocksdbError::NotATrace { offset: 0, what });
        }
        let mut position = 0;
        while position < bytes.len() {
            let envelope = match split_envelope(&bytes[position..], self.offset) {
                Ok(envelope) => envelope,
                Err(RocksdbError::Torn { .. }) => break,
                Err(other) => return Err(other),
            };
            let length = super::ENVELOPE_BYTES + envelope.payload.len();
            let record = &bytes[position..position + length];
            position += length;
            self.take_record(record, &envelope)?;
            self.pushed += length as u64;
        }
        Ok(position)
    }

    fn take_record(&mut self, bytes: &[u8], envelope: &Envelope<'_>) -> Result<(), RocksdbError> {
        let Some(mut trace) = self.trace else {
            return self.take_header(bytes, envelope);
        };
        if envelope.record_type == super::header::record_type::BEGIN {
            return self.take_continuation(envelope);
        }
        if trace.kind.is_none() {
            trace.kind = trace.header.kind(envelope.record_type);
        }
        trace.first_time.get_or_insert(envelope.time);
        let (start_ns, end_ns) = trace.span(envelope)?;
        self.trace = Some(trace);
        if self.current.records == 0 && !self.header_waits {
            self.open_packet(&trace);
        }
        let packet = &mut self.current;
        if packet.records == 0 {
            (packet.start_ns, packet.end_ns) = (start_ns, end_ns);
        }
        packet.start_ns = packet.start_ns.min(start_ns);
        packet.end_ns = packet.end_ns.max(end_ns);
        packet.records += 1;
        packet.bytes.extend_from_slice(bytes);
        packet.input_range.end = self.pushed + bytes.len() as u64;
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        if self.current.bytes.len() >= self.target {
            self.close_packet();
        }
        Ok(())
    }

    fn take_header(&mut self, bytes: &[u8], envelope: &Envelope<'_>) -> Result<(), RocksdbError> {
        let header = TraceHeader::decode(envelope)?;
        let first_time = header
            .continuation
            .map(|continuation| continuation.first_time);
        self.trace = Some(Trace {
            header,
            kind: None,
            first_time,
        });
        self.offset = header.records_at();
        let start_ns = anchored_ns(header.start_us, 0, 0);
        self.current = Packet {
            bytes: bytes.to_vec(),
            input_range: self.pushed..self.pushed + bytes.len() as u64,
            start_ns,
            end_ns: start_ns,
            ..empty_packet(self.offset)
        };
        self.header_waits = true;
        Ok(())
    }

    /// Concatenated packets of one trace are a trace.
    fn take_continuation(&mut self, envelope: &Envelope<'_>) -> Result<(), RocksdbError> {
        match TraceHeader::decode(envelope)?.continuation {
            Some(continuation) if continuation.offset == self.offset => {
                // The input range of a packet is contiguous.
                self.close_packet();
                Ok(())
            }
            Some(continuation) => Err(RocksdbError::Gap {
                expected: self.offset,
                found: continuation.offset,
            }),
            None => Err(RocksdbError::NotATrace {
                offset: envelope.offset,
                what: "a second trace starts here; cut one trace at a time",
            }),
        }
    }

    fn open_packet(&mut self, trace: &Trace) {
        let continuation = trace.first_time.map(|first_time| Continuation {
            first_time,
            offset: self.offset,
        });
        self.current = Packet {
            input_range: self.pushed..self.pushed,
            ..empty_packet(self.offset)
        };
        TraceHeader {
            continuation,
            ..trace.header
        }
        .put(&mut self.current.bytes);
    }

    fn close_packet(&mut self) {
        if self.current.records > 0 || self.header_waits {
            let next = empty_packet(self.offset);
            self.ready
                .push_back(std::mem::replace(&mut self.current, next));
            self.header_waits = false;
        }
    }
}

impl Trace {
    /// When the record in `envelope` starts and ends, ns since the epoch. Only the fields that this
    /// needs are read; the decoder reports damage in the others.
    fn span(&self, envelope: &Envelope<'_>) -> Result<(i64, i64), RocksdbError> {
        match self.kind {
            Some(TraceKind::Io) => {
                let latency = latency(envelope, &self.header)?;
                let anchor = self.first_time.unwrap_or(envelope.time);
                let at = |time| anchored_ns(self.header.start_us, anchor, time);
                Ok((at(envelope.time.saturating_sub(latency)), at(envelope.time)))
            }
            Some(TraceKind::BlockCache) => {
                let at = anchored_ns(envelope.time, 0, 0);
                Ok((at, at))
            }
            None => Err(RocksdbError::UnexpectedType {
                offset: envelope.offset,
                found: envelope.record_type,
                expected: "an IO or block cache trace",
            }),
        }
    }
}

fn empty_packet(offset: u64) -> Packet {
    Packet {
        bytes: Vec::new(),
        offset,
        input_range: 0..0,
        records: 0,
        start_ns: 0,
        end_ns: 0,
    }
}

/// Restores the file from which packets were cut. They must be in order.
///
/// # Errors
///
/// [`RocksdbError::Gap`] when one is missing or out of order; as [`TraceHeader::read`] otherwise.
pub fn join<'a>(packets: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>, RocksdbError> {
    let mut file = Vec::new();
    for packet in packets {
        let (header, length) = TraceHeader::read(packet)?;
        let (expected, skip) = match header.continuation {
            None => (0, 0),
            Some(continuation) => (continuation.offset, length),
        };
        if expected != file.len() as u64 {
            let found = expected;
            return Err(RocksdbError::Gap {
                expected: file.len() as u64,
                found,
            });
        }
        file.extend_from_slice(&packet[skip..]);
    }
    Ok(file)
}

/// Why reading a trace from a file stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes could not be read.
    #[error("cannot read the trace: {0}")]
    Io(#[from] std::io::Error),
    /// The bytes are damaged, or not a trace.
    #[error(transparent)]
    Rocksdb(#[from] RocksdbError),
}

/// Reads a trace of any length as packets, in bounded memory.
#[derive(Debug)]
pub struct PacketReader<R> {
    reader: R,
    cutter: Cutter,
    chunk: Vec<u8>,
    ended: bool,
    failed: Option<RocksdbError>,
}

/// Bytes requested from a reader in one call.
const READ_BYTES: usize = 1 << 18;

impl<R: Read> PacketReader<R> {
    /// Reads `reader` in packets of about `target_bytes`.
    pub fn new(reader: R, target_bytes: usize) -> Self {
        let cutter = Cutter::new(target_bytes);
        Self {
            reader,
            cutter,
            chunk: vec![0; READ_BYTES],
            ended: false,
            failed: None,
        }
    }

    /// The next packet; `None` at the end of the file, after which [`Self::torn_end`] is known.
    ///
    /// # Errors
    ///
    /// [`ReadError`], after all packets before the damage.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, ReadError> {
        loop {
            if let Some(packet) = self.cutter.next_packet() {
                return Ok(Some(packet));
            }
            if self.ended {
                return match (self.cutter.flush(), self.failed.take()) {
                    (Some(packet), failed) => {
                        self.failed = failed;
                        Ok(Some(packet))
                    }
                    (None, Some(failed)) => Err(failed.into()),
                    (None, None) => Ok(None),
                };
            }
            let length = match self.reader.read(&mut self.chunk) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if length == 0 {
                self.ended = true;
            } else if let Err(error) = self.cutter.push(&self.chunk[..length]) {
                self.failed = Some(error);
                self.ended = true;
            }
        }
    }

    /// The kind of the trace; known after a packet with a record.
    pub fn kind(&self) -> Option<TraceKind> {
        self.cutter.kind()
    }

    /// As [`Cutter::continuation`].
    pub fn continuation(&self) -> Option<TraceHeader> {
        self.cutter.continuation()
    }

    /// After the end of the file: [`RocksdbError::Torn`] if it ends inside a record.
    pub fn torn_end(&self) -> Option<RocksdbError> {
        self.cutter.torn_end()
    }
}

const _: () = assert!(CONTINUATION_BYTES == HEADER_BYTES + 16);
