//! The only pointer type of the project.

use std::ops::Range;

use crate::{LeafId, limits::PACKET_BYTES_MAX};

/// A descriptor that points at no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// A packet has at least one byte and at most [`PACKET_BYTES_MAX`].
    #[error("a packet of {0} bytes cannot exist")]
    Size(u32),
    /// The end lies beyond what a file can hold.
    #[error("{size} bytes at offset {offset} end beyond the largest file")]
    End {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        size: u32,
    },
}

/// Where the stored bytes of a packet lie: data file, first byte, number of bytes (half-open).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    leaf: LeafId,
    offset: u64,
    size: u32,
}

impl Descriptor {
    /// A descriptor of `size` bytes at `offset` in the data file of `leaf`.
    ///
    /// # Errors
    /// When `size` is no size of a packet, or the end would overflow.
    pub fn new(leaf: LeafId, offset: u64, size: u32) -> Result<Self, DescriptorError> {
        if size == 0 || size > PACKET_BYTES_MAX {
            return Err(DescriptorError::Size(size));
        }
        match offset.checked_add(u64::from(size)) {
            Some(end) if i64::try_from(end).is_ok() => Ok(Self { leaf, offset, size }),
            _ => Err(DescriptorError::End { offset, size }),
        }
    }

    /// The leaf whose data file holds the bytes.
    #[must_use]
    pub fn leaf(&self) -> LeafId {
        self.leaf
    }

    /// Offset of the first byte in the data file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of bytes.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Offset of the byte behind the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        // Checked when the descriptor was made.
        self.offset + u64::from(self.size)
    }

    /// The bytes as a half-open range.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }
}
