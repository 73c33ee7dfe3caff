//! An open file, and which of its blocks were compared.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    ops::Range,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use storage_format::{
    FormatError, FormatErrorKind, StorageId, checksum::crc32c_append, storage_file::StorageFile,
};

use super::{
    known_damage::KnownDamage,
    sums::{Expected, Sums},
};
use crate::{Counters, RangeScan, StorageError, read::ReadFile, traced::on_thread};

/// Bytes per read.
const READ_BYTES: u64 = 256 << 10;
/// Blocks of one file that are compared at the same time.
const TURNS: usize = 4;
/// Bytes of a part of a file that is fetched before it is sent.
const FETCHED_BYTES: u64 = 4 << 20;
/// Longest range whose bytes are kept once they were fetched: those of a longer one pass by.
const KEPT_BYTES_MAX: u64 = 8 << 20;
/// How often a file may change while it is compared.
const CHANGES_MAX: u32 = 3;

/// The blocks of a file, whoever has it open.
#[derive(Debug)]
pub(super) struct Blocks {
    storage: StorageId,
    path: PathBuf,
    name: String,
    /// Whether the file is made again when it is damaged.
    pub(super) is_derived: bool,
    expected: Expected,
    sums: Sums,
    /// Changes when all blocks have to be compared again.
    generation: Arc<AtomicU64>,
    /// Of the file whose blocks are marked; 0 for none.
    version: AtomicU64,
    /// A bit for each block that matched.
    marks: Box<[AtomicU64]>,
    marking: Mutex<()>,
    /// A block is compared once, however many readers wait for it.
    turns: [tokio::sync::Mutex<()>; TURNS],
    damage: Arc<KnownDamage>,
    counters: Arc<Counters>,
}

impl Blocks {
    pub(super) fn new(
        (storage, path): (StorageId, PathBuf),
        expected: Expected,
        sums: Sums,
        (generation, damage, counters): (&Arc<AtomicU64>, &Arc<KnownDamage>, &Arc<Counters>),
    ) -> Self {
        let name = path.file_name().unwrap_or_default();
        let words = sums.count().div_ceil(64);
        Self {
            storage,
            name: name.to_string_lossy().into_owned(),
            is_derived: false,
            path,
            expected,
            sums,
            generation: Arc::clone(generation),
            version: AtomicU64::new(0),
            marks: (0..words).map(|_| AtomicU64::new(0)).collect(),
            marking: Mutex::default(),
            turns: Default::default(),
            damage: Arc::clone(damage),
            counters: Arc::clone(counters),
        }
    }

    /// Whether these are the blocks of a file of which this is expected.
    pub(super) fn fits(&self, expected: Expected, own: &StorageFile) -> bool {
        self.expected == expected && self.sums.are_final(own)
    }

    fn is_marked(&self, block: usize) -> bool {
        let word = self.marks.get(block / 64);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (block % 64) & 1 == 1)
    }

    /// Remembers that a block of the file with this version matched.
    fn mark(&self, block: usize, version: u64) {
        let _marking = self.marking.lock();
        if self.version.load(Ordering::Acquire) != version {
            // A reader that still sees the version before finds no mark.
            self.marks
                .iter()
                .for_each(|word| word.store(0, Ordering::Release));
            self.version.store(version, Ordering::Release);
        }
        if let Some(word) = self.marks.get(block / 64) {
            word.fetch_or(1 << (block % 64), Ordering::AcqRel);
        }
    }

    /// The bytes of a block.
    fn range(&self, block: usize) -> Range<u64> {
        let bytes = self.sums.block_bytes();
        let start = bytes.saturating_mul(block as u64);
        start..start.saturating_add(bytes).min(self.expected.length)
    }

    /// The block that contains a byte.
    fn at(&self, offset: u64) -> usize {
        let block = offset.checked_div(self.sums.block_bytes()).unwrap_or(0);
        usize::try_from(block).unwrap_or(usize::MAX)
    }

    fn damaged(&self, offset: u64, kind: FormatErrorKind) -> StorageError {
        let what = "file";
        StorageError::damaged(&self.path)(FormatError { what, offset, kind })
    }

    fn note_damage(&self, range: &Range<u64>, error: &StorageError) {
        let found = Found {
            storage: self.storage,
            name: &self.name,
            is_derived: self.is_derived,
            range,
        };
        found.note(error, &self.damage, &self.counters);
    }

    /// Forgets damage of a block that matches again.
    fn note_intact(&self, range: &Range<u64>) {
        if self.damage.remove(&self.name, range.start) {
            tracing::info!(
                storage = %self.storage, file = %self.name, offset = range.start,
                "bytes of a finalized storage that were damaged are intact again"
            );
        }
    }
}

/// Bytes that are not as they were written.
pub(super) struct Found<'a> {
    pub(super) storage: StorageId,
    /// The file.
    pub(super) name: &'a str,
    /// Whether the file is made again.
    pub(super) is_derived: bool,
    pub(super) range: &'a Range<u64>,
}

impl Found<'_> {
    /// Remembers them, says it in the log, and counts it, once.
    pub(super) fn note(&self, error: &StorageError, damage: &KnownDamage, counters: &Counters) {
        let Range { start, end } = *self.range;
        if !error.is_loss() || !damage.add(self.name, start, error.to_string()) {
            return;
        }
        counters.damaged_blocks.add(1);
        let length = end.saturating_sub(start);
        if self.is_derived {
            tracing::error!(
                %error, storage = %self.storage, file = %self.name, offset = start, length,
                "bytes of a file that was made from a finalized storage are damaged; they are not \
                 sent, and the next request makes the file again. Check the disk"
            );
        } else {
            tracing::error!(
                %error, storage = %self.storage, file = %self.name, offset = start, length,
                "bytes of a finalized storage are damaged; they are not sent. Check the disk, and \
                 restore the file from an export or a backup"
            );
        }
    }
}

/// An open file of a finalized storage whose bytes are compared with their checksums before they
/// are passed on.
#[derive(Debug, Clone)]
pub struct CheckedFile {
    file: ReadFile,
    blocks: Arc<Blocks>,
}

impl CheckedFile {
    pub(super) fn new(file: &ReadFile, blocks: Arc<Blocks>) -> Self {
        let file = file.clone();
        Self { file, blocks }
    }

    /// A number that changes when the file does; an error if its length is another one.
    fn version(&self) -> Result<u64, StorageError> {
        let about = self.file.file().metadata();
        let about = about.map_err(StorageError::io("get the length of", &self.blocks.path))?;
        let (needed, available) = (self.blocks.expected.length, about.len());
        if needed != available {
            let kind = FormatErrorKind::Truncated { needed, available };
            let error = self.blocks.damaged(needed.min(available), kind);
            self.blocks.note_damage(&(0..needed), &error);
            return Err(error);
        }
        let mut hasher = DefaultHasher::new();
        self.blocks
            .generation
            .load(Ordering::Acquire)
            .hash(&mut hasher);
        (about.ino(), about.ctime(), about.ctime_nsec()).hash(&mut hasher);
        (about.mtime(), about.mtime_nsec()).hash(&mut hasher);
        Ok(hasher.finish() | 1)
    }

    /// The first block of `range` that has to be compared before its bytes are used, if the file
    /// has this version.
    fn unchecked(&self, range: &Range<u64>, version: u64) -> Option<usize> {
        let (blocks, last) = (&self.blocks, range.end.checked_sub(1)?);
        if range.is_empty() {
            return None;
        }
        let mut all = blocks.at(range.start)..=blocks.at(last);
        if blocks.version.load(Ordering::Acquire) != version {
            return all.next();
        }
        all.find(|block| !blocks.is_marked(*block))
    }

    /// Refuses a file whose length is not what it must be.
    ///
    /// # Errors
    /// When it has another length, or that cannot be read.
    pub(crate) fn check_length(&self) -> Result<(), StorageError> {
        match self.file.resident() {
            // It is made as long as it must be.
            Some(_) => Ok(()),
            None => self.version().map(|_| ()),
        }
    }

    /// Whether all bytes of `ranges` can be used at once. Does not wait for the disk.
    ///
    /// # Errors
    /// When the length of the file is not what it must be.
    pub fn are_checked(
        &self,
        mut ranges: impl Iterator<Item = Range<u64>>,
    ) -> Result<bool, StorageError> {
        if let Some(resident) = self.file.resident() {
            return Ok(ranges.all(|range| resident.has(&range)));
        }
        let version = self.version()?;
        Ok(ranges.all(|range| self.unchecked(&range, version).is_none()))
    }

    /// The end of the block that contains a byte.
    #[must_use]
    pub fn block_end(&self, offset: u64) -> u64 {
        if self.file.resident().is_some() {
            let end = (offset / FETCHED_BYTES).saturating_add(1);
            return end
                .saturating_mul(FETCHED_BYTES)
                .min(self.blocks.expected.length);
        }
        self.blocks.range(self.blocks.at(offset)).end
    }

    /// Whether damage of this file is known.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.blocks.damage.is_of(&self.blocks.name)
    }

    /// Whether its bytes were given up for others: its space comes back when nobody has it open.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        let resident = self.file.resident();
        resident.is_some_and(|resident| resident.is_given_up())
    }

    /// As [`Self::ensure`] of each range; what is absent is fetched for all of them at once.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub async fn ensure_all(&self, ranges: Vec<Range<u64>>) -> Result<(), StorageError> {
        if let Some(resident) = self.file.resident() {
            let fetched = resident.ensure(&ranges).await;
            return fetched.map_err(StorageError::fetch(&self.blocks.path));
        }
        for range in ranges {
            self.ensure(range).await?;
        }
        Ok(())
    }

    /// A reader of a range that is so long that its bytes pass by the file, if some are absent.
    ///
    /// # Errors
    /// When its first bytes are damaged or cannot be fetched.
    pub async fn scan(&self, range: Range<u64>) -> Result<Option<RangeScan>, StorageError> {
        let length = range.end.saturating_sub(range.start);
        let Some(resident) = self.file.resident().filter(|_| length > KEPT_BYTES_MAX) else {
            return Ok(None);
        };
        if resident.has(&range) {
            return Ok(None);
        }
        let mut scan = RangeScan::new(Arc::clone(resident), range);
        let first = scan.first().await;
        first.map_err(StorageError::fetch(&self.blocks.path))?;
        Ok(Some(scan))
    }

    /// Whether bytes of the file may be absent, and are fetched.
    #[must_use]
    pub fn may_have_holes(&self) -> bool {
        self.file.resident().is_some()
    }

    /// Compares the blocks of `range` that were not compared since the file changed or the server
    /// started, on other threads. Bytes that are absent are fetched.
    ///
    /// # Errors
    /// When a block is damaged or cannot be read or fetched.
    pub async fn ensure(&self, range: Range<u64>) -> Result<(), StorageError> {
        if let Some(resident) = self.file.resident() {
            let fetched = resident.ensure(&[range]).await;
            return fetched.map_err(StorageError::fetch(&self.blocks.path));
        }
        let mut attempts = Attempts::default();
        while let Some(block) = self.unchecked(&range, self.version()?) {
            let _turn = self.blocks.turns[block % TURNS].lock().await;
            let of_block = self.blocks.range(block);
            if self.unchecked(&of_block, self.version()?).is_none() {
                continue;
            }
            attempts.begin(&self.blocks, block)?;
            let this = self.clone();
            let compared = on_thread(io_trace::current(), move || this.compare(block)).await;
            compared.map_err(|_| StorageError::Stopping)??;
        }
        Ok(())
    }

    /// As [`Self::ensure`], on this thread.
    pub(crate) fn ensure_blocking(&self, range: &Range<u64>) -> Result<(), StorageError> {
        if self.file.resident().is_some() {
            // Its reads fetch and compare what is absent.
            return Ok(());
        }
        let mut attempts = Attempts::default();
        while let Some(block) = self.unchecked(range, self.version()?) {
            attempts.begin(&self.blocks, block)?;
            self.compare(block)?;
        }
        Ok(())
    }

    /// Compares a block with its checksum; blocks the thread.
    fn compare(&self, block: usize) -> Result<(), StorageError> {
        let range = self.blocks.range(block);
        let compared = self.compare_bytes(block, &range);
        match &compared {
            Ok(()) => self.blocks.note_intact(&range),
            Err(error) => self.blocks.note_damage(&range, error),
        }
        compared
    }

    fn compare_bytes(&self, block: usize, range: &Range<u64>) -> Result<(), StorageError> {
        let version = self.version()?;
        let length = range.end.saturating_sub(range.start);
        let window = usize::try_from(length.min(READ_BYTES)).unwrap_or(0);
        let (mut window, mut at, mut computed) = (vec![0; window], range.start, 0);
        while at < range.end {
            let left = usize::try_from(range.end.saturating_sub(at)).unwrap_or(usize::MAX);
            let part_bytes = left.min(window.len());
            let part = &mut window[..part_bytes];
            let read = self.file.fill(part, at);
            read.map_err(StorageError::io("read", &self.blocks.path))?;
            computed = crc32c_append(computed, part);
            at = at.saturating_add(part.len() as u64);
        }
        self.blocks.counters.checked_bytes.add(length);
        match self.blocks.sums.of(block) {
            Some(stored) if stored != computed => {
                let kind = FormatErrorKind::Checksum { stored, computed };
                return Err(self.blocks.damaged(range.start, kind));
            }
            _ => {}
        }
        // Bytes that changed meanwhile are compared again.
        if self.version()? == version {
            self.blocks.mark(block, version);
        }
        Ok(())
    }
}

/// How often the same block was compared, because the file changed.
#[derive(Debug, Default)]
struct Attempts {
    block: Option<usize>,
    count: u32,
}

impl Attempts {
    fn begin(&mut self, blocks: &Blocks, block: usize) -> Result<(), StorageError> {
        if self.block != Some(block) {
            *self = Self {
                block: Some(block),
                count: 0,
            };
        }
        self.count = self.count.saturating_add(1);
        if self.count > CHANGES_MAX {
            let changing = io::Error::other("the file changes while it is read");
            return Err(StorageError::io("compare", &blocks.path)(changing));
        }
        Ok(())
    }
}
