//! Arranges one file of a log, while others of the storage are written.
//!
//! The bytes of each leaf that a full file has are copied one after another into a new file, whose
//! header says which file it replaces and how the batches of that file began and ended. The index
//! parts that describe the file are written again (`moving.rs`): their packets are the same, and
//! only the places differ. All of that is durable before a storage file names the new file.

use std::{
    collections::BTreeMap,
    io,
    ops::{Bound, Range},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{Advice, fadvise};
use storage_format::{
    DataFileId, LeafId, StorageId,
    data_file::HEADER_BYTES as LEAF_HEADER_BYTES,
    index_part::LogPosition,
    log::{LogFileHeader, PreviousFile, ReplacedFile},
    paths::{FileName, FileRole},
    storage_file::FileEntry,
};

use super::{
    Scatter,
    moving::{MovedLeaf, MovedLeaves, remove, unpublished},
    not_as_written,
    output::OpenFile,
    scan_error,
};
use crate::{
    StorageError,
    clock::{now_ns, random_u64},
    io::{StagedFile, rename_new, sync_folder},
    io_thread::Tail,
    leaf_bytes::{LeafMap, LeafReader},
    log_scan::LogScanner,
    progress::Pace,
    read::ReadFile,
    scan::FrameScanner,
    tree::{IndexPart, IndexTree},
};

/// Where the bytes of a leaf are; called by several passes.
pub(crate) type LeafMaps = Arc<dyn Fn(LeafId, Range<u64>) -> Option<LeafMap> + Send + Sync>;

/// A file of the log that may be arranged.
pub(crate) struct Candidate {
    storage: StorageId,
    folder: PathBuf,
    pub(crate) file: DataFileId,
    tail: Tail,
    /// The file that continues the log, or the end of the log.
    next: Result<DataFileId, LogPosition>,
    /// The index parts that describe it.
    parts: Vec<Arc<IndexPart>>,
    maps: LeafMaps,
}

/// A file of the log, and what its arranged file will contain.
pub(crate) struct FilePlan {
    candidate: Candidate,
    header: LogFileHeader,
    leaves: MovedLeaves,
}

/// What is to be done with a full file.
pub(crate) enum Planned {
    /// It is arranged.
    Pays(Box<FilePlan>),
    /// That does not pay.
    Kept,
    /// Its end is still to be cut.
    Uncut,
}

/// An arranged file and the index parts that describe it. They are durable, and no storage file
/// names them yet.
pub(crate) struct FullFile {
    pub(crate) file: DataFileId,
    pub(crate) by: (DataFileId, Tail),
    pub(crate) entry: FileEntry,
    pub(crate) parts: Vec<Arc<IndexPart>>,
    path: PathBuf,
}

impl Candidate {
    /// The oldest file of the log with at least `bytes_min` that is complete and wanted. Unless the
    /// log has ended, the index parts must end in a later file.
    pub(crate) fn of(
        tree: &IndexTree,
        (folder, maps): (&Path, LeafMaps),
        bytes_min: u64,
        has_ended: bool,
        is_wanted: impl Fn(DataFileId) -> bool,
    ) -> Option<Self> {
        let position = tree.parts().last()?.footer.position?;
        let files = tree.files().keys().filter(|id| id.is_numbered());
        let in_log = |&id: &DataFileId| (id.replaced().unwrap_or(id), id);
        let files: BTreeMap<DataFileId, DataFileId> = files.map(in_log).collect();
        let is_complete = |id: DataFileId| id < position.file || (has_ended && id == position.file);
        let (&file, &tail) = tree.files().iter().find(|(id, tail)| {
            let is_closed = id.is_of_log() && is_complete(**id);
            is_closed && tail.length >= bytes_min && is_wanted(**id)
        })?;
        let mut later = files.range((Bound::Excluded(file), Bound::Unbounded));
        let describes = |part: &&Arc<IndexPart>| {
            let mut listed = part.footer.files.iter();
            listed.any(|entry| entry.file == file)
        };
        Some(Self {
            storage: tree.storage(),
            folder: folder.to_owned(),
            file,
            tail,
            next: later.next().map(|(_, &id)| id).ok_or(position),
            parts: tree.parts().iter().filter(describes).cloned().collect(),
            maps,
        })
    }

    fn path(&self, file: DataFileId) -> PathBuf {
        self.folder.join(FileName::Data(file).to_string())
    }

    fn header_of(&self, file: DataFileId) -> Result<LogFileHeader, StorageError> {
        let path = self.path(file);
        let header = LogScanner::header(&path, self.storage, file);
        let header = header.map_err(StorageError::io("read", &path))?;
        header.map_err(StorageError::damaged(&path))
    }

    /// Where the batches of the file, which begin with the number `first`, end.
    fn end(&self, first: u64) -> Result<(u64, u32), StorageError> {
        let next = match self.next {
            Err(position) if position.file == self.file => {
                return Ok((position.batch, position.chain));
            }
            Err(position) => position.file,
            Ok(next) => next,
        };
        let header = self.header_of(next)?;
        let previous = PreviousFile {
            file: self.file,
            length: self.tail.length,
        };
        if header.previous == Some(previous) && header.first_batch >= first {
            return Ok((header.first_batch, header.chain));
        }
        Err(not_as_written(
            &self.path(next).display().to_string(),
            "file before",
            64,
        ))
    }

    /// What arranging the file would do; blocks.
    ///
    /// # Errors
    /// When the file or the index cannot be read, or the file is not as the index says.
    pub(crate) fn plan(self) -> Result<Planned, StorageError> {
        let path = self.path(self.file);
        let on_disk = std::fs::metadata(&path).map_err(StorageError::io("find", &path))?;
        let place = path.display().to_string();
        let own = self.header_of(self.file)?;
        if on_disk.len() < self.tail.length || own.is_arranged {
            return Err(not_as_written(&place, "length", on_disk.len()));
        }
        if on_disk.len() > self.tail.length {
            return Ok(Planned::Uncut);
        }
        let (next_batch, chain) = self.end(own.first_batch)?;
        let mut leaves = MovedLeaves::of(self.file, &self.parts)?;
        let scatter = Scatter {
            file_bytes: self.tail.length,
            ..leaves.scatter()
        };
        let Some(by) = self.file.replacement().filter(|_| scatter.pays()) else {
            return Ok(Planned::Kept);
        };
        let arranged_length = leaves.place(by);
        let replaced = ReplacedFile {
            file: self.file,
            length: self.tail.length,
            next_batch,
            chain,
            arranged_length,
        };
        let header = LogFileHeader {
            file: by,
            is_arranged: true,
            replaces: Some(replaced),
            salt: random_u64(),
            created: now_ns(),
            ..own
        };
        Ok(Planned::Pays(Box::new(FilePlan {
            candidate: self,
            header,
            leaves,
        })))
    }
}

impl FilePlan {
    /// Bytes that the new files need.
    pub(crate) fn bytes(&self) -> u64 {
        let arranged = self
            .header
            .replaces
            .map(|replaced| replaced.arranged_length);
        let parts = self.candidate.parts.iter();
        let parts = parts.map(|part| part.footer.bases.end);
        parts.fold(arranged.unwrap_or(0), u64::saturating_add)
    }

    /// Writes the arranged file and the index parts; blocks. After an error nothing remains of
    /// them.
    ///
    /// # Errors
    /// When a byte is not as it was written, a file cannot be read or written, or the work is
    /// cancelled.
    pub(crate) fn run(self, mut pace: Pace) -> Result<FullFile, StorageError> {
        let by = self.header.file;
        let path = self.candidate.path(by);
        let unpublished = unpublished(&path);
        // What an attempt left that could not remove it.
        remove(&unpublished);
        let copied = self.copy(&unpublished, &mut pace);
        let (length, checksum) = copied.inspect_err(|_| remove(&unpublished))?;
        self.remove_earlier(&path);
        rename_new(&unpublished, &path)
            .map_err(StorageError::io("rename", &path))
            .inspect_err(|_| remove(&unpublished))?;
        crate::fault_point!("arrange.file_copied");
        let tail = Tail { length, checksum };
        let mut full = FullFile {
            file: self.candidate.file,
            by: (by, tail),
            entry: FileEntry {
                name: FileName::Data(by).to_string(),
                role: FileRole::Data,
                length,
                checksum,
            },
            parts: Vec::new(),
            path,
        };
        let moved = self.move_parts(&mut full, &mut pace);
        let moved = moved.and_then(|()| sync_folder(&self.candidate.folder));
        if let Err(error) = moved {
            full.remove();
            return Err(error);
        }
        crate::fault_point!("arrange.file_indexed");
        Ok(full)
    }

    /// Removes the arranged file of an attempt that could not remove it: this file is still part of
    /// the log, so no storage file names it. Nothing else that has its name is removed.
    fn remove_earlier(&self, path: &Path) {
        let header = LogScanner::header(path, self.candidate.storage, self.header.file);
        let replaces = header.ok().and_then(Result::ok);
        let replaces = replaces.and_then(|header| header.replaces);
        if replaces.is_some_and(|replaced| replaced.file == self.candidate.file) {
            remove(path);
        }
    }

    fn move_parts(&self, full: &mut FullFile, pace: &mut Pace) -> Result<(), StorageError> {
        for part in &self.candidate.parts {
            let moved = self.leaves.rewrite(part, full.by, pace)?;
            full.parts.push(Arc::new(moved));
        }
        Ok(())
    }

    /// Tells the kernel that the replaced file will be read completely, or is not needed any more.
    /// The packets of a leaf are scattered over it, so reading ahead in order finds nothing. The
    /// kernel may ignore this.
    fn advise(&self, advice: Advice) {
        if let Ok(file) = ReadFile::open(&self.candidate.path(self.candidate.file)) {
            let _ = fadvise(file.file(), 0, None, advice);
        }
    }

    fn copy(&self, path: &Path, pace: &mut Pace) -> Result<(u64, u32), StorageError> {
        let mut output = OpenFile::new(self.header.file, StagedFile::create(path.to_owned())?);
        output.put(&self.header.encode(), pace)?;
        self.advise(Advice::WillNeed);
        for (&leaf, moved) in self.leaves.in_order() {
            self.copy_leaf(leaf, moved, &mut output, pace)?;
        }
        self.advise(Advice::DontNeed);
        let written = output.flush()?;
        pace.take(written)?;
        let (length, checksum) = output.staged.finish()?;
        let expected = self.header.replaces;
        let expected = expected.map(|replaced| replaced.arranged_length);
        assert_eq!(
            Some(length),
            expected,
            "the header says how long the file is"
        );
        Ok((length, checksum))
    }

    /// Copies what the file has of a leaf, and checks every frame.
    fn copy_leaf(
        &self,
        leaf: LeafId,
        moved: &MovedLeaf,
        output: &mut OpenFile,
        pace: &mut Pace,
    ) -> Result<(), StorageError> {
        let map = |range| (self.candidate.maps)(leaf, range).ok_or(StorageError::Stopping);
        let whole = map(moved.start..moved.end)?;
        let place = whole.place();
        let header = LeafReader::new(map(0..LEAF_HEADER_BYTES as u64)?);
        let header = header.read(0, LEAF_HEADER_BYTES);
        let header = header.map_err(StorageError::io("read", &place))?;
        let start = Tail {
            length: moved.start,
            checksum: 0,
        };
        let (reader, storage) = (LeafReader::new(whole), self.candidate.storage);
        let scanner = FrameScanner::of_leaf(reader, storage, leaf, start, moved.end);
        // The new file gets a checksum of its own, which would make damaged padding look intact.
        let mut scanner = scanner.with_padding();
        for piece in &moved.pieces {
            output.put(&piece.header.encode(), pace)?;
            if piece.has_leaf_header() {
                output.put(&header, pace)?;
            }
            let end = piece.extent.leaf_end();
            while scanner.tail().length < end {
                let mut failure = None;
                let scanned = scanner.next_into(&mut |bytes| {
                    output.put(bytes, pace).map_err(|error| {
                        failure = Some(error);
                        io::Error::other("the arranged file cannot be written")
                    })
                });
                match (failure, scanned) {
                    (Some(error), _) => return Err(error),
                    (None, Ok(Some(_))) => {}
                    (None, Ok(None)) => break,
                    (None, Err(error)) => return Err(scan_error(error, &place)),
                }
            }
            if scanner.tail().length != end {
                return Err(not_as_written(&place, "end of the packets", end));
            }
        }
        Ok(())
    }
}

impl FullFile {
    /// Removes the files, which no storage file names.
    pub(crate) fn remove(&self) {
        remove(&self.path);
        // A part removes its file when it is dropped.
        self.parts.iter().for_each(|part| part.replace());
    }
}
