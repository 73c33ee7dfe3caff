//! The files that arranging writes.

use std::io;

use storage_format::{
    DataFileId, StorageId,
    checksum_file::{ChecksumFile, FileChecksums},
    data_file::HEADER_BYTES as LEAF_HEADER_BYTES,
    index_part::{Extent, PacketEntry},
    log::{LogFileHeader, SegmentHeader},
    paths::{FileName, FileRole},
    storage_file::FileEntry,
};

use super::{Arranged, Limits, Plan, PlannedLeaf, scan_error};
use crate::{
    StorageError,
    clock::{now_ns, random_u64},
    io::StagedFile,
    io_thread::Tail,
    progress::Pace,
    scan::ScanError,
    tree::{IndexPart, IndexTree},
};

/// Bytes that are gathered for one write.
const WRITE_BYTES: usize = 1 << 20;

/// A data file that is being written, gathered into large writes.
pub(super) struct OpenFile {
    id: DataFileId,
    pub(super) staged: StagedFile,
    waiting: Vec<u8>,
    length: u64,
}

impl OpenFile {
    pub(super) fn new(id: DataFileId, staged: StagedFile) -> Self {
        Self {
            id,
            staged,
            waiting: Vec::with_capacity(WRITE_BYTES.saturating_mul(2)),
            length: 0,
        }
    }

    /// Appends bytes, and writes what is gathered when it is enough.
    pub(super) fn put(&mut self, bytes: &[u8], pace: &mut Pace) -> Result<(), StorageError> {
        self.length = self.length.saturating_add(bytes.len() as u64);
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= WRITE_BYTES {
            let written = self.flush()?;
            pace.take(written)?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<u64, StorageError> {
        let bytes = self.waiting.len() as u64;
        self.staged.write(&self.waiting)?;
        self.waiting.clear();
        Ok(bytes)
    }
}

/// The new files, and the tree that describes them.
pub(super) struct Output {
    pub(super) folder: std::path::PathBuf,
    pub(super) storage: StorageId,
    pub(super) limits: Limits,
    pub(super) tree: IndexTree,
    pub(super) files: Vec<FileEntry>,
    pub(super) checksums: Vec<FileChecksums>,
    pub(super) next_file: u64,
    pub(super) pace: Pace,
    open: Option<OpenFile>,
    /// Why bytes of a scan could not be written.
    failure: Option<StorageError>,
}

impl Output {
    pub(super) fn new(plan: &Plan, pace: Pace) -> Self {
        Self {
            folder: plan.folder.clone(),
            storage: plan.storage,
            limits: plan.limits,
            tree: IndexTree::new(plan.storage),
            files: Vec::new(),
            checksums: Vec::new(),
            next_file: plan.next_file,
            pace,
            open: None,
            failure: None,
        }
    }

    /// Begins the bytes of a leaf up to `end`; returns where its packets will be.
    pub(super) fn begin(
        &mut self,
        leaf: &mut PlannedLeaf,
        header: &[u8],
        end: u64,
    ) -> Result<Extent, StorageError> {
        let max = self.limits.data_file_bytes;
        if self.open.as_ref().is_some_and(|open| open.length >= max) {
            self.close()?;
        }
        let file = match &self.open {
            Some(open) => open.id,
            None => self.create()?,
        };
        let from = leaf.done.length;
        let is_declared = leaf.declared_in.replace(file) == Some(file);
        let segment = SegmentHeader {
            leaf: leaf.id,
            repeats_leaf_header: from > 0 && !is_declared,
            leaf_offset: from,
            length: end.saturating_sub(from),
        };
        self.put(&segment.encode())?;
        if from == 0 || segment.repeats_leaf_header {
            self.put(header)?;
        }
        self.tree.add_leaf(leaf.id, leaf.leaf_type, &leaf.path);
        let start = from.max(LEAF_HEADER_BYTES as u64);
        Ok(Extent {
            leaf_offset: start,
            file,
            offset: self.open.as_ref().map_or(0, |open| open.length),
            length: end.saturating_sub(start),
        })
    }

    /// Ends the bytes of a leaf, whose packets are `entries` in `extent`.
    pub(super) fn end(
        &mut self,
        leaf: &PlannedLeaf,
        entries: impl Iterator<Item = PacketEntry>,
        extent: &Extent,
    ) -> Result<(), StorageError> {
        self.tree.insert(leaf.id, entries, extent, leaf.done);
        if self.tree.live_records() >= self.limits.part_packets {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Creates the next data file.
    fn create(&mut self) -> Result<DataFileId, StorageError> {
        let id = DataFileId(self.next_file);
        if !id.is_of_log() {
            let storage = self.storage;
            return Err(StorageError::FilesUsedUp { storage });
        }
        self.next_file = self.next_file.saturating_add(1);
        let name = FileName::Data(id).to_string();
        let staged = StagedFile::create(self.folder.join(&name))?;
        let header = LogFileHeader {
            storage: self.storage,
            file: id,
            is_arranged: true,
            replaces: None,
            salt: random_u64(),
            created: now_ns(),
            first_batch: 0,
            previous: None,
            chain: 0,
        };
        self.open = Some(OpenFile::new(id, staged));
        self.put(&header.encode())?;
        Ok(id)
    }

    /// Bytes of a scan. The error is in [`Self::failure`].
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes).map_err(|error| {
            let text = error.to_string();
            self.failure = Some(error);
            io::Error::other(text)
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let open = self
            .open
            .as_mut()
            .expect("bytes are written to an open file");
        open.put(bytes, &mut self.pace)
    }

    /// Why a scan whose bytes were written here ended.
    pub(super) fn failure(&mut self, error: ScanError, place: &str) -> StorageError {
        let failure = self.failure.take();
        failure.unwrap_or_else(|| scan_error(error, place))
    }

    /// Makes the open file durable, and then an index part of what is not in one yet.
    fn checkpoint(&mut self) -> Result<(), StorageError> {
        if let Some(open) = &mut self.open {
            let written = open.flush()?;
            let (length, checksum) = open.staged.sync()?;
            assert_eq!(length, open.length, "a file has what was written to it");
            self.tree.set_file(open.id, Tail { length, checksum });
            crate::fault_point!("arrange.copied");
            self.write_part()?;
            crate::fault_point!("arrange.indexed");
            self.pace.take(written)?;
        }
        Ok(())
    }

    /// Completes the open file.
    pub(super) fn close(&mut self) -> Result<(), StorageError> {
        self.checkpoint()?;
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let (id, sums) = (open.id, open.staged.into_sums());
        self.files.push(FileEntry {
            name: FileName::Data(id).to_string(),
            role: FileRole::Data,
            length: sums.length(),
            checksum: sums.checksum() ^ u32::from(crate::sabotaged!("wrong-checksum")),
        });
        self.checksums.push(sums.finish(id));
        Ok(())
    }

    /// Writes the live part of the tree as an index part.
    fn write_part(&mut self) -> Result<(), StorageError> {
        let Some(sealed) = self.tree.seal(now_ns()) else {
            return Ok(());
        };
        let header = sealed.header();
        let (bytes, footer, bases) = sealed.encode();
        let name = FileName::Index(random_u64()).to_string();
        let path = self.folder.join(&name);
        let mut staged = StagedFile::create(path.clone())?;
        staged.write(&bytes)?;
        let (length, checksum) = staged.finish()?;
        self.files.push(FileEntry {
            name,
            role: FileRole::Index,
            length,
            checksum,
        });
        let part = IndexPart::written(path, header, footer, bases);
        self.tree.part_written(&std::sync::Arc::new(part));
        Ok(())
    }

    pub(super) fn arranged(mut self, storage: StorageId) -> Arranged {
        self.checksums.sort_by_key(|file| file.file);
        Arranged {
            tree: self.tree,
            files: self.files,
            checksums: ChecksumFile {
                storage,
                files: self.checksums,
            },
        }
    }
}
