//! The derived files next to the data files of storages.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use io_trace::Cause;
use parking_lot::{Mutex, MutexGuard};
use storage_format::{
    FormatError, FormatErrorKind, StorageId,
    paths::{FileName, FileRole},
};

use super::{FileInfo, blocking::Blocking, registry::Registry};
use crate::{
    StorageError,
    io::remove_file,
    io_thread::IoThread,
    read::{checksum_of, read_whole},
    space::Space,
    storage::Storage,
    writer::Services,
};

/// Compares the bytes of a derived file with the checksums in it; the error is the offset of the
/// damage. This crate does not know what is in derived files.
pub type DerivedCheck = fn(&FileName, &[u8]) -> Result<(), u64>;

/// Derived files of storages: publishing and removing them.
#[derive(Debug, Clone)]
pub struct DerivedFiles {
    registry: Arc<Registry>,
    io_thread: IoThread,
    space: Arc<Space>,
    blocking: Blocking,
    check: Arc<OnceLock<DerivedCheck>>,
    /// Held while a whole file is in memory.
    turns: Arc<Mutex<()>>,
}

impl DerivedFiles {
    pub(super) fn new(registry: &Arc<Registry>, services: &Services, blocking: &Blocking) -> Self {
        Self {
            registry: Arc::clone(registry),
            io_thread: services.io_thread.clone(),
            space: Arc::clone(&services.space),
            blocking: blocking.clone(),
            check: Arc::default(),
            turns: Arc::default(),
        }
    }

    /// Waits until no other derived file is in memory to be checked; blocks the thread.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turns.lock()
    }

    /// Lets derived files be checked before they are sent. The first call counts.
    pub fn check_with(&self, check: DerivedCheck) {
        let _ = self.check.set(check);
    }

    /// Compares the bytes of a derived file with the checksums in it.
    pub(super) fn check(&self, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (Some(check), Ok(name)) = (self.check.get(), name.parse()) else {
            return Ok(());
        };
        check(&name, bytes).map_err(|offset| {
            let kind = FormatErrorKind::Field { name: "checksum" };
            let what = "derived file";
            StorageError::damaged(path)(FormatError { what, offset, kind })
        })
    }

    /// Publishes a derived file next to a data file; replaces an older one.
    ///
    /// # Errors
    /// When there is no such storage, the file is not a derived one, the disk is low, or it cannot
    /// be written.
    pub async fn publish(
        &self,
        id: StorageId,
        name: FileName,
        bytes: Bytes,
    ) -> Result<(), StorageError> {
        let storage = self.registry.find(id)?;
        if !is_derived(name.role()) {
            return Err(not_derived(&name));
        }
        self.space.check()?;
        let (folder, path) = (storage.folder.clone(), storage.path(&name));
        let published = self
            .io_thread
            .publish(folder, name.to_string(), bytes)
            .await;
        published.map_err(StorageError::io("write", path))?;
        storage.checked.forget_damage(&name.to_string());
        Ok(())
    }

    /// Removes a derived file if it exists.
    ///
    /// # Errors
    /// When there is no such storage, the file is not a derived one, or it cannot be removed.
    pub async fn remove(&self, id: StorageId, name: FileName) -> Result<(), StorageError> {
        let storage = self.registry.find(id)?;
        if !is_derived(name.role()) {
            return Err(not_derived(&name));
        }
        let path = storage.path(&name);
        self.blocking
            .run(Cause::Index, move || match remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(StorageError::io("remove", path)(error))
                }
                _ => Ok(()),
            })
            .await
    }

    /// Length and CRC32C of a derived file; `None` if it does not exist or is not derived. Derived
    /// files are not in the storage file: they may appear and disappear.
    pub(super) async fn find(
        &self,
        storage: &Arc<Storage>,
        name: FileName,
    ) -> Result<Option<(u64, u32)>, StorageError> {
        if !is_derived(name.role()) {
            return Ok(None);
        }
        let (storage, this) = (Arc::clone(storage), self.clone());
        let find = move || derived_file(&storage, &name, Some(&this));
        let found = self.blocking.run(Cause::Range, find).await?;
        Ok(found.map(|found| (found.length, found.checksum.unwrap_or_default())))
    }
}

/// The existing derived files of a finalized storage; blocks the thread.
pub(super) fn derived_files(storage: &Storage) -> Result<Vec<FileInfo>, StorageError> {
    let mut derived = Vec::new();
    for name in derived_names(&storage.folder)? {
        derived.extend(derived_file(storage, &name, None)?);
    }
    Ok(derived)
}

/// The derived files in the folder of a storage, sorted; blocks the thread.
pub(super) fn derived_names(folder: &Path) -> Result<Vec<FileName>, StorageError> {
    let failed = |error| StorageError::io("list", folder)(error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy().parse::<FileName>();
        found.extend(name.ok().filter(|name| is_derived(name.role())));
    }
    found.sort();
    Ok(found)
}

/// A derived file as it is now, checked by `checker`; `None` if it does not exist. Blocks the
/// thread.
fn derived_file(
    storage: &Storage,
    name: &FileName,
    checker: Option<&DerivedFiles>,
) -> Result<Option<FileInfo>, StorageError> {
    let path = storage.path(name);
    let _turn = checker.map(DerivedFiles::turn);
    let summed = match checker {
        None => checksum_of(&path),
        Some(checker) => match read_whole(&path) {
            Ok(bytes) => {
                checker.check(&path, &bytes)?;
                Ok((bytes.len() as u64, storage_format::checksum::crc32c(&bytes)))
            }
            Err(error) => Err(error),
        },
    };
    let (length, checksum) = match summed {
        Ok(summed) => summed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::io("read", path)(error)),
    };
    Ok(Some(FileInfo {
        name: name.to_string(),
        role: name.role(),
        length,
        checksum: Some(checksum),
    }))
}

fn not_derived(name: &FileName) -> StorageError {
    StorageError::Invalid {
        what: "derived file",
        problem: format!("{name} is not one"),
    }
}

/// Whether files of this role can be rebuilt.
fn is_derived(role: FileRole) -> bool {
    matches!(role, FileRole::ChunkIndex | FileRole::Provenance)
}
