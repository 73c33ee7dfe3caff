//! The derived files next to the data files of storages.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use io_trace::Cause;
use storage_format::{
    StorageId,
    paths::{FileName, FileRole},
};

use super::{FileInfo, blocking::Blocking, registry::Registry};
use crate::{
    StorageError, io::remove_file, io_thread::IoThread, read::read_whole, space::Space,
    storage::Storage, writer::Services,
};

/// Derived files of storages: publishing and removing them.
#[derive(Debug, Clone)]
pub struct DerivedFiles {
    registry: Arc<Registry>,
    io_thread: IoThread,
    space: Arc<Space>,
    blocking: Blocking,
}

impl DerivedFiles {
    pub(super) fn new(registry: &Arc<Registry>, services: &Services, blocking: &Blocking) -> Self {
        Self {
            registry: Arc::clone(registry),
            io_thread: services.io_thread.clone(),
            space: Arc::clone(&services.space),
            blocking: blocking.clone(),
        }
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
        published.map_err(StorageError::io("write", path))
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
        let storage = Arc::clone(storage);
        let find = move || derived_file(&storage, &name);
        let found = self.blocking.run(Cause::Range, find).await?;
        Ok(found.map(|found| (found.length, found.checksum.unwrap_or_default())))
    }
}

/// The existing derived files of a finalized storage; blocks the thread.
pub(super) fn derived_files(storage: &Storage) -> Result<Vec<FileInfo>, StorageError> {
    let mut derived = Vec::new();
    for name in derived_names(&storage.folder)? {
        derived.extend(derived_file(storage, &name)?);
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

/// A derived file as it is now; `None` if it does not exist. Blocks the thread.
fn derived_file(storage: &Storage, name: &FileName) -> Result<Option<FileInfo>, StorageError> {
    let path = storage.path(name);
    match read_whole(&path) {
        Ok(bytes) => Ok(Some(FileInfo {
            name: name.to_string(),
            role: name.role(),
            length: bytes.len() as u64,
            checksum: Some(storage_format::checksum::crc32c(&bytes)),
        })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::io("read", path)(error)),
    }
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
