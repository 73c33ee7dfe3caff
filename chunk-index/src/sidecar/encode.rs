//! Encodes an index as a sidecar.

use super::block::{Block, BlockKind, KINDS};
use super::envelope::{closed, header, pack};
use super::{SIGNATURE, SidecarError};
use crate::body;
use crate::checkpoint::{self, Window};
use crate::chunk::Identity;
use crate::config::DIMENSIONS_MAX;
use crate::filter::ChunkFilter;
use crate::index::{BLOCK_CHUNKS, DictionaryState, Dimension, Index};
use crate::slowest;
use crate::wire::{put_signed, put_text, put_varint};

/// The sidecar so far.
struct Writer {
    file: Vec<u8>,
    blocks: Vec<Block>,
}

impl Writer {
    fn block(
        &mut self,
        kind: BlockKind,
        dimension: usize,
        number: usize,
        raw: Vec<u8>,
    ) -> Result<(), SidecarError> {
        let (stored, raw_length) = pack(raw)?;
        let narrow = |value: usize| u32::try_from(value).expect("an index has few blocks");
        self.blocks.push(Block {
            kind,
            dimension: narrow(dimension),
            number: narrow(number),
            offset: self.file.len() as u64,
            length: narrow(stored.len()),
            raw_length,
            checksum: crc32c::crc32c(&stored),
        });
        self.file.extend(stored);
        Ok(())
    }
}

impl Index {
    /// The bytes of the sidecar.
    ///
    /// # Errors
    /// [`SidecarError::NotLoaded`] when a part of the index is not loaded.
    pub fn encode(&self) -> Result<Vec<u8>, SidecarError> {
        if !self.is_complete() {
            return Err(SidecarError::NotLoaded);
        }
        self.assert_consistent();
        let mut writer = Writer {
            file: header(SIGNATURE),
            blocks: Vec::new(),
        };
        for (number, block) in self.statistics.blocks.iter().enumerate() {
            let chunks = block.as_ref().ok_or(SidecarError::NotLoaded)?;
            let statistics = body::encode_statistics(chunks);
            writer.block(BlockKind::Statistics, 0, number, statistics)?;
        }
        for (at, dimension) in self.dimensions.iter().enumerate() {
            for (number, block) in dimension.limits.blocks.iter().enumerate() {
                let chunks = block.as_ref().ok_or(SidecarError::NotLoaded)?;
                writer.block(BlockKind::Limits, at, number, body::encode_limits(chunks))?;
            }
        }
        for (at, dimension) in self.dimensions.iter().enumerate() {
            for (number, block) in dimension.filters.blocks.iter().enumerate() {
                let chunks = block.as_ref().ok_or(SidecarError::NotLoaded)?;
                if chunks.iter().any(Option::is_some) {
                    writer.block(BlockKind::Filters, at, number, body::encode_filters(chunks))?;
                }
            }
        }
        for (number, block) in self.statistics.blocks.iter().enumerate() {
            let chunks = block.as_ref().ok_or(SidecarError::NotLoaded)?;
            writer.block(
                BlockKind::Sketches,
                0,
                number,
                body::encode_sketches(chunks),
            )?;
        }
        for (number, block) in self.slowest.blocks.iter().enumerate() {
            let chunks = block.as_ref().ok_or(SidecarError::NotLoaded)?;
            writer.block(BlockKind::Slowest, 0, number, slowest::encode(chunks))?;
        }
        for (at, dimension) in self.dimensions.iter().enumerate() {
            if let DictionaryState::Loaded(file_dictionary) = &dimension.file_dictionary {
                writer.block(BlockKind::FileDictionary, at, 0, file_dictionary.encode())?;
            }
        }
        for (number, attachment) in self.attachments.iter().enumerate() {
            let bytes = attachment.bytes.as_ref().ok_or(SidecarError::NotLoaded)?;
            writer.block(BlockKind::Attachment, 0, number, bytes.to_vec())?;
        }
        let checkpoints = checkpoint::encode(&self.checkpoints, &mut writer.file);
        let footer = self.encode_footer(&checkpoints, &writer.blocks);
        closed(SIGNATURE, writer.file, footer)
    }

    /// Asserts what the decoder requires of a complete index.
    fn assert_consistent(&self) {
        let blocks = self.chunks.len().div_ceil(BLOCK_CHUNKS);
        let columns = self.dimensions.iter().flat_map(|dimension| {
            [
                dimension.limits.blocks.len(),
                dimension.filters.blocks.len(),
            ]
        });
        let lengths = [self.statistics.blocks.len(), self.slowest.blocks.len()];
        assert!(
            lengths
                .into_iter()
                .chain(columns)
                .all(|length| length == blocks),
            "every column has a block for every {BLOCK_CHUNKS} chunks"
        );
        assert_eq!(self.sketches.len(), blocks, "every block has sketches");
        let statistics = self
            .statistics
            .blocks
            .iter()
            .flatten()
            .flat_map(|block| block.iter());
        assert!(
            statistics
                .map(|chunk| chunk.events())
                .eq(self.chunks.iter().map(|chunk| chunk.events)),
            "the statistics of a chunk have its events"
        );
    }

    /// Whether every block and window is loaded.
    pub(super) fn is_complete(&self) -> bool {
        let is_stored = |window: &Window| matches!(window, Window::Stored(_));
        let mut dimensions = self.dimensions.iter();
        !self.checkpoints.iter().any(|c| is_stored(&c.window))
            && !self.sketches.contains(&false)
            && self.statistics.blocks.iter().all(Option::is_some)
            && self.slowest.blocks.iter().all(Option::is_some)
            && self.attachments.iter().all(|a| a.bytes.is_some())
            && dimensions.all(|dimension| {
                dimension.limits.blocks.iter().all(Option::is_some)
                    && dimension.filters.blocks.iter().all(Option::is_some)
                    && has_file_dictionary(dimension)
            })
    }

    pub(super) fn encode_footer(&self, checkpoints: &[u8], blocks: &[Block]) -> Vec<u8> {
        assert!(
            self.dimensions.len() <= DIMENSIONS_MAX,
            "a reader refuses an index with more dimensions"
        );
        let mut out = Vec::new();
        put_identity(&mut out, &self.identity);
        out.extend(self.config_hash.to_le_bytes());
        put_varint(&mut out, self.dimensions.len() as u64);
        for dimension in &self.dimensions {
            put_text(&mut out, dimension.path.as_str().as_bytes());
        }
        put_varint(&mut out, self.chunks.len() as u64);
        let (mut end, mut raw_end) = (0, 0);
        for chunk in &self.chunks {
            assert_eq!(
                chunk.times.is_some(),
                chunk.timed > 0,
                "a reader expects times if an event has one"
            );
            put_step(&mut out, &mut end, chunk.offset, chunk.length);
            put_step(&mut out, &mut raw_end, chunk.raw_offset, chunk.raw_length);
            let counts = [
                chunk.first_line,
                chunk.lines,
                chunk.number,
                chunk.events,
                chunk.timed,
                chunk.odd,
            ];
            counts.iter().for_each(|count| put_varint(&mut out, *count));
            body::put_times(&mut out, chunk.times);
        }
        out.extend(checkpoints);
        put_varint(&mut out, blocks.len() as u64);
        let mut end = 0;
        for block in blocks {
            let kind = KINDS.iter().position(|kind| *kind == block.kind);
            let code = kind.and_then(|kind| u8::try_from(kind).ok());
            out.push(code.expect("every kind of block has a code"));
            put_varint(&mut out, u64::from(block.dimension));
            put_varint(&mut out, u64::from(block.number));
            put_step(&mut out, &mut end, block.offset, u64::from(block.length));
            put_varint(&mut out, u64::from(block.raw_length));
            out.extend(block.checksum.to_le_bytes());
        }
        put_varint(&mut out, self.attachments.len() as u64);
        for attachment in &self.attachments {
            put_text(&mut out, attachment.name.as_bytes());
        }
        out
    }
}

/// Entry sets refer to the file dictionary.
fn has_file_dictionary(dimension: &Dimension) -> bool {
    let filters = dimension.filters.blocks.iter().flatten();
    let mut filters = filters.flat_map(|block| block.iter()).flatten();
    match dimension.file_dictionary {
        DictionaryState::Loaded(_) => true,
        DictionaryState::Stored => false,
        DictionaryState::Absent => !filters.any(|filter| matches!(filter, ChunkFilter::Entries(_))),
    }
}

/// Writes a range as its distance from the end of the previous one, and its length.
fn put_step(out: &mut Vec<u8>, end: &mut u64, offset: u64, length: u64) {
    put_signed(out, offset.wrapping_sub(*end).cast_signed());
    put_varint(out, length);
    *end = offset
        .checked_add(length)
        .expect("a range ends before 2^64");
}

pub(crate) fn put_identity(out: &mut Vec<u8>, identity: &Identity) {
    put_varint(out, identity.length);
    out.push(u8::from(identity.modified.is_some()));
    if let Some(modified) = identity.modified {
        put_signed(out, modified);
    }
    out.push(u8::from(identity.checksum.is_some()));
    if let Some(checksum) = identity.checksum {
        out.extend(checksum.to_le_bytes());
    }
}
