//! Records of an IO trace.
//!
//! A record describes one call into RocksDB's file system layer. Its time is the monotonic clock in
//! ns *after* the call returned, and the header contains the wall clock in µs, so the file has no
//! absolute times. The anchor is that the first call returned when the header was written, which is
//! wrong by the time between the two ([`IoTrace::start_ns`]).

use super::cursor::Cursor;
use super::envelope::{Envelope, Envelopes};
use super::header::record_type;
use super::{RocksdbError, TraceHeader, TraceKind};

/// Bits of `io_op_data`: which numbers follow the file name.
mod present {
    pub(super) const FILE_SIZE: u64 = 1;
    pub(super) const LEN: u64 = 1 << 1;
    pub(super) const OFFSET: u64 = 1 << 2;
    /// Bit of `trace_data`.
    pub(super) const REQUEST_ID: u64 = 1;
}

/// One call into the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoRecord<'a> {
    /// When the call returned, ns of the monotonic clock.
    pub end: u64,
    /// The C++ name of the operation, such as `Append`.
    pub operation: &'a [u8],
    /// Duration of the call in ns. All records of one MultiRead have that of the batch.
    pub latency: u64,
    /// `OK`, or the text of the error.
    pub status: &'a [u8],
    /// The file, without its folder.
    pub file_name: &'a [u8],
    /// The size of the file.
    pub file_size: Option<u64>,
    /// Bytes: returned by a sequential read, requested by a random one, written by an append.
    pub len: Option<u64>,
    /// Offset in the file. An append has none.
    pub offset: Option<u64>,
    /// The request that caused the call, if the application set one.
    pub request_id: Option<&'a [u8]>,
}

impl<'a> IoRecord<'a> {
    /// The record in `envelope`, in the layout of the release in `header`.
    ///
    /// # Errors
    ///
    /// [`RocksdbError::UnexpectedType`], [`RocksdbError::MissingField`] or
    /// [`RocksdbError::TrailingBytes`].
    #[inline]
    pub fn decode(envelope: &Envelope<'a>, header: &TraceHeader) -> Result<Self, RocksdbError> {
        if header.writes_old_io() {
            return Self::decode_old(envelope);
        }
        if envelope.record_type != record_type::IO {
            return Err(unexpected(envelope));
        }
        let missing = |field| RocksdbError::MissingField {
            offset: envelope.offset,
            field,
        };
        let mut fields = Cursor::new(envelope.payload);
        let present = fields.fixed64().ok_or(missing("io_op_data"))?;
        let operation = fields.prefixed().ok_or(missing("file_operation"))?;
        let latency = fields.fixed64().ok_or(missing("latency"))?;
        let status = fields.prefixed().ok_or(missing("io_status"))?;
        let file_name = fields.prefixed().ok_or(missing("file_name"))?;
        let mut number = |bit, field| match present & bit {
            0 => Ok(None),
            _ => fields.fixed64().map(Some).ok_or(missing(field)),
        };
        let file_size = number(present::FILE_SIZE, "file_size")?;
        let len = number(present::LEN, "len")?;
        let offset = number(present::OFFSET, "offset")?;
        let mut record = Self {
            end: envelope.time,
            operation,
            latency,
            status,
            file_name,
            file_size,
            len,
            offset,
            request_id: None,
        };
        if fields.left() == 0 && header.may_lack_trace_data() {
            return Ok(record);
        }
        let trace_data = fields.fixed64().ok_or(missing("trace_data"))?;
        if trace_data & present::REQUEST_ID != 0 {
            record.request_id = Some(fields.prefixed().ok_or(missing("request_id"))?);
        }
        match fields.left() {
            0 => Ok(record),
            left => Err(RocksdbError::TrailingBytes {
                offset: envelope.offset,
                left,
            }),
        }
    }

    /// The layout of 6.12 to 6.17, in which the record type determines the fields.
    fn decode_old(envelope: &Envelope<'a>) -> Result<Self, RocksdbError> {
        let missing = |field| RocksdbError::MissingField {
            offset: envelope.offset,
            field,
        };
        let mut fields = Cursor::new(envelope.payload);
        let mut record = Self {
            end: envelope.time,
            operation: fields.prefixed().ok_or(missing("file_operation"))?,
            latency: fields.fixed64().ok_or(missing("latency"))?,
            status: fields.prefixed().ok_or(missing("io_status"))?,
            file_name: &[],
            file_size: None,
            len: None,
            offset: None,
            request_id: None,
        };
        match envelope.record_type {
            12 => {}
            13 => record.file_name = fields.prefixed().ok_or(missing("file_name"))?,
            14 => {
                record.file_size = Some(fields.fixed64().ok_or(missing("file_size"))?);
                record.file_name = fields.prefixed().ok_or(missing("file_name"))?;
            }
            15 => record.len = Some(fields.fixed64().ok_or(missing("len"))?),
            16 => {
                record.offset = Some(fields.fixed64().ok_or(missing("offset"))?);
                record.len = Some(fields.fixed64().ok_or(missing("len"))?);
            }
            _ => return Err(unexpected(envelope)),
        }
        match fields.left() {
            0 => Ok(record),
            left => Err(RocksdbError::TrailingBytes {
                offset: envelope.offset,
                left,
            }),
        }
    }

    /// When the call started, ns of the monotonic clock.
    pub fn start(&self) -> u64 {
        self.end.saturating_sub(self.latency)
    }
}

/// The latency of the record in `envelope`, without reading the fields after it.
pub(super) fn latency(envelope: &Envelope<'_>, header: &TraceHeader) -> Result<u64, RocksdbError> {
    let missing = |field| RocksdbError::MissingField {
        offset: envelope.offset,
        field,
    };
    let mut fields = Cursor::new(envelope.payload);
    if !header.writes_old_io() {
        fields.fixed64().ok_or(missing("io_op_data"))?;
    }
    fields.prefixed().ok_or(missing("file_operation"))?;
    fields.fixed64().ok_or(missing("latency"))
}

fn unexpected(envelope: &Envelope<'_>) -> RocksdbError {
    RocksdbError::UnexpectedType {
        offset: envelope.offset,
        found: envelope.record_type,
        expected: TraceKind::Io.describe(),
    }
}

/// An iterator over the records of an IO trace, or of one packet of it.
#[derive(Debug, Clone)]
pub struct IoTrace<'a> {
    header: TraceHeader,
    envelopes: Envelopes<'a>,
    first_end: Option<u64>,
}

impl<'a> IoTrace<'a> {
    /// Reads the header of `bytes`.
    ///
    /// # Errors
    ///
    /// As [`TraceHeader::read`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, RocksdbError> {
        let (header, length) = TraceHeader::read(bytes)?;
        let envelopes = Envelopes::new(&bytes[length..], header.records_at());
        let first_end = header
            .continuation
            .map(|continuation| continuation.first_time);
        Ok(Self {
            header,
            envelopes,
            first_end,
        })
    }

    /// The header.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Where the next record starts in the trace file.
    pub fn offset(&self) -> u64 {
        self.envelopes.offset()
    }

    /// The next record; `None` at the end of the trace.
    ///
    /// # Errors
    ///
    /// [`RocksdbError::Torn`] at a torn end; as [`IoRecord::decode`] otherwise.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<IoRecord<'a>>, RocksdbError> {
        let Some(envelope) = self.envelopes.next_envelope()? else {
            return Ok(None);
        };
        // The first record is the anchor even if it is damaged, as for the packets after this one.
        self.first_end.get_or_insert(envelope.time);
        IoRecord::decode(&envelope, &self.header).map(Some)
    }

    /// When `record` started, ns since the epoch, by the anchor that the module describes.
    pub fn start_ns(&self, record: &IoRecord<'_>) -> i64 {
        let anchor = self.first_end.unwrap_or(record.end);
        anchored_ns(self.header.start_us, anchor, record.start())
    }
}

/// The monotonic time `at` as ns since the epoch, where `anchor` is the monotonic time that
/// corresponds to the wall clock time `start_us`. Saturates on out-of-range input.
pub(super) fn anchored_ns(start_us: u64, anchor: u64, at: u64) -> i64 {
    let ns = i128::from(start_us) * 1000 + i128::from(at) - i128::from(anchor);
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}
