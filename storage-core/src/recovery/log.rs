//! Recovery of the log: its files from where the index parts end.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use storage_format::{
    DataFileId, FormatError, FormatErrorKind, StorageId,
    index_part::LogPosition,
    log::{FILE_HEADER_BYTES, LogFileHeader, PreviousFile, ReplacedFile},
};

use super::{DataFile, Recovered, Scan, repairs::limit_of};
use crate::{
    StorageError,
    io_thread::{LogEnd, Tail},
    log_scan::{FoundBatch, FoundSegment, LogScanner},
    scan::{ScanError, WINDOW_BYTES, Window},
};

/// A file of the log, from the newest back to the one in which the index parts end.
#[derive(Debug)]
struct ChainedFile {
    path: PathBuf,
    /// Its bytes.
    length: u64,
    header: LogFileHeader,
    /// Its length, if a later file says it: all of that was durable.
    limit: Option<u64>,
    /// Where the index parts end, if that is in this file.
    start: Option<(LogPosition, Tail)>,
}

/// The batches of a file.
#[derive(Debug)]
struct FoundFile {
    batches: Vec<FoundBatch>,
    end: LogPosition,
    tail: Tail,
    /// What ends the file before its limit, if there is one, and whether that is damage.
    fault: Option<(FormatError, bool)>,
}

impl Recovered {
    /// Adds the batches that no part covers.
    pub(super) fn add_log(
        &mut self,
        storage: StorageId,
        data: &BTreeMap<DataFileId, DataFile>,
        scan: &Scan,
    ) -> Result<(), StorageError> {
        let chain = self.chain(storage, data, scan)?;
        for file in &chain {
            let covered = file.start.map_or(0, |(position, _)| position.offset);
            let end = file.limit.unwrap_or(u64::MAX).min(file.length);
            scan.expect(end.saturating_sub(covered));
        }
        let found = scan.all(&chain, |file| file.scan(scan));
        let mut end = LogEnd::default();
        if let Some(position) = self.tree.position() {
            let tail = self.tree.files().get(&position.file).copied();
            let replaced = self.replacements.get(position.file);
            let length = replaced.map_or_else(
                || tail.unwrap_or_default().length,
                |replaced| replaced.length,
            );
            end.batch = position.batch;
            end.chain = position.chain;
            end.previous = Some(PreviousFile {
                file: position.file,
                length,
            });
        }
        for (file, found) in chain.iter().zip(found) {
            if !self.add_log_file(file, found?, &mut end) {
                break;
            }
        }
        self.tree.set_recovered_log(end);
        Ok(())
    }

    /// The files to scan, oldest first. Files that are no part of the log, because their first
    /// write never succeeded, become leftovers.
    fn chain(
        &mut self,
        storage: StorageId,
        data: &BTreeMap<DataFileId, DataFile>,
        scan: &Scan,
    ) -> Result<Vec<ChainedFile>, StorageError> {
        let mut headers = BTreeMap::new();
        for (&id, file) in data.iter().filter(|(_, file)| file.is_of_log) {
            let header = LogScanner::header(&file.path, storage, id);
            match header.map_err(StorageError::io("read", &file.path))? {
                Ok(header) => {
                    let of_log = header.replaces.map_or(id, |replaced| replaced.file);
                    headers.insert(of_log, header);
                }
                Err(error) => self.without_header(storage, (id, file), error, scan)?,
            }
        }
        let position = self.tree.position();
        // Index parts do not end inside of a file that was replaced.
        let is_replaced = |id: DataFileId| self.replacements.get(id).is_some();
        let covered_to = position.map(|position| (position.file, is_replaced(position.file)));
        let is_covered = |id: DataFileId| {
            covered_to.is_some_and(|(file, is_whole)| id < file || (is_whole && id == file))
        };
        let mut chain = Vec::new();
        let newest = headers.last_key_value().map(|(&id, _)| id);
        let mut next = newest.map(|id| (id, limit_of(&self.repairs, id)));
        while let Some((id, limit)) = next.take().filter(|(id, _)| !is_covered(*id)) {
            let header = headers.remove(&id);
            let file = header.as_ref().and_then(|header| data.get(&header.file));
            let Some((header, file)) = header.zip(file) else {
                let name = storage_format::paths::FileName::Data(id).to_string();
                let kind = FormatErrorKind::Truncated {
                    needed: limit.unwrap_or(0),
                    available: 0,
                };
                self.damaged(StorageError::damaged(name)(FormatError {
                    what: "data file",
                    offset: 0,
                    kind,
                }));
                // What is before it can still be read.
                let before = headers.range(..id).next_back().map(|(&id, _)| id);
                next = before.map(|id| (id, limit_of(&self.repairs, id)));
                continue;
            };
            let previous = header.previous.filter(|previous| previous.file < id);
            next = previous.map(|previous| (previous.file, Some(previous.length)));
            let start = position.filter(|position| position.file == id);
            let tail = self.tree.files().get(&id).copied().unwrap_or_default();
            let is_last = start.is_some();
            chain.push(ChainedFile {
                path: file.path.clone(),
                length: file.length,
                header,
                limit,
                start: start.map(|position| (position, tail)),
            });
            if is_last {
                break;
            }
        }
        // What is left was created by a write that failed, and no later file continues it.
        let known = self.tree.files();
        let unused = headers.values().filter(|header| header.replaces.is_none());
        let unused = unused.filter(|header| !known.contains_key(&header.file));
        let unused: Vec<_> = unused.filter_map(|header| data.get(&header.file)).collect();
        self.leftovers
            .extend(unused.iter().map(|file| file.path.clone()));
        chain.reverse();
        Ok(chain)
    }

    /// A file without a header: torn while it was created, or damaged.
    fn without_header(
        &mut self,
        storage: StorageId,
        (id, file): (DataFileId, &DataFile),
        error: FormatError,
        scan: &Scan,
    ) -> Result<(), StorageError> {
        // The header is intact, so this is no file of which the first write was torn. It may be in
        // the place of a file with acknowledged packets.
        if error.kind == FormatErrorKind::Foreign {
            self.damaged(StorageError::damaged(&file.path)(error));
            return Ok(());
        }
        let salted = LogFileHeader {
            storage,
            file: id,
            is_arranged: false,
            replaces: None,
            salt: 0,
            created: 0,
            first_batch: 0,
            previous: None,
            chain: 0,
        };
        let fault = StorageError::io("read", &file.path);
        let search = || -> io::Result<bool> {
            let scanner = LogScanner::of_file(&file.path, &salted, u64::MAX)?;
            let mut scanner = scanner.watched(&scan.progress);
            let from = FILE_HEADER_BYTES as u64;
            let Some(first) = scanner.find_batch(from, |_| true)? else {
                return Ok(false);
            };
            let is_proof = |header: &storage_format::log::BatchHeader| {
                header.salt == first.salt && header.durable_mark > first.number
            };
            Ok(scanner.find_batch(from, is_proof)?.is_some())
        };
        if search().map_err(fault)? || self.tree.files().contains_key(&id) {
            self.damaged(StorageError::damaged(&file.path)(error));
        } else {
            self.without_batches(&file.path);
        }
        Ok(())
    }

    /// A file of which no batch can be read and none is known to have been durable: its first write
    /// never ended, or its only batch is damaged. It is removed only when nothing was written to
    /// it, because damage cannot be told from a torn write.
    fn without_batches(&mut self, path: &Path) {
        if has_data(path).unwrap_or(true) {
            tracing::warn!(
                path = %path.display(),
                "no batch of a data file can be read, and none is known to have been acknowledged; \
                 the file is ignored and stays until the storage is finalized"
            );
        } else {
            self.leftovers.push(path.to_owned());
        }
    }

    /// Adds what was found in a file; whether the next file may be added, too.
    fn add_log_file(&mut self, file: &ChainedFile, found: FoundFile, end: &mut LogEnd) -> bool {
        let id = file.header.file;
        let first = file.start.map_or(
            (file.header.first_batch, file.header.chain),
            |(position, _)| (position.batch, position.chain),
        );
        if first != (end.batch, end.chain) {
            let kind = FormatErrorKind::Order {
                name: "first batch",
            };
            self.damaged(StorageError::damaged(&file.path)(FormatError {
                what: "log file header",
                offset: 0,
                kind,
            }));
            return false;
        }
        let has_batches = !found.batches.is_empty() || file.start.is_some();
        for batch in found.batches {
            for segment in batch.segments {
                if let Err(error) = self.add_segment(segment) {
                    self.damaged(StorageError::damaged(&file.path)(error));
                    return false;
                }
            }
            (end.batch, end.chain) = (batch.end.batch, batch.end.chain);
        }
        if has_batches {
            self.tree.reach_in(id, found.end, found.tail);
            let replaced = file.header.replaces;
            end.previous = Some(PreviousFile {
                file: found.end.file,
                length: replaced.map_or(found.tail.length, |replaced| replaced.length),
            });
        } else if found.fault.as_ref().is_none_or(|(_, is_damage)| !is_damage) {
            self.without_batches(&file.path);
        }
        match found.fault {
            Some((error, true)) => {
                self.damaged(StorageError::damaged(&file.path)(error));
                false
            }
            _ => true,
        }
    }

    /// Adds the packets of a segment.
    pub(super) fn add_segment(&mut self, segment: FoundSegment) -> Result<(), FormatError> {
        let FoundSegment {
            leaf,
            leaf_header,
            entries,
            extent,
            checksum,
        } = segment;
        let order = |name| FormatError {
            what: "segment",
            offset: extent.offset,
            kind: FormatErrorKind::Order { name },
        };
        if let (None, Some(header)) = (self.tree.leaf(leaf), &leaf_header) {
            self.tree.add_leaf(leaf, header.leaf_type, &header.path);
        }
        let Some(known) = self.tree.leaf(leaf) else {
            return Err(order("leaf"));
        };
        if known.tail.length != extent.leaf_offset {
            return Err(order("offset in the leaf"));
        }
        let mut follows = known.order();
        for entry in &entries {
            follows.accept(entry).map_err(order)?;
        }
        let mut tail = known.tail;
        if entries.is_empty() {
            return Err(order("length"));
        }
        tail.join(Tail {
            length: extent.length,
            checksum,
        });
        self.tree.insert(leaf, entries, &extent, tail);
        Ok(())
    }
}

/// Whether anything was written after the header of a file.
fn has_data(path: &Path) -> io::Result<bool> {
    let mut window = Window::of_file(path, u64::MAX)?;
    let mut at = FILE_HEADER_BYTES as u64;
    while let Some(data) = window.next_data(at)? {
        at = data.max(at);
        let bytes = window.bytes(at, WINDOW_BYTES)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
        at = at.saturating_add(bytes.len() as u64);
        if at >= window.end() {
            break;
        }
    }
    Ok(false)
}

impl ChainedFile {
    /// The segments of an arranged file, as one batch that ends where the batches of the file ended
    /// that it replaces. All of it was durable.
    fn scan_arranged(
        &self,
        replaced: &ReplacedFile,
        scan: &Scan,
    ) -> Result<FoundFile, StorageError> {
        let fault = |error| StorageError::io("read", &self.path)(error);
        let end = LogPosition {
            file: replaced.file,
            offset: replaced.length,
            batch: replaced.next_batch,
            chain: replaced.chain,
        };
        let scanner = LogScanner::of_file(&self.path, &self.header, replaced.arranged_length);
        let scanner = scanner.map_err(fault)?.watched(&scan.progress);
        let mut scanner = scanner.strict(scan.is_strict);
        let mut segments = Vec::new();
        let stopped = loop {
            match scanner.next_segment() {
                Ok(Some(segment)) => segments.push(segment),
                Ok(None) => break None,
                Err(ScanError::Frame(error)) => break Some(error),
                Err(ScanError::Io(error)) => return Err(fault(error)),
            }
        };
        let tail = scanner.tail();
        let error = |offset, kind| FormatError {
            what: "arranged data file",
            offset,
            kind,
        };
        let needed = replaced.arranged_length;
        let stopped = stopped.or_else(|| {
            let available = scanner.end();
            let kind = FormatErrorKind::Truncated { needed, available };
            (tail.length < needed).then(|| error(tail.length, kind))
        });
        let stopped = stopped.or_else(|| {
            let is_other = self.limit.is_some_and(|limit| limit != replaced.length);
            let name = "length of the file before";
            (is_other && !crate::sabotaged!("skip-chain"))
                .then(|| error(92, FormatErrorKind::Order { name }))
        });
        Ok(FoundFile {
            batches: vec![FoundBatch { segments, end }],
            end,
            tail,
            fault: stopped.map(|error| (error, true)),
        })
    }

    fn scan(&self, scan: &Scan) -> Result<FoundFile, StorageError> {
        if let Some(replaced) = &self.header.replaces {
            return self.scan_arranged(replaced, scan);
        }
        let fault = |error| StorageError::io("read", &self.path)(error);
        let limit = self.limit.unwrap_or(u64::MAX);
        let scanner = match self.start {
            Some((position, tail)) => {
                LogScanner::after(&self.path, &self.header, position, tail, limit)
            }
            None => LogScanner::of_file(&self.path, &self.header, limit),
        };
        let scanner = scanner.map_err(fault)?.watched(&scan.progress);
        let mut scanner = scanner.strict(scan.is_strict);
        let mut batches = Vec::new();
        let stopped = loop {
            match scanner.next() {
                Ok(Some(batch)) => batches.push(batch),
                Ok(None) => break None,
                Err(ScanError::Frame(error)) => break Some(error),
                Err(ScanError::Io(error)) => return Err(fault(error)),
            }
        };
        let (end, tail) = (scanner.position(), scanner.tail());
        let fault = match (stopped, self.limit) {
            (Some(error), Some(_)) => Some((error, true)),
            (Some(error), None) => {
                let is_damage = scanner.proves_loss().map_err(fault)?;
                if !is_damage && !scanner.is_blank().map_err(fault)? {
                    tracing::warn!(
                        path = %self.path.display(), %error,
                        "the last write to a data file is incomplete and is ignored; nothing proves \
                         that it was acknowledged, and producers whose packets it contained send them \
                         again"
                    );
                }
                Some((error, is_damage))
            }
            (None, Some(limit)) if tail.length < limit => {
                let kind = FormatErrorKind::Truncated {
                    needed: limit,
                    available: scanner.end(),
                };
                let error = FormatError {
                    what: "data file",
                    offset: tail.length,
                    kind,
                };
                Some((error, true))
            }
            (None, _) => None,
        };
        Ok(FoundFile {
            batches,
            end,
            tail,
            fault,
        })
    }
}
