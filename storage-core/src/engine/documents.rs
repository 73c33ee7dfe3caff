//! Small named files in the data folder that other crates own.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use io_trace::Cause;
use storage_format::{limits::ENVELOPE_BODY_BYTES_MAX, paths::UNPUBLISHED_ENDING};

use super::{blocking::Blocking, folder_lock::lock_folder};
use crate::{
    StorageError,
    clock::now_ns,
    io::{StagedFile, remove_file, rename, sync_folder},
    io_thread::IoThread,
    read::read_small,
    writer::Services,
};

/// Replaces a document of a data folder that no server uses, durably; blocks. `change` gets the
/// document as it is, and returns the next one with what the caller wants to know.
///
/// # Errors
/// When a server uses the folder, a file cannot be read or written, or `change` fails.
pub fn change_document<T, E: From<StorageError>>(
    folder: &Path,
    name: &str,
    change: impl FnOnce(Option<Vec<u8>>) -> Result<(Bytes, T), E>,
) -> Result<T, E> {
    let _lock = lock_folder(folder)?;
    let path = folder.join(name);
    let document = read_document(&path)?;
    let (content, result) = change(document)?;
    let staged = folder.join(format!("{name}{UNPUBLISHED_ENDING}"));
    match remove_file(&staged) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(StorageError::io("remove", staged)(error).into());
        }
        _ => {}
    }
    let mut file = StagedFile::create(staged.clone())?;
    file.write(&content)?;
    file.finish()?;
    rename(&staged, &path).map_err(StorageError::io("rename", &staged))?;
    sync_folder(folder)?;
    Ok(result)
}

fn read_document(path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
    match read_small(path, u64::from(ENVELOPE_BODY_BYTES_MAX)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::io("read", path)(error)),
    }
}

/// Named documents in the data folder: each is replaced completely or not at all.
#[derive(Debug, Clone)]
pub struct Documents {
    folder: Arc<PathBuf>,
    io_thread: IoThread,
    blocking: Blocking,
}

impl Documents {
    pub(super) fn new(services: &Services, blocking: Blocking) -> Self {
        Self {
            folder: Arc::new(services.config.data_dir.clone()),
            io_thread: services.io_thread.clone(),
            blocking,
        }
    }

    /// The document with this name; `None` when it was never written.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn read(&self, name: &'static str) -> Result<Option<Vec<u8>>, StorageError> {
        let path = self.folder.join(name);
        self.blocking
            .run(Cause::Manage, move || read_document(&path))
            .await
    }

    /// Moves a document that cannot be decoded out of the way, and returns where it is now.
    ///
    /// # Errors
    /// When the file cannot be renamed.
    pub async fn set_aside(&self, name: &'static str) -> Result<PathBuf, StorageError> {
        let from = self.folder.join(name);
        let to = self.folder.join(format!("{name}.damaged-{}", now_ns()));
        let aside = to.clone();
        self.blocking
            .run(Cause::Manage, move || {
                rename(&from, &to).map_err(StorageError::io("rename", from))
            })
            .await?;
        Ok(aside)
    }

    /// Replaces a document, durably.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn write(&self, name: &'static str, content: Bytes) -> Result<(), StorageError> {
        let folder = PathBuf::clone(&self.folder);
        let path = folder.join(name);
        let published = self.io_thread.publish(folder, name.to_owned(), content);
        published.await.map_err(StorageError::io("write", path))
    }
}
