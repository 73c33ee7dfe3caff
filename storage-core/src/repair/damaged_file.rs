//! Finds what is whole in a damaged data file of a log.
//!
//! Batches begin at blocks, and their headers are covered by a checksum with storage, file and
//! offset; so are the headers of frames. So whatever decodes at its place was written there.

use std::{cell::RefCell, collections::BTreeSet, ops::Range, path::PathBuf};

use bytes::Bytes;
use storage_format::{
    DataFileId, LeafId, StorageId,
    data_file::{DataFileHeader, HEADER_BYTES as LEAF_HEADER_BYTES},
    frame::{ALIGNMENT, FrameHeader, FrameLocation, HEADER_BYTES},
    log::{
        BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, BatchLocation, SEGMENT_HEADER_BYTES,
        SegmentHeader,
    },
};

use super::chain::LogFile;
use crate::{Progress, StorageError, errno::is_transient, read::ReadFile, scan::WINDOW_BYTES};

const BLOCK_LENGTH: u64 = BLOCK_BYTES as u64;

/// A data file that may be damaged anywhere.
pub(super) struct DamagedFile {
    path: PathBuf,
    file: ReadFile,
    storage: StorageId,
    id: DataFileId,
    /// The salt of its batches, once it is known.
    salt: Option<u64>,
    /// Where its bytes end.
    pub(super) end: u64,
    /// The blocks that the disk refused to read, by offset.
    refused: RefCell<BTreeSet<u64>>,
    /// Where the last block ends that was searched and is not zero.
    written: u64,
}

/// A packet that is whole.
pub(super) struct WholeFrame {
    pub(super) leaf: LeafId,
    pub(super) header: FrameHeader,
    /// As stored.
    pub(super) payload: Bytes,
}

/// Bytes of a batch that are not as they were written.
pub(super) struct DamagedBytes {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) leaf: Option<LeafId>,
    /// The number of the packet, if its header is intact.
    pub(super) number: Option<u64>,
}

/// What is left of a batch.
#[derive(Default)]
pub(super) struct BatchContent {
    pub(super) frames: Vec<WholeFrame>,
    pub(super) damaged: Vec<DamagedBytes>,
    pub(super) leaf_headers: Vec<DataFileHeader>,
}

impl DamagedFile {
    /// Opens a file; `None` when it is missing.
    pub(super) fn open(storage: StorageId, file: &LogFile) -> Result<Option<Self>, StorageError> {
        let Some(path) = &file.path else {
            return Ok(None);
        };
        let opened = ReadFile::open(path).map_err(StorageError::io("open", path))?;
        Ok(Some(Self {
            path: path.clone(),
            file: opened,
            storage,
            id: file.id,
            salt: file.header.as_ref().map(|header| header.salt),
            end: file
                .limit
                .map_or(file.length, |limit| limit.min(file.length)),
            refused: RefCell::default(),
            written: 0,
        }))
    }

    /// Bytes at `offset`, fewer at the end; blocks that cannot be read are zero, as damage is.
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, StorageError> {
        let left = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(left)];
        let failed = |error| StorageError::io("read", &self.path)(error);
        match self.file.fill(&mut bytes, offset) {
            Ok(()) => return Ok(bytes),
            Err(error) if is_transient(&error) => return Err(failed(error)),
            Err(_) => {}
        }
        let mut at = offset;
        for block in bytes.chunks_mut(BLOCK_BYTES) {
            match self.file.fill(block, at) {
                Ok(()) => {}
                Err(error) if is_transient(&error) => return Err(failed(error)),
                Err(_) => {
                    block.fill(0);
                    self.refused.borrow_mut().insert(at);
                }
            }
            at = at.saturating_add(block.len() as u64);
        }
        Ok(bytes)
    }

    /// If the disk refused to read blocks of a range: where what was written to it ends, as far as
    /// that is known. Zeros after that were never written.
    pub(super) fn refused(&self, range: &Range<u64>) -> Option<u64> {
        let first = range.start.saturating_sub(BLOCK_LENGTH.saturating_sub(1));
        if first >= range.end {
            return None;
        }
        let refused = self.refused.borrow();
        let last = refused.range(first..range.end).next_back()?;
        let last = last.saturating_add(BLOCK_LENGTH);
        Some(self.written.max(last).min(range.end))
    }

    /// The first batch at or after `from` with this number or a greater one.
    pub(super) fn next_batch(
        &mut self,
        from: u64,
        number: u64,
        progress: &Progress,
    ) -> Result<Option<(u64, BatchHeader)>, StorageError> {
        let mut at = from.next_multiple_of(BLOCK_LENGTH);
        while at < self.end {
            progress.check()?;
            let window = self.read(at, WINDOW_BYTES)?;
            for (offset, block) in (at..).step_by(BLOCK_BYTES).zip(window.chunks(BLOCK_BYTES)) {
                let location = BatchLocation {
                    storage: self.storage,
                    file: self.id,
                    offset,
                };
                if block.iter().any(|byte| *byte != 0) {
                    self.written = offset.saturating_add(BLOCK_LENGTH);
                }
                let Ok(header) = BatchHeader::decode(block, location) else {
                    continue;
                };
                let salt = *self.salt.get_or_insert(header.salt);
                if header.salt == salt && header.number >= number {
                    return Ok(Some((offset, header)));
                }
            }
            at = at.saturating_add(WINDOW_BYTES as u64);
        }
        Ok(None)
    }

    /// What is left of the batch with this header at `at`.
    pub(super) fn content(
        &self,
        at: u64,
        header: &BatchHeader,
    ) -> Result<BatchContent, StorageError> {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let bytes = Bytes::from(self.read(at, length)?);
        let mut walk = Walk {
            storage: self.storage,
            start: at,
            end: length,
            bytes,
            content: BatchContent::default(),
        };
        let mut place = BATCH_HEADER_BYTES;
        let mut segments: u32 = 0;
        while place < length {
            let found = walk.find(place, length, |walk, place| {
                walk.segment_at(place).is_some()
            });
            let found = found.unwrap_or(length);
            walk.damaged(place, found, None, None);
            place = found;
            if let Some(segment) = walk.segment_at(place) {
                place = walk.segment(place, &segment);
                segments = segments.saturating_add(1);
            }
        }
        if segments != header.segments && walk.content.damaged.is_empty() {
            walk.damaged(BATCH_HEADER_BYTES, length, None, None);
        }
        walk.content.release(length);
        Ok(walk.content)
    }
}

impl BatchContent {
    /// Copies the payloads if they are a small part of their batch, so that few packets that wait
    /// to be written do not keep all the bytes of many batches.
    fn release(&mut self, length: usize) {
        let payloads = self.frames.iter().map(|frame| frame.payload.len());
        if payloads.sum::<usize>() < length.div_euclid(2) {
            for frame in &mut self.frames {
                frame.payload = Bytes::copy_from_slice(&frame.payload);
            }
        }
    }
}

/// A walk through the bytes of a batch. Places count from its start.
struct Walk {
    storage: StorageId,
    /// Offset of the batch in the file.
    start: u64,
    /// Bytes that the batch has; fewer may be there.
    end: usize,
    bytes: Bytes,
    content: BatchContent,
}

impl Walk {
    fn offset(&self, place: usize) -> u64 {
        self.start.saturating_add(place as u64)
    }

    fn damaged(&mut self, from: usize, to: usize, leaf: Option<LeafId>, number: Option<u64>) {
        if to > from {
            self.content.damaged.push(DamagedBytes {
                offset: self.offset(from),
                length: to.saturating_sub(from) as u64,
                leaf,
                number,
            });
        }
    }

    fn at(&self, place: usize) -> &[u8] {
        self.bytes.get(place..).unwrap_or_default()
    }

    /// The first aligned place from `from` to `to` that is wanted.
    fn find(
        &self,
        from: usize,
        to: usize,
        is_wanted: impl Fn(&Self, usize) -> bool,
    ) -> Option<usize> {
        let mut places = (from..to).step_by(ALIGNMENT);
        places.find(|&place| is_wanted(self, place))
    }

    /// The header of the segment at `place`, if there is one.
    fn segment_at(&self, place: usize) -> Option<SegmentHeader> {
        let header = SegmentHeader::decode(self.at(place), self.offset(place)).ok()?;
        let (_, end) = self.range_of(place, &header)?;
        (end <= self.end).then_some(header)
    }

    /// Where the bytes of the leaf begin and end.
    fn range_of(&self, place: usize, segment: &SegmentHeader) -> Option<(usize, usize)> {
        let repeated = if segment.repeats_leaf_header {
            LEAF_HEADER_BYTES
        } else {
            0
        };
        let start = place
            .checked_add(SEGMENT_HEADER_BYTES)?
            .checked_add(repeated)?;
        let length = usize::try_from(segment.length).ok()?;
        Some((start, start.checked_add(length)?))
    }

    fn leaf_header(&mut self, place: usize, leaf: LeafId) {
        if let Ok(header) = DataFileHeader::decode(self.at(place))
            && (header.storage, header.leaf) == (self.storage, leaf)
        {
            self.content.leaf_headers.push(header);
        }
    }

    /// Adds the frames of a segment; returns where it ends.
    fn segment(&mut self, place: usize, segment: &SegmentHeader) -> usize {
        let Some((start, end)) = self.range_of(place, segment) else {
            return self.end;
        };
        let mut at = start;
        if segment.repeats_leaf_header {
            self.leaf_header(start.saturating_sub(LEAF_HEADER_BYTES), segment.leaf);
        }
        if segment.leaf_offset == 0 {
            self.leaf_header(start, segment.leaf);
            at = at.saturating_add(LEAF_HEADER_BYTES);
        }
        let frame_at = |walk: &Self, place: usize| {
            let inside = place.saturating_sub(start) as u64;
            let location = FrameLocation {
                storage: walk.storage,
                leaf: segment.leaf,
                offset: segment.leaf_offset.saturating_add(inside),
            };
            let header = FrameHeader::decode(walk.at(place), location).ok()?;
            let length = usize::try_from(header.frame_bytes()).ok()?;
            let after = place.checked_add(length)?;
            (after <= end).then_some((header, after))
        };
        while at < end {
            let found = self.find(at, end, |walk, place| frame_at(walk, place).is_some());
            let found = found.unwrap_or(end);
            self.damaged(at, found, Some(segment.leaf), None);
            at = found;
            if let Some((header, after)) = frame_at(self, at) {
                self.frame(at, after, segment.leaf, header);
                at = after;
            }
        }
        end
    }

    fn frame(&mut self, place: usize, after: usize, leaf: LeafId, header: FrameHeader) {
        let start = place.saturating_add(HEADER_BYTES);
        let end = start.saturating_add(usize::try_from(header.stored_size).unwrap_or(usize::MAX));
        let is_there = end <= self.bytes.len();
        let payload = is_there.then(|| self.bytes.slice(start..end));
        let payload =
            payload.filter(|payload| header.check_payload(payload, self.offset(start)).is_ok());
        match payload {
            Some(payload) => self.content.frames.push(WholeFrame {
                leaf,
                header,
                payload,
            }),
            None => self.damaged(place, after, Some(leaf), Some(header.number)),
        }
    }
}
