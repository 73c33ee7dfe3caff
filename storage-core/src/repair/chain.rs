//! The log of a storage, read from its first batch to the first damage.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
};

use storage_format::{
    DataFileId, LeafId, StreamPosition,
    data_file::DataFileHeader,
    log::{FILE_HEADER_BYTES, LogFileHeader, PreviousFile, ReplacedFile},
    paths::FileName,
};

use crate::{
    Progress, StorageError,
    errno::is_transient,
    io_thread::{LogEnd, Tail},
    log_scan::{FoundSegment, LogScanner},
    recovery::LogFiles,
    scan::ScanError,
    storage::Storage,
    tree::FilePin,
};

/// A data file of the log.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) id: DataFileId,
    /// `None` when it is missing.
    pub(super) path: Option<PathBuf>,
    /// Bytes that are there.
    pub(super) length: u64,
    /// Its length, if a later file or a repair says it.
    pub(super) limit: Option<u64>,
    /// Its header, if it is intact.
    pub(super) header: Option<LogFileHeader>,
    /// Length and checksum of its bytes, if an index knows them.
    pub(super) tail: Option<Tail>,
}

/// The files of the log as the index of an open storage knows them, oldest first, and what keeps
/// them until they are read. All of that was acknowledged.
pub(super) fn chain_of_index(
    storage: &Storage,
) -> Result<(Vec<LogFile>, Option<Arc<FilePin>>), StorageError> {
    let (files, pin) = match &*storage.tree.read() {
        Some(tree) => (tree.files().clone(), Some(Arc::clone(tree.pin()))),
        None => return Ok((Vec::new(), None)),
    };
    let of_log = files.into_iter().filter(|(id, _)| id.is_numbered());
    let mut chain = Vec::new();
    for (id, tail) in of_log {
        let path = storage.path(&FileName::Data(id));
        let header = match LogScanner::header(&path, storage.id, id) {
            Ok(header) => header.ok(),
            Err(error) if is_transient(&error) => {
                return Err(StorageError::io("read", path)(error));
            }
            // One that cannot be read is as one that is damaged.
            Err(_) => None,
        };
        chain.push(LogFile {
            id,
            path: path.exists().then_some(path),
            length: tail.length,
            limit: Some(tail.length),
            header,
            tail: Some(tail),
        });
    }
    chain.sort_by_key(|file| file.id.replaced().unwrap_or(file.id));
    Ok((chain, pin))
}

/// The files of the log, oldest first. Files that no later one continues do not belong to it.
pub(super) fn chain(files: &LogFiles) -> Vec<LogFile> {
    let of_parts = files.parts.iter().flat_map(|part| &part.footer.files);
    let of_parts = of_parts.map(|entry| entry.file);
    let ids: BTreeSet<_> = files
        .data
        .keys()
        .copied()
        .chain(of_parts.filter(|id| id.is_of_log()))
        .collect();
    let mut chain = Vec::new();
    let mut next = ids.last().map(|&id| (id, files.limit_of(id)));
    while let Some((id, limit)) = next {
        let header = files.headers.get(&id).cloned();
        let before = ids.range(..id).next_back();
        next = match &header {
            Some(header) => header
                .previous
                .map(|previous| (previous.file, Some(previous.length))),
            None => before.map(|&id| (id, files.limit_of(id))),
        };
        let on_disk = files.data.get(&id);
        chain.push(LogFile {
            id,
            path: on_disk.map(|(path, _)| path.clone()),
            length: on_disk.map_or(0, |(_, length)| *length),
            limit,
            header,
            tail: None,
        });
    }
    chain.reverse();
    chain
}

/// A leaf at the cut.
#[derive(Debug)]
pub(super) struct KnownLeaf {
    pub(super) header: DataFileHeader,
    pub(super) tail: Tail,
    /// Number and position of its last packet.
    pub(super) last: (u64, StreamPosition),
}

/// What is whole before the first damage.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) leaves: HashMap<LeafId, KnownLeaf>,
    pub(super) last_number: Option<u64>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// The first damage of a log, or its end.
#[derive(Debug)]
pub(super) struct Cut {
    /// The end of what is whole before it.
    pub(super) end: LogEnd,
    /// The damaged file, as an index of the chain, and where it is damaged.
    pub(super) at: usize,
    pub(super) offset: u64,
    /// Whether the disk refuses to read it.
    pub(super) is_unreadable: bool,
}

impl Cut {
    /// How many bytes are behind it.
    pub(super) fn behind(&self, chain: &[LogFile]) -> u64 {
        let files = chain.iter().skip(self.at).map(|file| file.length);
        let all = files.fold(0, u64::saturating_add);
        match chain.get(self.at) {
            Some(_) => all.saturating_sub(self.offset),
            None => 0,
        }
    }
}

/// Packets of one leaf that follow each other.
struct LeafRun {
    leaf: LeafId,
    header: Option<DataFileHeader>,
    /// Where its bytes begin in the leaf.
    start: u64,
    bytes: Tail,
    packets: u64,
    /// Number and position of its first and its last packet.
    first: (u64, StreamPosition),
    last: (u64, StreamPosition),
}

impl LeafRun {
    /// `None` without a packet.
    fn of(segment: FoundSegment) -> Option<Self> {
        let (first, last) = segment.entries.first().zip(segment.entries.last())?;
        Some(Self {
            leaf: segment.leaf,
            start: segment.extent.leaf_offset,
            bytes: Tail {
                length: segment.extent.length,
                checksum: segment.checksum,
            },
            packets: segment.entries.len() as u64,
            first: (first.number, first.position),
            last: (last.number, last.position),
            header: segment.leaf_header,
        })
    }

    /// Adds the packets of `next`, if they follow.
    fn join(&mut self, next: &Self) -> bool {
        let end = self.start.saturating_add(self.bytes.length);
        let follows = self.leaf == next.leaf && end == next.start && follows(self.last, next.first);
        if follows {
            self.bytes.join(next.bytes);
            self.packets = self.packets.saturating_add(next.packets);
            self.last = next.last;
        }
        follows
    }
}

fn follows(last: (u64, StreamPosition), next: (u64, StreamPosition)) -> bool {
    next.0 > last.0 && next.1 > last.1
}

impl Whole {
    /// Adds packets of leaves, unless some do not continue their leaf: then nothing is added.
    fn add(&mut self, runs: Vec<LeafRun>) -> bool {
        if !runs.iter().all(|run| self.is_followed_by(run)) {
            return false;
        }
        for run in runs {
            self.packets = self.packets.saturating_add(run.packets);
            self.last_number = self.last_number.max(Some(run.last.0));
            match self.leaves.get_mut(&run.leaf) {
                Some(known) => {
                    known.tail.join(run.bytes);
                    known.last = run.last;
                }
                None => {
                    let leaf = run.header.map(|header| KnownLeaf {
                        header,
                        tail: run.bytes,
                        last: run.last,
                    });
                    self.leaves.extend(leaf.map(|leaf| (run.leaf, leaf)));
                }
            }
        }
        true
    }

    /// Whether packets continue their leaf.
    fn is_followed_by(&self, run: &LeafRun) -> bool {
        match self.leaves.get(&run.leaf) {
            Some(leaf) => leaf.tail.length == run.start && follows(leaf.last, run.first),
            None => run.start == 0 && run.header.is_some(),
        }
    }
}

/// Reads the log up to the first damage, or to its torn end, which may be damage as well.
///
/// # Errors
/// When it is cancelled, or the operating system has no resources.
pub(super) fn read(
    chain: &[LogFile],
    progress: &Arc<Progress>,
) -> Result<(Whole, Cut), StorageError> {
    let mut whole = Whole::default();
    let mut cut = Cut {
        end: LogEnd::default(),
        at: 0,
        offset: 0,
        is_unreadable: false,
    };
    for (at, file) in chain.iter().enumerate() {
        cut.at = at;
        cut.offset = FILE_HEADER_BYTES as u64;
        let is_damaged = read_file(file, &mut whole, &mut cut, progress)?;
        whole.bytes = whole.bytes.saturating_add(cut.offset);
        if is_damaged {
            return Ok((whole, cut));
        }
    }
    cut.at = chain.len();
    Ok((whole, cut))
}

/// Reads a file of the log; whether it is damaged.
fn read_file(
    file: &LogFile,
    whole: &mut Whole,
    cut: &mut Cut,
    progress: &Arc<Progress>,
) -> Result<bool, StorageError> {
    let end = &cut.end;
    let continues =
        |header: &&LogFileHeader| (header.first_batch, header.chain) == (end.batch, end.chain);
    let header = file.header.as_ref().filter(continues);
    let Some((path, header)) = file.path.as_ref().zip(header) else {
        return Ok(true);
    };
    let limit = file.limit.unwrap_or(u64::MAX);
    let failed = |error| StorageError::io("read", path)(error);
    let scanner = LogScanner::of_file(path, header, limit).map_err(failed)?;
    let scanner = scanner.watched(progress).with_padding();
    let read = match &header.replaces {
        Some(replaced) => read_arranged(file, replaced, scanner, whole, cut),
        None => read_batches(file, scanner, whole, cut),
    };
    match read {
        Ok(is_damaged) => Ok(is_damaged),
        Err(ScanError::Frame(_)) => Ok(true),
        Err(ScanError::Io(error)) => {
            progress.check()?;
            if is_transient(&error) {
                return Err(failed(error));
            }
            cut.is_unreadable = true;
            Ok(true)
        }
    }
}

fn read_batches(
    file: &LogFile,
    mut scanner: LogScanner,
    whole: &mut Whole,
    cut: &mut Cut,
) -> Result<bool, ScanError> {
    while let Some(batch) = scanner.next()? {
        let runs: Option<Vec<_>> = batch.segments.into_iter().map(LeafRun::of).collect();
        if !runs.is_some_and(|runs| whole.add(runs)) {
            return Ok(true);
        }
        let length = scanner.tail().length;
        (cut.end.batch, cut.end.chain) = (batch.end.batch, batch.end.chain);
        cut.end.previous = Some(PreviousFile {
            file: file.id,
            length,
        });
        cut.offset = length;
    }
    let limit = file.limit;
    Ok(limit.is_some_and(|limit| scanner.tail().length < limit))
}

/// Reads an arranged file: it is whole, or the log is cut before it.
fn read_arranged(
    file: &LogFile,
    replaced: &ReplacedFile,
    mut scanner: LogScanner,
    whole: &mut Whole,
    cut: &mut Cut,
) -> Result<bool, ScanError> {
    let mut runs: Vec<LeafRun> = Vec::new();
    while let Some(segment) = scanner.next_segment()? {
        let Some(run) = LeafRun::of(segment) else {
            return Ok(true);
        };
        // A long leaf has several segments.
        if !runs.last_mut().is_some_and(|last| last.join(&run)) {
            runs.push(run);
        }
    }
    let is_as_written = file.tail.is_none_or(|tail| tail == scanner.tail());
    if !is_as_written || scanner.tail().length != replaced.arranged_length || !whole.add(runs) {
        return Ok(true);
    }
    (cut.end.batch, cut.end.chain) = (replaced.next_batch, replaced.chain);
    cut.end.previous = Some(PreviousFile {
        file: replaced.file,
        length: replaced.length,
    });
    cut.offset = scanner.tail().length;
    Ok(false)
}
