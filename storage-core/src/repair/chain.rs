//! The log of a storage, read from its first batch to the first damage.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
};

use storage_format::{
    DataFileId, LeafId, StreamPosition,
    data_file::DataFileHeader,
    log::{FILE_HEADER_BYTES, LogFileHeader, PreviousFile},
};

use crate::{
    Progress, StorageError,
    errno::is_transient,
    io_thread::{LogEnd, Tail},
    log_scan::{FoundBatch, FoundSegment, LogScanner},
    recovery::LogFiles,
    scan::ScanError,
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

impl Whole {
    /// Adds a batch.
    ///
    /// # Errors
    /// The leaf that it does not continue; then nothing is added.
    fn add(&mut self, batch: FoundBatch) -> Result<(), LeafId> {
        for segment in &batch.segments {
            if !self.is_followed_by(segment) {
                return Err(segment.leaf);
            }
        }
        for segment in batch.segments {
            let count = segment.entries.len() as u64;
            self.packets = self.packets.saturating_add(count);
            let numbers = segment.entries.iter().map(|entry| entry.number);
            self.last_number = self.last_number.max(numbers.max());
            let added = Tail {
                length: segment.extent.length,
                checksum: segment.checksum,
            };
            let last = segment.entries.last();
            let last = last.map(|entry| (entry.number, entry.position));
            match self.leaves.get_mut(&segment.leaf) {
                Some(known) => {
                    known.tail.join(added);
                    known.last = last.unwrap_or(known.last);
                }
                None => {
                    let header = segment.leaf_header.zip(last);
                    let leaf = header.map(|(header, last)| KnownLeaf {
                        header,
                        tail: added,
                        last,
                    });
                    self.leaves.extend(leaf.map(|leaf| (segment.leaf, leaf)));
                }
            }
        }
        Ok(())
    }

    /// Whether a segment continues its leaf.
    fn is_followed_by(&self, segment: &FoundSegment) -> bool {
        let known = self.leaves.get(&segment.leaf);
        let Some(first) = segment.entries.first() else {
            return false;
        };
        let start = segment.extent.leaf_offset;
        match known {
            Some(leaf) => {
                let (number, position) = leaf.last;
                leaf.tail.length == start && first.number > number && first.position > position
            }
            None => start == 0 && segment.leaf_header.is_some(),
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
    let end = &mut cut.end;
    let continues =
        |header: &&LogFileHeader| (header.first_batch, header.chain) == (end.batch, end.chain);
    let header = file.header.as_ref().filter(continues);
    let Some((path, header)) = file.path.as_ref().zip(header) else {
        return Ok(true);
    };
    let limit = file.limit.unwrap_or(u64::MAX);
    let failed = |error| StorageError::io("read", path)(error);
    let scanner = LogScanner::of_file(path, header, limit).map_err(failed)?;
    let mut scanner = scanner.watched(progress);
    loop {
        let found = match scanner.next() {
            Ok(None) => {
                return Ok(file
                    .limit
                    .is_some_and(|limit| scanner.tail().length < limit));
            }
            Ok(Some(batch)) => batch,
            Err(ScanError::Frame(_)) => return Ok(true),
            Err(ScanError::Io(error)) => {
                progress.check()?;
                if is_transient(&error) {
                    return Err(failed(error));
                }
                cut.is_unreadable = true;
                return Ok(true);
            }
        };
        let (position, length) = (found.end, scanner.tail().length);
        if whole.add(found).is_err() {
            return Ok(true);
        }
        (end.batch, end.chain) = (position.batch, position.chain);
        end.previous = Some(PreviousFile {
            file: file.id,
            length,
        });
        cut.offset = length;
    }
}
