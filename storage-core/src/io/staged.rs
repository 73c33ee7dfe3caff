//! Files of an import: written to a staging folder that is not served until all of them
//! are complete and synced, and then published by one rename of the folder.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use io_trace::{Access, FileTag, Operation, errno};
use storage_format::checksum_file::PieceSums;

#[cfg(test)]
use super::faulty;
use crate::{
    StorageError,
    traced::{operation, tag_in_scope},
};

/// A file of an import that is being written.
pub(crate) struct StagedFile {
    path: PathBuf,
    file: File,
    /// Set while I/O is traced.
    tag: Option<FileTag>,
    sums: PieceSums,
}

impl StagedFile {
    /// Creates a file; there must be none with this name.
    pub(crate) fn create(path: PathBuf) -> Result<Self, StorageError> {
        let file = operation(Operation::Open, &path, || {
            #[cfg(test)]
            let _disk = faulty::create(&path)?;
            File::create_new(&path)
        });
        let file = file.map_err(StorageError::io("create", &path))?;
        crate::fault_point!("staged.created");
        Ok(Self {
            tag: tag_in_scope(&path),
            path,
            file,
            sums: PieceSums::default(),
        })
    }

    /// Bytes written so far.
    pub(crate) fn length(&self) -> u64 {
        self.sums.length()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let begun = self.tag.as_ref().map(|tag| (tag, tag.begin()));
        let written = self.write_all(bytes);
        if let Some((tag, started)) = begun {
            tag.end(started, Operation::Write, || Access {
                offset: Some(self.sums.length()),
                asked: bytes.len() as u64,
                done: if written.is_ok() {
                    bytes.len() as u64
                } else {
                    0
                },
                errno: errno(&written),
                ..Access::default()
            });
        }
        written.map_err(StorageError::io("write", &self.path))?;
        self.sums.extend(bytes);
        Ok(())
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        let Some(_disk) = faulty::write(&self.path, self.sums.length(), bytes)? else {
            return Ok(());
        };
        (&self.file).write_all(bytes)
    }

    /// Makes the bytes durable; returns length and CRC32C.
    pub(crate) fn finish(mut self) -> Result<(u64, u32), StorageError> {
        self.sync()
    }

    /// The checksums of the bytes.
    pub(crate) fn into_sums(self) -> PieceSums {
        self.sums
    }

    /// Makes the bytes so far durable; returns their number and CRC32C.
    pub(crate) fn sync(&mut self) -> Result<(u64, u32), StorageError> {
        crate::fault_point!("staged.written");
        let synced = operation(Operation::Sync, &self.path, || {
            if crate::sabotaged!("skip-staged-sync") {
                return Ok(());
            }
            #[cfg(test)]
            let _disk = faulty::sync(&self.path)?;
            self.file.sync_all()
        });
        synced.map_err(StorageError::io("sync", &self.path))?;
        crate::fault_point!("staged.synced");
        Ok((self.sums.length(), self.sums.checksum()))
    }
}

/// Cuts a file durably; blocks.
pub(crate) fn truncate(path: &Path, length: u64) -> Result<(), StorageError> {
    let cut = operation(Operation::SetLength, path, || {
        #[cfg(test)]
        let _disk = faulty::set_length(path, length)?;
        let file = File::options().write(true).open(path)?;
        file.set_len(length)?;
        file.sync_all()
    });
    cut.map_err(StorageError::io("cut", path))
}

/// Makes the names in a folder durable; blocks.
pub(crate) fn sync_folder(path: &Path) -> Result<(), StorageError> {
    let synced = operation(Operation::SyncFolder, path, || {
        if crate::sabotaged!("skip-staged-folder-sync") {
            return Ok(());
        }
        #[cfg(test)]
        let _disk = faulty::sync_folder(path)?;
        File::open(path)?.sync_all()
    });
    synced.map_err(StorageError::io("sync", path))
}
