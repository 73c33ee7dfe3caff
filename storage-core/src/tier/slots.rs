//! Which files may have holes: a table for the process, see the module above.

use std::{
    collections::HashMap,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use storage_format::{StorageId, paths::FileName, tier_file::TieredFile};
use tokio::runtime::Handle;

use super::{BlockSource, CachedBytes, resident::Resident};
use crate::io::replace_with_hole;

static TABLE: LazyLock<Table> = LazyLock::new(Table::default);

#[derive(Debug, Default)]
struct Table {
    /// Whether there was ever a slot: without one, no path is looked up.
    is_used: AtomicBool,
    slots: RwLock<HashMap<PathBuf, Arc<Slot>>>,
}

/// A file that may have holes.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) path: PathBuf,
    pub(super) storage: StorageId,
    pub(super) file: TieredFile,
    pub(super) cache: Arc<Cache>,
    /// Open since its first reader.
    open: Mutex<Option<Arc<Resident>>>,
    /// Bytes of it that are here.
    pub(super) here: AtomicU64,
    /// When it was read last, as a number of reads.
    used: AtomicU64,
}

/// What all slots of an engine share.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) source: RwLock<Option<Arc<dyn BlockSource>>>,
    pub(super) handle: Handle,
    pub(super) here: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    reads: AtomicU64,
}

impl Slot {
    /// Counts bytes that were written to the file.
    pub(super) fn add_here(&self, bytes: u64) {
        self.here.fetch_add(bytes, Ordering::Relaxed);
        self.cache.here.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn note_use(&self) {
        let now = self.cache.reads.fetch_add(1, Ordering::Relaxed);
        self.used.store(now, Ordering::Relaxed);
    }

    fn take_here(&self) -> u64 {
        let bytes = self.here.swap(0, Ordering::Relaxed);
        self.cache.here.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }

    /// Where the checksums of its granules are.
    pub(super) fn sums_path(&self) -> PathBuf {
        let name = FileName::TierSums(self.storage).to_string();
        self.path.with_file_name(name)
    }

    fn resident(self: &Arc<Self>) -> io::Result<Arc<Resident>> {
        self.note_use();
        let mut open = self.open.lock();
        if let Some(resident) = &*open {
            return Ok(Arc::clone(resident));
        }
        let resident = Arc::new(Resident::open(self)?);
        *open = Some(Arc::clone(&resident));
        Ok(resident)
    }

    /// Gives the space of the file back: a file of holes takes its name. Whoever has it open reads on
    /// in the one before, which is complete as far as it was known to be. Blocks the thread.
    fn empty(&self) -> io::Result<u64> {
        let mut open = self.open.lock();
        replace_with_hole(&self.path, self.file.length)?;
        *open = None;
        Ok(self.take_here())
    }

    /// Closes the file if nobody uses it.
    fn close_unused(&self) {
        let mut open = self.open.lock();
        if open
            .as_ref()
            .is_some_and(|file| Arc::strong_count(file) == 1)
        {
            *open = None;
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
    slot.map(|slot| slot.resident()).transpose()
}

/// Whether the file at `path` may have holes.
pub(crate) fn has_slot(path: &Path) -> bool {
    TABLE.is_used.load(Ordering::Acquire) && TABLE.slots.read().contains_key(path)
}

/// Forgets the files in a folder: it is removed, or all of their bytes are there.
pub(crate) fn forget_folder(folder: &Path) {
    if !TABLE.is_used.load(Ordering::Acquire) {
        return;
    }
    let mut slots = TABLE.slots.write();
    slots.retain(|path, slot| {
        let is_other = path.parent() != Some(folder);
        if !is_other {
            slot.take_here();
        }
        is_other
    });
}

/// Forgets a file that is about to be replaced by another one.
pub(crate) fn forget_file(path: &Path) {
    if TABLE.is_used.load(Ordering::Acquire)
        && let Some(slot) = TABLE.slots.write().remove(path)
    {
        slot.take_here();
    }
}

/// The slots of an engine.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    cache: Arc<Cache>,
    /// Below it are the slots of this engine.
    root: PathBuf,
}

impl Slots {
    /// For storages in `root`. Must be called in a runtime.
    pub(crate) fn new(root: PathBuf) -> Self {
        let cache = Cache {
            source: RwLock::default(),
            handle: Handle::current(),
            here: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        };
        let cache = Arc::new(cache);
        Self { cache, root }
    }

    pub(crate) fn set_source(&self, source: Arc<dyn BlockSource>) {
        *self.cache.source.write() = Some(source);
    }

    /// From now on, bytes of this file of the storage in `folder` may be absent.
    pub(crate) fn add(&self, folder: &Path, storage: StorageId, file: &TieredFile) {
        let path = folder.join(&file.name);
        let here = std::fs::metadata(&path).map_or(0, |about| about.blocks().saturating_mul(512));
        let slot = Slot {
            path: path.clone(),
            storage,
            file: file.clone(),
            cache: Arc::clone(&self.cache),
            open: Mutex::default(),
            here: AtomicU64::new(0),
            used: AtomicU64::new(0),
        };
        slot.add_here(here.min(file.length));
        let before = TABLE.slots.write().insert(path, Arc::new(slot));
        if let Some(before) = before {
            before.take_here();
        }
        TABLE.is_used.store(true, Ordering::Release);
    }

    fn own(&self) -> Vec<Arc<Slot>> {
        let slots = TABLE.slots.read();
        let own = slots
            .values()
            .filter(|slot| slot.path.starts_with(&self.root));
        own.cloned().collect()
    }

    /// Gives the space of all files in `folder` back; returns the bytes. Blocks the thread.
    ///
    /// # Errors
    /// When a file cannot be replaced.
    pub(crate) fn empty_folder(&self, folder: &Path) -> io::Result<u64> {
        let mut freed = 0_u64;
        for slot in self.own() {
            if slot.path.parent() == Some(folder) {
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
        slots.sort_by_key(|slot| slot.used.load(Ordering::Relaxed));
        let mut freed = 0_u64;
        for slot in &slots {
            slot.close_unused();
            let is_within = self.cache.here.load(Ordering::Relaxed) <= max;
            if !is_within && slot.here.load(Ordering::Relaxed) > 0 {
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
            .filter(|slot| slot.path.parent() == Some(folder));
        inside
            .map(|slot| slot.here.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add)
    }
}
