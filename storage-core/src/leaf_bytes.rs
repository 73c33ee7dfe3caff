//! The bytes of a leaf, wherever they are in the data files of its storage.

use std::{
    collections::HashMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use storage_format::{
    DataFileId, LeafId, data_file::HEADER_BYTES, index_part::Extent, paths::FileName,
};

use crate::{
    StorageError,
    read::ReadFile,
    tier::has_slot,
    tree::{BlockCache, FilePin, Leaf, PartBlock, Segment},
};

/// Data files that a reader of one leaf has open at once.
const OPEN_FILE_COUNT_MAX: usize = 4;

/// Where the bytes of a leaf are, as the tree knew it at one instant.
#[derive(Debug)]
pub(crate) struct LeafMap {
    folder: PathBuf,
    leaf: LeafId,
    cache: Arc<BlockCache>,
    _pin: Arc<FilePin>,
    pieces: Vec<Piece>,
}

/// The bytes that a segment of the leaf covers.
#[derive(Debug)]
struct Piece {
    covered: Range<u64>,
    block: Option<PartBlock>,
    /// Read from the block of the part by the first read.
    extents: OnceLock<Vec<Extent>>,
}

impl Piece {
    fn of(segment: &Segment, range: &Range<u64>) -> Self {
        let block = segment.body.part_block().cloned();
        let extents = OnceLock::new();
        if block.is_none() {
            let all = &segment.extents;
            let first = all.partition_point(|extent| extent.leaf_end() <= range.start);
            let end = all.partition_point(|extent| extent.leaf_offset < range.end);
            let _ = extents.set(all.get(first..end).unwrap_or_default().to_vec());
        }
        Self {
            covered: segment.covered.clone(),
            block,
            extents,
        }
    }
}

impl LeafMap {
    /// Where the bytes `range` of a leaf are, in the data files in `folder`.
    pub(crate) fn new(
        folder: &Path,
        cache: &Arc<BlockCache>,
        pin: &Arc<FilePin>,
        leaf: &Leaf,
        range: &Range<u64>,
    ) -> Self {
        // The header of a leaf is directly before its first frame.
        let start = range.start.max(HEADER_BYTES as u64);
        let end = range.end.max(start.saturating_add(1));
        let overlaps =
            |segment: &&Segment| segment.covered.start < end && start < segment.covered.end;
        Self {
            folder: folder.to_owned(),
            leaf: leaf.id,
            cache: Arc::clone(cache),
            _pin: Arc::clone(pin),
            pieces: leaf
                .segments()
                .filter(overlaps)
                .map(|segment| Piece::of(segment, &(start..end)))
                .collect(),
        }
    }

    /// A name for the leaf in messages.
    pub(crate) fn place(&self) -> String {
        format!("leaf {} in {}", self.leaf, self.folder.display())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, file: DataFileId) -> PathBuf {
        self.folder.join(FileName::Data(file).to_string())
    }

    fn extents_of<'a>(&self, piece: &'a Piece) -> Result<&'a [Extent], StorageError> {
        if let Some(extents) = piece.extents.get() {
            return Ok(extents);
        }
        let extents = match &piece.block {
            Some(block) => self.cache.get(block)?.extents(block)?,
            None => Vec::new(),
        };
        Ok(piece.extents.get_or_init(|| extents))
    }

    /// Whether the data files have all of their bytes. All files of a storage are evicted together,
    /// so the first one tells.
    pub(crate) fn is_near(&self) -> bool {
        let first = self.pieces.first();
        let extents = first.and_then(|piece| self.extents_of(piece).ok());
        let first = extents.and_then(|extents| extents.first());
        first.is_some_and(|extent| !has_slot(&self.path(extent.file)))
    }

    /// The ends of pieces of the bytes from `from` on, as far as they are in wanted files: a piece
    /// ends after the extent with which it has `bytes_max`.
    ///
    /// # Errors
    /// When an index part cannot be read.
    pub(crate) fn ends_within(
        &self,
        from: u64,
        bytes_max: u64,
        is_wanted: impl Fn(DataFileId) -> bool,
    ) -> Result<Vec<u64>, StorageError> {
        let mut ends = Vec::new();
        let (mut start, mut end) = (from, from);
        'pieces: for piece in &self.pieces {
            let extents = self.extents_of(piece)?;
            for extent in extents.iter().filter(|extent| extent.leaf_end() > from) {
                if !is_wanted(extent.file) || extent.leaf_offset > end {
                    break 'pieces;
                }
                end = extent.leaf_end();
                if end.saturating_sub(start) >= bytes_max {
                    ends.push(end);
                    start = end;
                }
            }
        }
        if end > start {
            ends.push(end);
        }
        Ok(ends)
    }

    /// The extents that contain the bytes `range` of the leaf, in their order.
    ///
    /// # Errors
    /// When an index part cannot be read.
    pub(crate) fn extents(&self, range: &Range<u64>) -> Result<Vec<Extent>, StorageError> {
        let header_end = HEADER_BYTES as u64;
        let mut found = Vec::new();
        for piece in &self.pieces {
            let extents = self.extents_of(piece)?;
            if range.start < header_end
                && piece.covered.start == header_end
                && let Some(header) = extents.first().and_then(header_before)
            {
                found.extend(header.intersection(range));
            }
            let first = extents.partition_point(|extent| extent.leaf_end() <= range.start);
            let extents = extents.get(first..).unwrap_or_default();
            found.extend(
                extents
                    .iter()
                    .map_while(|extent| extent.intersection(range)),
            );
        }
        Ok(found)
    }
}

/// The header of a leaf whose first frames are in `first`.
fn header_before(first: &Extent) -> Option<Extent> {
    let length = HEADER_BYTES as u64;
    Some(Extent {
        leaf_offset: 0,
        file: first.file,
        offset: first.offset.checked_sub(length)?,
        length,
    })
}

/// Reads the bytes of a leaf by their offset in the leaf.
#[derive(Debug)]
pub(crate) struct LeafReader {
    map: LeafMap,
    open: Mutex<HashMap<DataFileId, Arc<ReadFile>>>,
}

impl LeafReader {
    pub(crate) fn new(map: LeafMap) -> Self {
        Self {
            map,
            open: Mutex::default(),
        }
    }

    pub(crate) fn map(&self) -> &LeafMap {
        &self.map
    }

    /// Closes the data files; the next read opens them again.
    pub(crate) fn close(&self) {
        self.open.lock().clear();
    }

    fn file(&self, id: DataFileId) -> io::Result<Arc<ReadFile>> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(&id) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(ReadFile::open(&self.map.path(id))?);
        if open.len() >= OPEN_FILE_COUNT_MAX {
            open.clear();
        }
        open.insert(id, Arc::clone(&file));
        Ok(file)
    }

    /// Fills `buffer` from `offset` of the leaf; a short read is an error. Returns whether all
    /// bytes were in the page cache, which is only checked while I/O is traced.
    pub(crate) fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<bool>> {
        let end = offset.saturating_add(buffer.len() as u64);
        let extents = self.map.extents(&(offset..end)).map_err(io::Error::other)?;
        let mut rest = buffer;
        let mut next = offset;
        let mut were_cached = Some(true);
        for extent in extents {
            if extent.leaf_offset != next {
                break;
            }
            let length = usize::try_from(extent.length).map_err(io::Error::other)?;
            let (part, after) = rest.split_at_mut(length.min(rest.len()));
            let file = self.file(extent.file)?;
            let was_cached = file.fill_traced(part, extent.offset)?;
            were_cached = were_cached.and_then(|all| was_cached.map(|this| all && this));
            next = extent.leaf_end();
            rest = after;
        }
        if rest.is_empty() {
            return Ok(were_cached);
        }
        let problem = format!("the leaf has no bytes at offset {next}");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem))
    }

    /// The parts of `range` that are in no data file, or behind the end of theirs; ascending.
    pub(crate) fn lost(&self, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut lost = Vec::new();
        let mut next = range.start;
        for extent in self.map.extents(range).map_err(io::Error::other)? {
            lost.push(next..extent.leaf_offset);
            let there = self.file(extent.file)?.length()?;
            let there = there.saturating_sub(extent.offset).min(extent.length);
            next = extent.leaf_end();
            lost.push(extent.leaf_offset.saturating_add(there)..next);
        }
        lost.push(next..range.end);
        lost.retain(|part| part.start < part.end);
        Ok(lost)
    }

    /// Reads `length` bytes at `offset` of the leaf; a short read is an error.
    pub(crate) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes, offset)?;
        Ok(bytes)
    }
}
