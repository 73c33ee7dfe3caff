//! Records lookups of sidecar blocks in the I/O trace.

use std::ops::Range;

use chunk_index::{Block, BlockKind, FilterCache, Sidecar};
use io_trace::{Access, Block as TracedBlock, BlockType, FileTag, Guard, Operation, Started};

use crate::fetch::TracedFile;

/// Records lookups in one file on one thread; does nothing while no I/O is traced.
pub(crate) struct Lookups<'t> {
    file: Option<&'t TracedFile>,
    _scope: Option<Guard>,
}

impl<'t> Lookups<'t> {
    pub(crate) fn of(file: Option<&'t TracedFile>) -> Self {
        Self {
            file,
            _scope: file.map(|file| file.scope.clone().enter()),
        }
    }

    pub(crate) fn begin(&self) -> Option<Started> {
        self.file.map(|file| file.tag.begin())
    }

    /// Records the lookup of a block; `was_cached` says whether a cache contained it.
    pub(crate) fn end(
        &self,
        started: Option<Started>,
        range: &Range<u64>,
        was_cached: Option<bool>,
        block: impl FnOnce(&FileTag) -> TracedBlock,
    ) {
        let (Some(file), Some(started)) = (self.file, started) else {
            return;
        };
        let tag = &file.tag;
        let length = range.end.saturating_sub(range.start);
        tag.end(started, Operation::Lookup, || Access {
            offset: Some(file.offset.saturating_add(range.start)),
            asked: length,
            done: length,
            errno: 0,
            cache_hit: was_cached,
            block: Some(TracedBlock {
                leaf: file.leaf.map_or(tag.leaf(), |leaf| leaf.0),
                ..block(tag)
            }),
        });
    }
}

/// A loaded block as the I/O trace describes it. The size of filters is what they take in their
/// cache; other blocks are only in the page cache, and their size is that of their decompressed
/// bytes.
pub(crate) fn block_of(
    tag: &FileTag,
    sidecar: &Sidecar,
    block: &Block,
    was_inserted: bool,
) -> TracedBlock {
    let block_type = match block.kind {
        BlockKind::Filters => BlockType::Filter,
        // Attachments contain what numbers and hashes represent.
        BlockKind::Limits | BlockKind::FileDictionary | BlockKind::Attachment => {
            BlockType::Dictionary
        }
        BlockKind::Statistics | BlockKind::Sketches | BlockKind::Slowest => BlockType::Index,
    };
    let filters = || {
        sidecar
            .filters(block)
            .map(|loaded| FilterCache::cost(&loaded))
    };
    let size = match block_type {
        BlockType::Filter => filters().map_or(0, |bytes| bytes as u64),
        _ => u64::from(block.raw_length()),
    };
    TracedBlock {
        not_inserted: !was_inserted,
        entries: match block.kind {
            BlockKind::Attachment | BlockKind::FileDictionary => 1,
            _ => sidecar.chunks_of(block) as u64,
        },
        ..TracedBlock::of(tag, block_type, size)
    }
}
