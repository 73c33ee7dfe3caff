//! The catalog: the content of all storage files in one database, so that a start with many
//! storages reads one database instead of ten thousand files. Only this module uses sled.
//!
//! The catalog is derived. An entry contains the bytes of a storage file and the stamp of the file
//! that they were read from; when the stamp differs, the file is read again. A catalog that cannot
//! be opened is removed and rebuilt.
//!
//! The I/O trace records the calls to the catalog; the reads, writes and syncs that sled does on
//! its own are not visible.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use io_trace::{Access, FileClass, FileTag, Operation, Tracer, errno};
use storage_format::{StorageId, paths::CATALOG_FOLDER, storage_file::StorageFile};

use crate::StorageError;

/// Bytes of memory for the cache of sled.
const CACHE_BYTES: u64 = 8 << 20;
const STAMP_BYTES: usize = 24;

/// Identifies a version of a file without reading it: length, modification time, inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp([u8; STAMP_BYTES]);

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let changed = metadata
            .mtime()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(metadata.mtime_nsec());
        let mut bytes = [0; STAMP_BYTES];
        bytes[..8].copy_from_slice(&metadata.len().to_le_bytes());
        bytes[8..16].copy_from_slice(&changed.to_le_bytes());
        bytes[16..].copy_from_slice(&metadata.ino().to_le_bytes());
        Self(bytes)
    }
}

/// The catalog of a data folder.
#[derive(Debug)]
pub(crate) struct Catalog {
    database: sled::Db,
    tag: FileTag,
}

impl Catalog {
    /// Opens the catalog in `folder`; rebuilds it when it is damaged.
    pub(crate) fn open(folder: &Path, tracer: &Arc<Tracer>) -> Result<Self, StorageError> {
        let tag = FileTag::new(tracer, CATALOG_FOLDER, FileClass::Catalog, None);
        let started = tag.begin();
        let open = || {
            sled::Config::new()
                .path(folder)
                .cache_capacity(CACHE_BYTES)
                .open()
        };
        // Sled would wait for the writer of a pipe, or read a device without an end.
        let opened = match stranger(folder).map_err(StorageError::io("list", folder))? {
            Some(path) => Err(sled::Error::Unsupported(format!("{path} is not a file"))),
            None => open(),
        };
        let database = match opened {
            Ok(database) => database,
            Err(error) => {
                tracing::warn!(%error, "the catalog is damaged; rebuilding it");
                std::fs::remove_dir_all(folder).map_err(StorageError::io("remove", folder))?;
                open().map_err(|error| failed(folder, error))?
            }
        };
        tag.end(started, Operation::Open, Access::default);
        Ok(Self { database, tag })
    }

    /// The storage file at `path`: from the catalog if its entry is of this version of the file.
    pub(crate) fn storage_file(
        &self,
        id: StorageId,
        path: &Path,
    ) -> Result<StorageFile, StorageError> {
        let metadata =
            std::fs::metadata(path).map_err(StorageError::io("get the attributes of", path))?;
        let stamp = Stamp::of(&metadata);
        if let Some(file) = self.entry(id, stamp) {
            return Ok(file);
        }
        let max = u64::from(storage_format::limits::ENVELOPE_BODY_BYTES_MAX);
        let bytes = crate::read::read_small(path, max).map_err(StorageError::io("read", path))?;
        let file = StorageFile::decode(&bytes).map_err(StorageError::damaged(path))?;
        file.check_id(id).map_err(StorageError::damaged(path))?;
        self.put(id, stamp, &bytes);
        Ok(file)
    }

    fn entry(&self, id: StorageId, stamp: Stamp) -> Option<StorageFile> {
        let started = self.tag.begin();
        let value = self.database.get(id.as_bytes());
        let length = match &value {
            Ok(Some(value)) => value.len() as u64,
            _ => 0,
        };
        self.tag.end(started, Operation::Read, || Access {
            asked: length,
            done: length,
            errno: failed_errno(&value),
            ..Access::default()
        });
        let value = value.ok()??;
        let (found, bytes) = value.split_at_checked(STAMP_BYTES)?;
        let file = (found == stamp.0).then(|| StorageFile::decode(bytes).ok())??;
        // A damaged catalog may return the entry of another storage.
        (file.id == id).then_some(file)
    }

    /// Stores the storage file that was just published at `path`.
    pub(crate) fn remember(&self, id: StorageId, path: &PathBuf, bytes: &[u8]) {
        match std::fs::metadata(path) {
            Ok(metadata) => self.put(id, Stamp::of(&metadata), bytes),
            Err(error) => {
                tracing::warn!(
                    %error, path = %path.display(),
                    "a storage file is not in the catalog; the next start reads the file"
                )
            }
        }
    }

    fn put(&self, id: StorageId, stamp: Stamp, bytes: &[u8]) {
        let value = [&stamp.0[..], bytes].concat();
        let length = value.len() as u64;
        let written = self.write(length, || self.database.insert(id.as_bytes(), value));
        crate::fault_point!("catalog.stored");
        if let Err(error) = written {
            // The catalog is derived: the next start reads the file.
            tracing::warn!(%error, "an entry of the catalog cannot be written");
        }
    }

    /// Changes an entry to one of `length` bytes.
    fn write<T>(&self, length: u64, work: impl FnOnce() -> sled::Result<T>) -> sled::Result<T> {
        let started = self.tag.begin();
        let written = work();
        self.tag.end(started, Operation::Write, || Access {
            asked: length,
            done: if written.is_ok() { length } else { 0 },
            errno: failed_errno(&written),
            ..Access::default()
        });
        written
    }

    /// Removes the entry of a storage that was deleted.
    pub(crate) fn forget(&self, id: StorageId) {
        if let Err(error) = self.write(0, || self.database.remove(id.as_bytes())) {
            tracing::warn!(%error, "an entry of the catalog cannot be removed");
        }
        crate::fault_point!("catalog.removed");
    }

    /// Removes every storage for which `is_there` is false, and returns their ids and names. Of a
    /// deletion that was interrupted, an entry may be left.
    pub(crate) fn keep_only(
        &self,
        is_there: impl Fn(StorageId) -> bool,
    ) -> Vec<(StorageId, String)> {
        let entries = self.database.iter().flatten();
        let gone = entries.filter_map(|(key, value)| {
            let id = StorageId::from_bytes(<[u8; 16]>::try_from(&key[..]).ok()?);
            if is_there(id) {
                return None;
            }
            let file = value.get(STAMP_BYTES..).map(StorageFile::decode);
            let name = file.and_then(Result::ok).map(|file| file.name);
            Some((id, name.unwrap_or_default()))
        });
        let gone: Vec<_> = gone.collect();
        gone.iter().for_each(|(id, _)| self.forget(*id));
        gone
    }

    /// Writes everything to disk.
    pub(crate) fn flush(&self) {
        let started = self.tag.begin();
        let flushed = self.database.flush();
        self.tag.end(started, Operation::Sync, || Access {
            errno: failed_errno(&flushed),
            ..Access::default()
        });
        if let Err(error) = flushed {
            tracing::warn!(%error, "the catalog cannot be flushed to disk");
        }
    }
}

/// Something in the folder that is neither a file nor a folder.
fn stranger(folder: &Path) -> std::io::Result<Option<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let kind = std::fs::metadata(&path).map(|metadata| metadata.file_type());
        if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
            return Ok(Some(path.display().to_string()));
        }
    }
    Ok(None)
}

/// The error number in an error of sled.
fn failed_errno<T>(result: &sled::Result<T>) -> u16 {
    match result {
        Ok(_) => 0,
        Err(sled::Error::Io(error)) => errno::<()>(&Err(error.kind().into())),
        Err(_) => errno::<()>(&Err(std::io::ErrorKind::Other.into())),
    }
}

fn failed(folder: &Path, error: sled::Error) -> StorageError {
    StorageError::Io {
        operation: "open",
        path: folder.to_owned(),
        source: std::io::Error::other(error),
    }
}
