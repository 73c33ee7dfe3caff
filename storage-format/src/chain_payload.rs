//! What a record in the chain of a storage says: packets, and what must be known to store them.
//!
//! Sections one after another, each behind a header of eight bytes:
//!
//! ```text
//! offset size field
//!      0    1 kind: 1 storage, 2 agent, 3 stream, 4 packet, 5 provenance
//!      1    3 zero
//!      4    4 length of the body
//! ```
//!
//! The body of a storage is a storage file, that of an agent an agent file. A stream is the agent
//! (length, two bytes, and text) and the id of the stream, likewise; the packets behind it are of
//! this stream. A packet is:
//!
//! ```text
//! offset size field
//!      0    1 codec of the payload
//!      1    1 which facts are known, as in a frame
//!      2    2 zero
//!      4    4 size of the payload as the agent sent it
//!      8    4 CRC32C of the payload as the agent sent it
//!     12    4 time basis
//!     16    8 producer epoch
//!     24    8 producer sequence
//!     32    8 first instant
//!     40    8 last instant
//!     48    4 events
//!     52    4 lost events
//!     56    n stored payload
//! ```
//!
//! Provenance says from which file packets of the stream before it were cut: their epoch (8 bytes)
//! and a provenance sidecar whose chunks are sequences of packets. Its first source is the file; a
//! second one is the same file before it grew.
//!
//! Integers are little-endian. The record around it has a checksum of all of this.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    AgentId, Codec, FormatError, FormatErrorKind, StreamId, StreamPosition,
    agent_file::AgentFile,
    frame::Facts,
    integer::{u64_of, usize_of},
    layout::{get_i64, get_u32, get_u64},
    storage_file::StorageFile,
};

const WHAT: &str = "chain payload";
/// Bytes in front of each section.
pub const SECTION_HEADER_BYTES: usize = 8;
/// Bytes in front of the payload of a packet.
pub const PACKET_HEADER_BYTES: usize = 56;

/// Bytes in front of a provenance sidecar.
const EPOCH_BYTES: usize = 8;

const STORAGE: u8 = 1;
const AGENT: u8 = 2;
const STREAM: u8 = 3;
const PACKET: u8 = 4;
const PROVENANCE: u8 = 5;

/// A packet in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainedPacket {
    /// Position in the stream.
    pub position: StreamPosition,
    /// What is known about it.
    pub facts: Facts,
    /// How the payload is stored.
    pub codec: Codec,
    /// Size of the payload as the agent sent it.
    pub raw_size: u32,
    /// CRC32C of the payload as the agent sent it.
    pub raw_checksum: u32,
    /// The payload as it is stored.
    pub stored: Bytes,
}

/// A part of a chain payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainSection {
    /// What the storage is.
    Storage(Box<StorageFile>),
    /// An agent whose packets follow, in this record or later ones.
    Agent(Box<AgentFile>),
    /// The stream of the packets that follow.
    Stream(AgentId, StreamId),
    /// A packet.
    Packet(ChainedPacket),
    /// The file that packets of the stream were cut from.
    Provenance(ChainedProvenance),
}

/// The provenance of packets in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainedProvenance {
    /// The epoch of the packets.
    pub epoch: u64,
    /// A provenance sidecar, with sequences for chunks.
    pub sidecar: Bytes,
}

impl ChainSection {
    /// Appends the pieces of the section; the payload of a packet is not copied.
    ///
    /// # Errors
    /// When a storage or an agent exceeds the limits of its file.
    pub fn encode(&self, pieces: &mut Vec<Bytes>) -> Result<(), FormatError> {
        match self {
            Self::Storage(file) => whole(STORAGE, &file.encode()?, pieces),
            Self::Agent(file) => whole(AGENT, &file.encode()?, pieces),
            Self::Stream(agent, stream) => {
                let mut body = Vec::new();
                for text in [agent.as_str(), stream.as_str()] {
                    // Ids are far shorter.
                    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
                    body.put_u16_le(length);
                    body.put_slice(text.as_bytes());
                }
                whole(STREAM, &body, pieces);
            }
            Self::Packet(packet) => {
                pieces.push(packet.header());
                pieces.push(packet.stored.clone());
            }
            Self::Provenance(provenance) => {
                let mut bytes = BytesMut::with_capacity(SECTION_HEADER_BYTES + EPOCH_BYTES);
                let length = EPOCH_BYTES.saturating_add(provenance.sidecar.len());
                put_section_header(PROVENANCE, length, &mut bytes);
                bytes.put_u64_le(provenance.epoch);
                pieces.push(bytes.freeze());
                pieces.push(provenance.sidecar.clone());
            }
        }
        Ok(())
    }
}

fn whole(kind: u8, body: &[u8], pieces: &mut Vec<Bytes>) {
    let mut bytes = BytesMut::with_capacity(SECTION_HEADER_BYTES.saturating_add(body.len()));
    put_section_header(kind, body.len(), &mut bytes);
    bytes.put_slice(body);
    pieces.push(bytes.freeze());
}

fn put_section_header(kind: u8, length: usize, bytes: &mut BytesMut) {
    bytes.put_u8(kind);
    bytes.put_bytes(0, 3);
    // Files and packets are limited to less.
    bytes.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
}

impl ChainedPacket {
    fn header(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(SECTION_HEADER_BYTES + PACKET_HEADER_BYTES);
        let length = PACKET_HEADER_BYTES.saturating_add(self.stored.len());
        put_section_header(PACKET, length, &mut bytes);
        let facts = self.facts;
        let (begin, end) = facts.time_span.unwrap_or((0, 0));
        bytes.put_u8(self.codec.code());
        bytes.put_u8(facts.known_bits());
        bytes.put_bytes(0, 2);
        bytes.put_u32_le(self.raw_size);
        bytes.put_u32_le(self.raw_checksum);
        bytes.put_u32_le(facts.time_basis.unwrap_or(0));
        bytes.put_u64_le(self.position.epoch);
        bytes.put_u64_le(self.position.sequence);
        bytes.put_i64_le(begin);
        bytes.put_i64_le(end);
        bytes.put_u32_le(facts.events.unwrap_or(0));
        bytes.put_u32_le(facts.lost.unwrap_or(0));
        bytes.freeze()
    }

    fn decode(body: &Bytes) -> Result<Self, FormatError> {
        if body.len() <= PACKET_HEADER_BYTES {
            let wanted = PACKET_HEADER_BYTES + 1;
            return Err(FormatError::truncated(WHAT, wanted, body.len()));
        }
        let fault = |name, offset| FormatError::new(WHAT, offset, FormatErrorKind::Field { name });
        let span = (get_i64(body, 32), get_i64(body, 40));
        if span.0 > span.1 {
            return Err(fault("time span", 32));
        }
        Ok(Self {
            position: StreamPosition::new(get_u64(body, 16), get_u64(body, 24)),
            facts: Facts {
                time_span: Some(span),
                events: Some(get_u32(body, 48)),
                lost: Some(get_u32(body, 52)),
                time_basis: Some(get_u32(body, 12)),
                has_unreadable: false,
            }
            .with_known_bits(body[1]),
            codec: Codec::from_code(body[0]).ok_or(fault("codec", 0))?,
            raw_size: get_u32(body, 4),
            raw_checksum: get_u32(body, 8),
            stored: body.slice(PACKET_HEADER_BYTES..),
        })
    }
}

/// The sections of a payload, in order; the last is the first that is damaged, if any is.
#[derive(Debug, Clone)]
pub struct ChainSections {
    rest: Bytes,
    offset: u64,
}

impl ChainSections {
    /// The sections of these bytes.
    #[must_use]
    pub fn of(payload: &Bytes) -> Self {
        Self {
            rest: payload.clone(),
            offset: 0,
        }
    }

    fn take(&mut self) -> Result<ChainSection, FormatError> {
        if self.rest.len() < SECTION_HEADER_BYTES {
            return Err(FormatError::truncated(
                WHAT,
                SECTION_HEADER_BYTES,
                self.rest.len(),
            ));
        }
        let header = self.rest.split_to(SECTION_HEADER_BYTES);
        let length = usize_of(get_u32(&header, 4));
        if self.rest.len() < length {
            return Err(FormatError::truncated(WHAT, length, self.rest.len()));
        }
        let body = self.rest.split_to(length);
        match header[0] {
            STORAGE => Ok(ChainSection::Storage(Box::new(StorageFile::decode(&body)?))),
            AGENT => Ok(ChainSection::Agent(Box::new(AgentFile::decode(&body)?))),
            STREAM => stream_of(&body),
            PACKET => ChainedPacket::decode(&body).map(ChainSection::Packet),
            PROVENANCE => provenance_of(&body),
            _ => Err(FormatError::new(
                WHAT,
                0,
                FormatErrorKind::Field { name: "kind" },
            )),
        }
    }
}

impl Iterator for ChainSections {
    type Item = Result<ChainSection, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (at, before) = (self.offset, self.rest.len());
        let taken = self.take().map_err(|error| error.shifted(at));
        let taken_bytes = before.saturating_sub(self.rest.len());
        self.offset = self.offset.saturating_add(u64_of(taken_bytes));
        if taken.is_err() {
            self.rest = Bytes::new();
        }
        Some(taken)
    }
}

fn stream_of(body: &[u8]) -> Result<ChainSection, FormatError> {
    let fault = |name| FormatError::new(WHAT, 0, FormatErrorKind::Field { name });
    let (agent, rest) = text_of(body).ok_or(fault("agent"))?;
    let (stream, rest) = text_of(rest).ok_or(fault("stream"))?;
    if !rest.is_empty() {
        return Err(fault("stream"));
    }
    Ok(ChainSection::Stream(
        agent.parse().map_err(|_| fault("agent"))?,
        stream.parse().map_err(|_| fault("stream"))?,
    ))
}

fn provenance_of(body: &Bytes) -> Result<ChainSection, FormatError> {
    if body.len() <= EPOCH_BYTES {
        return Err(FormatError::truncated(WHAT, EPOCH_BYTES + 1, body.len()));
    }
    Ok(ChainSection::Provenance(ChainedProvenance {
        epoch: get_u64(body, 0),
        sidecar: body.slice(EPOCH_BYTES..),
    }))
}

fn text_of(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        StorageId,
        checksum::crc32c,
        storage_file::{StorageState, Totals},
    };

    fn sections() -> Vec<ChainSection> {
        let storage = StorageFile {
            id: StorageId::from_bytes([3; 16]),
            name: "name".to_owned(),
            description: String::new(),
            state: StorageState::Open,
            labels: BTreeMap::new(),
            created: 7,
            opened: Some(8),
            finalized: None,
            server_version: "1".to_owned(),
            idempotency_key: None,
            failure: None,
            totals: Totals::default(),
            files: Vec::new(),
        };
        let agent = AgentFile {
            id: "one".parse().unwrap(),
            name: "first".to_owned(),
            host: String::new(),
            attributes: BTreeMap::new(),
            streams: Vec::new(),
            metadata: Some(vec![1, 2, 3]),
        };
        let packet = |sequence, facts, stored: &'static [u8]| {
            ChainSection::Packet(ChainedPacket {
                position: StreamPosition::new(4, sequence),
                facts,
                codec: Codec::None,
                raw_size: 5,
                raw_checksum: crc32c(stored),
                stored: Bytes::from_static(stored),
            })
        };
        let known = Facts {
            time_span: Some((-5, 9)),
            events: Some(3),
            lost: Some(0),
            time_basis: Some(77),
            has_unreadable: true,
        };
        vec![
            ChainSection::Storage(Box::new(storage)),
            ChainSection::Agent(Box::new(agent)),
            ChainSection::Stream("one".parse().unwrap(), "left".parse().unwrap()),
            packet(0, known, b"hello"),
            packet(1, Facts::default(), b"x"),
            ChainSection::Provenance(ChainedProvenance {
                epoch: 4,
                sidecar: Bytes::from_static(b"sidecar"),
            }),
        ]
    }

    fn encoded(sections: &[ChainSection]) -> Bytes {
        let mut pieces = Vec::new();
        for section in sections {
            section.encode(&mut pieces).unwrap();
        }
        pieces.concat().into()
    }

    #[test]
    fn sections_survive() {
        let payload = encoded(&sections());
        let found: Result<Vec<_>, _> = ChainSections::of(&payload).collect();
        assert_eq!(found.unwrap(), sections());
    }

    /// An iterator that read such a packet would give one without bytes to the storage.
    #[test]
    fn sections_without_content_are_errors() {
        for (kind, length, expected) in [
            (PACKET, PACKET_HEADER_BYTES, "57 bytes are needed"),
            (PACKET, 0, "57 bytes are needed"),
            (STREAM, 0, "agent"),
            (99, 0, "kind"),
        ] {
            let mut section = BytesMut::new();
            put_section_header(kind, length, &mut section);
            section.put_bytes(0, length);
            let found: Vec<_> = ChainSections::of(&section.freeze()).collect();
            let [Err(error)] = &found[..] else {
                panic!("{found:?}");
            };
            let text = error.to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read_without_a_panic() {
        let payload = encoded(&sections());
        for length in 0..payload.len() {
            let cut = payload.slice(..length);
            let found: Vec<_> = ChainSections::of(&cut).collect();
            let whole = encoded(&sections()[..found.len().min(6)]).len() == length;
            assert_eq!(found.iter().all(Result::is_ok), whole, "cut at {length}");
        }
        for at in 0..payload.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut wrong = payload.to_vec();
                wrong[at] = value;
                let count = ChainSections::of(&wrong.into()).count();
                assert!(count <= 32, "{at} {value}");
            }
        }
    }
}
