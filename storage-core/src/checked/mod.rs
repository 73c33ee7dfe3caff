//! Blocks of files of finalized storages, compared with their checksums before their bytes are
//! passed on.
//!
//! A comparison reads 4 MiB, and a reader often wants some kilobytes of them. So a block that
//! matched is remembered, until the file changes or the server ends (decision 0078). Both the
//! comparison and the reader after it get the bytes from the page cache.

mod file;
mod known_damage;
mod sums;

use std::{collections::HashMap, path::Path, sync::Arc};

use parking_lot::Mutex;
use storage_format::storage_file::StorageFile;

use self::file::Blocks;
pub use self::file::CheckedFile;
pub(crate) use self::{known_damage::KnownDamage, sums::Expected};
use crate::{Counters, read::ReadFile};

/// Files of a storage whose blocks are remembered; beyond it, all are forgotten.
const FILES_MAX: usize = 64 << 10;

/// What is known since the server started about the bytes of the files of a storage.
#[derive(Debug, Default)]
pub(crate) struct CheckedFiles {
    files: Mutex<HashMap<String, Arc<Blocks>>>,
    pub(crate) damage: Arc<KnownDamage>,
}

impl CheckedFiles {
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
