//! A record of a chain.
//!
//! ```text
//! offset size field
//!      0    8 magic "THCHAIN\0"
//!      8    2 version, 1
//!     10    1 kind: 1 own, 2 packets, 3 close
//!     11    1 length of the name of the node
//!     12    4 length of the payload
//!     16    8 epoch
//!     24   16 nonce of the takeover
//!     40   64 name of the node, then zeros
//!    104   16 zero
//!    120    4 CRC32C of the payload
//!    124    4 CRC32C of bytes 0 to 123, storage id, number of the record (u64)
//!    128      payload
//! ```
//!
//! Integers are little-endian. Only records of packets have a payload. The checksum of the header
//! covers everything, the payload through its own checksum, so that a header can be believed alone.

use bytes::{BufMut, Bytes, BytesMut};
use storage_format::StorageId;
use uuid::Uuid;

use super::keys::record_key;
use crate::{NodeName, TierError, node_name::NODE_NAME_BYTES_MAX};

/// The length of what is in front of the payload.
pub const RECORD_HEADER_BYTES: usize = 128;
/// The longest payload of a record: the largest packet, or the largest metadata of an agent, with
/// what belongs to it. Most have 8 MiB or less.
pub const PAYLOAD_BYTES_MAX: usize = 80 << 20;
/// The longest record.
pub(super) const RECORD_BYTES_MAX: u64 = (RECORD_HEADER_BYTES + PAYLOAD_BYTES_MAX) as u64;

const MAGIC: [u8; 8] = *b"THCHAIN\0";
const VERSION: u16 = 1;
const NODE: usize = 40;
const RESERVE: usize = NODE + NODE_NAME_BYTES_MAX;
const PAYLOAD_CHECKSUM: usize = RESERVE + 16;
const CHECKSUM: usize = PAYLOAD_CHECKSUM + 4;
const _: () = assert!(CHECKSUM + 4 == RECORD_HEADER_BYTES);
const _: () = assert!(NODE_NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(PAYLOAD_BYTES_MAX <= u32::MAX as usize);

/// What a record is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A node took the storage over; it alone appends from here on.
    Own,
    /// Packets.
    Packets,
    /// No more packets come.
    Close,
}

impl RecordKind {
    fn code(self) -> u8 {
        match self {
            Self::Own => 1,
            Self::Packets => 2,
            Self::Close => 3,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Self::Own, Self::Packets, Self::Close]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// A record of a chain, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: RecordKind,
    pub(super) epoch: u64,
    /// Random, once a takeover: two nodes that take the same epoch write different records.
    pub(super) nonce: Uuid,
    pub(super) node: NodeName,
    payload_length: u32,
    payload_checksum: u32,
}

/// A record of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number in the chain.
    pub number: u64,
    /// The epoch of the node that wrote it.
    pub epoch: u64,
    /// The nonce of the takeover of that node.
    pub nonce: Uuid,
    /// The node.
    pub node: NodeName,
    /// What the record is for.
    pub kind: RecordKind,
    /// The packets, if it is for packets.
    pub payload: Bytes,
}

/// Where a record is. Its checksum covers it: a record elsewhere is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) storage: StorageId,
    pub(super) number: u64,
}

impl Location {
    pub(super) fn key(self) -> String {
        record_key(self.storage, self.number)
    }

    fn damaged(self, problem: &str) -> TierError {
        let advice = "restore the object, or remove it: the node that wrote it appends its packets \
                      again when it starts";
        TierError::damaged(&self.key(), format!("{problem}; {advice}"))
    }
}

/// Who writes a record, and what for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Author<'a> {
    pub(super) epoch: u64,
    pub(super) nonce: Uuid,
    pub(super) node: &'a NodeName,
}

/// The bytes of a record. The payload has at most [`PAYLOAD_BYTES_MAX`] bytes.
pub(super) fn encode(
    location: Location,
    kind: RecordKind,
    author: Author<'_>,
    payload: &[Bytes],
) -> Result<Bytes, TierError> {
    let length: usize = payload.iter().map(Bytes::len).sum();
    let is_fitting = (kind == RecordKind::Packets) == (length > 0) && length <= PAYLOAD_BYTES_MAX;
    let refused = || TierError::RecordLength {
        length: length as u64,
        max: PAYLOAD_BYTES_MAX as u64,
    };
    let payload_length = u32::try_from(length).map_err(|_| refused())?;
    if !is_fitting {
        return Err(refused());
    }
    let name = author.node.as_str().as_bytes();
    let mut bytes = BytesMut::with_capacity(RECORD_HEADER_BYTES + length);
    bytes.put_slice(&MAGIC);
    bytes.put_u16_le(VERSION);
    bytes.put_u8(kind.code());
    // Names of nodes have at most 64 bytes.
    bytes.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
    bytes.put_u32_le(payload_length);
    bytes.put_u64_le(author.epoch);
    bytes.put_slice(author.nonce.as_bytes());
    bytes.put_slice(name);
    bytes.put_bytes(0, PAYLOAD_CHECKSUM - bytes.len());
    let sum = |checksum, piece: &Bytes| crc32c::crc32c_append(checksum, piece);
    bytes.put_u32_le(payload.iter().fold(0, sum));
    bytes.put_u32_le(header_checksum(&bytes, location));
    for piece in payload {
        bytes.put_slice(piece);
    }
    Ok(bytes.freeze())
}

fn header_checksum(header: &[u8], location: Location) -> u32 {
    let checksum = crc32c::crc32c(header);
    let checksum = crc32c::crc32c_append(checksum, location.storage.as_bytes());
    crc32c::crc32c_append(checksum, &location.number.to_le_bytes())
}

/// The header of a record, from its first bytes.
pub(super) fn decode_header(bytes: &[u8], location: Location) -> Result<Header, TierError> {
    let damaged = |problem: &str| location.damaged(problem);
    let Some(header) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
        return Err(damaged("it is shorter than the header of a record"));
    };
    if !header.starts_with(&MAGIC) {
        return Err(damaged("it is not a record of a chain"));
    }
    if u32_at(header, CHECKSUM) != header_checksum(&header[..CHECKSUM], location) {
        return Err(damaged("the checksum of its header does not match"));
    }
    // These have the right checksum: a newer node wrote them.
    let newer = |what: &str| {
        let problem = format!("its {what} is not known here: upgrade this node");
        TierError::damaged(&location.key(), problem)
    };
    if header[8..10] != VERSION.to_le_bytes() {
        return Err(newer("version"));
    }
    let kind = RecordKind::of(header[10]).ok_or_else(|| newer("kind"))?;
    let name = header[NODE..RESERVE].get(..usize::from(header[11]));
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    let node = name.and_then(|name| NodeName::new(name).ok());
    Ok(Header {
        kind,
        epoch: u64::from(u32_at(header, 16)) | (u64::from(u32_at(header, 20)) << 32),
        nonce: nonce_of(header),
        node: node.ok_or_else(|| damaged("the name of its node is not possible"))?,
        payload_length: u32_at(header, 12),
        payload_checksum: u32_at(header, PAYLOAD_CHECKSUM),
    })
}

fn u32_at(header: &[u8; RECORD_HEADER_BYTES], offset: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&header[offset..offset + 4]);
    u32::from_le_bytes(bytes)
}

fn nonce_of(header: &[u8; RECORD_HEADER_BYTES]) -> Uuid {
    let mut nonce = [0; 16];
    nonce.copy_from_slice(&header[24..NODE]);
    Uuid::from_bytes(nonce)
}

/// A whole record.
pub(super) fn decode(bytes: &Bytes, location: Location) -> Result<Record, TierError> {
    let header = decode_header(bytes, location)?;
    let payload = bytes.slice(RECORD_HEADER_BYTES..);
    if payload.len() as u64 != u64::from(header.payload_length) {
        return Err(location.damaged("its length is not that in its header"));
    }
    if crc32c::crc32c(&payload) != header.payload_checksum {
        return Err(location.damaged("the checksum of its payload does not match"));
    }
    if (header.kind == RecordKind::Packets) == payload.is_empty() {
        return Err(location.damaged("records of packets alone have a payload"));
    }
    Ok(Record {
        number: location.number,
        epoch: header.epoch,
        nonce: header.nonce,
        node: header.node,
        kind: header.kind,
        payload,
    })
}

#[cfg(test)]
mod tests;
