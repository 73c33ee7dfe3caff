//! Recovery of arranged files: those of a finalized storage, and those that a finalization left
//! when it was interrupted.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

use storage_format::{DataFileId, StorageId};

use super::{DataFile, Listing, Recovered, Scan};
use crate::{
    StorageError,
    io_thread::Tail,
    log_scan::{FoundSegment, LogScanner},
    scan::ScanError,
    tree::IndexPart,
};

impl Listing {
    /// Only the files that the storage file of a finalized storage names.
    pub(super) fn retain_listed(&mut self, names: &[String]) {
        let names: HashSet<&OsStr> = names.iter().map(OsStr::new).collect();
        let is_listed = |path: &Path| path.file_name().is_some_and(|name| names.contains(name));
        self.parts.retain(|path| is_listed(path));
        self.data.retain(|_, file| is_listed(&file.path));
        // What is not listed is removed when the storage is found.
        self.unpublished.clear();
    }

    /// Takes the arranged files, and the index parts that describe them, of a finalization that
    /// was interrupted.
    ///
    /// # Errors
    /// When a part cannot be read, but may be intact.
    pub(super) fn take_arranged(
        &mut self,
        storage: StorageId,
    ) -> Result<Vec<PathBuf>, StorageError> {
        let ArrangedFiles { data, parts } = self.arranged(storage)?;
        let is_left = |path: &PathBuf| parts.iter().any(|part| part.path == *path);
        self.parts.retain(|path| !is_left(path));
        let parts = parts.iter().map(|part| part.path.clone());
        let data = data.into_values().map(|(path, _)| path);
        Ok(data.chain(parts).collect())
    }

    fn arranged(&mut self, storage: StorageId) -> Result<ArrangedFiles, StorageError> {
        // One of another storage is not what a finalization left, but damage of the log.
        let is_own = |id: DataFileId, file: &DataFile| file.named == Some((storage, id));
        let is_left = |id: &DataFileId, file: &mut DataFile| file.is_arranged && is_own(*id, file);
        let data = self.data.extract_if(.., is_left);
        let data: BTreeMap<_, _> = data
            .map(|(id, file)| (id, (file.path, file.length)))
            .collect();
        let mut parts = Vec::new();
        for path in self.parts.iter().filter(|_| !data.is_empty()) {
            let part = match IndexPart::open(path, storage) {
                Ok(part) => part,
                // A damaged part is handled as any other.
                Err(error) if error.is_loss() => continue,
                Err(error) => return Err(error),
            };
            let mut files = part.footer.files.iter();
            if files.any(|file| data.contains_key(&file.file)) {
                parts.push(Arc::new(part));
            }
        }
        parts.sort_by_key(|part| part.header.ordinal);
        Ok(ArrangedFiles { data, parts })
    }
}

/// The files of a finalization that was interrupted.
#[derive(Debug)]
pub(crate) struct ArrangedFiles {
    /// Path and length of each data file.
    pub(crate) data: BTreeMap<DataFileId, (PathBuf, u64)>,
    /// The index parts that describe them, by ordinal.
    pub(crate) parts: Vec<Arc<IndexPart>>,
}

/// The arranged files in the folder of a storage that is not finalized.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn arranged_files(
    folder: &Path,
    storage: StorageId,
) -> Result<ArrangedFiles, StorageError> {
    Listing::of(folder)?.arranged(storage)
}

impl Recovered {
    /// Rebuilds the tree of a finalized storage from its arranged files alone.
    pub(super) fn add_arranged(
        &mut self,
        storage: StorageId,
        listing: &Listing,
        scan: &Scan,
    ) -> Result<(), StorageError> {
        let files: Vec<_> = listing
            .data
            .iter()
            .filter(|(_, file)| file.is_arranged)
            .collect();
        let found = scan.all(&files, |(id, file)| {
            let fault = |error| StorageError::io("read", &file.path)(error);
            let header = LogScanner::header(&file.path, storage, **id).map_err(fault)?;
            let header = header.map_err(StorageError::damaged(&file.path))?;
            let scanner = LogScanner::of_file(&file.path, &header, u64::MAX);
            let scanner = scanner.map_err(fault)?.strict(scan.is_strict);
            let mut scanner = scanner.watched(&scan.progress);
            let mut segments: Vec<FoundSegment> = Vec::new();
            loop {
                match scanner.next_segment() {
                    Ok(Some(segment)) => segments.push(segment),
                    Ok(None) => return Ok((segments, scanner.tail())),
                    Err(ScanError::Frame(error)) => {
                        return Err(StorageError::damaged(&file.path)(error));
                    }
                    Err(ScanError::Io(error)) => return Err(fault(error)),
                }
            }
        });
        for ((id, file), found) in files.into_iter().zip(found) {
            let (segments, tail): (Vec<FoundSegment>, Tail) = found?;
            for segment in segments {
                let added = self.add_segment(segment);
                added.map_err(StorageError::damaged(&file.path))?;
            }
            self.tree.set_file(*id, tail);
        }
        Ok(())
    }
}
