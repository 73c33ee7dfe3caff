//! The bytes of a sidecar, `.idx`, readable from its end.
//!
//! ```text
//! header   24 bytes: magic "THLDIDX\0", version u32, zero u32, zero u32, CRC32C of these 20
//! body     blocks and windows, one after another
//! footer   its body, compressed with zstd where that makes it smaller
//! trailer  48 bytes: footer offset u64, footer bytes stored u32, raw u32, CRC32C of the stored
//!          u32, version u32, file bytes u64, zero u32, CRC32C of these 36 u32, magic "THLDIDX\0"
//!
//! footer   identity: length, modified (0, or 1 and signed), checksum (0, or 1 and 8 bytes)
//!          configuration hash: 8 bytes
//!          dimensions: list of text
//!          chunks: list of (offset - end before (signed), length, raw offset - raw end before
//!            (signed), raw length, first line, lines, number, events, timed, odd, times if timed)
//!          checkpoints: as `checkpoint` says
//!          blocks: list of (kind byte, dimension, number, offset - end before (signed),
//!            stored length, raw length, CRC32C of the stored bytes: 4 bytes)
//!          attachments: list of text, each the name of the attachment block of its number
//! ```
//!
//! Fixed integers are little-endian, the others as `wire` says. A block whose raw length differs
//! from its stored length is compressed with zstd. A remote reader fetches the last bytes
//! ([`TAIL_BYTES`] are nearly always enough), then only the blocks that a query needs. Kinds of
//! blocks: 0 statistics, 1 sketches, 2 limits, 3 filters, 4 attachment, 5 slowest records, 6 file
//! dictionary; a dimension has at most one, and exactly one if its filters are entry sets. Every
//! byte is covered by a checksum.

mod block;
mod encode;
mod envelope;
mod error;
pub(crate) mod footer;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::body;
use crate::checkpoint::Window;
use crate::file_dictionary::FileDictionary;
use crate::index::{BLOCK_CHUNKS, Column, DictionaryState, Dimension, FilterBlock, Index};
use crate::slowest;

pub use block::{Block, BlockKind};
pub(crate) use encode::put_identity;
pub(crate) use envelope::{
    HEADER_BYTES, PACKED_BYTES_MAX, Signature, Trailer, close, closed, header, pack_fast, unpack,
};
pub use error::SidecarError;
pub(crate) use error::damaged;
pub(crate) use footer::take_identity;

/// Version of the format.
pub const VERSION: u32 = 3;
/// Bytes at the end of a sidecar that a reader fetches first.
pub const TAIL_BYTES: u64 = 32 << 10;
pub(crate) const SIGNATURE: Signature = Signature {
    magic: *b"THLDIDX\0",
    version: VERSION,
};

/// A sidecar whose footer was read: an index without blocks, and the locations of the blocks.
#[derive(Debug, Clone)]
pub struct Sidecar {
    index: Index,
    blocks: Vec<Block>,
    identity: u64,
}

/// The result of reading the last bytes of a sidecar.
#[derive(Debug, Clone)]
pub enum Opened {
    /// All that is needed to request blocks.
    Sidecar(Box<Sidecar>),
    /// This many bytes of the end are needed.
    More(u64),
}

impl Sidecar {
    /// Opens a sidecar of `file_length` bytes from its last bytes: [`TAIL_BYTES`] or more, or all.
    ///
    /// # Errors
    /// When the bytes are not a sidecar, have another version, or are damaged.
    pub fn open(tail: &[u8], file_length: u64) -> Result<Opened, SidecarError> {
        let trailer = Trailer::read(SIGNATURE, tail, file_length)?;
        let footer = match trailer.footer(tail, file_length)? {
            Ok(footer) => footer,
            Err(more) => return Ok(Opened::More(more)),
        };
        let (index, blocks) = footer::decode(&footer, file_length)
            .map_err(|reason| damaged("the footer", trailer.offset, reason))?;
        Ok(Opened::Sidecar(Box::new(Sidecar {
            index,
            blocks,
            identity: u64::from(trailer.checksum) << 32 ^ file_length,
        })))
    }

    /// Reads a sidecar in memory, with all its blocks and windows.
    ///
    /// # Errors
    /// When any part of it is damaged.
    pub fn read(file: &[u8]) -> Result<Index, SidecarError> {
        let header = header(SIGNATURE);
        if !file.starts_with(&header) {
            let reason = "the header is not that of an index";
            return Err(SidecarError::NotAnIndex(reason));
        }
        let length = file.len() as u64;
        let Opened::Sidecar(mut sidecar) = Sidecar::open(file, length)? else {
            return Err(damaged("the footer", 0, "it begins before the file"));
        };
        for block in sidecar.blocks.clone() {
            sidecar.load(&block, slice(file, &block.range()))?;
        }
        for checkpoint in &mut sidecar.index.checkpoints {
            if let Window::Stored(stored) = checkpoint.window {
                let range = stored.offset..stored.offset + u64::from(stored.length);
                let window = stored.load(slice(file, &range));
                let damage = |error| damaged("a window", stored.offset, error);
                checkpoint.window = Window::Loaded(window.map_err(damage)?);
            }
        }
        if sidecar.index.is_complete() {
            Ok(sidecar.index)
        } else {
            Err(damaged("the footer", 0, "does not name every block"))
        }
    }

    /// Compares all parts of a sidecar in memory with their checksums.
    ///
    /// # Errors
    /// When any part of it is damaged.
    pub fn check(file: &[u8]) -> Result<(), SidecarError> {
        if !file.starts_with(&header(SIGNATURE)) {
            let reason = "the header is not that of an index";
            return Err(SidecarError::NotAnIndex(reason));
        }
        let Opened::Sidecar(sidecar) = Sidecar::open(file, file.len() as u64)? else {
            return Err(damaged("the footer", 0, "it begins before the file"));
        };
        for block in &sidecar.blocks {
            block.unpack(slice(file, &block.range()))?;
        }
        for checkpoint in &sidecar.index.checkpoints {
            if let Window::Stored(stored) = &checkpoint.window {
                let range = stored.offset..stored.offset + u64::from(stored.length);
                let loaded = stored.load(slice(file, &range));
                loaded.map_err(|error| damaged("a window", stored.offset, error))?;
            }
        }
        Ok(())
    }

    /// The index with the blocks that were loaded so far.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// All blocks, in the order of the file.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// A number that identifies the sidecar, as far as a checksum can; the key of caches.
    pub fn key(&self) -> u64 {
        self.identity
    }

    /// Loads a block from its bytes.
    ///
    /// # Errors
    /// When they are damaged, or not those of the block.
    pub fn load(&mut self, block: &Block, bytes: &[u8]) -> Result<(), SidecarError> {
        let raw = block.unpack(bytes)?;
        let number = block.number as usize;
        let chunks = self.chunks_of(block);
        let damage = |reason| block.damaged(reason);
        match block.kind {
            BlockKind::Statistics => {
                let loaded = body::decode_statistics(&raw, chunks).map_err(damage)?;
                let first = number * BLOCK_CHUNKS;
                let own = self
                    .index
                    .chunks
                    .iter()
                    .skip(first)
                    .map(|chunk| chunk.events);
                if !loaded
                    .iter()
                    .map(|chunk| chunk.events())
                    .eq(own.take(chunks))
                {
                    return Err(block.damaged("it has another number of events"));
                }
                put(&mut self.index.statistics, number, loaded);
            }
            BlockKind::Sketches => {
                let column = self.index.statistics.blocks.get_mut(number);
                let Some(Some(statistics)) = column else {
                    return Err(block.damaged("its statistics must be loaded first"));
                };
                let statistics: &mut Vec<_> = Arc::make_mut(statistics);
                body::decode_sketches(&raw, statistics).map_err(damage)?;
                if let Some(loaded) = self.index.sketches.get_mut(number) {
                    *loaded = true;
                }
            }
            BlockKind::Limits => {
                let limits = body::decode_limits(&raw, chunks).map_err(damage)?;
                put(&mut self.dimension(block)?.limits, number, limits);
            }
            BlockKind::Filters => {
                let filters = body::decode_filters(&raw, chunks).map_err(damage)?;
                put(&mut self.dimension(block)?.filters, number, filters);
            }
            BlockKind::FileDictionary => {
                let file_dictionary = FileDictionary::decode(&raw).map_err(damage)?;
                self.dimension(block)?.file_dictionary =
                    DictionaryState::Loaded(Arc::new(file_dictionary));
            }
            BlockKind::Slowest => {
                let records = slowest::decode(&raw, chunks).map_err(damage)?;
                put(&mut self.index.slowest, number, records);
            }
            BlockKind::Attachment => {
                if let Some(attachment) = self.index.attachments.get_mut(number) {
                    attachment.bytes = Some(raw.into());
                }
            }
        }
        Ok(())
    }

    /// The filters of a loaded block, for a cache.
    pub fn filters(&self, block: &Block) -> Option<FilterBlock> {
        let dimension = self.index.dimensions.get(block.dimension as usize)?;
        dimension.filters.blocks.get(block.number as usize)?.clone()
    }

    /// Inserts filters from a cache.
    pub fn put_filters(&mut self, block: &Block, filters: FilterBlock) {
        let dimension = self.index.dimensions.get_mut(block.dimension as usize);
        let slot = dimension.and_then(|d| d.filters.blocks.get_mut(block.number as usize));
        if let Some(slot) = slot {
            *slot = Some(filters);
        }
    }

    /// Whether the block was loaded.
    pub fn is_loaded(&self, block: &Block) -> bool {
        let number = block.number as usize;
        let dimension = self.index.dimensions.get(block.dimension as usize);
        match block.kind {
            BlockKind::Statistics => self.index.statistics.has_block(number),
            BlockKind::Sketches => self.index.sketches.get(number) == Some(&true),
            BlockKind::Limits => dimension.is_some_and(|d| d.limits.has_block(number)),
            BlockKind::Filters => dimension.is_some_and(|d| d.filters.has_block(number)),
            BlockKind::Slowest => self.index.slowest.has_block(number),
            BlockKind::FileDictionary => {
                dimension.is_some_and(|d| matches!(d.file_dictionary, DictionaryState::Loaded(_)))
            }
            BlockKind::Attachment => {
                let attachment = self.index.attachments.get(number);
                attachment.is_some_and(|attachment| attachment.bytes.is_some())
            }
        }
    }

    /// Number of chunks in a block.
    pub fn chunks_of(&self, block: &Block) -> usize {
        let first = (block.number as usize).saturating_mul(BLOCK_CHUNKS);
        self.index
            .chunks
            .len()
            .saturating_sub(first)
            .min(BLOCK_CHUNKS)
    }

    fn dimension(&mut self, block: &Block) -> Result<&mut Dimension, SidecarError> {
        self.index
            .dimensions
            .get_mut(block.dimension as usize)
            .ok_or_else(|| block.damaged("of an unknown dimension"))
    }
}

fn slice<'a>(file: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    let begin = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    // The footer was checked against the length of the file.
    file.get(begin..end).unwrap_or_default()
}

fn put<T>(column: &mut Column<T>, number: usize, values: Vec<T>) {
    if let Some(slot) = column.blocks.get_mut(number) {
        *slot = Some(Arc::new(values));
    }
}
