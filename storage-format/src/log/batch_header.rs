//! The header of a batch: what one write appends to a log.
//!
//! ```text
//! offset size field
//!      0    4 magic "THBA"
//!      4    4 segments in the batch
//!      8    8 salt of the file
//!     16    8 number of the batch in the storage, from 0
//!     24    8 durable mark: all batches with smaller numbers were durable when this was sealed
//!     32    8 length of the batch, bytes: header and segments, without the zeros after them
//!     40    4 CRC32C of the headers of its segments, leaves and frames, in their order
//!     44    4 chain: checksum of the batch header before (0 in the first of a storage)
//!     48   12 zero
//!     60    4 CRC32C of bytes 0 to 59, storage id, file id (u64), offset of the header (u64)
//! ```
//!
//! A batch begins at a multiple of [`super::BLOCK_BYTES`]; zeros fill its last block.

use super::{BLOCK_BYTES, SEGMENT_HEADER_BYTES};
use crate::{
    DataFileId, FormatError, FormatErrorKind, StorageId,
    checksum::{crc32c, crc32c_append},
    integer::{u64_of, usize_of},
    layout::{check_checksum, get, get_u32, get_u64, put},
    limits::LOG_BATCH_BYTES_MAX,
};

/// Size of a batch header.
pub const BATCH_HEADER_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"THBA";
const WHAT: &str = "batch header";
const CHECKSUM: usize = BATCH_HEADER_BYTES - 4;

/// The location of a batch header; its checksum covers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLocation {
    /// The storage.
    pub storage: StorageId,
    /// The data file.
    pub file: DataFileId,
    /// Offset of the header in the data file.
    pub offset: u64,
}

/// The header of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Number of segments.
    pub segments: u32,
    /// Salt of the file.
    pub salt: u64,
    /// Number of the batch in the storage.
    pub number: u64,
    /// All batches with smaller numbers were durable when this one was sealed.
    pub durable_mark: u64,
    /// Length of header and segments in bytes.
    pub length: u64,
    /// CRC32C of the headers of segments, leaves and frames, in their order.
    pub headers_checksum: u32,
    /// Checksum of the batch header before this one.
    pub chain: u32,
}

impl BatchHeader {
    /// The bytes of the header at `location`.
    #[must_use]
    pub fn encode(&self, location: BatchLocation) -> [u8; BATCH_HEADER_BYTES] {
        assert!(
            location.offset.is_multiple_of(u64_of(BLOCK_BYTES)),
            "a batch begins at a block"
        );
        assert!(
            self.segments > 0 && is_length(self.length, self.segments),
            "a batch contains at least one segment and is bounded"
        );
        assert!(
            self.durable_mark <= self.number,
            "a batch is not durable before it is sealed"
        );
        let mut bytes = [0; BATCH_HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 4, self.segments.to_le_bytes());
        put(&mut bytes, 8, self.salt.to_le_bytes());
        put(&mut bytes, 16, self.number.to_le_bytes());
        put(&mut bytes, 24, self.durable_mark.to_le_bytes());
        put(&mut bytes, 32, self.length.to_le_bytes());
        put(&mut bytes, 40, self.headers_checksum.to_le_bytes());
        put(&mut bytes, 44, self.chain.to_le_bytes());
        let checksum = header_checksum(&bytes, location);
        put(&mut bytes, CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`, which are at `location`.
    ///
    /// # Errors
    /// When the bytes are too few, are not a batch header, are damaged or belong to another
    /// location; offsets in the error count from the start of the data file.
    pub fn decode(bytes: &[u8], location: BatchLocation) -> Result<Self, FormatError> {
        Self::decode_here(bytes, location).map_err(|error| error.shifted(location.offset))
    }

    fn decode_here(bytes: &[u8], location: BatchLocation) -> Result<Self, FormatError> {
        if bytes.len() < BATCH_HEADER_BYTES {
            return Err(FormatError::truncated(
                WHAT,
                BATCH_HEADER_BYTES,
                bytes.len(),
            ));
        }
        let bytes = &bytes[..BATCH_HEADER_BYTES];
        if bytes[..4] != MAGIC {
            return Err(FormatError::new(WHAT, 0, FormatErrorKind::Magic));
        }
        let stored = get_u32(bytes, CHECKSUM);
        let computed = header_checksum(bytes, location);
        check_checksum(WHAT, u64_of(CHECKSUM), stored, computed)?;
        let header = Self {
            segments: get_u32(bytes, 4),
            salt: get_u64(bytes, 8),
            number: get_u64(bytes, 16),
            durable_mark: get_u64(bytes, 24),
            length: get_u64(bytes, 32),
            headers_checksum: get_u32(bytes, 40),
            chain: get_u32(bytes, 44),
        };
        let fault = |name, offset| FormatError::new(WHAT, offset, FormatErrorKind::Field { name });
        if header.segments == 0 || !is_length(header.length, header.segments) {
            return Err(fault("length", 32));
        }
        if header.durable_mark > header.number {
            return Err(fault("durable mark", 24));
        }
        Ok(header)
    }

    /// The checksum of an encoded header, which is the chain of the next one.
    #[must_use]
    pub fn checksum_of(bytes: &[u8; BATCH_HEADER_BYTES]) -> u32 {
        get_u32(bytes, CHECKSUM)
    }

    /// Bytes from the start of this batch to that of the next.
    #[must_use]
    pub fn padded_length(&self) -> u64 {
        self.length.next_multiple_of(u64_of(BLOCK_BYTES))
    }
}

/// Whether a batch with this many segments may have this length.
fn is_length(length: u64, segments: u32) -> bool {
    let headers = u64_of(SEGMENT_HEADER_BYTES).saturating_mul(u64_of(usize_of(segments)));
    length > headers.saturating_add(u64_of(BATCH_HEADER_BYTES)) && length <= LOG_BATCH_BYTES_MAX
}

fn header_checksum(bytes: &[u8], location: BatchLocation) -> u32 {
    let mut domain = [0; 32];
    put(&mut domain, 0, *location.storage.as_bytes());
    put(&mut domain, 16, location.file.0.to_le_bytes());
    put(&mut domain, 24, location.offset.to_le_bytes());
    crc32c_append(crc32c(&get::<CHECKSUM>(bytes, 0)), &domain)
}
