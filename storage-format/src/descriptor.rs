//! Descriptors: the location of the stored bytes of a packet.

use std::ops::Range;

use crate::{DataFileId, limits::PACKET_BYTES_MAX};

/// Why a descriptor is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// A packet has at least one byte and at most [`PACKET_BYTES_MAX`].
    #[error("a packet cannot have {0} bytes")]
    Size(u32),
    /// The end is past the largest possible file.
    #[error("{size} bytes at offset {offset} end past the largest possible file")]
    End {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        size: u32,
    },
}

/// The location of the stored bytes of a packet: data file, offset and size (half-open).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    file: DataFileId,
    offset: u64,
    size: u32,
}

impl Descriptor {
    /// A descriptor of `size` bytes at `offset` in a data file.
    ///
    /// # Errors
    /// When `size` is not a valid size of a packet, or the end would overflow.
    pub fn new(file: DataFileId, offset: u64, size: u32) -> Result<Self, DescriptorError> {
        if size == 0 || size > PACKET_BYTES_MAX {
            return Err(DescriptorError::Size(size));
        }
        match offset.checked_add(u64::from(size)) {
            Some(end) if i64::try_from(end).is_ok() => Ok(Self { file, offset, size }),
            _ => Err(DescriptorError::End { offset, size }),
        }
    }

    /// The data file that contains the bytes.
    #[must_use]
    pub fn file(&self) -> DataFileId {
        self.file
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

    /// Offset of the byte after the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        let end = self.offset.checked_add(u64::from(self.size));
        end.expect("the end is checked when a descriptor is created")
    }

    /// The bytes as a half-open range.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }
}
