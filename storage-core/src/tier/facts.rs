//! What is known of a file that may have holes, whoever has it open.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use storage_format::{StorageId, paths::FileName, tier_file::TieredFile};
use tokio::{runtime::Handle, sync::Semaphore};

use super::{BlockSource, lost::Lost};

/// A file that may have holes.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) path: PathBuf,
    pub(super) storage: StorageId,
    pub(super) file: TieredFile,
    pub(super) cache: Arc<Cache>,
    /// Bytes of it that are here.
    pub(super) here: AtomicU64,
    /// When it was read last, as a number of reads.
    pub(super) used: AtomicU64,
}

/// Where absent bytes come from.
#[derive(Debug, Clone)]
pub(super) struct Supply {
    pub(super) source: Arc<dyn BlockSource>,
    /// A permit for each granule that readers in order may have in memory, all of them together.
    pub(super) memory: Arc<Semaphore>,
}

/// What all slots of an engine share.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) supply: RwLock<Option<Supply>>,
    pub(super) handle: Handle,
    pub(super) here: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) lost: Lost,
}

impl Facts {
    /// Counts bytes that were written to the file.
    pub(super) fn add_here(&self, bytes: u64) {
        self.here.fetch_add(bytes, Ordering::Relaxed);
        self.cache.here.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn note_use(&self) {
        let now = self.cache.reads.fetch_add(1, Ordering::Relaxed);
        self.used.store(now, Ordering::Relaxed);
    }

    pub(super) fn take_here(&self) -> u64 {
        let bytes = self.here.swap(0, Ordering::Relaxed);
        self.cache.here.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }

    /// Where the checksums of its granules are.
    pub(super) fn sums_path(&self) -> PathBuf {
        let name = FileName::TierSums(self.storage).to_string();
        self.path.with_file_name(name)
    }
}
