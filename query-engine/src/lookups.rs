//! What the I/O trace is told of look-ups of blocks of a sidecar.

use std::ops::Range;

use chunk_index::{Block, BlockKind, FilterCache, Sidecar};
use io_trace::{Access, Block as Told, BlockType, FileTag, Guard, Operation, Started};

use crate::fetch::TracedFile;

/// Tells of look-ups in one file, on one thread; nothing while no I/O is traced.
pub(crate) struct Lookups<'t> {
    tag: Option<&'t FileTag>,
    _inside: Option<Guard>,
}

impl<'t> Lookups<'t> {
    pub(crate) fn of(file: Option<&'t TracedFile>) -> Self {
        Self {
            tag: file.map(|file| &file.tag),
            _inside: file.map(|file| file.scope.clone().enter()),
        }
    }

    pub(crate) fn begin(&self) -> Option<Started> {
        self.tag.map(FileTag::begin)
    }

    /// A block was had: from a cache when `was_cached`, and it is as `block` says.
    pub(crate) fn end(
        &self,
        started: Option<Started>,
        range: &Range<u64>,
        was_cached: Option<bool>,
        block: impl FnOnce(&FileTag) -> Told,
    ) {
        let (Some(tag), Some(started)) = (self.tag, started) else {
            return;
        };
        let length = range.end.saturating_sub(range.start);
        tag.end(started, Operation::Lookup, || Access {
            offset: Some(range.start),
            asked: length,
            done: length,
            errno: 0,
            cache_hit: was_cached,
            block: Some(block(tag)),
        });
    }
}

/// What is told of a block that is loaded: of filters what they take in their cache, of others,
/// which only the system keeps, their expanded bytes.
pub(crate) fn told(tag: &FileTag, sidecar: &Sidecar, block: &Block, is_kept: bool) -> Told {
    let block_type = match block.kind {
        BlockKind::Filters => BlockType::Filter,
        // What an adapter keeps is what numbers and hashes stand for.
        BlockKind::Limits | BlockKind::FileDictionary | BlockKind::Attachment => {
            BlockType::Dictionary
        }
        BlockKind::Statistics | BlockKind::Sketches | BlockKind::Slowest => BlockType::Index,
    };
    let filters = || sidecar.filters(block).map(|kept| FilterCache::cost(&kept));
    let size = match block_type {
        BlockType::Filter => filters().map_or(0, |bytes| bytes as u64),
        _ => u64::from(block.raw_length()),
    };
    Told {
        not_inserted: !is_kept,
        entries: match block.kind {
            BlockKind::Attachment | BlockKind::FileDictionary => 1,
            _ => sidecar.chunks_of(block) as u64,
        },
        ..Told::of(tag, block_type, size)
    }
}
