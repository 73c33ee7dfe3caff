//! The header of a segment: consecutive bytes of one leaf in a data file.
//!
//! ```text
//! offset size field
//!      0    4 magic "THSE"
//!      4    4 1 when the header of the leaf follows, otherwise 0
//!      8    8 leaf id
//!     16    8 offset of the bytes in the leaf
//!     24    8 number of bytes
//!     32    4 zero
//!     36    4 CRC32C of bytes 0 to 35
//! ```
//!
//! The header of a leaf (see [`crate::data_file`]) is its first 512 bytes, so the first segment of
//! a leaf contains it. The first segment of the leaf in each later file repeats it before the
//! bytes, and `4` says so: each file alone says which leaves its packets belong to.

use crate::{
    FormatError, FormatErrorKind, LeafId,
    checksum::crc32c,
    integer::u64_of,
    layout::{check_checksum, get_u32, get_u64, put},
};

/// Size of a segment header.
pub const SEGMENT_HEADER_BYTES: usize = 40;
const MAGIC: [u8; 4] = *b"THSE";
const WHAT: &str = "segment header";
const CHECKSUM: usize = SEGMENT_HEADER_BYTES - 4;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The leaf.
    pub leaf: LeafId,
    /// Whether the header of the leaf is repeated before the bytes.
    pub repeats_leaf_header: bool,
    /// Offset of the bytes in the leaf.
    pub leaf_offset: u64,
    /// Number of bytes, without a repeated leaf header.
    pub length: u64,
}

impl SegmentHeader {
    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        assert!(
            self.length > 0 && self.leaf_offset.checked_add(self.length).is_some(),
            "a segment has bytes, and a leaf ends before 2^64"
        );
        assert!(
            !self.repeats_leaf_header || self.leaf_offset > 0,
            "the first bytes of a leaf are its header"
        );
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(
            &mut bytes,
            4,
            u32::from(self.repeats_leaf_header).to_le_bytes(),
        );
        put(&mut bytes, 8, self.leaf.0.to_le_bytes());
        put(&mut bytes, 16, self.leaf_offset.to_le_bytes());
        put(&mut bytes, 24, self.length.to_le_bytes());
        let checksum = crc32c(&bytes[..CHECKSUM]);
        put(&mut bytes, CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`, which are at `offset` in their file.
    ///
    /// # Errors
    /// When the bytes are too few, are not a segment header, or are damaged.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<Self, FormatError> {
        Self::decode_here(bytes).map_err(|error| error.shifted(offset))
    }

    fn decode_here(bytes: &[u8]) -> Result<Self, FormatError> {
        let Some(bytes) = bytes.get(..SEGMENT_HEADER_BYTES) else {
            return Err(FormatError::truncated(
                WHAT,
                SEGMENT_HEADER_BYTES,
                bytes.len(),
            ));
        };
        if bytes[..4] != MAGIC {
            return Err(FormatError::new(WHAT, 0, FormatErrorKind::Magic));
        }
        let stored = get_u32(bytes, CHECKSUM);
        check_checksum(WHAT, u64_of(CHECKSUM), stored, crc32c(&bytes[..CHECKSUM]))?;
        let header = Self {
            leaf: LeafId(get_u64(bytes, 8)),
            repeats_leaf_header: get_u32(bytes, 4) != 0,
            leaf_offset: get_u64(bytes, 16),
            length: get_u64(bytes, 24),
        };
        let fault = |name, offset| FormatError::new(WHAT, offset, FormatErrorKind::Field { name });
        if header.length == 0 || header.leaf_offset.checked_add(header.length).is_none() {
            return Err(fault("length", 24));
        }
        if header.repeats_leaf_header && header.leaf_offset == 0 {
            return Err(fault("leaf header", 4));
        }
        Ok(header)
    }
}
