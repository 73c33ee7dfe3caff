//! Blocks of files of finalized storages, compared with their checksums before their bytes are
//! passed on.
//!
//! A comparison reads 4 MiB, and a reader often wants some kilobytes of them. So a block that
//! matched is remembered, until the file changes or the server ends (decision 0078). Both the
//! comparison and the reader after it get the bytes from the page cache.

mod file;
mod known_damage;
mod sums;

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;
use storage_format::storage_file::StorageFile;

use self::file::Blocks;
pub use self::file::CheckedFile;
pub(crate) use self::{known_damage::KnownDamage, sums::Expected};
use crate::{Counters, damage::Damage, read::ReadFile};

/// Files of a storage whose blocks are remembered; beyond it, all are forgotten.
const FILES_MAX: usize = 64 << 10;

/// What is known since the server started about the bytes of the files of a storage.
#[derive(Debug, Default)]
pub(crate) struct CheckedFiles {
    files: Mutex<HashMap<String, Arc<Blocks>>>,
    pub(crate) damage: Arc<KnownDamage>,
    /// What the scrub found when it read a file last.
    pub(crate) scrubbed: KnownDamage,
}

impl CheckedFiles {
    /// Whether any damage is known.
    pub(crate) fn are_damaged(&self) -> bool {
        self.damage.is_any() || self.scrubbed.is_any()
    }

    /// Up to `max` places of all known damage, and the number of all places.
    pub(crate) fn list_damage(&self, max: usize) -> (Vec<Damage>, u64) {
        let (mut found, own) = self.damage.list(max);
        let (scrubbed, others) = self.scrubbed.list(max);
        // A place that both found is one place.
        let count = found.len();
        found.extend(scrubbed);
        let known: BTreeSet<_> = (found.iter().take(count))
            .map(|damage| (damage.file.clone(), damage.offset))
            .collect();
        let mut at: usize = 0;
        let before = found.len();
        found.retain(|damage| {
            at = at.saturating_add(1);
            at <= count || !known.contains(&(damage.file.clone(), damage.offset))
        });
        let twice = before.saturating_sub(found.len()) as u64;
        found.truncate(max);
        (found, own.saturating_add(others).saturating_sub(twice))
    }

    /// Lets the blocks of a file be compared again before they are used.
    pub(crate) fn forget(&self, name: &str) {
        if let Some(blocks) = self.files.lock().get(name) {
            blocks.forget();
        }
    }

    /// An open file of the storage in `folder`, whose bytes are compared with what is expected
    /// before they are used; blocks the thread when it is opened for the first time.
    pub(crate) fn file(
        &self,
        (folder, name): (&Path, &str),
        file: &ReadFile,
        (own, expected): (&StorageFile, Expected),
        counters: &Arc<Counters>,
    ) -> CheckedFile {
        let known = self.files.lock().get(name).cloned();
        let fits = |blocks: &Arc<Blocks>| blocks.fits(expected, own);
        let blocks = known.filter(fits).unwrap_or_else(|| {
            let place = (own.id, folder.join(name));
            let sums = expected.sums(folder, own, name);
            let blocks = Blocks::new(place, expected, sums, &self.damage, counters);
            let blocks = Arc::new(blocks);
            let mut files = self.files.lock();
            if files.len() >= FILES_MAX {
                files.clear();
            }
            files.insert(name.to_owned(), Arc::clone(&blocks));
            blocks
        });
        CheckedFile::new(file, blocks)
    }
}
