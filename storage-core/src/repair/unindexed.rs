//! The frames of a damaged leaf of which the index has no packets.

use storage_format::{
    LeafId,
    frame::{ALIGNMENT, FrameHeader, FrameLocation, HEADER_BYTES},
    index_part::Extent,
    log::BLOCK_BYTES,
};

use super::leaf_frames::{OpenFiles, ReadFrame};
use crate::{StorageError, leaf_bytes::LeafMap};

/// Bytes that are searched at once.
const SEARCH_BYTES: u64 = 256 << 10;
const STEP: u64 = ALIGNMENT as u64;

/// The frames of a leaf.
pub(super) struct Frames<'a> {
    pub(super) files: &'a OpenFiles,
    pub(super) map: &'a LeafMap,
    pub(super) leaf: LeafId,
    /// Where the leaf ends.
    pub(super) end: u64,
}

/// A frame, or bytes that are none.
pub(super) struct Piece {
    pub(super) bytes: u64,
    /// The number of the packet, if the header of its frame is intact.
    pub(super) number: Option<u64>,
}

impl Frames<'_> {
    /// What is at an offset of the leaf.
    pub(super) fn next(&self, offset: u64) -> Result<Piece, StorageError> {
        let left = self.end.saturating_sub(offset);
        let header = match self.files.frame(self.map, self.leaf, offset)? {
            ReadFrame::Whole(header, _) | ReadFrame::Damaged(header) => header,
            ReadFrame::Unknown => return self.until_frame(offset),
        };
        if header.frame_bytes() > left {
            return self.until_frame(offset);
        }
        Ok(Piece {
            bytes: header.frame_bytes(),
            number: Some(header.number),
        })
    }

    /// The bytes up to the next frame header that is intact.
    fn until_frame(&self, offset: u64) -> Result<Piece, StorageError> {
        let mut at = offset.saturating_add(STEP);
        let mut found = self.end;
        while at < self.end {
            let bytes = self.readable(at)?;
            let mut starts = (0..bytes.len()).step_by(ALIGNMENT);
            let is_header = |&start: &usize| {
                let location = FrameLocation {
                    storage: self.files.storage(),
                    leaf: self.leaf,
                    offset: at.saturating_add(start as u64),
                };
                let header = bytes.get(start..).and_then(|rest| rest.get(..HEADER_BYTES));
                header.is_some_and(|header| FrameHeader::decode(header, location).is_ok())
            };
            if let Some(start) = starts.find(is_header) {
                found = at.saturating_add(start as u64);
                break;
            }
            // The last bytes are searched again with those that follow.
            let searched = (bytes.len() as u64).saturating_sub(HEADER_BYTES as u64);
            let searched = searched.saturating_sub(searched % STEP);
            at = at.saturating_add(searched.max(STEP));
        }
        Ok(Piece {
            bytes: found.saturating_sub(offset),
            number: None,
        })
    }

    /// Bytes of the leaf from an offset on; zeros where they cannot be read.
    fn readable(&self, at: u64) -> Result<Vec<u8>, StorageError> {
        let end = at.saturating_add(SEARCH_BYTES).min(self.end);
        let mut bytes = Vec::new();
        for extent in self.map.extents(&(at..end))? {
            if let Some(mut found) = self.files.extent(self.map, &extent)? {
                bytes.append(&mut found);
                continue;
            }
            for block in blocks(&extent) {
                match self.files.extent(self.map, &block)? {
                    Some(mut found) => bytes.append(&mut found),
                    None => bytes.extend((0..block.length).map(|_| 0)),
                }
            }
        }
        Ok(bytes)
    }
}

/// The blocks of the disk in an extent.
fn blocks(extent: &Extent) -> Vec<Extent> {
    let block_bytes = BLOCK_BYTES as u64;
    let end = extent.offset.saturating_add(extent.length);
    let mut blocks = Vec::new();
    let mut offset = extent.offset;
    while offset < end {
        let after = offset
            .saturating_add(1)
            .next_multiple_of(block_bytes)
            .min(end);
        let inside = offset.saturating_sub(extent.offset);
        blocks.push(Extent {
            leaf_offset: extent.leaf_offset.saturating_add(inside),
            offset,
            length: after.saturating_sub(offset),
            ..*extent
        });
        offset = after;
    }
    blocks
}
