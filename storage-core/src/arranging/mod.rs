//! Arranges a storage when it is finalized: in each new data file, the bytes of a leaf are one
//! range.
//!
//! While a storage is written, its log contains the packets of all streams in the order of their
//! arrival, and each batch is padded to a block. That costs space and scatters what is read
//! together. Arranging takes the files of the log one after another (small ones together), copies
//! what they have of each leaf into a new file, checks every byte on the way, and writes new index
//! parts. The storage file then names the new files in place of the old ones.
//!
//! Each index part describes only what is durable, so a pass that a crash interrupted continues
//! after the last part that it wrote (`resume.rs`). Memory: the pages of the files that are being
//! read belong to the page cache; a leaf costs some hundred bytes, and the packets since the last
//! part their entries.

mod full_file;
mod moving;
mod output;
mod resume;

use std::{
    collections::BTreeSet,
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use rustix::fs::{Advice, fadvise};
use storage_format::{
    DataFileId, FormatError, FormatErrorKind, LeafId, LeafType, StorageId,
    checksum_file::ChecksumFile,
    data_file::{HEADER_BYTES as LEAF_HEADER_BYTES, LeafPath},
    index_part::PacketEntry,
    paths::FileName,
    storage_file::FileEntry,
};

pub(crate) use self::full_file::{Candidate, FullFile, LeafMaps, Planned};
use self::output::Output;
pub(crate) use self::resume::remove_arranged;
use crate::{
    StorageError,
    io::sync_folder,
    io_thread::Tail,
    leaf_bytes::{LeafMap, LeafReader},
    progress::Pace,
    read::ReadFile,
    scan::{FrameScanner, ScanError},
    tree::IndexTree,
};

/// Runs that are at least this long on average are read well enough as they are, in bytes.
const RUN_BYTES_MIN: u64 = 256 << 10;
/// A log with more than this part of padding and headers is arranged: 1/8.
const WASTE_DIVISOR: u64 = 8;
/// A leaf with more packets than an index part may have is written in pieces of this many bytes,
/// so that the entries of one piece fit into memory.
const PIECE_BYTES: u64 = 64 << 20;

/// Where the bytes of a leaf are.
pub(crate) type Maps = Box<dyn Fn(LeafId, &Range<u64>) -> Option<LeafMap> + Send>;

/// What to arrange, and where.
pub(crate) struct Plan {
    storage: StorageId,
    folder: PathBuf,
    leaves: Vec<PlannedLeaf>,
    /// Data files that are arranged together, in the order of the log.
    groups: Vec<BTreeSet<DataFileId>>,
    maps: Maps,
    /// Id of the first new data file.
    next_file: u64,
    limits: Limits,
}

/// A leaf that is being arranged.
struct PlannedLeaf {
    id: LeafId,
    leaf_type: LeafType,
    path: LeafPath,
    packets: u64,
    tail: Tail,
    /// What is in arranged files.
    done: Tail,
    /// The newest file that contains its header.
    declared_in: Option<DataFileId>,
}

/// The limits of the files that arranging writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of a data file, and of the files that are arranged together.
    pub(crate) data_file_bytes: u64,
    /// Packets in one index part.
    pub(crate) part_packets: usize,
}

/// An arranged storage: its new files are durable, and no storage file names them yet.
pub(crate) struct Arranged {
    pub(crate) tree: IndexTree,
    pub(crate) files: Vec<FileEntry>,
    pub(crate) checksums: ChecksumFile,
}

impl Plan {
    /// What arranging would do; `None` when it would not pay.
    pub(crate) fn new(
        folder: &Path,
        tree: &IndexTree,
        maps: Maps,
        next_file: u64,
        limits: Limits,
    ) -> Option<Self> {
        if !pays(tree) {
            return None;
        }
        let leaves = tree.leaves().filter(|leaf| leaf.tail != Tail::default());
        let mut planned: Vec<_> = leaves
            .map(|leaf| PlannedLeaf {
                id: leaf.id,
                leaf_type: leaf.leaf_type,
                path: leaf.path.clone(),
                packets: leaf.segments().map(|part| part.totals.packets).sum(),
                tail: leaf.tail,
                done: Tail::default(),
                declared_in: None,
            })
            .collect();
        planned.sort_by(|a, b| a.path.cmp(&b.path));
        Some(Self {
            storage: tree.storage(),
            folder: folder.to_owned(),
            leaves: planned,
            groups: groups(tree, limits.data_file_bytes),
            maps,
            next_file,
            limits,
        })
    }

    /// Bytes that the new data files need.
    pub(crate) fn bytes(&self) -> u64 {
        self.leaves.iter().map(|leaf| leaf.tail.length).sum()
    }

    /// Writes the new files, or those that are missing of an interrupted pass; blocks. The caller
    /// removes the files after an error, unless the pass is to be continued.
    ///
    /// # Errors
    /// When a byte is not as it was written, a file cannot be read or written, or the work is
    /// cancelled.
    pub(crate) fn run(mut self, pace: Pace) -> Result<Arranged, StorageError> {
        let mut output = Output::new(&self, pace);
        output.resume(&mut self)?;
        for at in 0..self.groups.len() {
            self.group(at, &mut output)?;
            output.close()?;
        }
        for leaf in &self.leaves {
            leaf.check_done(&self.folder)?;
        }
        sync_folder(&self.folder)?;
        Ok(output.arranged(self.storage))
    }

    /// Arranges the files of a group.
    fn group(&mut self, at: usize, output: &mut Output) -> Result<(), StorageError> {
        let mut leaves = std::mem::take(&mut self.leaves);
        let mut is_read = false;
        for leaf in &mut leaves {
            if leaf.done.length >= leaf.tail.length {
                continue;
            }
            let from = leaf.done.length.max(LEAF_HEADER_BYTES as u64);
            let map = self.map(leaf.id, from..leaf.tail.length)?;
            let group = self.groups.get(at);
            let is_here = |file| group.is_some_and(|group| group.contains(&file));
            let max = match usize::try_from(leaf.packets) {
                Ok(packets) if packets <= self.limits.part_packets => u64::MAX,
                _ => PIECE_BYTES,
            };
            let ends = map.ends_within(from, max, is_here)?;
            if ends.is_empty() {
                continue;
            }
            if !is_read {
                self.advise(at, Advice::WillNeed);
                self.advise(at.saturating_add(1), Advice::WillNeed);
                is_read = true;
            }
            self.copy(leaf, map, &ends, output)?;
        }
        self.leaves = leaves;
        self.advise(at, Advice::DontNeed);
        Ok(())
    }

    fn map(&self, leaf: LeafId, range: Range<u64>) -> Result<LeafMap, StorageError> {
        (self.maps)(leaf, &range).ok_or(StorageError::Stopping)
    }

    /// Tells the kernel that the files of a group will be read completely, or are not needed any
    /// more. Only a hint: packets of a leaf are scattered over the file, so they must be in memory.
    fn advise(&self, group: usize, advice: Advice) {
        for file in self.groups.get(group).into_iter().flatten() {
            let path = self.folder.join(FileName::Data(*file).to_string());
            if let Ok(file) = ReadFile::open(&path) {
                let _ = fadvise(file.file(), 0, None, advice);
            }
        }
    }

    /// Copies the bytes of a leaf up to each of `ends`, and checks every frame.
    fn copy(
        &self,
        leaf: &mut PlannedLeaf,
        map: LeafMap,
        ends: &[u64],
        output: &mut Output,
    ) -> Result<(), StorageError> {
        let place = map.place();
        let failed = |error: io::Error| StorageError::io("read", &place)(error);
        let reader = LeafReader::new(map);
        let mut start = leaf.done;
        let header = if start.length == 0 {
            let header = reader.read(0, LEAF_HEADER_BYTES).map_err(failed)?;
            start.extend(&header);
            header
        } else {
            let first = LeafReader::new(self.map(leaf.id, 0..LEAF_HEADER_BYTES as u64)?);
            first.read(0, LEAF_HEADER_BYTES).map_err(failed)?
        };
        let end = ends.last().copied().unwrap_or(start.length);
        let mut scanner = FrameScanner::of_leaf(reader, self.storage, leaf.id, start, end);
        let mut entries: Vec<PacketEntry> = Vec::new();
        for &end in ends {
            let extent = output.begin(leaf, &header, end)?;
            while scanner.tail().length < end {
                match scanner.next_into(&mut |bytes| output.write(bytes)) {
                    Ok(Some(scanned)) => entries.push(scanned.entry()),
                    Ok(None) => break,
                    Err(error) => return Err(output.failure(error, &place)),
                }
            }
            if scanner.tail().length != end {
                return Err(not_as_written(&place, "end of the packets", end));
            }
            leaf.done = scanner.tail();
            output.end(leaf, entries.drain(..), &extent)?;
        }
        Ok(())
    }
}

impl PlannedLeaf {
    /// Checks that all bytes of the leaf are arranged, as they were written.
    fn check_done(&self, folder: &Path) -> Result<(), StorageError> {
        if self.done == self.tail {
            return Ok(());
        }
        let place = format!("leaf {} in {}", self.id, folder.display());
        if self.done.length != self.tail.length {
            return Err(not_as_written(&place, "length", self.done.length));
        }
        let kind = FormatErrorKind::Checksum {
            stored: self.tail.checksum,
            computed: self.done.checksum,
        };
        Err(StorageError::damaged(&place)(FormatError {
            what: "leaf",
            offset: 0,
            kind,
        }))
    }
}

fn not_as_written(place: &str, name: &'static str, offset: u64) -> StorageError {
    StorageError::damaged(place)(FormatError {
        what: "leaf",
        offset,
        kind: FormatErrorKind::Field { name },
    })
}

/// The error of a scan.
fn scan_error(error: ScanError, place: &str) -> StorageError {
    match error {
        ScanError::Frame(error) => StorageError::damaged(place)(error),
        ScanError::Io(error) => StorageError::io("read", place)(error),
    }
}

/// Whether the leaves of a storage are scattered, or much of its log is padding. A storage of which
/// files were replaced is arranged file by file.
fn pays(tree: &IndexTree) -> bool {
    let leaves = tree.leaves().filter(|leaf| leaf.tail != Tail::default());
    let scatter = Scatter {
        leaf_count: leaves.count() as u64,
        leaf_bytes: tree.leaves().map(|leaf| leaf.tail.length).sum(),
        file_bytes: tree.files().values().map(|tail| tail.length).sum(),
        runs: tree.run_count().max(1),
    };
    !tree.has_replaced_files() && scatter.pays()
}

/// How the leaves lie in data files.
#[derive(Debug, Clone, Copy, Default)]
struct Scatter {
    leaf_count: u64,
    leaf_bytes: u64,
    file_bytes: u64,
    /// Runs of consecutive bytes of a leaf.
    runs: u64,
}

impl Scatter {
    /// Whether arranging the leaves is worth a copy.
    fn pays(&self) -> bool {
        let run_bytes = self.leaf_bytes.checked_div(self.runs);
        let is_scattered = self.leaf_count > 1
            && self.runs > self.leaf_count
            && run_bytes.is_some_and(|run| run < RUN_BYTES_MIN);
        let waste = self.file_bytes.saturating_sub(self.leaf_bytes);
        let is_wasteful = self.runs > self.leaf_count && waste > self.leaf_bytes / WASTE_DIVISOR;
        is_scattered || is_wasteful
    }
}

/// The data files of a storage in groups of at most `bytes_max`, in the order in which the bytes
/// of a leaf follow each other: files of leaves, which are of version 1, are before the log.
fn groups(tree: &IndexTree, bytes_max: u64) -> Vec<BTreeSet<DataFileId>> {
    let mut groups: Vec<BTreeSet<DataFileId>> = Vec::new();
    let mut bytes: u64 = 0;
    for of_log in [false, true] {
        for (&file, tail) in tree
            .files()
            .iter()
            .filter(|(id, _)| id.is_of_log() == of_log)
        {
            bytes = bytes.saturating_add(tail.length);
            match groups.last_mut() {
                Some(group) if bytes <= bytes_max => drop(group.insert(file)),
                _ => {
                    groups.push(BTreeSet::from([file]));
                    bytes = tail.length;
                }
            }
        }
    }
    groups
}
