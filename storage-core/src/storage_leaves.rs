//! Where the bytes of the leaves of a storage are.

use std::ops::Range;

use storage_format::{Descriptor, LeafId};

use crate::{
    StorageError,
    leaf_bytes::{LeafMap, LeafReader},
    storage::Storage,
    tree::Found,
};

impl Storage {
    /// Reads bytes of a leaf; `None` while the tree is not in memory, or without such a leaf.
    pub(crate) fn leaf_reader(&self, leaf: LeafId, range: &Range<u64>) -> Option<LeafReader> {
        self.leaf_map(leaf, range).map(LeafReader::new)
    }

    /// Where bytes of a leaf are; as [`Self::leaf_reader`].
    pub(crate) fn leaf_map(&self, leaf: LeafId, range: &Range<u64>) -> Option<LeafMap> {
        let tree = self.tree.read();
        let tree = tree.as_ref()?;
        let leaf = tree.leaf(leaf)?;
        Some(LeafMap::new(
            &self.folder,
            &self.cache,
            tree.pin(),
            leaf,
            range,
        ))
    }

    /// The descriptor of a packet in the data files as they are now.
    pub(crate) fn descriptor(&self, found: &Found) -> Result<Descriptor, StorageError> {
        let entry = &found.entry;
        let extent = match found.extent {
            Some(extent) => Some(extent),
            None => {
                let range = entry.payload_range();
                let map = self.leaf_map(found.leaf, &range);
                let extents = map.map(|map| map.extents(&range)).transpose()?;
                extents.and_then(|extents| extents.first().copied())
            }
        };
        let extent = extent.ok_or(StorageError::Stopping)?;
        entry
            .descriptor(&extent)
            .map_err(StorageError::damaged(&self.folder))
    }
}
