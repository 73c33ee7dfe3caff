//! A leaf behind the damage of a log, by the index.

use storage_format::{LeafId, LeafType, data_file::LeafPath, repair_file::Missing};

use crate::{StorageError, leaf_bytes::LeafMap};

/// A leaf that has packets behind the damage.
pub(super) struct IndexedLeaf {
    pub(super) id: LeafId,
    pub(super) path: LeafPath,
    pub(super) leaf_type: LeafType,
    /// Where its bytes behind the damage begin, and where they end.
    pub(super) start: u64,
    pub(super) end: u64,
    /// The number of its last packet.
    pub(super) last: u64,
    pub(super) map: LeafMap,
}

impl IndexedLeaf {
    /// What is missing at an offset of the leaf, under the number `number`.
    pub(super) fn missing(
        &self,
        number: u64,
        offset: u64,
        length: u64,
    ) -> Result<Missing, StorageError> {
        let extents = self.map.extents(&(offset..offset.saturating_add(1)))?;
        let place = extents.first();
        Ok(Missing {
            first: number,
            last: number,
            file: place.map_or(0, |extent| extent.file.0),
            offset: place.map_or(0, |extent| extent.offset),
            length,
            leaf: Some(self.id.0),
        })
    }
}
