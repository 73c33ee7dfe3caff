//! Recovery: loads the index of a storage from its index parts and the frames they do not cover.
//!
//! Recovery only reads. The I/O thread truncates a torn tail when it finishes the data file;
//! recovery determines where the intact frames end.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use storage_format::{
    FormatError, FormatErrorKind, LeafId, StorageId,
    checksum::crc32c,
    data_file::{DataFileHeader, HEADER_BYTES},
    index_part::PacketEntry,
    paths::{FileName, UNPUBLISHED_ENDING},
};

use crate::{
    StorageError,
    io_thread::Tail,
    scan::{FrameScanner, ScanError},
    tree::{IndexPart, IndexTree, PacketOrder},
};

/// Threads that scan the data files of one storage.
const SCAN_THREAD_COUNT_MAX: usize = 8;

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
}

/// The files in the folder of a storage.
#[derive(Debug, Default)]
struct Listing {
    parts: Vec<PathBuf>,
    data: BTreeMap<LeafId, PathBuf>,
    unpublished: Vec<PathBuf>,
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
                Ok(FileName::Data(leaf)) => drop(listing.data.insert(leaf, path)),
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
/// A torn tail has at most `torn_bytes_max` bytes; intact frames after that are not a torn tail but
/// damage in the middle.
pub(crate) fn recover(
    folder: &Path,
    storage: StorageId,
    torn_bytes_max: u64,
) -> Result<Recovered, StorageError> {
    let listing = Listing::of(folder)?;
    let mut recovered = Recovered {
        tree: IndexTree::new(storage),
        damage: None,
        is_rebuilt: false,
        leftovers: listing.unpublished,
    };
    recovered.add_parts(storage, listing.parts);
    let jobs: Vec<_> = listing
        .data
        .into_iter()
        .map(|(leaf, path)| {
            let known = recovered.tree.leaf(leaf);
            LeafScan {
                storage,
                leaf,
                path,
                covered: known.map(|known| known.tail).unwrap_or_default(),
                order: known.map(|known| known.order()).unwrap_or_default(),
                torn_bytes_max,
            }
        })
        .collect();
    for (job, found) in scan_all(&jobs) {
        recovered.add(job, found?);
    }
    Ok(recovered)
}

/// Scans data files in parallel: a single thread leaves the disk idle while it computes checksums.
fn scan_all(jobs: &[LeafScan]) -> Vec<(&LeafScan, Result<LeafFound, StorageError>)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // More than cores: most of the time a thread waits for the disk.
    let threads = cores
        .saturating_mul(4)
        .min(SCAN_THREAD_COUNT_MAX)
        .min(jobs.len());
    let next = AtomicUsize::new(0);
    let traced = io_trace::current();
    let scan = || {
        let _inside = traced.clone().map(io_trace::Scope::enter);
        let mut done = Vec::new();
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((job, job.run()));
        }
        done
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(scan)).collect();
        let done = running.into_iter().flat_map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.collect()
    })
}

/// Reads only the index parts of a finalized storage; `None` when one of `names` is not intact.
pub(crate) fn load_parts(folder: &Path, storage: StorageId, names: &[String]) -> Option<IndexTree> {
    let mut parts = Vec::with_capacity(names.len());
    for name in names {
        match IndexPart::open(&folder.join(name), storage) {
            Ok(part) => parts.push(Arc::new(part)),
            Err(error) => {
                tracing::error!(
                    %error,
                    "an index part is damaged; rebuilding the index from the frames"
                );
                return None;
            }
        }
    }
    parts.sort_by_key(|part| part.header.ordinal);
    let mut tree = IndexTree::new(storage);
    for part in &parts {
        if !tree.is_followed_by(part) {
            let path = part.path.display();
            tracing::error!(%path, "an index part does not follow the one before; rebuilding it");
            return None;
        }
        tree.add_part(part);
    }
    Some(tree)
}

impl Recovered {
    /// Adds the parts up to the first gap; the frames replace those after it.
    fn add_parts(&mut self, storage: StorageId, paths: Vec<PathBuf>) {
        let mut parts = BTreeMap::new();
        for path in paths {
            match IndexPart::open(&path, storage) {
                Ok(part) => drop(parts.insert(part.header.ordinal, part)),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "an index part is damaged; rebuilding the index from the frames"
                    );
                    self.is_rebuilt = true;
                    self.leftovers.push(path);
                }
            }
        }
        for (at, (ordinal, part)) in (0..).zip(parts) {
            if ordinal == at && self.tree.is_followed_by(&part) {
                self.tree.add_part(&Arc::new(part));
            } else {
                self.is_rebuilt = true;
                self.leftovers.push(part.path);
            }
        }
    }

    /// Adds what was found in a data file.
    fn add(&mut self, job: &LeafScan, found: LeafFound) {
        let LeafFound {
            header,
            entries,
            tail,
            damage,
        } = found;
        if let Some(error) = damage {
            tracing::error!(%error, "a data file is damaged; its storage becomes read-only");
            self.damage.get_or_insert(error);
        } else if entries.is_empty() && job.covered == Tail::default() {
            // Torn while it was created: nothing in it was acknowledged.
            self.leftovers.push(job.path.clone());
            return;
        }
        if let Some(header) = header {
            self.tree.add_leaf(job.leaf, header.leaf_type, &header.path);
        }
        self.tree.insert(job.leaf, entries, tail);
    }
}

/// A data file to scan from the end of the index parts.
#[derive(Debug)]
struct LeafScan {
    storage: StorageId,
    leaf: LeafId,
    path: PathBuf,
    covered: Tail,
    /// The order that the frames must follow.
    order: PacketOrder,
    torn_bytes_max: u64,
}

/// The content of a data file after the bytes that index parts cover.
#[derive(Debug, Default)]
struct LeafFound {
    /// The header, if no part contains the leaf.
    header: Option<DataFileHeader>,
    entries: Vec<PacketEntry>,
    tail: Tail,
    damage: Option<StorageError>,
}

impl LeafScan {
    fn run(&self) -> Result<LeafFound, StorageError> {
        let mut found = LeafFound {
            tail: self.covered,
            ..LeafFound::default()
        };
        if self.covered == Tail::default() && !self.read_header(&mut found)? {
            return Ok(found);
        }
        let mut scanner = self.scanner(found.tail)?;
        if let Some(error) = self.missing_bytes(&scanner) {
            found.damage = Some(error);
            return Ok(found);
        }
        let mut order = self.order;
        loop {
            found.tail = scanner.tail();
            match scanner.next(true) {
                Ok(Some(scanned)) => {
                    let entry = scanned.entry();
                    if let Err(name) = order.accept(&entry) {
                        found.damage = Some(self.out_of_order(found.tail, name));
                        break;
                    }
                    found.entries.push(entry);
                }
                Ok(None) => break,
                Err(ScanError::Io(error)) => {
                    return Err(StorageError::io("read", &self.path)(error));
                }
                Err(ScanError::Frame(error)) => {
                    found.damage = self.check_tail(&mut scanner, error)?;
                    break;
                }
            }
        }
        Ok(found)
    }

    /// The error for an intact frame at `tail` that cannot follow the frames before it, such as one
    /// that remains of an earlier write.
    fn out_of_order(&self, tail: Tail, name: &'static str) -> StorageError {
        StorageError::damaged(&self.path)(FormatError {
            what: "frame",
            offset: tail.length,
            kind: FormatErrorKind::Order { name },
        })
    }

    /// The error for a data file that ends before the bytes that index parts cover, which were
    /// durable.
    fn missing_bytes(&self, scanner: &FrameScanner) -> Option<StorageError> {
        let (needed, available) = (self.covered.length, scanner.end());
        let kind = FormatErrorKind::Truncated { needed, available };
        (available < needed).then(|| {
            StorageError::damaged(&self.path)(FormatError {
                what: "data file",
                offset: available,
                kind,
            })
        })
    }

    fn scanner(&self, from: Tail) -> Result<FrameScanner, StorageError> {
        FrameScanner::open(&self.path, self.storage, self.leaf, from, u64::MAX)
            .map_err(StorageError::io("open", &self.path))
    }

    /// Reads the header of a leaf that no part contains; `false` when there are no frames to scan.
    fn read_header(&self, found: &mut LeafFound) -> Result<bool, StorageError> {
        let path = &self.path;
        let length = std::fs::metadata(path)
            .map_err(StorageError::io("get the length of", path))?
            .len();
        let wanted = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .min(HEADER_BYTES);
        let bytes =
            crate::read::read_at(path, 0, wanted).map_err(StorageError::io("read", path))?;
        let after_header = Tail {
            length: HEADER_BYTES as u64,
            checksum: crc32c(&bytes),
        };
        let fault = match DataFileHeader::decode(&bytes) {
            Ok(header) if header.storage == self.storage && header.leaf == self.leaf => {
                found.header = Some(header);
                found.tail = after_header;
                return Ok(true);
            }
            Ok(_) => FormatError {
                what: "data file header",
                offset: 16,
                kind: FormatErrorKind::Foreign,
            },
            Err(error) => error,
        };
        // Without a header, intact frames can only be damage.
        let frame = self.scanner(after_header)?.find_frame(HEADER_BYTES as u64);
        if frame.map_err(StorageError::io("read", path))?.is_some() {
            found.damage = Some(StorageError::damaged(path)(fault));
        }
        Ok(false)
    }

    /// Distinguishes a torn tail from damage in the middle of acknowledged frames.
    fn check_tail(
        &self,
        scanner: &mut FrameScanner,
        error: FormatError,
    ) -> Result<Option<StorageError>, StorageError> {
        let torn_end = scanner.tail().length.saturating_add(self.torn_bytes_max);
        let frame = scanner
            .find_frame(torn_end)
            .map_err(StorageError::io("read", &self.path))?;
        Ok(frame.map(|_| StorageError::damaged(&self.path)(error)))
    }
}
