//! Which files may have holes: a table for the process, see the module above.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use storage_format::{
    StorageId,
    tier_file::{GRANULE_BYTES, TieredFile},
};
use tokio::{runtime::Handle, sync::Semaphore};

use super::{
    BlockSource, CachedBytes,
    facts::{Cache, Facts, Supply},
    holes::files_with_holes,
    lost::Lost,
    resident::Resident,
};
use crate::{io::replace_with_hole, unfetched::Unfetched};

static TABLE: LazyLock<Table> = LazyLock::new(Table::default);

#[derive(Debug, Default)]
struct Table {
    /// Whether there was ever a slot: without one, no path is looked up.
    is_used: AtomicBool,
    slots: RwLock<HashMap<PathBuf, Arc<Slot>>>,
    /// Files with holes of which it is not known what belongs into them.
    refused: RwLock<HashSet<PathBuf>>,
}

/// A file that may have holes, and the file that is open since its first reader.
#[derive(Debug)]
struct Slot {
    facts: Arc<Facts>,
    open: Mutex<Option<Arc<Resident>>>,
}

impl Slot {
    fn resident(self: &Arc<Self>) -> io::Result<Arc<Resident>> {
        self.facts.note_use();
        let mut open = self.open.lock();
        if let Some(resident) = &*open {
            return Ok(Arc::clone(resident));
        }
        let resident = Arc::new(Resident::open(&self.facts)?);
        *open = Some(Arc::clone(&resident));
        Ok(resident)
    }

    /// Gives the space of the file back: a file of holes takes its name. Whoever has it open reads
    /// on in the one before, which is complete as far as it was known to be. Blocks the thread.
    fn empty(&self) -> io::Result<u64> {
        let mut open = self.open.lock();
        replace_with_hole(&self.facts.path, self.facts.file.length)?;
        if let Some(before) = open.take() {
            before.give_up();
        }
        Ok(self.facts.take_here())
    }

    /// Closes the file if nobody uses it; otherwise gives up what scans of it left in memory.
    fn close_unused(&self) {
        let mut open = self.open.lock();
        match &*open {
            Some(file) if Arc::strong_count(file) == 1 => *open = None,
            Some(file) => file.forget_idle_scans(),
            None => {}
        }
    }
}

/// The file at `path` as one that may have holes, if it is one.
///
/// # Errors
/// When it cannot be opened, or the checksums of its granules cannot be read.
pub(crate) fn resident_at(path: &Path) -> io::Result<Option<Arc<Resident>>> {
    if !TABLE.is_used.load(Ordering::Acquire) {
        return Ok(None);
    }
    let slot = TABLE.slots.read().get(path).cloned();
    if slot.is_none() && TABLE.refused.read().contains(path) {
        return Err(Unfetched::error(
            "what says where it is in the object store is lost, and is made again from its seal",
        ));
    }
    slot.map(|slot| slot.resident()).transpose()
}

/// Whether the file at `path` may have holes.
pub(crate) fn has_slot(path: &Path) -> bool {
    let has = || TABLE.slots.read().contains_key(path) || TABLE.refused.read().contains(path);
    TABLE.is_used.load(Ordering::Acquire) && has()
}

/// Forgets the files in a folder: it is removed, or all of their bytes are there.
pub(crate) fn forget_folder(folder: &Path) {
    if !TABLE.is_used.load(Ordering::Acquire) {
        return;
    }
    accept_folder(folder);
    let mut slots = TABLE.slots.write();
    slots.retain(|path, slot| {
        let is_other = path.parent() != Some(folder);
        if !is_other {
            slot.facts.take_here();
        }
        is_other
    });
}

/// Refuses no file in a folder any more.
fn accept_folder(folder: &Path) {
    let mut refused = TABLE.refused.write();
    refused.retain(|path| path.parent() != Some(folder));
}

/// Forgets a file that is about to be replaced by another one.
pub(crate) fn forget_file(path: &Path) {
    TABLE.refused.write().remove(path);
    if TABLE.is_used.load(Ordering::Acquire)
        && let Some(slot) = TABLE.slots.write().remove(path)
    {
        slot.facts.take_here();
    }
}

/// While it lives, no file in a folder is given up.
#[derive(Debug)]
pub(crate) struct Keeping(Arc<Mutex<HashSet<PathBuf>>>, PathBuf);

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

/// The slots of an engine.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    cache: Arc<Cache>,
    /// Folders of which no file is given up: all of their bytes are being fetched.
    kept: Arc<Mutex<HashSet<PathBuf>>>,
    /// Below it are the slots of this engine.
    root: PathBuf,
}

impl Slots {
    /// For storages in `root`. Must be called in a runtime.
    pub(crate) fn new(root: PathBuf) -> Self {
        let cache = Cache {
            supply: RwLock::default(),
            handle: Handle::current(),
            here: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            lost: Lost::default(),
        };
        Self {
            cache: Arc::new(cache),
            kept: Arc::default(),
            root,
        }
    }

    pub(crate) fn set_source(&self, source: Arc<dyn BlockSource>, ahead_bytes_max: u64) {
        let granules = usize::try_from(ahead_bytes_max / GRANULE_BYTES).unwrap_or(usize::MAX);
        let memory = Arc::new(Semaphore::new(granules.min(Semaphore::MAX_PERMITS)));
        *self.cache.supply.write() = Some(Supply { source, memory });
    }

    /// From now on, bytes of this file of the storage in `folder` may be absent.
    pub(crate) fn add(&self, folder: &Path, storage: StorageId, file: &TieredFile) {
        let path = folder.join(&file.name);
        let known = TABLE.slots.read().get(&path).cloned();
        if known.is_some_and(|known| known.facts.file == *file) {
            return;
        }
        let here = std::fs::metadata(&path).map_or(0, |about| about.blocks().saturating_mul(512));
        let facts = Facts {
            path: path.clone(),
            storage,
            file: file.clone(),
            cache: Arc::clone(&self.cache),
            here: AtomicU64::new(0),
            used: AtomicU64::new(0),
        };
        facts.add_here(here.min(file.length));
        let slot = Slot {
            facts: Arc::new(facts),
            open: Mutex::default(),
        };
        let before = TABLE.slots.write().insert(path, Arc::new(slot));
        if let Some(before) = before {
            before.facts.take_here();
        }
        TABLE.is_used.store(true, Ordering::Release);
    }

    /// Remembers that a storage has lost what says where it is in the object store, and refuses its
    /// files with holes. Blocks the thread.
    pub(crate) fn lose(&self, folder: &Path, storage: StorageId) {
        match files_with_holes(folder) {
            Ok(files) => TABLE.refused.write().extend(files),
            // Its bytes are compared with their checksums all the same.
            Err(error) => tracing::warn!(%error, %storage, "cannot look for files with holes"),
        }
        TABLE.is_used.store(true, Ordering::Release);
        self.cache.lost.add(storage);
    }

    /// Whether files in `folder` are refused.
    pub(crate) fn refuses(&self, folder: &Path) -> bool {
        let refused = TABLE.refused.read();
        refused.iter().any(|path| path.parent() == Some(folder))
    }

    /// The storage is known again: its files with holes have slots.
    pub(crate) fn found(&self, folder: &Path, storage: StorageId) {
        accept_folder(folder);
        self.cache.lost.remove(storage);
    }

    /// The storages that have lost what says where they are.
    pub(crate) fn lost(&self) -> Vec<StorageId> {
        self.cache.lost.list()
    }

    pub(crate) fn has_lost(&self, storage: StorageId) -> bool {
        self.cache.lost.has(storage)
    }

    /// Ready when one more has.
    pub(crate) async fn loss(&self) {
        self.cache.lost.noticed().await;
    }

    /// Lets no file in `folder` be given up until the result is dropped. `None` if that is so
    /// already.
    pub(crate) fn keep(&self, folder: &Path) -> Option<Keeping> {
        let is_new = self.kept.lock().insert(folder.to_owned());
        is_new.then(|| Keeping(Arc::clone(&self.kept), folder.to_owned()))
    }

    fn is_kept(&self, slot: &Slot) -> bool {
        let folder = slot.facts.path.parent();
        folder.is_some_and(|folder| self.kept.lock().contains(folder))
    }

    fn own(&self) -> Vec<Arc<Slot>> {
        let slots = TABLE.slots.read();
        let own = slots
            .values()
            .filter(|slot| slot.facts.path.starts_with(&self.root));
        own.cloned().collect()
    }

    /// Gives the space of all files in `folder` back; returns the bytes. Blocks the thread.
    ///
    /// # Errors
    /// When a file cannot be replaced.
    pub(crate) fn empty_folder(&self, folder: &Path) -> io::Result<u64> {
        let mut freed = 0_u64;
        for slot in self.own() {
            if slot.facts.path.parent() == Some(folder) && !self.is_kept(&slot) {
                freed = freed.saturating_add(slot.empty()?);
            }
        }
        Ok(freed)
    }

    /// Gives the space of the files back that were not read for longest, until they take at most
    /// `max` bytes; returns the bytes. Blocks the thread.
    ///
    /// # Errors
    /// When a file cannot be replaced.
    pub(crate) fn reclaim(&self, max: u64) -> io::Result<u64> {
        let mut slots = self.own();
        slots.sort_by_key(|slot| slot.facts.used.load(Ordering::Relaxed));
        let mut freed = 0_u64;
        for slot in &slots {
            slot.close_unused();
            let is_within = self.cache.here.load(Ordering::Relaxed) <= max;
            if !is_within && slot.facts.here.load(Ordering::Relaxed) > 0 && !self.is_kept(slot) {
                freed = freed.saturating_add(slot.empty()?);
            }
        }
        Ok(freed)
    }

    /// What the files take here.
    pub(crate) fn cached(&self) -> CachedBytes {
        CachedBytes {
            here: self.cache.here.load(Ordering::Relaxed),
            hits: self.cache.hits.load(Ordering::Relaxed),
            misses: self.cache.misses.load(Ordering::Relaxed),
        }
    }

    /// What the files in `folder` take here.
    pub(crate) fn cached_in(&self, folder: &Path) -> u64 {
        let slots = TABLE.slots.read();
        let inside = slots
            .values()
            .filter(|slot| slot.facts.path.parent() == Some(folder));
        inside
            .map(|slot| slot.facts.here.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add)
    }
}
