//! Recovery: loads the index of a storage from its index parts and the batches they do not cover.
//!
//! Recovery only reads. It determines where the log ends; a torn or preallocated end is truncated
//! before the log continues, always in a new file. A batch that cannot be read is the torn end of
//! the log, unless a later batch or file proves that it was durable: then it is damage, and the
//! storage must not be written.

mod arranged;
mod covered_end;
mod leaf_file;
mod log;
mod parts;
mod repairs;
mod replaced;
mod scan;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use storage_format::{
    DataFileId, FormatError, FormatErrorKind, LeafId, StorageId,
    data_file::DataFileHeader,
    index_part::Extent,
    log::{FILE_HEADER_BYTES, LogFileHeader, PreviousFile, ReplacedFile},
    paths::{FileName, UNPUBLISHED_ENDING},
    repair_file::RepairFile,
};

pub(crate) use self::{
    arranged::{ArrangedFiles, arranged_files},
    repairs::{LogFiles, in_use, log_files, read_repairs},
    scan::{Scan, ScanThreads},
};
use self::{
    leaf_file::{LeafFound, LeafScan},
    replaced::Replacements,
};
use crate::{
    StorageError,
    errno::is_transient,
    io_thread::Tail,
    tree::{IndexPart, IndexTree},
};

/// The result of recovering a storage.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) tree: IndexTree,
    /// Damage that is not a torn tail; the storage must not be written.
    pub(crate) damage: Option<StorageError>,
    /// Whether an index part is missing or damaged, so that the tree was rebuilt from frames.
    pub(crate) is_rebuilt: bool,
    /// Files to remove: unpublished files, damaged index parts, data files without a frame.
    pub(crate) leftovers: Vec<PathBuf>,
    /// Files of a finalization that was interrupted.
    pub(crate) arranged: Vec<PathBuf>,
    /// The repairs of the log that took effect.
    pub(crate) repairs: RepairFile,
    replacements: Replacements,
    /// That the log lacks the last batch that an index part covers.
    pub(crate) lost_end: Option<LostEnd>,
    /// Whether the repair file has others, which it must not have when the log is written.
    pub(crate) has_void_repairs: bool,
}

/// Where a log lacks a batch that an index part covers.
#[derive(Debug)]
pub(crate) struct LostEnd {
    pub(crate) file: DataFileId,
    /// The last block of the batch.
    pub(crate) offset: u64,
    pub(crate) error: StorageError,
}

/// The files in the folder of a storage.
#[derive(Debug, Default)]
struct Listing {
    parts: Vec<PathBuf>,
    data: BTreeMap<DataFileId, DataFile>,
    unpublished: Vec<PathBuf>,
}

/// A data file in the folder of a storage.
#[derive(Debug)]
struct DataFile {
    path: PathBuf,
    length: u64,
    /// Whether it is a file of the log; otherwise it is the file of a leaf, of format version 1.
    is_of_log: bool,
    /// Whether it is arranged, by a finalization.
    is_arranged: bool,
    /// The file of the log that it replaces.
    replaces: Option<ReplacedFile>,
    /// The storage and the id of a file of the log, according to its header.
    named: Option<(StorageId, DataFileId)>,
}

impl DataFile {
    fn of(id: DataFileId, path: PathBuf) -> Result<Self, StorageError> {
        let file = crate::read::ReadFile::open(&path).map_err(StorageError::io("open", &path))?;
        let length = file.length();
        let length = length.map_err(StorageError::io("get the length of", &path))?;
        let start = usize::try_from(length).unwrap_or(usize::MAX);
        let start = start.min(FILE_HEADER_BYTES);
        let start = match file.read(0, start) {
            Ok(bytes) => bytes,
            Err(error) if is_transient(&error) => {
                return Err(StorageError::io("read", path)(error));
            }
            // Whoever needs the header meets the error again; a file that a repair cut off is not
            // read at all.
            Err(_) => vec![0; start],
        };
        // A damaged header must not turn a file of the log into that of a leaf, of which an empty
        // one is removed. Files of the log are numbered; ids of leaves are random.
        let is_leaf = !is_without_magic(&DataFileHeader::decode(&start));
        // An arranged file that no storage file names is removed, so one damaged bit must not turn
        // a file of the log into one.
        let header = LogFileHeader::decode_any(&start).ok();
        let replaces = header.as_ref().and_then(|header| header.replaces);
        let is_arranged = header.as_ref().is_some_and(|header| header.is_arranged);
        Ok(Self {
            is_of_log: LogFileHeader::recognizes(&start) || (id.is_numbered() && !is_leaf),
            is_arranged: is_arranged && replaces.is_none(),
            replaces: replaces.filter(|replaced| replaced.file.replacement() == Some(id)),
            named: header.map(|header| (header.storage, header.file)),
            path,
            length,
        })
    }
}

fn is_without_magic<T>(decoded: &Result<T, FormatError>) -> bool {
    matches!(decoded, Err(error) if error.kind == FormatErrorKind::Magic)
}

impl Listing {
    fn of(folder: &Path) -> Result<Self, StorageError> {
        let mut listing = Self::default();
        let names = std::fs::read_dir(folder).map_err(StorageError::io("list", folder))?;
        for name in names {
            let path = name.map_err(StorageError::io("list", folder))?.path();
            let text = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            match text.parse() {
                Ok(FileName::Index(_)) => listing.parts.push(path),
                Ok(FileName::Data(file)) => {
                    drop(listing.data.insert(file, DataFile::of(file, path)?));
                }
                Ok(_) => {}
                Err(_) if text.ends_with(UNPUBLISHED_ENDING) => listing.unpublished.push(path),
                Err(_) => {}
            }
        }
        Ok(listing)
    }
}

/// Reads the tree of the storage in `folder`; blocks the thread.
///
/// `named` are the files that the storage file names. A torn tail has at most `torn_bytes_max`
/// bytes; intact frames after that are not a torn tail but damage in the middle.
pub(crate) fn recover(
    folder: &Path,
    storage: StorageId,
    named: &[String],
    torn_bytes_max: u64,
    scan: &Scan,
) -> Result<Recovered, StorageError> {
    let mut listing = Listing::of(folder)?;
    let arranged = listing.take_arranged(storage)?;
    let repairs = listing.repairs(folder, storage)?;
    let (repairs, has_void_repairs) = listing.take_effect(repairs);
    let (replacements, mut leftovers) = listing.take_replaced(&in_use(named, &repairs));
    leftovers.append(&mut listing.unpublished);
    let mut recovered = Recovered {
        tree: IndexTree::new(storage),
        damage: None,
        is_rebuilt: false,
        leftovers,
        arranged,
        repairs,
        replacements,
        lost_end: None,
        has_void_repairs,
    };
    recovered.add_files(storage, listing, torn_bytes_max, scan)?;
    Ok(recovered)
}

/// Rebuilds the tree of a finalized storage from the files that its storage file names; blocks the
/// thread.
pub(crate) fn rebuild(
    folder: &Path,
    storage: StorageId,
    names: &[String],
    scan: &Scan,
) -> Result<Recovered, StorageError> {
    let mut listing = Listing::of(folder)?;
    listing.retain_listed(names);
    let (replacements, leftovers) = listing.take_replaced(names);
    let mut recovered = Recovered {
        tree: IndexTree::new(storage),
        damage: None,
        is_rebuilt: false,
        leftovers,
        arranged: Vec::new(),
        repairs: RepairFile::new(storage),
        replacements,
        lost_end: None,
        has_void_repairs: false,
    };
    let lengths: Vec<_> = (listing.data.iter())
        .map(|(&file, data)| (file, data.length))
        .collect();
    if listing.data.values().any(|file| file.is_arranged) {
        recovered.add_arranged(storage, &listing, scan)?;
        recovered.leftovers = listing.parts;
    } else {
        recovered.add_files(storage, listing, 0, scan)?;
    }
    // A file with a damaged header is not even known to be arranged.
    for (file, length) in lengths {
        recovered.check_complete(file, length);
    }
    Ok(recovered)
}

/// Reads only the index parts of a finalized storage; `None` when one of `names` is not intact.
///
/// # Errors
/// When a part cannot be read, but may be intact.
pub(crate) fn load_parts(
    folder: &Path,
    storage: StorageId,
    names: &[String],
) -> Result<Option<IndexTree>, StorageError> {
    let mut parts = Vec::with_capacity(names.len());
    for name in names {
        match IndexPart::open(&folder.join(name), storage) {
            Ok(part) => parts.push(Arc::new(part)),
            Err(error) if !error.is_loss() => return Err(error),
            Err(error) => {
                tracing::error!(
                    %error,
                    "an index part is damaged; rebuilding the index from the frames"
                );
                return Ok(None);
            }
        }
    }
    parts.sort_by_key(|part| part.header.ordinal);
    let mut tree = IndexTree::new(storage);
    for part in &parts {
        if !tree.is_followed_by(part) {
            let path = part.path.display();
            tracing::error!(%path, "an index part does not follow the one before; rebuilding it");
            return Ok(None);
        }
        tree.add_part(part);
    }
    Ok(Some(tree))
}

impl Recovered {
    /// Adds index parts, and what data files contain that they do not cover.
    fn add_files(
        &mut self,
        storage: StorageId,
        listing: Listing,
        torn_bytes_max: u64,
        scan: &Scan,
    ) -> Result<(), StorageError> {
        scan.progress.begin(0);
        self.add_parts(storage, listing.parts, scan)?;
        self.forget_partial();
        self.add_leaf_files(storage, &listing.data, torn_bytes_max, scan)?;
        if !crate::sabotaged!("skip-covered-end") {
            self.check_covered_end(storage, &listing.data)?;
        }
        self.add_log(storage, &listing.data, scan)?;
        self.check_files(&listing.data);
        self.check_replaced();
        Ok(())
    }

    /// Adds what the files of leaves contain that no part covers.
    fn add_leaf_files(
        &mut self,
        storage: StorageId,
        data: &BTreeMap<DataFileId, DataFile>,
        torn_bytes_max: u64,
        scan: &Scan,
    ) -> Result<(), StorageError> {
        let mut jobs = Vec::new();
        for (&file, on_disk) in data.iter().filter(|(_, data)| !data.is_of_log) {
            let leaf = LeafId(file.0);
            let known = self.tree.files().get(&file).copied();
            if self.tree.position().is_some() && known.is_some() {
                // Parts that were written since the log began cover it to its end.
                continue;
            }
            let order = self.tree.leaf(leaf).map(|leaf| leaf.order());
            let covered = known.unwrap_or_default();
            scan.expect(on_disk.length.saturating_sub(covered.length));
            jobs.push(LeafScan {
                storage,
                leaf,
                path: on_disk.path.clone(),
                covered,
                order: order.unwrap_or_default(),
                torn_bytes_max,
                progress: Arc::clone(&scan.progress),
            });
        }
        let found = scan.all(&jobs, LeafScan::run);
        for (job, found) in jobs.iter().zip(found) {
            self.add_leaf_file(job, found?);
        }
        Ok(())
    }

    /// Adds what was found in the file of a leaf.
    fn add_leaf_file(&mut self, job: &LeafScan, found: LeafFound) {
        let LeafFound {
            header,
            entries,
            tail,
            damage,
        } = found;
        if let Some(error) = damage {
            self.damaged(error);
        } else if entries.is_empty() && job.covered == Tail::default() {
            // Torn while it was created: nothing in it was acknowledged.
            self.leftovers.push(job.path.clone());
            return;
        }
        if let Some(header) = header {
            self.tree.add_leaf(job.leaf, header.leaf_type, &header.path);
        }
        let file = DataFileId::of_leaf(job.leaf);
        let start = job.covered.length;
        let extent = Extent {
            leaf_offset: start,
            file,
            offset: start,
            length: tail.length.saturating_sub(start),
        };
        if !entries.is_empty() {
            self.tree.insert(job.leaf, entries, &extent, tail);
        }
        self.tree.set_file(file, tail);
    }

    /// Notes damage when not all of a data file of a finalized storage could be read: it has no
    /// torn end.
    fn check_complete(&mut self, file: DataFileId, length: u64) {
        let tail = self.tree.files().get(&file).copied().unwrap_or_default();
        if tail.length == length {
            return;
        }
        let name = FileName::Data(file).to_string();
        self.damaged(StorageError::damaged(name)(FormatError {
            what: "data file",
            offset: tail.length,
            kind: FormatErrorKind::Field {
                name: "packets after this",
            },
        }));
    }

    /// Notes damage: the storage must not be written.
    fn damaged(&mut self, error: StorageError) {
        tracing::error!(%error, "a data file is damaged; its storage becomes read-only");
        self.damage.get_or_insert(error);
    }

    /// Compares the data files with what the tree knows, and notes which are longer.
    fn check_files(&mut self, data: &BTreeMap<DataFileId, DataFile>) {
        let mut end = self.tree.recovered_log().clone();
        let mut missing = Vec::new();
        for (&file, tail) in self.tree.files() {
            let length = data.get(&file).map_or(0, |data| data.length);
            if length < tail.length {
                missing.push((file, tail.length, length));
            } else if length > tail.length {
                let uncut = PreviousFile {
                    file,
                    length: tail.length,
                };
                // What a repair cut stays until the storage is finalized.
                let is_repaired = repairs::limit_of(&self.repairs, file).is_some();
                let list = if is_repaired {
                    &mut end.repaired
                } else {
                    &mut end.uncut
                };
                list.push(uncut);
            }
        }
        for (file, needed, available) in missing {
            let name = FileName::Data(file).to_string();
            let kind = FormatErrorKind::Truncated { needed, available };
            self.damaged(StorageError::damaged(name)(FormatError {
                what: "data file",
                offset: available,
                kind,
            }));
        }
        let of_log = data.iter().filter(|(_, data)| data.is_of_log);
        let of_log = of_log.map(|(&file, _)| file.replaced().unwrap_or(file));
        let last = of_log.chain(self.replacements.last()).max();
        let next = last.map_or(0, |last| last.0.saturating_add(1));
        let repaired = self.repairs.repairs.iter().map(|repair| repair.next_file);
        let repaired = repaired.max().unwrap_or(0);
        end.next_file = end.next_file.max(next).max(repaired);
        self.tree.set_recovered_log(end);
    }
}
