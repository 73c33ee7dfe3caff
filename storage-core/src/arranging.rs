//! Arranges a storage when it is finalized: the bytes of each leaf become one range of one file.
//!
//! While a storage is written, its log contains the packets of all streams in the order of their
//! arrival, and each batch is padded to a block. That costs space and scatters what is read
//! together. Arranging copies the leaves one after another into new files, checks every byte on the
//! way, and writes new index parts. The storage file then names the new files in place of the old
//! ones; a crash before that leaves files that recovery removes.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use storage_format::{
    DataFileId, FormatError, FormatErrorKind, LeafId, LeafType, StorageId,
    checksum_file::{ChecksumFile, FileChecksums},
    data_file::{HEADER_BYTES as LEAF_HEADER_BYTES, LeafPath},
    index_part::{Extent, PacketEntry},
    log::{LogFileHeader, SegmentHeader},
    paths::{FileName, FileRole},
    storage_file::FileEntry,
};

use crate::{
    StorageError,
    clock::{now_ns, random_u64},
    io::{StagedFile, sync_folder},
    io_thread::Tail,
    leaf_bytes::{LeafMap, LeafReader},
    scan::{FrameScanner, ScanError},
    tree::{BlockCache, IndexPart, IndexTree},
};

/// Runs that are at least this long on average are read well enough as they are, in bytes.
const RUN_BYTES_MIN: u64 = 256 << 10;
/// A log with more than this part of padding and headers is arranged: 1/8.
const WASTE_DIVISOR: u64 = 8;
/// Bytes that are gathered for one write.
const WRITE_BYTES: usize = 1 << 20;

/// What to arrange, and where.
pub(crate) struct Plan {
    pub(crate) storage: StorageId,
    pub(crate) folder: PathBuf,
    leaves: Vec<PlannedLeaf>,
    /// Id of the first new data file.
    next_file: u64,
    /// Ordinal of the first new index part.
    next_ordinal: u64,
    data_file_bytes_max: u64,
    part_packet_count_max: usize,
}

struct PlannedLeaf {
    id: LeafId,
    leaf_type: LeafType,
    path: LeafPath,
    tail: Tail,
    map: LeafMap,
}

/// The limits of the files that arranging writes.
pub(crate) struct Limits {
    /// A data file of this many bytes is complete.
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
        cache: &Arc<BlockCache>,
        tree: &IndexTree,
        next_file: u64,
        limits: &Limits,
    ) -> Option<Self> {
        let leaf_bytes: u64 = tree.leaves().map(|leaf| leaf.tail.length).sum();
        let file_bytes: u64 = tree.files().values().map(|tail| tail.length).sum();
        let leaves = || tree.leaves().filter(|leaf| leaf.tail != Tail::default());
        let leaf_count = leaves().count() as u64;
        let runs = tree.run_count().max(1);
        let is_scattered = leaf_count > 1
            && runs > leaf_count
            && leaf_bytes
                .checked_div(runs)
                .is_some_and(|run| run < RUN_BYTES_MIN);
        let waste = file_bytes.saturating_sub(leaf_bytes);
        let is_wasteful = runs > leaf_count && waste > leaf_bytes / WASTE_DIVISOR;
        if !is_scattered && !is_wasteful {
            return None;
        }
        let mut planned: Vec<_> = leaves()
            .map(|leaf| PlannedLeaf {
                id: leaf.id,
                leaf_type: leaf.leaf_type,
                path: leaf.path.clone(),
                tail: leaf.tail,
                map: LeafMap::new(folder, cache, tree.pin(), leaf, &(0..u64::MAX)),
            })
            .collect();
        planned.sort_by(|a, b| a.path.cmp(&b.path));
        let last_part = tree.parts().last();
        Some(Self {
            storage: tree.storage(),
            folder: folder.to_owned(),
            leaves: planned,
            next_file,
            next_ordinal: last_part.map_or(0, |part| part.header.ordinal.saturating_add(1)),
            data_file_bytes_max: limits.data_file_bytes,
            part_packet_count_max: limits.part_packets,
        })
    }

    /// Bytes that the new data files need.
    pub(crate) fn bytes(&self) -> u64 {
        self.leaves.iter().map(|leaf| leaf.tail.length).sum()
    }

    /// Writes the new files; blocks. After an error none of them is left.
    pub(crate) fn run(self) -> Result<Arranged, StorageError> {
        let mut arranging = Arranging {
            tree: IndexTree::with_ordinal(self.storage, self.next_ordinal),
            files: Vec::new(),
            checksums: Vec::new(),
            open: None,
            next_file: self.next_file,
            plan: self,
        };
        match arranging.run() {
            Ok(()) => Ok(Arranged {
                tree: arranging.tree,
                files: arranging.files,
                checksums: ChecksumFile {
                    storage: arranging.plan.storage,
                    files: arranging.checksums,
                },
            }),
            Err(error) => {
                arranging.remove_files();
                Err(error)
            }
        }
    }
}

/// An output file, gathered into large writes.
struct Output {
    id: DataFileId,
    staged: StagedFile,
    waiting: Vec<u8>,
    length: u64,
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.length = self.length.saturating_add(bytes.len() as u64);
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= WRITE_BYTES {
            self.staged.write(&self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }
}

struct Arranging {
    plan: Plan,
    tree: IndexTree,
    files: Vec<FileEntry>,
    checksums: Vec<FileChecksums>,
    open: Option<Output>,
    next_file: u64,
}

impl Arranging {
    fn run(&mut self) -> Result<(), StorageError> {
        for leaf in std::mem::take(&mut self.plan.leaves) {
            self.leaf(leaf)?;
        }
        self.close()?;
        crate::fault_point!("arrange.copied");
        self.write_part()?;
        crate::fault_point!("arrange.indexed");
        sync_folder(&self.plan.folder)
    }

    /// The output file; a new one when there is none that has room.
    fn output(&mut self) -> Result<&mut Output, StorageError> {
        let max = self.plan.data_file_bytes_max;
        if self.open.as_ref().is_some_and(|open| open.length >= max) {
            self.close()?;
        }
        if self.open.is_none() {
            let id = DataFileId(self.next_file);
            self.next_file = self.next_file.saturating_add(1);
            let path = self.plan.folder.join(FileName::Data(id).to_string());
            let mut output = Output {
                id,
                staged: StagedFile::create(path)?,
                waiting: Vec::new(),
                length: 0,
            };
            let header = LogFileHeader {
                storage: self.plan.storage,
                file: id,
                is_arranged: true,
                salt: random_u64(),
                created: now_ns(),
                first_batch: 0,
                previous: None,
                chain: 0,
            };
            // Listed before it is complete, so that it is removed after an error.
            self.files.push(FileEntry {
                name: FileName::Data(id).to_string(),
                role: FileRole::Data,
                length: 0,
                checksum: 0,
            });
            output.write(&header.encode())?;
            self.open = Some(output);
        }
        Ok(self.open.as_mut().expect("a file was opened above"))
    }

    fn close(&mut self) -> Result<(), StorageError> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        open.staged.write(&open.waiting)?;
        let sums = open.staged.finish_sums()?;
        let (length, checksum) = (sums.length(), sums.checksum());
        assert_eq!(length, open.length, "a file has what was written to it");
        self.checksums.push(sums.finish(open.id));
        self.tree.set_file(open.id, Tail { length, checksum });
        let name = FileName::Data(open.id).to_string();
        if let Some(entry) = self.files.iter_mut().find(|entry| entry.name == name) {
            (entry.length, entry.checksum) = (length, checksum);
        }
        Ok(())
    }

    /// Copies a leaf, and checks it: every frame, and the checksum of all its bytes.
    fn leaf(&mut self, leaf: PlannedLeaf) -> Result<(), StorageError> {
        let PlannedLeaf {
            id,
            leaf_type,
            path,
            tail,
            map,
        } = leaf;
        let place = map.place();
        let reader = LeafReader::new(map);
        let failed = |error: io::Error| StorageError::io("read", &place)(error);
        let header = reader.read(0, LEAF_HEADER_BYTES).map_err(failed)?;
        let storage = self.plan.storage;
        let output = self.output()?;
        let segment = SegmentHeader {
            leaf: id,
            repeats_leaf_header: false,
            leaf_offset: 0,
            length: tail.length,
        };
        output.write(&segment.encode())?;
        let (file, start) = (output.id, output.length);
        output.write(&header)?;
        let mut begun = Tail::default();
        begun.extend(&header);
        self.tree.add_leaf(id, leaf_type, &path);
        let mut scanner = FrameScanner::of_leaf(reader, storage, id, begun, tail.length);
        let mut entries: Vec<PacketEntry> = Vec::new();
        let mut copied = begun;
        loop {
            let output = self.open.as_mut().expect("a leaf is in one file");
            let next =
                scanner.next_into(&mut |bytes| output.write(bytes).map_err(io::Error::other));
            match next {
                Ok(Some(scanned)) => entries.push(scanned.entry()),
                Ok(None) => break,
                Err(ScanError::Frame(error)) => return Err(StorageError::damaged(&place)(error)),
                Err(ScanError::Io(error)) => return Err(failed(error)),
            }
            if entries.len() >= self.plan.part_packet_count_max {
                self.insert(id, &mut entries, &mut copied, scanner.tail(), (file, start));
                self.write_part()?;
            }
        }
        if scanner.tail() != tail {
            let kind = FormatErrorKind::Checksum {
                stored: tail.checksum,
                computed: scanner.tail().checksum,
            };
            return Err(StorageError::damaged(&place)(FormatError {
                what: "leaf",
                offset: 0,
                kind,
            }));
        }
        self.insert(id, &mut entries, &mut copied, tail, (file, start));
        if self.tree.live_records() >= self.plan.part_packet_count_max {
            self.write_part()?;
        }
        Ok(())
    }

    /// Adds copied packets to the new tree.
    fn insert(
        &mut self,
        leaf: LeafId,
        entries: &mut Vec<PacketEntry>,
        copied: &mut Tail,
        tail: Tail,
        (file, start): (DataFileId, u64),
    ) {
        if entries.is_empty() {
            return;
        }
        let extent = Extent {
            leaf_offset: copied.length,
            file,
            offset: start.saturating_add(copied.length),
            length: tail.length.saturating_sub(copied.length),
        };
        self.tree.insert(leaf, entries.drain(..), &extent, tail);
        *copied = tail;
    }

    /// Writes the live part of the new tree as an index part.
    fn write_part(&mut self) -> Result<(), StorageError> {
        let Some(sealed) = self.tree.seal(now_ns()) else {
            return Ok(());
        };
        let header = sealed.header();
        let (bytes, footer, bases) = sealed.encode();
        let name = FileName::Index(random_u64()).to_string();
        let path = self.plan.folder.join(&name);
        let mut staged = StagedFile::create(path.clone())?;
        self.files.push(FileEntry {
            name,
            role: FileRole::Index,
            length: bytes.len() as u64,
            checksum: 0,
        });
        staged.write(&bytes)?;
        let (_, checksum) = staged.finish()?;
        if let Some(entry) = self.files.last_mut() {
            entry.checksum = checksum;
        }
        let part = IndexPart::written(path, header, footer, bases);
        self.tree.part_written(&Arc::new(part));
        Ok(())
    }

    /// Removes what was written; what cannot be removed is removed by the next start.
    fn remove_files(&mut self) {
        self.open = None;
        remove_files(&self.plan.folder, &self.files);
    }
}

/// Removes files that no storage file names.
pub(crate) fn remove_files(folder: &Path, files: &[FileEntry]) {
    for file in files {
        let path = folder.join(&file.name);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "a file that is not needed stays");
        }
    }
}
