//! An open file that may have holes.

use std::{
    collections::HashMap,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use storage_format::{
    FormatError, FormatErrorKind,
    checksum::{crc32c, crc32c_append},
    tier_file::{GRANULE_BYTES, granule_checksum},
};
use tokio::sync::watch;

use super::{
    ahead::Scans,
    facts::{Facts, Supply},
    granules::{Granules, bytes_of, granules_of, runs},
    holes::data_of,
    pieces::Pieces,
};
use crate::{io::open_with_holes, unfetched::Unfetched};

/// Granules that are fetched although nobody asked for them, because they are between others: 1
/// MiB.
const GAP: u64 = 16;
/// Granules of one request: 4 MiB.
const RUN: u64 = 64;

/// A file that may have holes, open since its first reader.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(super) facts: Arc<Facts>,
    file: Arc<File>,
    /// The checksums of its granules.
    sums: Box<[u8]>,
    /// What is in the file and was compared.
    known: Granules,
    /// What was in the file when it was opened.
    pub(super) found: Granules,
    /// What is being fetched, and what says that it has ended.
    fetching: Mutex<HashMap<u64, watch::Receiver<()>>>,
    /// Whether a file of holes has taken its name: its space is given back when nobody has it open.
    is_given_up: AtomicBool,
    pub(super) scans: Mutex<Scans>,
    pub(super) pieces: Pieces,
}

impl Resident {
    /// Opens the file of a slot; one that is missing or cut is one hole.
    pub(super) fn open(facts: &Arc<Facts>) -> io::Result<Self> {
        let about = &facts.file;
        let file = open_with_holes(&facts.path, about.length)?;
        let sums = read_sums(facts)?;
        let found = Granules::new(about.granules());
        for data in data_of(&file, about.length)? {
            for granule in granules_of(&data) {
                found.add(granule);
            }
        }
        Ok(Self {
            facts: Arc::clone(facts),
            file: Arc::new(file),
            sums,
            known: Granules::new(about.granules()),
            found,
            fetching: Mutex::default(),
            is_given_up: AtomicBool::new(false),
            scans: Mutex::default(),
            pieces: Pieces::default(),
        })
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    /// Whether another file has its name: whoever keeps it open should open that one.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    pub(super) fn length(&self) -> u64 {
        self.facts.file.length
    }

    /// Whether all bytes of a range can be read from the file.
    pub(crate) fn has(&self, range: &Range<u64>) -> bool {
        granules_of(range).all(|granule| self.known.has(granule))
    }

    /// Lets all bytes of the ranges be read from the file: fetches those that are absent, several
    /// at once. A granule is fetched once, however many wait for it, and also when they stop
    /// waiting.
    pub(crate) async fn ensure(self: &Arc<Self>, ranges: &[Range<u64>]) -> io::Result<()> {
        self.facts.note_use();
        let mut wanted: Vec<u64> = ranges.iter().flat_map(granules_of).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let missing = |granule: &u64| !self.known.has(*granule);
        let (all, cache) = (wanted.len() as u64, &self.facts.cache);
        wanted.retain(missing);
        let hits = all.saturating_sub(wanted.len() as u64);
        cache.hits.fetch_add(hits, Ordering::Relaxed);
        if wanted.iter().any(|granule| self.found.has(*granule)) {
            wanted.iter().for_each(|granule| self.compare(*granule));
            wanted.retain(missing);
        }
        cache
            .misses
            .fetch_add(wanted.len() as u64, Ordering::Relaxed);
        while !wanted.is_empty() {
            let (mut others, mine) = self.claim(&wanted);
            let fetches: Vec<_> = mine
                .into_iter()
                .map(|(run, ended)| {
                    let this = Arc::clone(self);
                    let claim = Claim {
                        resident: Arc::clone(self),
                        run: run.clone(),
                        _ended: ended,
                    };
                    cache.handle.spawn(async move {
                        let fetched = this.fetch(run).await;
                        drop(claim);
                        fetched
                    })
                })
                .collect();
            for fetch in fetches {
                fetch.await.map_err(io::Error::other)??;
            }
            for other in &mut others {
                // It ends when its sender is dropped.
                let _ = other.changed().await;
            }
            wanted.retain(missing);
        }
        Ok(())
    }

    /// Who fetches what: what others fetch already, and the runs that this caller has to.
    #[expect(clippy::type_complexity, reason = "two lists that are used once")]
    fn claim(
        &self,
        wanted: &[u64],
    ) -> (
        Vec<watch::Receiver<()>>,
        Vec<(Range<u64>, watch::Sender<()>)>,
    ) {
        let mut fetching = self.fetching.lock();
        let others: Vec<_> = wanted
            .iter()
            .filter_map(|granule| fetching.get(granule).cloned())
            .collect();
        let free: Vec<u64> = wanted
            .iter()
            .copied()
            .filter(|granule| !fetching.contains_key(granule) && !self.known.has(*granule))
            .collect();
        let mut mine = Vec::new();
        for run in runs(&free, GAP, RUN) {
            let (ended, seen) = watch::channel(());
            for granule in run.clone() {
                fetching.entry(granule).or_insert_with(|| seen.clone());
            }
            mine.push((run, ended));
        }
        (others, mine)
    }

    /// As [`Self::ensure`], for a thread that may block.
    pub(super) fn ensure_blocking(self: &Arc<Self>, range: &Range<u64>) -> io::Result<()> {
        if self.has(range) {
            return Ok(());
        }
        let this = Arc::clone(self);
        let ranges = [range.clone()];
        self.block_on(async move { this.ensure(&ranges).await })
    }

    pub(super) fn supply(&self) -> io::Result<Supply> {
        let supply = self.facts.cache.supply.read().clone();
        supply.ok_or_else(|| {
            Unfetched::error(format!(
                "{} is in an object store, and none is configured: set [object_store]",
                self.facts.path.display()
            ))
        })
    }

    /// Fetches bytes from the beginning of a granule on, and compares them with their checksums.
    pub(super) async fn slices(&self, range: &Range<u64>) -> io::Result<Vec<Bytes>> {
        let fetched = self.fetched(range).await?;
        match self.check(range.start, &fetched) {
            Ok(()) => Ok(fetched),
            // It may have been the way from the store.
            Err(_) => {
                let fetched = self.fetched(range).await?;
                let checked = self.check(range.start, &fetched);
                checked
                    .map_err(|error| self.damaged(error))
                    .map(|()| fetched)
            }
        }
    }

    async fn fetched(&self, range: &Range<u64>) -> io::Result<Vec<Bytes>> {
        let source = self.supply()?.source;
        let fetched = source.fetch(&self.facts.file.key, range.clone()).await;
        let slices = fetched.map_err(|error| Unfetched::from_source(&error))?;
        let length: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        if length != range.end.saturating_sub(range.start) {
            return Err(Unfetched::error(
                "the object store sent another number of bytes",
            ));
        }
        Ok(slices)
    }

    /// Fetches a run of granules and writes them into the file.
    async fn fetch(self: Arc<Self>, run: Range<u64>) -> io::Result<()> {
        let range = bytes_of(&run, self.length());
        let slices = self.slices(&range).await?;
        // Not on another thread: all threads that may block can be waiting for this. It is a copy
        // to the page cache of at most 4 MiB.
        let mut at = range.start;
        for slice in &slices {
            crate::io::write_into_hole(&self.facts.path, &self.file, slice, at)?;
            at = at.saturating_add(slice.len() as u64);
        }
        let mut new = 0_u64;
        for granule in run {
            let is_new = self.known.add(granule) && !self.found.has(granule);
            new = new.saturating_add(if is_new { GRANULE_BYTES } else { 0 });
        }
        self.facts.add_here(new);
        Ok(())
    }

    /// Compares fetched bytes, from the beginning of a granule on, with the checksums.
    fn check(&self, start: u64, slices: &[Bytes]) -> Result<(), FormatError> {
        let (mut granule, mut computed, mut left) = (start / GRANULE_BYTES, 0, GRANULE_BYTES);
        let compare = |granule: u64, computed: u32| {
            let stored = granule_checksum(&self.sums, granule);
            if stored == Some(computed) {
                return Ok(());
            }
            let stored = stored.unwrap_or_default();
            Err(FormatError {
                what: "object",
                offset: granule.saturating_mul(GRANULE_BYTES),
                kind: FormatErrorKind::Checksum { stored, computed },
            })
        };
        for slice in slices {
            let mut rest: &[u8] = slice;
            while !rest.is_empty() {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                let (part, behind) = rest.split_at(count);
                computed = crc32c_append(computed, part);
                left = left.saturating_sub(count as u64);
                rest = behind;
                if left == 0 {
                    compare(granule, computed)?;
                    granule = granule.saturating_add(1);
                    (computed, left) = (0, GRANULE_BYTES);
                }
            }
        }
        if left < GRANULE_BYTES {
            compare(granule, computed)?;
        }
        Ok(())
    }

    fn damaged(&self, error: FormatError) -> io::Error {
        tracing::error!(
            %error, storage = %self.facts.storage, key = %self.facts.file.key,
            "an object in the object store is not what was uploaded; its bytes are not used"
        );
        Unfetched::lost(format!("object `{}`: {error}", self.facts.file.key))
    }

    /// Compares a granule that was in the file when it was opened; one that does not match is
    /// absent. Blocks the thread.
    fn compare(&self, granule: u64) {
        if self.known.has(granule) || !self.found.has(granule) {
            return;
        }
        let range = bytes_of(&(granule..granule.saturating_add(1)), self.length());
        let length = range.end.saturating_sub(range.start);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = self.file.read_exact_at(&mut bytes, range.start);
        if read.is_ok() && granule_checksum(&self.sums, granule) == Some(crc32c(&bytes)) {
            self.known.add(granule);
        } else {
            self.found.remove(granule);
        }
    }

    /// Waits on this thread.
    pub(super) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.facts.cache.handle.block_on(work)
    }

    /// Gives up what is in memory for scans that have ended.
    pub(super) fn forget_idle_scans(&self) {
        self.scans.lock().forget_idle();
    }
}

/// Granules that one caller fetches, however that ends.
struct Claim {
    resident: Arc<Resident>,
    run: Range<u64>,
    _ended: watch::Sender<()>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut fetching = self.resident.fetching.lock();
        for granule in self.run.clone() {
            fetching.remove(&granule);
        }
    }
}

/// The checksums of the granules of a file.
fn read_sums(facts: &Facts) -> io::Result<Box<[u8]>> {
    let about = &facts.file;
    let length = usize::try_from(about.sums_length()).map_err(io::Error::other)?;
    let (mut sums, place) = (vec![0; length], facts.sums_path());
    let read = File::open(&place).and_then(|file| file.read_exact_at(&mut sums, about.sums_at));
    let lost = match read {
        Ok(()) => about.check_sums(&sums).err().map(|error| error.to_string()),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => Some(error.to_string()),
            // It is not the file itself that is gone.
            _ => return Err(io::Error::other(format!("{}: {error}", place.display()))),
        },
    };
    let Some(lost) = lost else {
        return Ok(sums.into());
    };
    if facts.cache.lost.add(facts.storage) {
        tracing::error!(
            error = lost, storage = %facts.storage, file = %place.display(),
            "checksums of a storage in the object store are lost; they are made again from its \
             seal. Check the disk"
        );
    }
    Err(Unfetched::error(format!(
        "{}: {lost}; it is made again from the seal",
        place.display()
    )))
}
