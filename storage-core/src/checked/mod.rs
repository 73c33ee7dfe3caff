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
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use storage_format::{FormatError, FormatErrorKind, StorageId, storage_file::StorageFile};

pub use self::file::CheckedFile;
use self::{
    file::{Blocks, Found},
    sums::Sums,
};
pub(crate) use self::{known_damage::KnownDamage, sums::Expected};
use crate::{Counters, StorageError, damage::Damage, read::ReadFile};

/// Files of a storage whose blocks are remembered; beyond it, all are forgotten.
const FILES_MAX: usize = 64 << 10;

/// An open file with known checksums of its pieces, beside the files of a storage: damage of it is
/// none of the storage.
pub(crate) fn file_beside(
    (storage, path): (StorageId, PathBuf),
    file: &ReadFile,
    (expected, pieces): (Expected, Vec<u32>),
    counters: &Arc<Counters>,
) -> CheckedFile {
    let (generation, damage) = (Arc::default(), Arc::default());
    let shared = (&generation, &damage, counters);
    let mut blocks = Blocks::new((storage, path), expected, Sums::Pieces(pieces), shared);
    blocks.is_derived = true;
    CheckedFile::new(file, Arc::new(blocks))
}

/// What is known since the server started about the bytes of the files of a storage.
#[derive(Debug, Default)]
pub(crate) struct CheckedFiles {
    files: Mutex<HashMap<String, Arc<Blocks>>>,
    /// Blocks that were compared in an earlier one are compared again.
    generation: Arc<AtomicU64>,
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
        let mut found = self.damage.list(max);
        let place = |damage: &Damage| (damage.file.clone(), damage.offset);
        let known: BTreeSet<_> = found.iter().map(place).collect();
        let scrubbed = self.scrubbed.list(max).into_iter();
        found.extend(scrubbed.filter(|damage| !known.contains(&place(damage))));
        found.truncate(max);
        (found, self.damage.count_with(&self.scrubbed))
    }

    /// Whether damage of a file is known.
    pub(crate) fn is_damaged(&self, name: &str) -> bool {
        self.damage.is_of(name) || self.scrubbed.is_of(name)
    }

    /// Forgets the damage of a file that is intact again, or was replaced.
    pub(crate) fn forget_damage(&self, name: &str) {
        self.damage.forget(name);
        self.scrubbed.forget(name);
    }

    /// Forgets the damage of files that are no part of the storage any more.
    pub(crate) fn retain_damage(&self, is_there: impl Fn(&str) -> bool) {
        self.damage.retain(&is_there);
        self.scrubbed.retain(&is_there);
    }

    /// Remembers that a file that the storage lists is gone; the error of whoever needs it.
    pub(crate) fn note_gone(
        &self,
        storage: StorageId,
        path: &Path,
        length: u64,
        counters: &Counters,
    ) -> StorageError {
        let error = StorageError::damaged(path)(FormatError {
            what: "file",
            offset: 0,
            kind: FormatErrorKind::Truncated {
                needed: length,
                available: 0,
            },
        });
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let found = Found {
            storage,
            name: &name,
            is_derived: false,
            range: &(0..length),
        };
        found.note(&error, &self.damage, counters);
        error
    }

    /// Lets all blocks be compared again before they are used, whoever has their files open.
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
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
            let shared = (&self.generation, &self.damage, counters);
            let blocks = Blocks::new(place, expected, sums, shared);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use storage_format::{
        checksum::crc32c,
        paths::FileRole,
        storage_file::{FileEntry, StorageState, Totals},
    };

    use super::*;

    #[test]
    fn blocks_are_forgotten_whoever_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = vec![7; 5000];
        std::fs::write(folder.path().join("x"), &bytes).unwrap();
        let expected = Expected {
            length: bytes.len() as u64,
            checksum: crc32c(&bytes),
        };
        let own = StorageFile {
            id: StorageId::new(1, [1; 10]),
            name: String::new(),
            description: String::new(),
            state: StorageState::Finalized,
            labels: BTreeMap::new(),
            created: 0,
            opened: None,
            finalized: None,
            server_version: String::new(),
            idempotency_key: None,
            failure: None,
            totals: Totals::default(),
            files: vec![FileEntry {
                name: "x".into(),
                role: FileRole::Data,
                length: expected.length,
                checksum: expected.checksum,
            }],
        };
        let checked = CheckedFiles::default();
        let counters = Arc::<Counters>::default();
        let open = || {
            let file = ReadFile::open(&folder.path().join("x")).unwrap();
            checked.file((folder.path(), "x"), &file, (&own, expected), &counters)
        };
        let first = open();
        // As when the checksums of pieces become known.
        checked.files.lock().clear();
        let second = open();
        let whole = || std::iter::once(0..expected.length);
        for file in [&first, &second] {
            assert!(!file.are_checked(whole()).unwrap());
            file.ensure_blocking(&(0..expected.length)).unwrap();
            assert!(file.are_checked(whole()).unwrap());
        }
        checked.forget();
        assert!(!first.are_checked(whole()).unwrap());
        assert!(!second.are_checked(whole()).unwrap());
    }
}
