//! The packets of a body with many of them, as it arrives.

use bytes::{Bytes, BytesMut};
use storage_core::packet_charge;
use storage_format::batch::{RECORD_HEADER_BYTES, RecordHeader};
use storage_format::checksum::crc32c;
use tokio::time::{Duration, Instant, timeout_at};

use super::admission::Reservation;
use super::body::BodyReader;
use super::error::IngestError;

/// Time within which a payload arrives for which memory was reserved as it was declared.
const SOON: Duration = Duration::from_secs(2);

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

    /// The payload of the record whose header was read last, for which `reservation` has memory. It
    /// is copied only if it arrived in several pieces.
    ///
    /// Nobody waits for memory that was only declared: of a payload that does not arrive soon, what
    /// is missing is returned, and reserved again as it comes.
    pub(super) async fn payload(
        &mut self,
        header: &RecordHeader,
        reservation: &mut Reservation,
    ) -> Result<Bytes, IngestError> {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let payload = if self.pending.len() >= length {
            self.pending.split_to(length)
        } else {
            self.slow_payload(length, reservation).await?
        };
        if crc32c(&payload) != header.checksum {
            return Err(self.invalid("the checksum of the packet does not match"));
        }
        self.index += 1;
        self.offset += (RECORD_HEADER_BYTES + length) as u64;
        Ok(payload)
    }

    async fn slow_payload(
        &mut self,
        length: usize,
        reservation: &mut Reservation,
    ) -> Result<Bytes, IngestError> {
        let started = Instant::now();
        let mut is_soon = true;
        // What has not arrived takes no memory yet.
        let mut payload = BytesMut::with_capacity(length);
        loop {
            let count = self.pending.len().min(length - payload.len());
            if !is_soon {
                let needed = packet_charge((payload.len() + count) as u64);
                reservation.grow(needed.saturating_sub(reservation.left()))?;
            }
            payload.extend_from_slice(&self.pending.split_to(count));
            if payload.len() == length {
                return Ok(payload.freeze());
            }
            let read = if is_soon {
                match timeout_at(started + SOON, self.body_reader.next()).await {
                    Ok(read) => read?,
                    Err(_) => {
                        is_soon = false;
                        reservation.keep(packet_charge(payload.len() as u64));
                        continue;
                    }
                }
            } else {
                self.body_reader
                    .next_in_time(payload.len(), started)
                    .await?
            };
            match read {
                None => return Err(self.invalid("the body ends within a packet")),
                Some(piece) => self.pending = piece,
            }
        }
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
