//! Where the bytes of leaves go when a file of the log is arranged, and the index parts that say
//! so.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use storage_format::{
    DataFileId, LeafId,
    data_file::{HEADER_BYTES as LEAF_HEADER_BYTES, LeafPath},
    index_part::{DataFileEntry, Extent, Footer, IndexPartBuilder, TimeBases},
    log::{FILE_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader},
    paths::{FileName, UNPUBLISHED_ENDING},
};

use super::{PIECE_BYTES, Scatter, not_as_written};
use crate::{
    StorageError,
    clock::random_u64,
    io::{StagedFile, remove_file, rename},
    io_thread::Tail,
    progress::Pace,
    tree::{IndexPart, PartBlock, extend_extents},
};

/// Encoded bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;
const LEAF_HEADER_LENGTH: u64 = LEAF_HEADER_BYTES as u64;

/// A segment of the arranged file.
pub(super) struct MovedPiece {
    pub(super) header: SegmentHeader,
    /// Its frames.
    pub(super) extent: Extent,
}

impl MovedPiece {
    /// Whether the header of the leaf is before its frames.
    pub(super) fn has_leaf_header(&self) -> bool {
        self.header.repeats_leaf_header || self.header.leaf_offset == 0
    }
}

/// The bytes of a leaf that the file has: `start..end`, without the header of the leaf.
pub(super) struct MovedLeaf {
    path: LeafPath,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Where each segment ends in the leaf.
    ends: Vec<u64>,
    pub(super) pieces: Vec<MovedPiece>,
}

impl MovedLeaf {
    /// Adds bytes of the leaf; whether they follow those that are known.
    fn add(&mut self, extent: &Extent) -> bool {
        let begins = self.ends.last().copied().unwrap_or(self.start);
        if extent.leaf_offset != self.end {
            return false;
        }
        self.end = extent.leaf_end();
        if self.end.saturating_sub(begins) >= PIECE_BYTES {
            self.ends.push(self.end);
        }
        true
    }

    /// Places the segments from `offset` of the arranged file on; returns where they end.
    fn place(&mut self, leaf: LeafId, file: DataFileId, mut offset: u64) -> u64 {
        if self.ends.last() != Some(&self.end) {
            self.ends.push(self.end);
        }
        let mut start = self.start;
        for &end in &self.ends {
            let is_first = self.pieces.is_empty();
            let is_of_start = is_first && start == LEAF_HEADER_LENGTH;
            let leaf_offset = if is_of_start { 0 } else { start };
            let header = SegmentHeader {
                leaf,
                repeats_leaf_header: is_first && !is_of_start,
                leaf_offset,
                length: end.saturating_sub(leaf_offset),
            };
            offset = offset.saturating_add(SEGMENT_HEADER_BYTES as u64);
            if is_first {
                offset = offset.saturating_add(LEAF_HEADER_LENGTH);
            }
            let extent = Extent {
                leaf_offset: start,
                file,
                offset,
                length: end.saturating_sub(start),
            };
            offset = offset.saturating_add(extent.length);
            self.pieces.push(MovedPiece { header, extent });
            start = end;
        }
        offset
    }
}

/// The leaves that a file of the log has bytes of.
pub(super) struct MovedLeaves {
    file: DataFileId,
    leaves: BTreeMap<LeafId, MovedLeaf>,
    runs: u64,
}

impl MovedLeaves {
    /// Reads where the leaves are from the index parts that describe the file.
    pub(super) fn of(file: DataFileId, parts: &[Arc<IndexPart>]) -> Result<Self, StorageError> {
        let mut found = Self {
            file,
            leaves: BTreeMap::new(),
            runs: 0,
        };
        for block in parts.iter().flat_map(|part| part.blocks()) {
            let entry = block.entry();
            let bytes = block.read()?;
            for extent in extents_of(&block, &bytes)? {
                if extent.file != file {
                    continue;
                }
                found.runs = found.runs.saturating_add(1);
                let leaf = found.leaves.entry(entry.leaf).or_insert_with(|| MovedLeaf {
                    path: entry.path.clone(),
                    start: extent.leaf_offset,
                    end: extent.leaf_offset,
                    ends: Vec::new(),
                    pieces: Vec::new(),
                });
                if !leaf.add(&extent) {
                    let place = block.part().path.display().to_string();
                    return Err(not_as_written(&place, "extents", extent.leaf_offset));
                }
            }
        }
        Ok(found)
    }

    /// How the leaves lie in the file.
    pub(super) fn scatter(&self) -> Scatter {
        let bytes = self.leaves.values();
        let bytes = bytes.map(|leaf| leaf.end.saturating_sub(leaf.start));
        Scatter {
            leaf_count: self.leaves.len() as u64,
            leaf_bytes: bytes.fold(0, u64::saturating_add),
            file_bytes: 0,
            runs: self.runs,
        }
    }

    /// The leaves in the order of the arranged file.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&LeafId, &MovedLeaf)> {
        let mut leaves: Vec<_> = self.leaves.iter().collect();
        leaves.sort_by(|a, b| a.1.path.cmp(&b.1.path));
        leaves.into_iter()
    }

    /// Decides where the leaves are in the arranged file; returns its length.
    pub(super) fn place(&mut self, by: DataFileId) -> u64 {
        let mut leaves: Vec<_> = self.leaves.iter_mut().collect();
        leaves.sort_by(|a, b| a.1.path.cmp(&b.1.path));
        let start = FILE_HEADER_BYTES as u64;
        let leaves = leaves.into_iter();
        leaves.fold(start, |offset, (&id, leaf)| leaf.place(id, by, offset))
    }

    /// Writes an index part again, which says where the packets are in the arranged file.
    pub(super) fn rewrite(
        &self,
        part: &Arc<IndexPart>,
        by: (DataFileId, Tail),
        pace: &mut Pace,
    ) -> Result<IndexPart, StorageError> {
        let folder = part.path.parent().unwrap_or(&part.path);
        let path = folder.join(FileName::Index(random_u64()).to_string());
        let unpublished = unpublished(&path);
        let written = self.write(part, by, &unpublished, pace);
        let written = written.and_then(|written| {
            rename(&unpublished, &path).map_err(StorageError::io("rename", &path))?;
            Ok(written)
        });
        let (footer, bases) = written.inspect_err(|_| remove(&unpublished))?;
        Ok(IndexPart::written(path, part.header, footer, bases))
    }

    fn write(
        &self,
        part: &Arc<IndexPart>,
        (by, tail): (DataFileId, Tail),
        path: &Path,
        pace: &mut Pace,
    ) -> Result<(Footer, TimeBases), StorageError> {
        let mut staged = StagedFile::create(path.to_owned())?;
        let mut write = |bytes: Vec<u8>| {
            staged.write(&bytes)?;
            pace.take(bytes.len() as u64)
        };
        let mut builder = IndexPartBuilder::new(part.header);
        let mut used = BTreeSet::new();
        for block in part.blocks() {
            let bytes = block.read()?;
            let extents = self.moved(&block, &bytes)?;
            used.extend(extents.iter().map(|extent| extent.file));
            let added = builder.add_moved(&block.stored(&bytes), &extents);
            added.map_err(StorageError::damaged(&part.path))?;
            if builder.waiting() >= WRITE_BYTES {
                write(builder.take())?;
            }
        }
        let mut files = part.footer.files.clone();
        for entry in files.iter_mut().filter(|entry| entry.file == self.file) {
            *entry = DataFileEntry {
                file: by,
                length: tail.length,
                checksum: tail.checksum,
            };
        }
        // Parts of earlier servers list all files of their storage, and would have to be written
        // again for each of them.
        files.retain(|entry| !entry.file.is_numbered() || used.contains(&entry.file));
        files.sort_by_key(|entry| entry.file);
        let (rest, footer, bases) = builder.finish(files, part.footer.position);
        write(rest)?;
        staged.finish()?;
        Ok((footer, bases))
    }

    /// Where the bytes of a block are once the file is arranged.
    fn moved(&self, block: &PartBlock, bytes: &[u8]) -> Result<Vec<Extent>, StorageError> {
        let leaf = self.leaves.get(&block.entry().leaf);
        let pieces = leaf.map(|leaf| leaf.pieces.as_slice()).unwrap_or_default();
        let mut moved = Vec::new();
        for extent in extents_of(block, bytes)? {
            if extent.file != self.file {
                extend_extents(&mut moved, [extent]);
                continue;
            }
            let range = extent.leaf_offset..extent.leaf_end();
            let first = pieces.partition_point(|piece| piece.extent.leaf_end() <= range.start);
            let pieces = pieces.iter().skip(first);
            let pieces = pieces.map_while(|piece| piece.extent.intersection(&range));
            extend_extents(&mut moved, pieces);
        }
        Ok(moved)
    }
}

fn extents_of(block: &PartBlock, bytes: &[u8]) -> Result<Vec<Extent>, StorageError> {
    let extents = block.entry().extents_in(bytes);
    extents.map_err(StorageError::damaged(&block.part().path))
}

/// The name of a file until it is complete.
pub(super) fn unpublished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNPUBLISHED_ENDING);
    name.into()
}

/// Removes a file that no storage file names.
pub(super) fn remove(path: &Path) {
    if let Err(error) = remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(
            %error, path = %path.display(),
            "a file that is not needed stays until the next start"
        );
    }
}
