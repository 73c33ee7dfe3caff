//! What is whole behind the first damage of a log whose index is complete.
//!
//! The index of an open storage has every packet that was acknowledged, so what is missing is known
//! exactly, also in arranged files, where the order of the log is not to be seen.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use storage_format::{
    LeafId, LeafType,
    data_file::{DataFileHeader, HEADER_BYTES as LEAF_HEADER_BYTES, LeafPath},
    frame::HEADER_BYTES,
    index_part::LeafNumbers,
    repair_file::{MISSING_COUNT_MAX, Missing, join_neighbours},
};

use super::{
    chain::Whole,
    damaged_file::WholeFrame,
    leaf_frames::{OpenFiles, ReadFrame},
    salvage::{Salvaged, Take},
    unindexed::{Frames, Piece},
};
use crate::{
    Progress, StorageError,
    clock::now_ns,
    leaf_bytes::LeafMap,
    storage::{Storage, StorageReader},
    tree::{Selection, merge},
};

/// Packets that are read from the index at once.
const PAGE_PACKETS: usize = 1 << 14;

/// The packets behind the first damage of a log, by the index.
pub(super) struct Indexed {
    storage: Arc<Storage>,
    leaves: Vec<IndexedLeaf>,
}

/// A leaf that has packets behind the damage.
struct IndexedLeaf {
    id: LeafId,
    path: LeafPath,
    leaf_type: LeafType,
    /// Where its bytes behind the damage begin, and where they end.
    start: u64,
    end: u64,
    /// The number of its last packet.
    last: u64,
    map: LeafMap,
}

/// A packet that is whole: its number, its leaf as an index, and where its frame is in the leaf.
type Place = (u64, u32, u64);

/// What was found in the leaves.
#[derive(Default)]
struct Found {
    whole: Vec<Place>,
    /// By number.
    missing: BTreeMap<u64, Missing>,
    /// Between these numbers, which are not of them, a leaf has bytes of which nobody knows which
    /// packets they were.
    unknown: Vec<(u64, u64, Missing)>,
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
        let mut found = Found::default();
        // Packets are numbered in the order of the log.
        let before = whole.last_number;
        for (at, leaf) in (0..).zip(&self.leaves) {
            match leaf.leaf_type {
                LeafType::Array => self.array(at, leaf, before, &files, &mut found, progress)?,
                LeafType::Plain => leaf.plain(at, before, &files, &mut found, progress)?,
            }
        }
        found.whole.sort_unstable();
        let headers = self.headers(whole, &files)?;
        let mut salvaged = Salvaged {
            last_number: self.leaves.iter().map(|leaf| leaf.last).max(),
            ..Salvaged::default()
        };
        for &(_, at, offset) in &found.whole {
            progress.check()?;
            let leaf = usize::try_from(at).ok().and_then(|at| self.leaves.get(at));
            let Some((leaf, header)) = leaf.and_then(|leaf| Some((leaf, headers.get(&leaf.id)?)))
            else {
                continue;
            };
            // One that is not whole any more makes the copy differ from what was found first.
            let ReadFrame::Whole(frame, payload) = files.frame(&leaf.map, leaf.id, offset)? else {
                continue;
            };
            salvaged.packets = salvaged.packets.saturating_add(1);
            salvaged.bytes = salvaged.bytes.saturating_add(frame.frame_bytes());
            let leaf = leaf.id;
            take(
                header,
                WholeFrame {
                    leaf,
                    header: frame,
                    payload,
                },
            )?;
        }
        salvaged.missing = found.missing();
        Ok(salvaged)
    }

    /// Reads the packets of a leaf of which the index has every packet.
    fn array(
        &self,
        at: u32,
        leaf: &IndexedLeaf,
        before: Option<u64>,
        files: &OpenFiles,
        found: &mut Found,
        progress: &Progress,
    ) -> Result<(), StorageError> {
        let mut selection = Selection {
            after: before,
            limit: PAGE_PACKETS,
            ..Selection::default()
        };
        loop {
            let runs = match &*self.storage.tree.read() {
                Some(tree) => tree.select_leaf(leaf.id, &selection),
                None => return Ok(()),
            };
            let page = merge(runs, &selection, &StorageReader(&self.storage))?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            selection.after = Some(last.entry.number);
            for packet in &page {
                progress.check()?;
                let entry = &packet.entry;
                let offset = entry.offset.saturating_sub(HEADER_BYTES as u64);
                if offset >= leaf.end {
                    return Ok(());
                }
                progress.add(u64::from(entry.stored_size));
                match files.frame(&leaf.map, leaf.id, offset)? {
                    ReadFrame::Whole(header, _) if header.number == entry.number => {
                        found.whole.push((entry.number, at, offset));
                    }
                    _ => {
                        let length = storage_format::frame::frame_bytes(entry.stored_size);
                        let missing = leaf.missing(entry.number, offset, length)?;
                        found.missing.insert(entry.number, missing);
                    }
                }
            }
        }
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

impl IndexedLeaf {
    /// What is missing at an offset of the leaf, under the number `number`.
    fn missing(&self, number: u64, offset: u64, length: u64) -> Result<Missing, StorageError> {
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

    /// Reads the packets of a leaf of which the index has only the ends.
    fn plain(
        &self,
        at: u32,
        before: Option<u64>,
        files: &OpenFiles,
        found: &mut Found,
        progress: &Progress,
    ) -> Result<(), StorageError> {
        let frames = Frames {
            files,
            map: &self.map,
            leaf: self.id,
            end: self.end,
        };
        let mut next = before.map_or(0, |before| before.saturating_add(1));
        let mut gap: Option<(u64, u64)> = None;
        let mut offset = self.start;
        while offset < self.end {
            progress.check()?;
            let Piece {
                bytes,
                number,
                is_whole,
            } = frames.next(offset)?;
            progress.add(bytes);
            match number {
                Some(number) => {
                    if let Some((from, length)) = gap.take() {
                        let missing = self.missing(next, from, length)?;
                        found.unknown.push((next, number, missing));
                    }
                    if is_whole {
                        found.whole.push((number, at, offset));
                    } else {
                        let missing = self.missing(number, offset, bytes)?;
                        found.missing.insert(number, missing);
                    }
                    next = number.saturating_add(1);
                }
                None => {
                    let (from, length) = gap.unwrap_or((offset, 0));
                    gap = Some((from, length.saturating_add(bytes)));
                }
            }
            offset = offset.saturating_add(bytes);
        }
        if let Some((from, length)) = gap {
            let missing = self.missing(next, from, length)?;
            let end = self.last.saturating_add(1);
            found.unknown.push((next, end, missing));
        }
        Ok(())
    }
}

impl Found {
    /// All that is missing, in the order of the numbers.
    fn missing(mut self) -> Vec<Missing> {
        // The packets of other leaves have numbers between those of a leaf.
        let whole = self.whole.iter().map(|&(number, ..)| number);
        let mut known: Vec<u64> = whole.chain(self.missing.keys().copied()).collect();
        known.sort_unstable();
        for (from, end, missing) in std::mem::take(&mut self.unknown) {
            let first = known.partition_point(|&number| number < from);
            let inside = known.get(first..).unwrap_or_default().iter().copied();
            let inside = inside.take_while(|&number| number < end);
            let mut next = from;
            for number in inside.chain([end]) {
                if number > next {
                    let last = number.saturating_sub(1);
                    let range = Missing {
                        first: next,
                        last,
                        ..missing.clone()
                    };
                    // Another leaf with such a gap may have lost them as well.
                    let known = self.missing.entry(next).or_insert_with(|| range.clone());
                    known.last = known.last.max(range.last);
                }
                next = next.max(number.saturating_add(1));
            }
        }
        let mut found: Vec<_> = self.missing.into_values().collect();
        while found.len() > MISSING_COUNT_MAX {
            found = join_neighbours(&found);
        }
        found
    }
}
