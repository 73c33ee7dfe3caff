//! The blocks of a sidecar, each of which can be fetched separately.

use std::ops::Range;

use super::envelope::unpack;
use super::error::{SidecarError, damaged};
use crate::file_dictionary::FileDictionary;

/// The contents of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockKind {
    /// Counts, times and durations by category and name.
    Statistics,
    /// The quantile sketches of these durations.
    Sketches,
    /// Limits and dictionaries of a dimension.
    Limits,
    /// The filters of a dimension.
    Filters,
    /// Bytes that an indexer attached.
    Attachment,
    /// The slowest events.
    Slowest,
    /// The file dictionary of a dimension.
    FileDictionary,
}

pub(crate) const KINDS: [BlockKind; 7] = [
    BlockKind::Statistics,
    BlockKind::Sketches,
    BlockKind::Limits,
    BlockKind::Filters,
    BlockKind::Attachment,
    BlockKind::Slowest,
    BlockKind::FileDictionary,
];

/// A block of a sidecar: its contents and its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// What it contains.
    pub kind: BlockKind,
    /// Index of its dimension; 0 for kinds without one.
    pub dimension: u32,
    /// Its number: chunk number / [`BLOCK_CHUNKS`](crate::BLOCK_CHUNKS), or number of the
    /// attachment.
    pub number: u32,
    /// Offset of its bytes in the sidecar.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
    pub(crate) raw_length: u32,
    pub(crate) checksum: u32,
}

impl Block {
    /// The bytes of the sidecar that contain the block.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.length)
    }

    /// Number of its bytes when unpacked.
    pub fn raw_length(&self) -> u32 {
        self.raw_length
    }

    pub(crate) fn damaged(&self, reason: impl ToString) -> SidecarError {
        let part = match self.kind {
            BlockKind::Statistics => "the statistics",
            BlockKind::Sketches => "the sketches",
            BlockKind::Limits => "the limits of a dimension",
            BlockKind::Filters => "the filters of a dimension",
            BlockKind::Attachment => "an attachment",
            BlockKind::Slowest => "the slowest events",
            BlockKind::FileDictionary => "the values of a dimension",
        };
        damaged(part, self.offset, reason)
    }

    /// Decodes the file dictionary of a block of that kind.
    ///
    /// # Errors
    /// When the bytes are damaged, or not those of the block.
    pub fn file_dictionary(&self, bytes: &[u8]) -> Result<FileDictionary, SidecarError> {
        let raw = self.unpack(bytes)?;
        FileDictionary::decode(&raw).map_err(|reason| self.damaged(reason))
    }

    /// Verifies and unpacks the bytes of the block: of an attachment, those that were attached.
    ///
    /// # Errors
    /// When the bytes are damaged, or not those of the block.
    pub fn unpack(&self, bytes: &[u8]) -> Result<Vec<u8>, SidecarError> {
        if bytes.len() != self.length as usize {
            return Err(SidecarError::WrongBytes {
                offset: self.offset,
                wanted: u64::from(self.length),
                found: bytes.len() as u64,
            });
        }
        if crc32c::crc32c(bytes) != self.checksum {
            return Err(self.damaged("checksum differs"));
        }
        unpack(bytes, self.raw_length).map_err(|reason| self.damaged(reason))
    }
}

#[cfg(test)]
impl Block {
    /// An empty block, for tests that distinguish blocks by their location.
    pub(crate) fn sample() -> Block {
        Block {
            kind: BlockKind::Filters,
            dimension: 0,
            number: 0,
            offset: 0,
            length: 0,
            raw_length: 0,
            checksum: 0,
        }
    }
}
