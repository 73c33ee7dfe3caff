//! Packets out of a body of many, as it arrives.

use bytes::{Bytes, BytesMut};
use storage_format::batch::{RECORD_HEADER_BYTES, RecordHeader};
use storage_format::checksum::crc32c;

use super::body::BodyReader;
use super::error::IngestError;

/// Cuts a body into records.
pub(super) struct Records {
    body_reader: BodyReader,
    /// Bytes that arrived and belong to the next record.
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

    /// Head of the next record; none at the end of the body. Its payload must be taken next.
    pub(super) async fn head(&mut self) -> Result<Option<RecordHeader>, IngestError> {
        let mut head = [0; RECORD_HEADER_BYTES];
        if self.pending.len() >= RECORD_HEADER_BYTES {
            head.copy_from_slice(&self.pending.split_to(RECORD_HEADER_BYTES));
        } else {
            match self.gather(&mut head).await? {
                0 => return Ok(None),
                RECORD_HEADER_BYTES => {}
                _ => return Err(self.wrong("the body ends within the head of a record")),
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
            Err(error) => Err(self.wrong(&error.to_string())),
        }
    }

    /// The payload of the record whose head was taken last. A copy is made only where it came in
    /// pieces.
    pub(super) async fn payload(&mut self, header: &RecordHeader) -> Result<Bytes, IngestError> {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let payload = if self.pending.len() >= length {
            self.pending.split_to(length)
        } else {
            let mut payload = BytesMut::zeroed(length);
            if self.gather(&mut payload).await? < length {
                return Err(self.wrong("the body ends within a packet"));
            }
            payload.freeze()
        };
        if crc32c(&payload) != header.checksum {
            return Err(self.wrong("the checksum does not fit the packet"));
        }
        self.index += 1;
        self.offset += (RECORD_HEADER_BYTES + length) as u64;
        Ok(payload)
    }

    /// Whether the next record is here as a whole already, so that taking it does not wait for the
    /// client.
    pub(super) fn is_at_hand(&self) -> bool {
        let length = self
            .pending
            .first_chunk()
            .map(|length| u32::from_le_bytes(*length));
        length.is_some_and(|length| {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            self.pending.len().saturating_sub(RECORD_HEADER_BYTES) >= length
        })
    }

    /// Fills `room` from what is pending and what comes; says how much there was.
    async fn gather(&mut self, room: &mut [u8]) -> Result<usize, IngestError> {
        let mut filled = 0;
        loop {
            let count = self.pending.len().min(room.len() - filled);
            room[filled..filled + count].copy_from_slice(&self.pending.split_to(count));
            filled += count;
            if filled == room.len() {
                return Ok(filled);
            }
            match self.body_reader.next().await? {
                None => return Ok(filled),
                Some(piece) => self.pending = piece,
            }
        }
    }

    fn wrong(&self, what: &str) -> IngestError {
        IngestError::Record {
            index: self.index,
            offset: self.offset,
            what: what.to_owned(),
        }
    }
}
