//! Verification: re-reads all files of a storage and reports what is damaged.

use std::{collections::BTreeMap, path::Path, sync::atomic::Ordering};

use serde::Serialize;
use storage_format::{
    LeafId,
    agent_file::AgentFile,
    checksum::crc32c_append,
    data_file::{DataFileHeader, HEADER_BYTES},
    index_part::PacketEntry,
    paths::{FileName, FileRole},
    storage_file::{FileEntry, StorageFile, StorageState},
};

use crate::{
    Progress, StorageError, codec,
    io_thread::Tail,
    read::{ReadFile, read_at, read_small, read_whole},
    scan::{FrameScanner, ScanError, Scanned},
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
}

/// Bytes that are not as they were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Offset of the damage in bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

struct Verification<'a> {
    storage: &'a Storage,
    progress: &'a Progress,
    report: VerifyReport,
}

/// Verifies a storage; blocks the thread. Packets that are not durable yet are ignored.
pub(crate) fn verify(storage: &Storage, progress: &Progress) -> Result<VerifyReport, StorageError> {
    let report = VerifyReport {
        files: 0,
        packets: 0,
        bytes: 0,
        is_cancelled: false,
        damage: Vec::new(),
    };
    let mut verification = Verification {
        storage,
        progress,
        report,
    };
    let file = storage.info();
    // The tails are read first: packets that become durable meanwhile are after them.
    let tails: BTreeMap<LeafId, Tail> = match &*storage.tree.read() {
        Some(tree) => tree.leaves().map(|leaf| (leaf.id, leaf.tail)).collect(),
        None => BTreeMap::new(),
    };
    let data: u64 = tails.values().map(|tail| tail.length).sum();
    let others = file
        .files
        .iter()
        .filter(|entry| entry.role != FileRole::Data);
    let others: u64 = others.map(|entry| entry.length).sum();
    let own = std::fs::metadata(storage.path(&FileName::Storage(storage.id)));
    let total = data + others + own.map_or(0, |own| own.len());
    progress.bytes_total.store(total, Ordering::Relaxed);
    verification.storage_file();
    if file.state == StorageState::Finalized {
        verification.listed_files(&file.files);
    }
    for (leaf, tail) in tails {
        if tail != Tail::default() {
            verification.data_file(leaf, tail)?;
        }
    }
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

    fn read(&mut self, bytes: u64) {
        self.report.bytes += bytes;
        self.progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn storage_file(&mut self) {
        let name = FileName::Storage(self.storage.id);
        let path = self.storage.path(&name);
        self.report.files += 1;
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
    }

    /// Length and checksum of every file that the storage file lists.
    fn listed_files(&mut self, files: &[FileEntry]) {
        for entry in files {
            if self.is_cancelled() {
                return;
            }
            let path = self.storage.folder.join(&entry.name);
            // The checksums of data files are computed while their frames are scanned.
            let is_summed_here = entry.role != FileRole::Data;
            match length_and_checksum(&path, is_summed_here) {
                Err(error) => self.damage(&entry.name, 0, error),
                Ok((length, _)) if length != entry.length => {
                    let what = format!(
                        "the file has {length} bytes, but {} were written",
                        entry.length
                    );
                    self.damage(&entry.name, length.min(entry.length), what);
                }
                Ok((length, checksum)) => {
                    if is_summed_here {
                        self.report.files += 1;
                        self.read(length);
                    }
                    if is_summed_here && checksum != entry.checksum {
                        let what = self.locate(entry, &path);
                        self.damage(&entry.name, what.0, what.1);
                    }
                }
            }
        }
    }

    /// The location of the damage in a small file with a wrong checksum.
    fn locate(&self, entry: &FileEntry, path: &Path) -> (u64, String) {
        let found = match entry.role {
            FileRole::Index => match crate::tree::IndexPart::open(path, self.storage.id) {
                Err(StorageError::Damaged { source, .. }) => Some(source),
                Ok(part) => {
                    part.footer
                        .leaves
                        .iter()
                        .find_map(|leaf| match part.read_block(leaf) {
                            Err(StorageError::Damaged { source, .. }) => Some(source),
                            _ => None,
                        })
                }
                Err(_) => None,
            },
            FileRole::Agent => read_whole(path)
                .ok()
                .and_then(|bytes| AgentFile::decode(&bytes).err()),
            _ => None,
        };
        match found {
            Some(error) => (error.offset, error.to_string()),
            None => (0, "the checksum of the file does not match".to_owned()),
        }
    }

    /// Checks every frame of a data file against its checksums and the index.
    fn data_file(&mut self, leaf: LeafId, tail: Tail) -> Result<(), StorageError> {
        let name = FileName::Data(leaf).to_string();
        let path = self.storage.folder.join(&name);
        self.report.files += 1;
        let header = match read_at(&path, 0, HEADER_BYTES) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.damage(&name, 0, error);
                return Ok(());
            }
        };
        self.read(HEADER_BYTES as u64);
        if let Err(error) = DataFileHeader::decode(&header) {
            self.damage(&name, error.offset, &error);
        }
        let mut start = Tail::default();
        start.extend(&header);
        let mut index = self.index_of(leaf, &name);
        let mut scanner = match FrameScanner::open(&path, self.storage.id, leaf, start, tail.length)
        {
            Ok(scanner) => scanner,
            Err(error) => {
                self.damage(&name, 0, error);
                return Ok(());
            }
        };
        let mut is_whole = true;
        while !self.is_cancelled() {
            match scanner.next(true) {
                Ok(None) => break,
                Ok(Some(scanned)) => {
                    self.read(scanned.header.frame_bytes());
                    self.packet(&name, &path, &scanned, &mut index);
                }
                Err(error) => {
                    is_whole = false;
                    if !self.skip(&name, &mut scanner, error) {
                        break;
                    }
                }
            }
        }
        let missing = index.into_iter().flatten();
        if !self.is_cancelled() && is_whole {
            let missing: Vec<_> = missing.map(|(offset, _)| offset).collect();
            missing.into_iter().for_each(|offset| {
                self.damage(
                    &name,
                    offset,
                    "the index has a packet that is not in the data file",
                );
            });
            let found = scanner.tail();
            if found.length < tail.length {
                self.damage(&name, found.length, "the file ends before its last frame");
            } else if found.checksum != tail.checksum {
                self.damage(&name, 0, "the checksum of the file does not match");
            }
        }
        Ok(())
    }

    /// Resumes after a damaged frame; `false` when no intact frame follows.
    fn skip(&mut self, name: &str, scanner: &mut FrameScanner, error: ScanError) -> bool {
        match error {
            ScanError::Io(error) => {
                self.damage(name, scanner.tail().length, error);
                return false;
            }
            ScanError::Frame(error) => self.damage(name, error.offset, &error),
        }
        let from = scanner.tail().length + 1;
        match scanner.skip_to_frame(from) {
            Ok(found) => found,
            Err(error) => {
                self.damage(name, from, error);
                false
            }
        }
    }

    /// The index entries of a leaf by payload offset; `None` for a plain leaf.
    fn index_of(&mut self, leaf: LeafId, name: &str) -> Option<BTreeMap<u64, PacketEntry>> {
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
                self.damage(name, 0, format!("its index cannot be read: {error}"));
                None
            }
        }
    }

    fn packet(
        &mut self,
        name: &str,
        path: &Path,
        scanned: &Scanned,
        index: &mut Option<BTreeMap<u64, PacketEntry>>,
    ) {
        self.report.packets += 1;
        let header = &scanned.header;
        if let Some(index) = index {
            match index.remove(&scanned.payload) {
                Some(entry) if entry == entry_of_frame(scanned, &entry) => {}
                Some(_) => self.damage(name, scanned.payload, "the index and the frame differ"),
                // Became durable after the tails were read.
                None if self.storage.state() != StorageState::Finalized => {}
                None => self.damage(name, scanned.payload, "the packet is not in the index"),
            }
        }
        let Ok(stored) = read_at(path, scanned.payload, header.stored_size as usize) else {
            return self.damage(name, scanned.payload, "the payload cannot be read");
        };
        let raw = codec::expand(stored.into(), header.codec, header.raw_size);
        match raw {
            None => self.damage(name, scanned.payload, "the payload cannot be decompressed"),
            Some(raw) if crc32c_append(0, &raw) != header.raw_checksum => {
                self.damage(
                    name,
                    scanned.payload,
                    "the decompressed payload does not match its checksum",
                );
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

fn length_and_checksum(path: &Path, sums: bool) -> std::io::Result<(u64, u32)> {
    let file = ReadFile::open(path)?;
    let length = file.length()?;
    if !sums {
        return Ok((length, 0));
    }
    let mut checksum = 0;
    let mut window = vec![0; 256 << 10];
    let mut at = 0;
    while at < length {
        let left = usize::try_from(length - at).unwrap_or(usize::MAX);
        let part = &mut window[..left.min(256 << 10)];
        file.fill(part, at)?;
        checksum = crc32c_append(checksum, part);
        at += part.len() as u64;
    }
    Ok((length, checksum))
}
