//! The envelope of a record, and iteration over records.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | time, u64 |
//! | 8 | 1 | record type |
//! | 9 | 4 | payload length N, u32 |
//! | 13 | N | payload |
//!
//! Integers are little-endian. There is no padding, no checksum and no footer: a trace ends in the
//! same way when it is stopped, when it reaches its size limit and when its process is killed.

use super::RocksdbError;

/// Bytes before the payload of a record.
pub const ENVELOPE_BYTES: usize = 13;

/// The largest accepted payload, in bytes.
///
/// RocksDB has no limit. The longest field of a record is a user key (8 MiB at most in practice),
/// so this is enough, and a damaged length does not skip the rest of the trace.
pub const PAYLOAD_BYTES_MAX: u32 = 16 << 20;

/// One record with its payload undecoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Where the record starts, counted from the start of the trace file.
    pub offset: u64,
    /// The time, in the unit of the trace: ns for IO records, µs for everything else.
    pub time: u64,
    /// The record type (`TraceType` in RocksDB).
    pub record_type: u8,
    /// The payload.
    pub payload: &'a [u8],
}

/// An iterator over the records of a byte string.
#[derive(Debug, Clone)]
pub struct Envelopes<'a> {
    bytes: &'a [u8],
    position: usize,
    base: u64,
}

impl<'a> Envelopes<'a> {
    /// Iterates over `bytes`, whose first byte is at `base` in the trace file.
    pub fn new(bytes: &'a [u8], base: u64) -> Self {
        Self {
            bytes,
            position: 0,
            base,
        }
    }

    /// Where the next record starts, counted from the start of the trace file.
    pub fn offset(&self) -> u64 {
        self.base.saturating_add(self.position as u64)
    }

    /// The next record; `None` at the end of the bytes.
    ///
    /// # Errors
    ///
    /// [`RocksdbError::Torn`] when the bytes end inside a record, [`RocksdbError::TooLong`] when
    /// its length exceeds the limit. The position does not change.
    #[inline]
    pub fn next_envelope(&mut self) -> Result<Option<Envelope<'a>>, RocksdbError> {
        let rest = &self.bytes[self.position..];
        if rest.is_empty() {
            return Ok(None);
        }
        let envelope = split_envelope(rest, self.offset())?;
        self.position += ENVELOPE_BYTES + envelope.payload.len();
        Ok(Some(envelope))
    }
}

/// The record at the start of `rest`.
#[inline]
pub(super) fn split_envelope(rest: &[u8], offset: u64) -> Result<Envelope<'_>, RocksdbError> {
    let torn = |needed| RocksdbError::Torn {
        offset,
        left: rest.len() as u64,
        needed,
    };
    let Some((head, body)) = rest.split_first_chunk::<ENVELOPE_BYTES>() else {
        return Err(torn(ENVELOPE_BYTES as u64));
    };
    let [t0, t1, t2, t3, t4, t5, t6, t7, record_type, n0, n1, n2, n3] = *head;
    let length = u32::from_le_bytes([n0, n1, n2, n3]);
    if length > PAYLOAD_BYTES_MAX {
        return Err(RocksdbError::TooLong {
            offset,
            length,
            limit: PAYLOAD_BYTES_MAX,
        });
    }
    let Some(payload) = body.get(..length as usize) else {
        return Err(torn(ENVELOPE_BYTES as u64 + u64::from(length)));
    };
    let time = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
    Ok(Envelope {
        offset,
        time,
        record_type,
        payload,
    })
}

/// Appends a record to `out`.
pub(super) fn put_envelope(out: &mut Vec<u8>, time: u64, record_type: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a header is shorter than 4 GiB");
    out.extend_from_slice(&time.to_le_bytes());
    out.push(record_type);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(payload);
}
