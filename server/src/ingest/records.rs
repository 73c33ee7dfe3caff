//! The packets of a body with many of them, as it arrives.

use bytes::{Bytes, BytesMut};
use storage_format::batch::{RECORD_HEADER_BYTES, RecordHeader};
use storage_format::checksum::crc32c;

use super::body::BodyReader;
use super::error::IngestError;

/// Splits a body into records.
pub(super) struct Records {
    body_reader: BodyReader,
    /// Received bytes of the next records.
    pending: Bytes,
    index: u64,
    /// Offset of the next record in the decoded body.
    offset: u64,
    packet_bytes_max: u64,
    packets_max: u64,
}

impl Records {
    pub(super) fn new(body_reader: BodyReader, packet_bytes_max: u64, packets_max: u64) -> Self {
        Self {
            body_reader,
            pending: Bytes::new(),
            index: 0,
            offset: 0,
            packet_bytes_max,
            packets_max,
        }
    }

    /// The header of the next record; `None` at the end of the body. Its payload must be read next.
    pub(super) async fn head(&mut self) -> Result<Option<RecordHeader>, IngestError> {
        let mut head = [0; RECORD_HEADER_BYTES];
        if self.pending.len() >= RECORD_HEADER_BYTES {
            head.copy_from_slice(&self.pending.split_to(RECORD_HEADER_BYTES));
        } else {
            match self.fill(&mut head).await? {
                0 => return Ok(None),
                RECORD_HEADER_BYTES => {}
                _ => return Err(self.invalid("the body ends within the header of a record")),
            }
        }
        if self.index == self.packets_max {
            return Err(IngestError::TooManyPackets {
                max: self.packets_max,
            });
        }
        let length = u64::from(u32::from_le_bytes([head[0], head[1], head[2], head[3]]));
        if length > self.packet_bytes_max {
            return Err(IngestError::TooLarge {
                what: "packet",
                max: self.packet_bytes_max,
            });
        }
        match RecordHeader::decode(&head) {
            Ok(header) => Ok(Some(header)),
            Err(error) => Err(self.invalid(&error.to_string())),
        }
    }

    /// The payload of the record whose header was read last. It is copied only if it arrived in
    /// several pieces.
    pub(super) async fn payload(&mut self, header: &RecordHeader) -> Result<Bytes, IngestError> {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let payload = if self.pending.len() >= length {
            self.pending.split_to(length)
        } else {
            let mut payload = BytesMut::zeroed(length);
            if self.fill(&mut payload).await? < length {
                return Err(self.invalid("the body ends within a packet"));
            }
            payload.freeze()
        };
        if crc32c(&payload) != header.checksum {
            return Err(self.invalid("the checksum of the packet does not match"));
        }
        self.index += 1;
        self.offset += (RECORD_HEADER_BYTES + length) as u64;
        Ok(payload)
    }

    /// Whether the next record is complete in memory, so that reading it does not wait for the
    /// client.
    pub(super) fn is_buffered(&self) -> bool {
        let length = self
            .pending
            .first_chunk()
            .map(|length| u32::from_le_bytes(*length));
        length.is_some_and(|length| {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            self.pending.len().saturating_sub(RECORD_HEADER_BYTES) >= length
        })
    }

    /// Fills `buffer` from pending bytes and the body; returns the number of bytes read.
    async fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, IngestError> {
        let mut filled = 0;
        loop {
            let count = self.pending.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&self.pending.split_to(count));
            filled += count;
            if filled == buffer.len() {
                return Ok(filled);
            }
            match self.body_reader.next().await? {
                None => return Ok(filled),
                Some(piece) => self.pending = piece,
            }
        }
    }

    fn invalid(&self, what: &str) -> IngestError {
        IngestError::Record {
            index: self.index,
            offset: self.offset,
            what: what.to_owned(),
        }
    }
}
