//! The body of a push of many packets, `application/vnd.tracehold.packets`.
//!
//! Records one after another to the end of the body:
//!
//! ```text
//! offset size field
//!      0    4 length of the payload, bytes, at least 1
//!      4    4 CRC32C of the payload
//!      8    8 producer epoch
//!     16    8 producer sequence
//!     24    n payload
//! ```

use crate::{
    FormatError, FormatErrorKind, StreamPosition,
    checksum::crc32c,
    integer::u64_of,
    layout::{check_checksum, get_u32, get_u64, put},
    limits::PACKET_BYTES_MAX,
};

/// Media type of the body.
pub const MEDIA_TYPE: &str = "application/vnd.tracehold.packets";
/// Size of the header before each payload.
pub const RECORD_HEADER_BYTES: usize = 24;
const WHAT: &str = "batch record";

/// The header before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Length of the payload in bytes.
    pub length: u32,
    /// CRC32C of the payload.
    pub checksum: u32,
    /// Position of the packet in its stream.
    pub position: StreamPosition,
}

impl RecordHeader {
    /// The header of `payload`, which is at most [`PACKET_BYTES_MAX`] bytes long.
    #[must_use]
    pub fn of(payload: &[u8], position: StreamPosition) -> Self {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        Self {
            length,
            checksum: crc32c(payload),
            position,
        }
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        put(&mut bytes, 0, self.length.to_le_bytes());
        put(&mut bytes, 4, self.checksum.to_le_bytes());
        put(&mut bytes, 8, self.position.epoch.to_le_bytes());
        put(&mut bytes, 16, self.position.sequence.to_le_bytes());
        bytes
    }

    /// Reads a header; offsets in errors count from its first byte.
    ///
    /// # Errors
    /// When the length is not a valid length of a packet.
    pub fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Result<Self, FormatError> {
        let header = Self {
            length: get_u32(bytes, 0),
            checksum: get_u32(bytes, 4),
            position: StreamPosition::new(get_u64(bytes, 8), get_u64(bytes, 16)),
        };
        match header.length {
            0 => Err(FormatError::new(
                WHAT,
                0,
                FormatErrorKind::Field { name: "length" },
            )),
            1..=PACKET_BYTES_MAX => Ok(header),
            length => Err(FormatError::new(
                WHAT,
                0,
                FormatErrorKind::Limit {
                    name: "length",
                    found: u64::from(length),
                    max: u64::from(PACKET_BYTES_MAX),
                },
            )),
        }
    }

    /// Checks the checksum of `payload`.
    ///
    /// # Errors
    /// When the checksum differs.
    pub fn check(&self, payload: &[u8]) -> Result<(), FormatError> {
        check_checksum(
            WHAT,
            u64_of(RECORD_HEADER_BYTES),
            self.checksum,
            crc32c(payload),
        )
    }
}
