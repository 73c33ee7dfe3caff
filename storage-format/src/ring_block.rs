//! A block of a ring: a recent packet that later ones may push out.
//!
//! The segments of a ring are in the folder `ring` of their storage and are named by their number.
//! A segment is a sequence of blocks, each a header and a payload. A writer that is killed leaves a
//! torn block at the end of the last segment; the checksums show it.
//!
//! ```text
//! offset size field
//!      0    8 magic "THRINGBK"
//!      8    2 format version
//!     10    1 known facts: bit 0 time span, bit 1 events, bit 2 lost
//!     11    1 zero
//!     12    4 length of the payload
//!     16    8 sequence: counts all blocks of the ring
//!     24    8 begin of the time span, ns since the epoch (i64)
//!     32    8 end of the time span
//!     40    4 events
//!     44    4 lost events
//!     48    8 zero
//!     56    4 CRC32C of the payload
//!     60    4 CRC32C of bytes 0 to 59
//! ```

use crate::{
    FORMAT_VERSION, FormatError, FormatErrorKind,
    checksum::crc32c,
    frame::Facts,
    integer::{u64_of, usize_of},
    layout::{check_checksum, check_start, get_i64, get_u32, get_u64, put},
    limits::PACKET_BYTES_MAX,
};

/// Size of the header; the payload follows.
pub const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"THRINGBK";
const WHAT: &str = "ring block";
const CHECKSUM: usize = HEADER_BYTES - 4;

/// A block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingBlock<'a> {
    /// Its number among all blocks of the ring, including the removed ones.
    pub sequence: u64,
    /// What is known about the packet.
    pub facts: Facts,
    /// The packet.
    pub payload: &'a [u8],
}

impl<'a> RingBlock<'a> {
    /// The bytes of the header; the payload follows it.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let Facts {
            time_span,
            events,
            lost,
            // Rings contain packets of the I/O trace, whose times need no time basis, and all of
            // which can be read.
            time_basis: _,
            has_unreadable: _,
        } = self.facts;
        let (begin, end) = time_span.unwrap_or_default();
        assert!(begin <= end, "a time span does not end before it begins");
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, FORMAT_VERSION.to_le_bytes());
        bytes[10] = u8::from(time_span.is_some())
            | u8::from(events.is_some()) << 1
            | u8::from(lost.is_some()) << 2;
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        assert!(
            length <= PACKET_BYTES_MAX,
            "the size of a packet is checked before it is written"
        );
        put(&mut bytes, 12, length.to_le_bytes());
        put(&mut bytes, 16, self.sequence.to_le_bytes());
        put(&mut bytes, 24, begin.to_le_bytes());
        put(&mut bytes, 32, end.to_le_bytes());
        put(&mut bytes, 40, events.unwrap_or_default().to_le_bytes());
        put(&mut bytes, 44, lost.unwrap_or_default().to_le_bytes());
        put(&mut bytes, 56, crc32c(self.payload).to_le_bytes());
        let checksum = crc32c(&bytes[..CHECKSUM]);
        put(&mut bytes, CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// The block at the start of `bytes`, and the bytes after it.
    ///
    /// # Errors
    /// When the bytes are too few, damaged, of another version or impossible.
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FormatError> {
        check_start(WHAT, bytes, MAGIC, HEADER_BYTES)?;
        let (stored, computed) = (get_u32(bytes, CHECKSUM), crc32c(&bytes[..CHECKSUM]));
        check_checksum(WHAT, u64_of(CHECKSUM), stored, computed)?;
        let field = |at, name| FormatError::new(WHAT, at, FormatErrorKind::Field { name });
        let flags = bytes[10];
        if flags > 7 {
            return Err(field(10, "known facts"));
        }
        if get_i64(bytes, 24) > get_i64(bytes, 32) {
            return Err(field(24, "time span"));
        }
        let length = get_u32(bytes, 12);
        if length > PACKET_BYTES_MAX {
            let kind = FormatErrorKind::Limit {
                name: "length",
                found: length.into(),
                max: PACKET_BYTES_MAX.into(),
            };
            return Err(FormatError::new(WHAT, 12, kind));
        }
        let end = HEADER_BYTES.saturating_add(usize_of(length));
        let payload = bytes
            .get(HEADER_BYTES..end)
            .ok_or_else(|| FormatError::truncated(WHAT, end, bytes.len()))?;
        check_checksum(WHAT, 56, get_u32(bytes, 56), crc32c(payload))?;
        let known = |bit: u8| flags & (1 << bit) != 0;
        let block = Self {
            sequence: get_u64(bytes, 16),
            facts: Facts {
                time_span: known(0).then(|| (get_i64(bytes, 24), get_i64(bytes, 32))),
                events: known(1).then(|| get_u32(bytes, 40)),
                lost: known(2).then(|| get_u32(bytes, 44)),
                time_basis: None,
                has_unreadable: false,
            },
            payload,
        };
        Ok((block, &bytes[end..]))
    }
}
