//! The index entries of the packets of one leaf, for readers that exclude packets by them.

use std::sync::Arc;

use io_trace::{Cause, Scope};
use storage_format::{LeafId, index_part::PacketEntry};

use super::{Reading, StorageLeaves};
use crate::{
    StorageError,
    storage::{Storage, StorageReader},
    tree::{Leaf, PartBlock, ReadEntries as _, SegmentBody},
};

/// The packets of one leaf, as the tree contains them at the time of the call.
pub struct LeafPackets {
    storage: Option<Arc<Storage>>,
    leaf: LeafId,
    scope: Option<Scope>,
}

/// Entries copied from the tree.
enum Entries {
    Memory(Vec<PacketEntry>),
    Part(PartBlock),
}

impl Reading {
    /// The packets of a leaf of a storage.
    #[must_use]
    pub fn leaf_packets(&self, found: &StorageLeaves, leaf: LeafId) -> LeafPackets {
        LeafPackets {
            // A storage that was deleted meanwhile has no packets.
            storage: self.registry.find(found.storage.id).ok(),
            leaf,
            scope: self.blocking.scope(Cause::Query),
        }
    }
}

impl LeafPackets {
    /// Visits the packets after byte `from` of the data file, in order, as far as
    /// the tree contains them: none of plain leaves, and none while the tree is not in memory.
    /// Blocks the thread.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn each(&self, from: u64, each: &mut dyn FnMut(&PacketEntry)) -> Result<(), StorageError> {
        let _inside = self.scope.clone().map(Scope::enter);
        let Some(storage) = &self.storage else {
            return Ok(());
        };
        let found = match &*storage.tree.read() {
            Some(tree) => tree.leaf(self.leaf).map(|leaf| entries(leaf, from)),
            None => None,
        };
        for entries in found.unwrap_or_default() {
            match entries {
                Entries::Memory(entries) => entries.iter().for_each(&mut *each),
                Entries::Part(place) => {
                    let block = StorageReader(storage).cache().get(&place)?;
                    for at in 0..block.entries().len() {
                        each(&block.entry(&place, at)?);
                    }
                }
            }
        }
        Ok(())
    }
}

fn entries(leaf: &Leaf, from: u64) -> Vec<Entries> {
    let segments = leaf.segments().filter(|segment| segment.covered.end > from);
    let of_segment = segments.filter_map(|segment| match &segment.body {
        SegmentBody::Memory(entries) => Some(Entries::Memory(entries.clone())),
        SegmentBody::Part(block) => Some(Entries::Part(block.clone())),
        SegmentBody::Plain(_) => None,
    });
    of_segment.collect()
}
