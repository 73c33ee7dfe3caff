//! Packetized TSDL metadata: text split into packets with headers (CTF 1.8, section 7.1).
//!
//! ```text
//! offset size field              (integers in the producer's byte order)
//!      0    4 magic              0x75D11D57
//!      4   16 UUID               the same in all packets
//!     20    4 checksum           not used
//!     24    4 content size       bits, header included
//!     28    4 packet size        bits, header and padding included
//!     32    1 compression scheme 0
//!     33    1 encryption scheme  0
//!     34    1 checksum scheme    0
//!     35    1 major version      1
//!     36    1 minor version      8
//!     37      text, then padding
//! ```

use super::{Leniency, MetadataError};
use crate::class::ByteOrder;
use crate::integer::usize_from;
use std::borrow::Cow;
use uuid::Uuid;

const MAGIC: u32 = 0x75d1_1d57;
const HEADER_BYTES: usize = 37;

/// The text and properties of a metadata stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketizedMetadata<'b> {
    /// The text of all packets, or the input when it is plain text.
    pub text: Cow<'b, [u8]>,
    /// UUID of all packets.
    pub uuid: Option<Uuid>,
    /// Byte order of the packet headers.
    pub byte_order: Option<ByteOrder>,
    /// Number of packets; 0 for plain text.
    pub packets: usize,
}

/// True when `bytes` begin with the magic number of packetized metadata.
pub fn is_packetized(bytes: &[u8]) -> bool {
    byte_order(bytes).is_some()
}

fn byte_order(bytes: &[u8]) -> Option<ByteOrder> {
    let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    if u32::from_le_bytes(magic) == MAGIC {
        Some(ByteOrder::Little)
    } else if u32::from_be_bytes(magic) == MAGIC {
        Some(ByteOrder::Big)
    } else {
        None
    }
}

/// The text of metadata in any of the three forms, not parsed.
///
/// # Errors
/// The byte offset of the invalid field or packet.
pub fn metadata_text(bytes: &[u8]) -> Result<PacketizedMetadata<'_>, MetadataError> {
    metadata_text_with(bytes, Leniency::Strict)
}

/// As [`metadata_text`]; in lenient mode, ignores bytes at the end that are too few for a packet
/// header, and missing padding of the last packet.
///
/// # Errors
/// As [`metadata_text`].
pub fn metadata_text_with(
    bytes: &[u8],
    leniency: Leniency,
) -> Result<PacketizedMetadata<'_>, MetadataError> {
    if bytes.is_empty() {
        return Err(MetadataError::in_packet(0, "empty metadata"));
    }
    let Some(order) = byte_order(bytes) else {
        let text = Cow::Borrowed(bytes);
        return Ok(PacketizedMetadata {
            text,
            uuid: None,
            byte_order: None,
            packets: 0,
        });
    };
    let mut text = Vec::with_capacity(bytes.len());
    let mut uuid = None;
    let mut packets = 0;
    let mut cursor = Cursor {
        bytes,
        at: 0,
        order,
    };
    while cursor.at < bytes.len() {
        let start = cursor.at;
        if leniency == Leniency::Lenient && bytes.len() - start < HEADER_BYTES && packets > 0 {
            break;
        }
        let header = cursor.header()?;
        header
            .check()
            .map_err(|message| MetadataError::in_packet(start, message))?;
        if *uuid.get_or_insert(header.uuid) != header.uuid {
            let message = "the UUID differs from that of the first packet";
            return Err(MetadataError::in_packet(start, message));
        }
        let content = usize_from(header.content_bits) / 8 - HEADER_BYTES;
        let padding = usize_from((header.packet_bits - header.content_bits) / 8);
        text.extend_from_slice(cursor.take(content, "text")?);
        packets += 1;
        if leniency == Leniency::Lenient && bytes.len() - cursor.at < padding {
            break;
        }
        cursor.take(padding, "padding")?;
    }
    Ok(PacketizedMetadata {
        text: Cow::Owned(text),
        uuid,
        byte_order: Some(order),
        packets,
    })
}

struct Header {
    magic: u32,
    uuid: Uuid,
    content_bits: u32,
    packet_bits: u32,
    compression: u8,
    encryption: u8,
    checksum: u8,
    version: (u8, u8),
}

impl Header {
    fn check(&self) -> Result<(), &'static str> {
        let faults = [
            (
                self.magic != MAGIC,
                "the magic number is not that of a metadata packet",
            ),
            (
                self.compression != 0,
                "compressed metadata is not supported",
            ),
            (self.encryption != 0, "encrypted metadata is not supported"),
            (self.checksum != 0, "checksummed metadata is not supported"),
            (self.version != (1, 8), "unsupported version: expecting 1.8"),
            (
                !self.packet_bits.is_multiple_of(8),
                "the packet size is not a multiple of 8 bits",
            ),
            (
                !self.content_bits.is_multiple_of(8),
                "the content size is not a multiple of 8 bits",
            ),
            (
                (usize_from(self.content_bits)) < HEADER_BYTES * 8,
                "the content size is less than the size of the header",
            ),
            (
                self.content_bits > self.packet_bits,
                "the content size is greater than the packet size",
            ),
        ];
        match faults.into_iter().find(|(is_fault, _)| *is_fault) {
            Some((_, message)) => Err(message),
            None => Ok(()),
        }
    }
}

struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
    order: ByteOrder,
}

impl<'b> Cursor<'b> {
    fn header(&mut self) -> Result<Header, MetadataError> {
        let magic = self.u32("magic number")?;
        let uuid = Uuid::from_slice(self.take(16, "UUID")?).unwrap_or_default();
        self.u32("checksum")?;
        let content_bits = self.u32("content size")?;
        let packet_bits = self.u32("packet size")?;
        let compression = self.u8("compression scheme")?;
        let encryption = self.u8("encryption scheme")?;
        let checksum = self.u8("checksum scheme")?;
        let version = (self.u8("major version")?, self.u8("minor version")?);
        Ok(Header {
            magic,
            uuid,
            content_bits,
            packet_bits,
            compression,
            encryption,
            checksum,
            version,
        })
    }

    fn take(&mut self, length: usize, what: &str) -> Result<&'b [u8], MetadataError> {
        match self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.get(..length))
        {
            Some(taken) => {
                self.at += length;
                Ok(taken)
            }
            None => {
                let message = format!("the metadata ends before the end of the {what}");
                Err(MetadataError::in_packet(self.at, message))
            }
        }
    }

    fn u8(&mut self, what: &str) -> Result<u8, MetadataError> {
        self.take(1, what).map(|bytes| bytes[0])
    }

    fn u32(&mut self, what: &str) -> Result<u32, MetadataError> {
        let bytes = self.take(4, what)?;
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        Ok(match self.order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        })
    }
}
