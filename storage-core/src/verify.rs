//! Verification: re-reads all files of a storage and reports what is damaged.

use std::{collections::BTreeMap, path::Path, sync::atomic::Ordering};

use serde::Serialize;
use storage_format::{
    DataFileId, LeafId,
    checksum::crc32c_append,
    data_file::{DataFileHeader, HEADER_BYTES},
    index_part::PacketEntry,
    paths::{FileName, FileRole},
    seal::{FileHasher, Seal},
    storage_file::{StorageFile, StorageState},
};

use crate::{
    MissingPackets, Progress, StorageError,
    checksums::{read_checksums, sum_file},
    codec,
    damage::Damage,
    io::drop_cached,
    io_thread::Tail,
    leaf_bytes::{LeafMap, LeafReader},
    listed::{differences, differences_of_log},
    read::read_small,
    scan::{FrameScanner, ScanError, Scanned},
    seal_state,
    storage::{Storage, StorageReader},
    tree::{Selection, merge},
};

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Files that were read.
    pub files: u64,
    /// Packets that were read and decompressed.
    pub packets: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Whether it was cancelled before the end.
    pub is_cancelled: bool,
    /// All damage that was found; empty when the storage is intact.
    pub damage: Vec<Damage>,
    /// Packets that are missing since the storage was repaired, at most.
    pub missing_packets: u64,
    /// What is missing.
    pub missing: Vec<MissingPackets>,
    /// Why it is not known what is missing: the repair file cannot be read.
    pub missing_unknown: Option<String>,
}

struct Verification<'a> {
    storage: &'a Storage,
    progress: &'a Progress,
    report: VerifyReport,
}

/// Verifies a storage; blocks the thread. Packets that are not durable yet are ignored. Without an
/// index, `unindexed` says why, and only its files are verified.
pub(crate) fn verify(
    storage: &Storage,
    progress: &Progress,
    unindexed: Option<StorageError>,
) -> Result<VerifyReport, StorageError> {
    storage.reload_repairs();
    let repairs = storage.repairs();
    let report = VerifyReport {
        files: 0,
        packets: 0,
        bytes: 0,
        is_cancelled: false,
        damage: Vec::new(),
        missing_packets: repairs.missing_packets(),
        missing: repairs.missing().map(MissingPackets::from).collect(),
        missing_unknown: storage.unknown_repairs.read().clone(),
    };
    let mut verification = Verification {
        storage,
        progress,
        report,
    };
    let file = storage.info();
    // The tails are read first: packets that become durable meanwhile are after them.
    let (tails, files): (BTreeMap<LeafId, Tail>, BTreeMap<DataFileId, Tail>) =
        match &*storage.tree.read() {
            Some(tree) => {
                let tails = tree.leaves().map(|leaf| (leaf.id, leaf.tail));
                (tails.collect(), tree.files().clone())
            }
            None => Default::default(),
        };
    // Data files are read twice: every byte for the checksum of the file, and every packet.
    let data: u64 = tails
        .values()
        .chain(files.values())
        .map(|tail| tail.length)
        .sum();
    let others = file
        .files
        .iter()
        .filter(|entry| entry.role != FileRole::Data);
    let others: u64 = others.map(|entry| entry.length).sum();
    let own = std::fs::metadata(storage.path(&FileName::Storage(storage.id)));
    let total = data
        .saturating_add(others)
        .saturating_add(own.map_or(0, |own| own.len()));
    progress.bytes_total.store(total, Ordering::Relaxed);
    verification.storage_file();
    if file.state == StorageState::Finalized {
        verification.listed_files(&file);
    } else {
        verification.data_files(files);
    }
    for (leaf, tail) in tails {
        if tail != Tail::default() {
            verification.leaf(leaf, tail);
        }
    }
    storage.forget_damage_of_others();
    verification.failure();
    if let Some(error) = &unindexed {
        verification.without_index(error);
    }
    verification.remember();
    verification.report.is_cancelled = progress.is_cancelled.load(Ordering::Relaxed);
    Ok(verification.report)
}

impl Verification<'_> {
    fn is_cancelled(&self) -> bool {
        self.progress.is_cancelled.load(Ordering::Relaxed)
    }

    fn damage(&mut self, file: &str, offset: u64, what: impl ToString) {
        self.report.damage.push(Damage {
            file: file.to_owned(),
            offset,
            what: what.to_string(),
        });
    }

    /// Remembers what was found, so that the status of the storage has it. The storage file is
    /// restored from its copy, or the storage is FAILED.
    fn remember(&self) {
        let own = [
            FileName::Storage(self.storage.id).to_string(),
            FileName::StorageCopy(self.storage.id).to_string(),
        ];
        let found = self.report.damage.iter();
        for damage in found.filter(|damage| !own.contains(&damage.file)) {
            self.storage.remember_damage(
                damage,
                "check the disk, and restore the file from an export or a backup",
            );
        }
    }

    fn read(&mut self, bytes: u64) {
        self.report.bytes = self.report.bytes.saturating_add(bytes);
        self.progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn storage_file(&mut self) {
        let name = FileName::Storage(self.storage.id);
        let path = self.storage.path(&name);
        self.report.files = self.report.files.saturating_add(1);
        let max = u64::from(storage_format::limits::ENVELOPE_BODY_BYTES_MAX);
        match read_small(&path, max) {
            Ok(bytes) => {
                self.read(bytes.len() as u64);
                match StorageFile::decode(&bytes) {
                    Ok(file) => {
                        if let Err(error) = file.check_id(self.storage.id) {
                            self.damage(&name.to_string(), error.offset, &error);
                        }
                    }
                    Err(error) => self.damage(&name.to_string(), error.offset, &error),
                }
            }
            Err(error) => self.damage(&name.to_string(), 0, error),
        }
        if self.storage.state() == StorageState::Finalized {
            // Also restores the storage file.
            match self.storage.check_copy() {
                Ok(restored) => {
                    let copy = FileName::StorageCopy(self.storage.id);
                    // That of the storage file was found above, or is past the page cache.
                    let is_new = |file: &FileName| *file == copy || self.report.damage.is_empty();
                    let new: Vec<_> = restored
                        .into_iter()
                        .filter(|(file, _)| is_new(file))
                        .collect();
                    for (file, error) in new {
                        match error {
                            StorageError::Damaged { source, .. } => {
                                self.damage(&file.to_string(), source.offset, &source);
                            }
                            error => self.damage(&file.to_string(), 0, error),
                        }
                    }
                }
                Err(error) => {
                    let copy = FileName::StorageCopy(self.storage.id).to_string();
                    self.damage(&copy, 0, error);
                }
            }
        }
    }

    /// The damage that prevents an index from being rebuilt, so that no packet was read.
    fn without_index(&mut self, error: &StorageError) {
        let own = FileName::Storage(self.storage.id).to_string();
        let (file, offset) = match error {
            StorageError::Damaged { path, source } => {
                let name = path.file_name().map(|name| name.to_string_lossy());
                (name.map_or(own, Into::into), source.offset)
            }
            _ => (own, 0),
        };
        let what = format!("no index can be rebuilt, so no packet was read: {error}");
        self.damage(&file, offset, what);
    }

    /// The damage that recovery found: the tree ends there, so nothing behind it was read.
    fn failure(&mut self) {
        let own = FileName::Storage(self.storage.id).to_string();
        let (file, offset, what) = match self.storage.damage() {
            Some(StorageError::Damaged { path, source }) => {
                let name = path.file_name().map(|name| name.to_string_lossy());
                let what = format!("{source}; what is behind the damage was not read: repair it");
                (name.map_or(own, Into::into), source.offset, what)
            }
            Some(error) => (own, 0, error.to_string()),
            None if self.storage.is_unreadable() && self.report.damage.is_empty() => {
                let failure = self.storage.info().failure;
                (own, 0, failure.unwrap_or_default())
            }
            None => return,
        };
        self.damage(&file, offset, what);
    }

    /// Lets a file of which damage is known be read from the disk: the scrub finds what the page
    /// cache does not show.
    fn look_again(&self, path: &Path, name: &str) {
        if self.storage.checked.is_damaged(name)
            && let Err(error) = drop_cached(path)
        {
            tracing::warn!(%error, file = name, "a damaged file is verified in the page cache");
        }
    }

    /// Length and checksums of every file that the storage file lists.
    fn listed_files(&mut self, file: &StorageFile) {
        // A damaged checksum file is found below.
        let known = read_checksums(&self.storage.folder, file).and_then(Result::ok);
        let seal = self.seal(file);
        for entry in &file.files {
            if self.is_cancelled() {
                return;
            }
            let path = self.storage.folder.join(&entry.name);
            self.look_again(&path, &entry.name);
            let mut hasher = seal.as_ref().map(|seal| FileHasher::new(seal.group_bytes));
            let read = |part: &[u8]| {
                if let Some(hasher) = &mut hasher {
                    hasher.extend(part);
                }
                Ok(())
            };
            match sum_file(&path, u64::MAX, read) {
                Err(error) => self.damage(&entry.name, 0, error),
                Ok(sums) => {
                    if sums.length() == entry.length {
                        self.report.files = self.report.files.saturating_add(1);
                        self.read(sums.length());
                    }
                    let found = differences(self.storage, entry, sums, known.as_ref());
                    if found.is_empty() {
                        self.storage.checked.forget_damage(&entry.name);
                        let sealed = seal.as_ref().zip(hasher);
                        let forged = sealed.and_then(|(seal, hasher)| {
                            seal_state::difference_of(seal, &entry.name, &hasher.finish())
                        });
                        self.report.damage.extend(forged);
                    }
                    self.report.damage.extend(found);
                }
            }
        }
    }

    /// The seal, if there is one that can be read. What it says otherwise than the storage file is
    /// noted; that its file is damaged is found with those of the others.
    fn seal(&mut self, file: &StorageFile) -> Option<Seal> {
        let (own, seal) = seal_state::read_seal(&self.storage.folder, file)?;
        match seal {
            Ok(seal) => {
                let found = seal_state::differences(own, &seal, file);
                self.report.damage.extend(found);
                Some(seal)
            }
            Err(error) => {
                let what = format!("the seal is broken: {error}");
                self.damage(&own.name, 0, what);
                None
            }
        }
    }

    /// Length and checksum of every data file of a storage that is not finalized.
    fn data_files(&mut self, files: BTreeMap<DataFileId, Tail>) {
        for (file, tail) in files {
            if self.is_cancelled() {
                return;
            }
            let name = FileName::Data(file).to_string();
            self.report.files = self.report.files.saturating_add(1);
            let path = self.storage.folder.join(&name);
            self.look_again(&path, &name);
            match sum_file(&path, tail.length, |_| Ok(())) {
                Err(error) => self.damage(&name, 0, error),
                Ok(sums) => {
                    if sums.length() >= tail.length {
                        self.read(sums.length());
                    }
                    let found = differences_of_log(&name, tail, &sums);
                    if found.is_none() {
                        self.storage.checked.forget_damage(&name);
                    }
                    self.report.damage.extend(found);
                }
            }
        }
    }

    /// Notes damage of a leaf, where its bytes are.
    fn leaf_damage(&mut self, map: &LeafMap, offset: u64, what: impl ToString) {
        let located = map.extents(&(offset..offset.saturating_add(1)));
        match located.ok().and_then(|extents| extents.first().copied()) {
            Some(extent) => {
                self.damage(
                    &FileName::Data(extent.file).to_string(),
                    extent.offset,
                    what,
                );
            }
            None => self.damage(&map.place(), offset, what),
        }
    }

    /// Checks every frame of a leaf against its checksums and the index.
    fn leaf(&mut self, leaf: LeafId, tail: Tail) {
        let range = 0..tail.length;
        let readers = || {
            let (map, reader) = (
                self.storage.leaf_map(leaf, &range),
                self.storage.leaf_reader(leaf, &range),
            );
            map.zip(reader)
        };
        let Some((map, reader)) = readers() else {
            return;
        };
        let packets = LeafReader::new(map);
        let map = packets.map();
        let header = match packets.read(0, HEADER_BYTES) {
            Ok(bytes) => bytes,
            Err(error) => return self.leaf_damage(map, 0, error),
        };
        self.read(HEADER_BYTES as u64);
        if let Err(error) = DataFileHeader::decode(&header) {
            self.leaf_damage(map, error.offset, &error);
        }
        let mut start = Tail::default();
        start.extend(&header);
        let mut index = self.index_of(leaf, map);
        let mut scanner = FrameScanner::of_leaf(reader, self.storage.id, leaf, start, tail.length);
        let mut is_whole = true;
        while !self.is_cancelled() {
            match scanner.next(true) {
                Ok(None) => break,
                Ok(Some(scanned)) => {
                    self.read(scanned.header.frame_bytes());
                    self.packet(&packets, &scanned, &mut index);
                }
                Err(error) => {
                    is_whole = false;
                    if !self.skip(map, &mut scanner, error) {
                        break;
                    }
                }
            }
        }
        if self.is_cancelled() || !is_whole {
            return;
        }
        for (offset, _) in index.into_iter().flatten() {
            let what = "the index has a packet that is not in the data file";
            self.leaf_damage(map, offset, what);
        }
        let found = scanner.tail();
        if found.length < tail.length {
            self.leaf_damage(map, found.length, "the leaf ends before its last packet");
        } else if found.checksum != tail.checksum {
            self.leaf_damage(map, 0, "the checksum of the leaf does not match");
        }
    }

    /// Resumes after a damaged frame; `false` when no intact frame follows.
    fn skip(&mut self, map: &LeafMap, scanner: &mut FrameScanner, error: ScanError) -> bool {
        match error {
            ScanError::Io(error) => {
                self.leaf_damage(map, scanner.tail().length, error);
                return false;
            }
            ScanError::Frame(error) => self.leaf_damage(map, error.offset, &error),
        }
        let from = scanner.tail().length.saturating_add(1);
        match scanner.skip_to_frame(from) {
            Ok(found) => found,
            Err(error) => {
                self.leaf_damage(map, from, error);
                false
            }
        }
    }

    /// The index entries of a leaf by payload offset; `None` for a plain leaf.
    fn index_of(&mut self, leaf: LeafId, map: &LeafMap) -> Option<BTreeMap<u64, PacketEntry>> {
        let selection = Selection {
            limit: usize::MAX,
            ..Selection::default()
        };
        let runs = {
            let tree = self.storage.tree.read();
            let tree = tree.as_ref()?;
            if tree.leaf(leaf)?.leaf_type == storage_format::LeafType::Plain {
                return None;
            }
            tree.select_leaf(leaf, &selection)
        };
        match merge(runs, &selection, &StorageReader(self.storage)) {
            Ok(found) => Some(
                found
                    .into_iter()
                    .map(|found| (found.entry.offset, found.entry))
                    .collect(),
            ),
            Err(error) => {
                self.damage(
                    &map.place(),
                    0,
                    format!("its index cannot be read: {error}"),
                );
                None
            }
        }
    }

    fn packet(
        &mut self,
        packets: &LeafReader,
        scanned: &Scanned,
        index: &mut Option<BTreeMap<u64, PacketEntry>>,
    ) {
        self.report.packets = self.report.packets.saturating_add(1);
        let (header, at, map) = (&scanned.header, scanned.payload, packets.map());
        if let Some(index) = index {
            match index.remove(&at) {
                Some(entry) if entry == entry_of_frame(scanned, &entry) => {}
                Some(_) => self.leaf_damage(map, at, "the index and the frame differ"),
                // Became durable after the tails were read.
                None if self.storage.state() != StorageState::Finalized => {}
                None => self.leaf_damage(map, at, "the packet is not in the index"),
            }
        }
        let Ok(stored) = packets.read(at, header.stored_size as usize) else {
            return self.leaf_damage(map, at, "the payload cannot be read");
        };
        match codec::expand(stored.into(), header.codec, header.raw_size) {
            None => self.leaf_damage(map, at, "the payload cannot be decompressed"),
            Some(raw) if crc32c_append(0, &raw) != header.raw_checksum => {
                let what = "the decompressed payload does not match its checksum";
                self.leaf_damage(map, at, what);
            }
            Some(_) => {}
        }
    }
}

/// The index entry that follows from a frame; an index part may lack a time basis.
fn entry_of_frame(scanned: &Scanned, known: &PacketEntry) -> PacketEntry {
    let mut entry = scanned.entry();
    if known.facts.time_basis.is_none() {
        entry.facts.time_basis = None;
    }
    entry
}
