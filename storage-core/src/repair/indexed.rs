//! What is whole behind the first damage of a log whose index is complete.
//!
//! The index of an open storage has every packet that was acknowledged, so what is missing is known
//! exactly, also in arranged files, where the order of the log is not to be seen.

use std::{collections::HashMap, sync::Arc};

use storage_format::{
    LeafId,
    data_file::{DataFileHeader, HEADER_BYTES as LEAF_HEADER_BYTES},
    index_part::LeafNumbers,
};

use super::{
    by_number::ByNumber,
    chain::Whole,
    damaged_file::WholeFrame,
    indexed_leaf::IndexedLeaf,
    leaf_frames::{OpenFiles, ReadFrame},
    salvage::{Salvaged, Take},
};
use crate::{Progress, StorageError, clock::now_ns, leaf_bytes::LeafMap, storage::Storage};

/// The packets behind the first damage of a log, by the index.
pub(super) struct Indexed {
    storage: Arc<Storage>,
    leaves: Vec<IndexedLeaf>,
}

impl Indexed {
    /// The packets of a storage that are not in `whole`.
    pub(super) fn of(storage: &Arc<Storage>, whole: &Whole) -> Self {
        let mut leaves = Vec::new();
        if let Some(tree) = &*storage.tree.read() {
            for leaf in tree.leaves() {
                let known = whole
                    .leaves
                    .get(&leaf.id)
                    .map_or(0, |leaf| leaf.tail.length);
                let numbers = leaf.segments().map(|segment| segment.numbers);
                let last = numbers.map(|LeafNumbers { last, .. }| last).max();
                let Some(last) = last.filter(|_| known < leaf.tail.length) else {
                    continue;
                };
                let start = known.max(LEAF_HEADER_BYTES as u64);
                let (pin, range) = (tree.pin(), 0..leaf.tail.length);
                leaves.push(IndexedLeaf {
                    id: leaf.id,
                    path: leaf.path.clone(),
                    leaf_type: leaf.leaf_type,
                    start,
                    end: leaf.tail.length,
                    last,
                    map: LeafMap::new(&storage.folder, &storage.cache, pin, leaf, &range),
                });
            }
        }
        let storage = Arc::clone(storage);
        Self { storage, leaves }
    }

    /// Finds what is whole; `take` gets it in the order of the numbers.
    pub(super) fn run(
        &self,
        whole: &Whole,
        progress: &Progress,
        take: &mut Take<'_>,
    ) -> Result<Salvaged, StorageError> {
        let files = OpenFiles::new(self.storage.id);
        let headers = self.headers(whole, &files)?;
        let mut salvaged = Salvaged {
            last_number: self.leaves.iter().map(|leaf| leaf.last).max(),
            ..Salvaged::default()
        };
        let (storage, leaves) = (&self.storage, &self.leaves);
        // Packets are numbered in the order of the log.
        let before = whole.last_number;
        let mut packets = ByNumber::new(storage, leaves, before, &files, progress)?;
        while let Some(place) = packets.next(progress)? {
            progress.check()?;
            let Some(leaf) = leaves.get(place.leaf) else {
                continue;
            };
            let frame = match files.frame(&leaf.map, leaf.id, place.offset)? {
                ReadFrame::Whole(header, payload) if header.number == place.number => WholeFrame {
                    leaf: leaf.id,
                    header,
                    payload,
                },
                _ => {
                    let missing = leaf.missing(place.number, place.offset, place.length)?;
                    packets.missing.add(missing);
                    continue;
                }
            };
            salvaged.packets = salvaged.packets.saturating_add(1);
            salvaged.bytes = salvaged.bytes.saturating_add(frame.header.frame_bytes());
            if let Some(header) = headers.get(&leaf.id) {
                take(header, frame)?;
            }
        }
        salvaged.missing = packets.missing.finish();
        Ok(salvaged)
    }

    /// The headers of the leaves, which begin anew behind the cut if nothing of them is before it.
    fn headers(
        &self,
        whole: &Whole,
        files: &OpenFiles,
    ) -> Result<HashMap<LeafId, DataFileHeader>, StorageError> {
        let mut headers = HashMap::new();
        for leaf in &self.leaves {
            let known = whole.leaves.get(&leaf.id).map(|known| known.header.clone());
            let header = match known {
                Some(header) => header,
                None => {
                    let bytes = files.read(&leaf.map, 0, LEAF_HEADER_BYTES)?;
                    let header = bytes.and_then(|bytes| DataFileHeader::decode(&bytes).ok());
                    header.unwrap_or_else(|| DataFileHeader {
                        storage: self.storage.id,
                        leaf: leaf.id,
                        leaf_type: leaf.leaf_type,
                        path: leaf.path.clone(),
                        created: now_ns(),
                    })
                }
            };
            headers.insert(leaf.id, header);
        }
        Ok(headers)
    }
}
