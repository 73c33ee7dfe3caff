//! The index of a source, loaded as far as a query needs it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use chunk_index::{
    BLOCK_CHUNKS, Block, BlockKind, FilterCache, Index, Pruner, Pruning, Sidecar, SidecarError,
    Tier,
};

use crate::lookups::{Lookups, block_of};
use crate::{Fetch, ReadError};

/// All bytes of a source.
pub(crate) const EVERYTHING: Range<u64> = 0..u64::MAX;

/// What is known about the chunks of a source.
pub enum Evidence {
    /// An index in memory.
    Whole(Arc<Index>),
    /// Only the times of packets that have no chunk index yet.
    Times(Arc<Index>),
    /// A sidecar whose blocks are fetched when they are needed.
    Sidecar {
        /// The part loaded so far.
        sidecar: Box<Sidecar>,
        /// Reads the rest.
        fetch: Arc<dyn Fetch>,
        /// Bytes fetched so far.
        fetched_bytes: u64,
        /// Filters loaded by earlier queries.
        cache: Option<Arc<FilterCache>>,
        /// Only chunks inside of these bytes belong to the source.
        within: Range<u64>,
    },
}

impl Evidence {
    /// The index, as far as it is loaded.
    pub fn index(&self) -> &Index {
        match self {
            Evidence::Whole(index) | Evidence::Times(index) => index,
            Evidence::Sidecar { sidecar, .. } => sidecar.index(),
        }
    }

    /// Bytes fetched so far.
    pub fn fetched_bytes(&self) -> u64 {
        match self {
            Evidence::Whole(_) | Evidence::Times(_) => 0,
            Evidence::Sidecar { fetched_bytes, .. } => *fetched_bytes,
        }
    }

    /// The numbers of the chunks that belong to the source.
    pub(crate) fn chunks(&self) -> Vec<usize> {
        let within = match self {
            Evidence::Whole(_) | Evidence::Times(_) => &EVERYTHING,
            Evidence::Sidecar { within, .. } => within,
        };
        let chunks = self.index().chunks().iter().enumerate();
        let inside = chunks.filter(|(_, chunk)| {
            within.start <= chunk.offset && chunk.offset.saturating_add(chunk.length) <= within.end
        });
        inside.map(|(number, _)| number).collect()
    }

    /// Rules out chunks tier by tier, fetching for each tier what it needs about the remaining
    /// chunks.
    ///
    /// # Errors
    ///
    /// When blocks cannot be fetched or are damaged.
    pub fn prune(&mut self, pruner: &Pruner) -> Result<Pruning, ReadError> {
        let candidates = self.chunks();
        let mut pruning = Pruning {
            total: candidates.len(),
            candidates,
            ruled_out: [0; 3],
        };
        for tier in Tier::ALL {
            if let Evidence::Sidecar { sidecar, .. } = self {
                let wanted = pruner.wanted(sidecar, tier, &pruning);
                self.load(&wanted)?;
            }
            pruner.apply(self.index(), tier, &mut pruning);
        }
        Ok(pruning)
    }

    /// Loads the slowest events of the remaining chunks, if `pruner` can use them.
    ///
    /// # Errors
    ///
    /// When blocks cannot be fetched or are damaged.
    pub fn load_slowest(&mut self, pruner: &Pruner, pruning: &Pruning) -> Result<(), ReadError> {
        if let Evidence::Sidecar { sidecar, .. } = self {
            let wanted = pruner.wanted_slowest(sidecar, pruning);
            self.load(&wanted)?;
        }
        Ok(())
    }

    /// Loads the blocks of these kinds with the summaries of the chunks that belong to the source.
    ///
    /// # Errors
    ///
    /// When blocks cannot be fetched or are damaged.
    pub fn load_kinds(&mut self, wanted: &[BlockKind]) -> Result<(), ReadError> {
        let chunks = self.chunks().into_iter();
        let numbers: BTreeSet<usize> = chunks.map(|chunk| chunk / BLOCK_CHUNKS).collect();
        if let Evidence::Sidecar { sidecar, .. } = self {
            let of_source = |block: &Block| numbers.contains(&(block.number as usize));
            let blocks: Vec<Block> = sidecar
                .blocks()
                .iter()
                .filter(|block| wanted.contains(&block.kind) && of_source(block))
                .filter(|block| !sidecar.is_loaded(block))
                .copied()
                .collect();
            self.load(&blocks)?;
        }
        Ok(())
    }

    /// Fetches and loads blocks, given in the order of the sidecar.
    fn load(&mut self, blocks: &[Block]) -> Result<(), ReadError> {
        let Evidence::Sidecar {
            sidecar,
            fetch,
            fetched_bytes,
            cache,
            ..
        } = self
        else {
            return Ok(());
        };
        let key = sidecar.key();
        let cache = |block: &Block| {
            let cache = cache.as_ref();
            cache.filter(|_| block.kind == BlockKind::Filters)
        };
        let traced = fetch.traced();
        let lookups = Lookups::of(traced.as_ref());
        let mut missing = Vec::with_capacity(blocks.len());
        for block in blocks {
            let started = lookups.begin();
            match cache(block).and_then(|cache| cache.get(key, block)) {
                Some(filters) => {
                    sidecar.put_filters(block, filters);
                    lookups.end(started, &block.range(), Some(true), |tag| {
                        block_of(tag, sidecar, block, true)
                    });
                }
                None => missing.push((*block, started)),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let ranges: Vec<_> = missing.iter().map(|(block, _)| block.range()).collect();
        let place = fetch.place();
        let parts = fetch
            .fetch_parts(&ranges)
            .map_err(|error| match error.kind() {
                // It was truncated after it was opened.
                ErrorKind::UnexpectedEof => ReadError::Sidecar {
                    place: place.clone(),
                    source: SidecarError::NotAnIndex("it became shorter after it was opened"),
                },
                _ => ReadError::fetch(&*place, error),
            })?;
        for ((block, started), part) in missing.iter().zip(parts) {
            *fetched_bytes += u64::from(block.length);
            sidecar
                .load(block, &part.bytes)
                .map_err(|source| ReadError::Sidecar {
                    place: place.clone(),
                    source,
                })?;
            let cached = cache(block).zip(sidecar.filters(block));
            let was_inserted = cached.map(|(cache, filters)| cache.put(key, block, filters));
            // Filters missed their own cache; other blocks are in the page cache or not.
            let was_cached = was_inserted.map_or(part.was_cached, |_| Some(false));
            lookups.end(*started, &block.range(), was_cached, |tag| {
                block_of(tag, sidecar, block, was_inserted.unwrap_or(true))
            });
        }
        Ok(())
    }
}
