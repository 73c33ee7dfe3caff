//! The tail of a data file.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use storage_format::checksum::{crc32c_append, crc32c_combine};

/// The durable end of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tail {
    /// Length of the header and the frames in bytes.
    pub(crate) length: u64,
    /// CRC32C of these bytes.
    pub(crate) checksum: u32,
}

/// From this size on, combining two checksums is cheaper than reading the bytes again.
const COMBINE_BYTES_MIN: usize = 8 << 10;

impl Tail {
    /// Moves the tail past `bytes`.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.checksum = crc32c_append(self.checksum, bytes);
        self.length = self.length.saturating_add(bytes.len() as u64);
    }

    /// Moves the tail past `bytes`, whose CRC32C is known.
    pub(crate) fn extend_summed(&mut self, bytes: &[u8], checksum: u32) {
        match u32::try_from(bytes.len()) {
            Ok(length) if bytes.len() >= COMBINE_BYTES_MIN => {
                self.checksum = crc32c_combine(self.checksum, checksum, length);
                self.length = self.length.saturating_add(u64::from(length));
            }
            _ => self.extend(bytes),
        }
    }
}
