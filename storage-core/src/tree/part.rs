//! An index part on disk.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use storage_format::{
    FormatError, FormatErrorKind, StorageId,
    index_part::{
        Footer, HEADER_BYTES, IndexPartHeader, LeafEntry, StoredBlock, TRAILER_BYTES, TimeBases,
        Trailer,
    },
};

use crate::{Progress, StorageError, read::ReadFile, removals::remove_later};

/// The block of one leaf in an index part, by its record in the footer.
#[derive(Debug, Clone)]
pub(crate) struct PartBlock {
    part: Arc<IndexPart>,
    at: usize,
}

impl PartBlock {
    /// The block of the record `at`.
    pub(crate) fn new(part: &Arc<IndexPart>, at: usize) -> Self {
        assert!(
            at < part.footer.leaves.len(),
            "the footer of a part contains the records of its blocks"
        );
        let part = Arc::clone(part);
        Self { part, at }
    }

    pub(crate) fn part(&self) -> &Arc<IndexPart> {
        &self.part
    }

    /// Its record.
    pub(crate) fn entry(&self) -> &LeafEntry {
        let entry = self.part.footer.leaves.get(self.at);
        entry.expect("the index of the record was checked when this was made")
    }

    /// Distinguishes the block from all others of the process.
    pub(super) fn key(&self) -> (u64, usize) {
        (self.part.cache_key, self.at)
    }

    /// Reads and checks the block.
    pub(crate) fn read(&self) -> Result<Vec<u8>, StorageError> {
        let (path, entry) = (&self.part.path, self.entry());
        let range = entry.block_range();
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let read = || {
            let bytes = crate::read::read_at(path, range.start, length);
            let bytes = bytes.map_err(StorageError::io("read", path))?;
            let checked = entry.check_block(&bytes);
            checked.map_err(StorageError::damaged(path))?;
            Ok(bytes)
        };
        read().inspect_err(|error: &StorageError| {
            if error.is_loss() {
                self.part.is_lost.store(true, Ordering::Relaxed);
            }
        })
    }

    /// Its bytes as they are added to another part.
    pub(crate) fn stored<'a>(&'a self, bytes: &'a [u8]) -> StoredBlock<'a> {
        StoredBlock {
            entry: self.entry(),
            bytes,
            bases: &self.part.bases,
        }
    }
}

/// Footer and time bases of an index part; its blocks remain on disk.
#[derive(Debug)]
pub(crate) struct IndexPart {
    pub(crate) path: PathBuf,
    pub(crate) header: IndexPartHeader,
    pub(crate) footer: Footer,
    pub(super) bases: Arc<TimeBases>,
    /// Distinguishes the blocks of this part in the cache.
    pub(super) cache_key: u64,
    /// Whether the storage has other parts now: the last reader removes the file.
    is_replaced: AtomicBool,
    /// Whether a block could not be read as it was written.
    is_lost: AtomicBool,
}

impl Drop for IndexPart {
    fn drop(&mut self) {
        if self.is_replaced.load(Ordering::Relaxed) {
            remove_later(std::mem::take(&mut self.path));
        }
    }
}

static NEXT_CACHE_KEY: AtomicU64 = AtomicU64::new(0);

impl IndexPart {
    /// The part that was just written to `path`.
    pub(crate) fn written(
        path: PathBuf,
        header: IndexPartHeader,
        footer: Footer,
        bases: TimeBases,
    ) -> Self {
        let cache_key = NEXT_CACHE_KEY.fetch_add(1, Ordering::Relaxed);
        Self {
            path,
            header,
            footer,
            bases: Arc::new(bases),
            cache_key,
            is_replaced: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Reads header, footer and time bases of the part of `storage` at `path`.
    pub(crate) fn open(path: &Path, storage: StorageId) -> Result<Self, StorageError> {
        let file = ReadFile::open(path).map_err(StorageError::io("open", path))?;
        let length = file
            .length()
            .map_err(StorageError::io("get the length of", path))?;
        let read = |offset, bytes: usize| {
            file.read(offset, bytes)
                .map_err(StorageError::io("read", path))
        };
        let damaged = |error| StorageError::damaged(path)(error);
        let needed = (HEADER_BYTES + TRAILER_BYTES) as u64;
        if length < needed {
            let kind = FormatErrorKind::Truncated {
                needed,
                available: length,
            };
            return Err(damaged(FormatError {
                what: "index part",
                offset: length,
                kind,
            }));
        }
        let header = IndexPartHeader::decode(&read(0, HEADER_BYTES)?).map_err(damaged)?;
        if header.storage != storage {
            let kind = FormatErrorKind::Foreign;
            return Err(damaged(FormatError {
                what: "index part header",
                offset: 16,
                kind,
            }));
        }
        let bytes = read(length.saturating_sub(TRAILER_BYTES as u64), TRAILER_BYTES)?;
        let trailer = Trailer::decode(&bytes, length, storage).map_err(damaged)?;
        let bytes = read(trailer.footer_offset, trailer.footer_length as usize)?;
        let footer = Footer::decode(&bytes, &trailer).map_err(damaged)?;
        let at = footer.bases.clone();
        let bytes = read(
            at.start,
            usize::try_from(at.end.saturating_sub(at.start)).unwrap_or(usize::MAX),
        )?;
        let bases = TimeBases::decode(&bytes, at.start).map_err(damaged)?;
        Ok(Self::written(path.to_owned(), header, footer, bases))
    }

    /// Bytes of all blocks.
    pub(crate) fn block_bytes(&self) -> u64 {
        let ranges = self.footer.leaves.iter().map(LeafEntry::block_range);
        let lengths = ranges.map(|range| range.end.saturating_sub(range.start));
        lengths.fold(0, u64::saturating_add)
    }

    /// Reads and checks every block; `progress` counts and cancels it.
    pub(crate) fn check_blocks(&self, progress: &Progress) -> Result<(), StorageError> {
        let path = &self.path;
        let file = ReadFile::open(path).map_err(StorageError::io("open", path))?;
        for entry in &self.footer.leaves {
            progress.check()?;
            let range = entry.block_range();
            let length = range.end.saturating_sub(range.start);
            progress.add(length);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let bytes = file.read(range.start, length);
            let bytes = bytes.map_err(StorageError::io("read", path))?;
            let checked = entry.check_block(&bytes);
            checked.map_err(StorageError::damaged(path))?;
        }
        Ok(())
    }

    /// Whether a block could not be read as it was written.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Notes that the file is not as it was written.
    pub(crate) fn note_loss(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Lets the last reader remove the file.
    pub(crate) fn replace(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    /// Whether every leaf of the part is the data file with its id, as in format version 1.
    pub(crate) fn is_of_leaf_files(&self) -> bool {
        self.footer.files.is_empty() && self.footer.position.is_none()
    }

    /// The ordinals that the part covers: its own, and those that it replaces.
    pub(crate) fn ordinals(&self) -> RangeInclusive<u64> {
        self.header.first_ordinal..=self.header.ordinal
    }

    /// The blocks of the part, sorted by leaf.
    pub(crate) fn blocks(self: &Arc<Self>) -> impl Iterator<Item = PartBlock> + '_ {
        (0..self.footer.leaves.len()).map(|at| PartBlock::new(self, at))
    }
}
