//! Recovery of a log that was repaired: what belongs to it since.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use storage_format::{
    DataFileId, StorageId,
    limits::ENVELOPE_BODY_BYTES_MAX,
    log::{BatchHeader, FILE_HEADER_BYTES, LogFileHeader},
    paths::FileName,
    repair_file::{Repair, RepairFile},
};

use super::{Listing, parts::is_void};
use crate::{
    StorageError, errno::is_transient, log_scan::LogScanner, read::read_small, tree::IndexPart,
};

/// The repair file in `folder`; `None` if there is none, as in a storage that was never repaired.
///
/// # Errors
/// When it is damaged or cannot be read: without it nobody knows where the log was cut.
pub(crate) fn read_repairs(
    folder: &Path,
    storage: StorageId,
) -> Result<Option<RepairFile>, StorageError> {
    let path = folder.join(FileName::Repairs(storage).to_string());
    let bytes = match read_small(&path, u64::from(ENVELOPE_BODY_BYTES_MAX)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::io("read", path)(error)),
    };
    let decoded = RepairFile::decode(&bytes).and_then(|file| {
        file.check_id(storage)?;
        Ok(Some(file))
    });
    decoded.map_err(StorageError::damaged(path))
}

/// The length of a data file up to which it belongs to the log, if a repair cut it.
pub(super) fn limit_of(repairs: &RepairFile, file: DataFileId) -> Option<u64> {
    let cuts = repairs.repairs.iter().filter_map(Repair::cut_file);
    let lengths = cuts.filter(|cut| cut.file == file).map(|cut| cut.length);
    lengths.min()
}

/// The names of data files without those that a repair cut off the log: the storage file may still
/// name such files, if the server ended before it was written again.
pub(crate) fn in_use(named: &[String], repairs: &RepairFile) -> Vec<String> {
    let is_in_use = |name: &&String| match name.parse() {
        Ok(FileName::Data(file)) => !repairs.voids_file(file),
        _ => true,
    };
    named.iter().filter(is_in_use).cloned().collect()
}

/// What is in a folder of the log of a storage, without what repairs cut.
pub(crate) struct LogFiles {
    /// Path and length of each data file of the log.
    pub(crate) data: BTreeMap<DataFileId, (PathBuf, u64)>,
    /// The intact headers of these files.
    pub(crate) headers: BTreeMap<DataFileId, LogFileHeader>,
    /// The intact index parts, by ordinal.
    pub(crate) parts: Vec<Arc<IndexPart>>,
    /// Whether there are data files of version 1.
    pub(crate) has_leaf_files: bool,
    /// Whether arranged files replaced some of the log.
    pub(crate) has_replaced_files: bool,
    /// The id of the next data file.
    pub(crate) next_file: u64,
    /// The repairs that took effect.
    pub(crate) repairs: RepairFile,
    /// Whether the repair file is lost, so that the repairs are derived from the data files.
    pub(crate) are_repairs_lost: bool,
}

impl LogFiles {
    /// The length of a data file up to which it belongs to the log, if a repair cut it.
    pub(crate) fn limit_of(&self, file: DataFileId) -> Option<u64> {
        limit_of(&self.repairs, file)
    }
}

/// The files of the log of a storage that is not finalized, whose storage file names the arranged
/// files `named`; blocks the thread.
///
/// # Errors
/// When a file cannot be opened, or the operating system has no resources to read one.
pub(crate) fn log_files(
    folder: &Path,
    storage: StorageId,
    named: &[String],
) -> Result<LogFiles, StorageError> {
    let mut listing = Listing::of(folder)?;
    // Files that do not belong to the log keep their names, too.
    let all = listing.data.iter().filter(|(_, data)| data.is_of_log);
    let all = all.map(|(id, _)| id.replaced().unwrap_or(*id));
    let next_file = all.map(|id| id.0.saturating_add(1)).max();
    let _arranged = listing.take_arranged(storage)?;
    let (repairs, are_repairs_lost) = match listing.repairs(folder, storage) {
        Ok(repairs) => (repairs, false),
        Err(error) if !error.is_loss() => return Err(error),
        // Of what arranged files replaced, the headers are gone.
        Err(error) if !named.is_empty() => return Err(error),
        Err(error) => (listing.derived_repairs(storage)?.ok_or(error)?, true),
    };
    let (repairs, _) = listing.take_effect(repairs);
    let named = in_use(named, &repairs);
    let (replacements, _unused) = listing.take_replaced(&named);
    // What has the name of an arranged file, and is not in use, is not part of the log, even if its
    // header is damaged.
    listing.data.retain(|id, _| id.replaced().is_none());
    let repaired = repairs.repairs.iter().map(|repair| repair.next_file).max();
    let mut parts = Vec::new();
    for path in &listing.parts {
        match IndexPart::open(path, storage) {
            Ok(part) if is_void(&repairs, &part) || replacements.are_gone(&part.footer) => {}
            Ok(part) => parts.push(Arc::new(part)),
            // Whether it is damaged is not known.
            Err(error) if !error.is_loss() => return Err(error),
            Err(_) => {}
        }
    }
    parts.sort_by_key(|part| part.header.ordinal);
    let mut files = LogFiles {
        data: BTreeMap::new(),
        headers: BTreeMap::new(),
        parts,
        has_leaf_files: listing.data.values().any(|data| !data.is_of_log),
        // The storage file decides: a named file may be missing, or damaged.
        has_replaced_files: !named.is_empty(),
        next_file: next_file.max(repaired).unwrap_or(0),
        repairs,
        are_repairs_lost,
    };
    for (id, data) in listing.data.into_iter().filter(|(_, data)| data.is_of_log) {
        match LogScanner::header(&data.path, storage, id) {
            Ok(Ok(header)) => drop(files.headers.insert(id, header)),
            Err(error) if is_transient(&error) => {
                return Err(StorageError::io("read", data.path)(error));
            }
            // One that cannot be read is as one that is damaged.
            Ok(Err(_)) | Err(_) => {}
        }
        files.data.insert(id, (data.path, data.length));
    }
    Ok(files)
}

impl Listing {
    /// The repairs of a storage that is not finalized.
    ///
    /// # Errors
    /// When its repair file is damaged, cannot be read, or is gone although the data files show
    /// that the log was cut.
    pub(super) fn repairs(
        &self,
        folder: &Path,
        storage: StorageId,
    ) -> Result<RepairFile, StorageError> {
        if let Some(repairs) = read_repairs(folder, storage)? {
            return Ok(repairs);
        }
        if !self.shows_cut(storage)? {
            return Ok(RepairFile::new(storage));
        }
        let path = folder.join(FileName::Repairs(storage).to_string());
        let gone = "it is gone, and the data files show that the log was repaired";
        Err(StorageError::io("read", path)(io::Error::new(
            io::ErrorKind::NotFound,
            gone,
        )))
    }

    /// Whether the log continues before the end of what was acknowledged, as it does only behind a
    /// repair. What a failed write left of a file is no such end: nothing in it was acknowledged.
    fn shows_cut(&self, storage: StorageId) -> Result<bool, StorageError> {
        let mut headers = BTreeMap::new();
        for (&id, file) in self.data.iter().filter(|(_, file)| file.is_of_log) {
            match LogScanner::header(&file.path, storage, id) {
                Ok(Ok(header)) => {
                    let of_log = header.replaces.map_or(id, |replaced| replaced.file);
                    headers.insert(of_log, header);
                }
                Err(error) if is_transient(&error) => {
                    return Err(StorageError::io("read", &file.path)(error));
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        for next in headers.values() {
            let Some(previous) = next.previous else {
                continue;
            };
            let Some(header) = headers.get(&previous.file) else {
                continue;
            };
            if self.has_durable_batch(header, previous.length, next.first_batch)? {
                return Ok(true);
            }
        }
        let mut chain = BTreeSet::new();
        let mut next = headers.last_key_value().map(|(&id, _)| id);
        while let Some(id) = next.filter(|id| chain.insert(*id)) {
            let header = headers.get(&id);
            let before = headers.range(..id).next_back().map(|(&id, _)| id);
            next = header.map_or(before, |header| {
                header.previous.map(|previous| previous.file)
            });
        }
        for (_, header) in headers.iter().filter(|(id, _)| !chain.contains(*id)) {
            let is_continued = |other: &LogFileHeader| {
                other
                    .previous
                    .is_some_and(|previous| previous.file == header.file)
            };
            let begin = FILE_HEADER_BYTES as u64;
            if headers.values().any(is_continued)
                || self.has_durable_batch(header, begin, header.first_batch)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a batch at or behind an offset of a file says that batch `number` was durable.
    fn has_durable_batch(
        &self,
        header: &LogFileHeader,
        from: u64,
        number: u64,
    ) -> Result<bool, StorageError> {
        let Some(file) = self.data.get(&header.file) else {
            return Ok(false);
        };
        if file.length <= from {
            return Ok(false);
        }
        let is_proof =
            |batch: &BatchHeader| batch.salt == header.salt && batch.durable_mark > number;
        let search = || {
            let mut scanner = LogScanner::of_file(&file.path, header, u64::MAX)?;
            scanner.find_batch(from, is_proof)
        };
        let found = search().map_err(StorageError::io("read", &file.path))?;
        Ok(found.is_some())
    }

    /// The repairs that the headers of data files show: the log continues at an earlier place than
    /// where a file ends. What is missing since is unknown. `None` if a header is damaged.
    fn derived_repairs(&self, storage: StorageId) -> Result<Option<RepairFile>, StorageError> {
        let mut derived = RepairFile::new(storage);
        let of_log = self.data.iter();
        let of_log = of_log.filter(|(id, data)| data.is_of_log && id.replaced().is_none());
        let files: BTreeMap<DataFileId, _> = of_log.map(|(&id, data)| (id, data)).collect();
        let mut next = files.last_key_value().map(|(&id, _)| id);
        while let Some(id) = next {
            let Some(file) = files.get(&id) else {
                return Ok(None);
            };
            let header = match LogScanner::header(&file.path, storage, id) {
                Ok(Ok(header)) => header,
                Err(error) if is_transient(&error) => {
                    return Err(StorageError::io("read", &file.path)(error));
                }
                Ok(Err(_)) | Err(_) => return Ok(None),
            };
            let previous = header.previous;
            let before = files.range(..id).next_back().map(|(&id, _)| id);
            let is_cut = before != previous.map(|previous| previous.file)
                || previous.is_some_and(|previous| {
                    let length = files.get(&previous.file).map(|file| file.length);
                    length.is_some_and(|length| length > previous.length)
                });
            if is_cut {
                derived.repairs.push(Repair {
                    time: header.created,
                    cut: previous.map(|previous| (previous.file.0, previous.length)),
                    batch: header.first_batch,
                    next_file: id.0,
                    copied_packets: 1,
                    next_number: 0,
                    missing: Vec::new(),
                });
            }
            next = previous.map(|previous| previous.file);
        }
        derived.repairs.reverse();
        Ok(Some(derived))
    }

    /// Removes the data files that do not belong to the log since it was repaired; returns the
    /// repairs that took effect, and whether there are others. Their files must not come into being
    /// otherwise: the repair file is written without them before the log is.
    pub(super) fn take_effect(&mut self, mut repairs: RepairFile) -> (RepairFile, bool) {
        let recorded = repairs.repairs.len();
        let is_of_log = |id: DataFileId| id.replaced().is_none();
        let newest = self.data.iter().filter(|(_, data)| data.is_of_log);
        let newest = newest.map(|(&id, _)| id).filter(|&id| is_of_log(id));
        let newest = newest.map(|id| id.0).max();
        repairs.repairs.retain(|repair| {
            let has_file = newest.is_some_and(|newest| newest >= repair.next_file);
            repair.copied_packets == 0 || has_file
        });
        self.data
            .retain(|&id, data| !data.is_of_log || !repairs.voids_file(id));
        let has_void = repairs.repairs.len() < recorded;
        (repairs, has_void)
    }
}
