//! Repair: finds what of a damaged storage is whole, and lets its log continue without the rest.
//!
//! The log is read from its first batch past the page cache. At the first damage it is cut: what is
//! before stays as it is. The packets behind it that are whole are written again, as the first
//! batches of a new data file that continues the log at the cut (`io_thread/rewrite.rs`), so leaves
//! have no holes, and every reader finds an ordinary log. What is missing is recorded in the repair
//! file. Nothing that is there is changed.
//!
//! What is behind the damage is found by the index if that is complete (`indexed.rs`), otherwise in
//! what is left of the log (`salvage.rs`).

mod by_number;
mod chain;
mod damaged_file;
mod indexed;
mod indexed_leaf;
mod leaf_frames;
mod missing;
mod salvage;
mod unindexed;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use storage_format::{
    DataFileId, LeafId, StorageId,
    data_file::DataFileHeader,
    paths::{FileName, UNPUBLISHED_ENDING},
    repair_file::{Missing, Repair, RepairFile},
};

use self::{
    chain::{Cut, LogFile, Whole, chain, chain_of_index, read},
    damaged_file::WholeFrame,
    indexed::Indexed,
    salvage::{Evidence, Salvage, Salvaged, Take},
};
use crate::{
    Progress, StorageError,
    io::{drop_cached, remove_file},
    io_thread::{Frame, LeafSpec, LogRewrite},
    recovery::log_files,
    storage::Storage,
};

/// Packets that were acknowledged and are not whole any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingPackets {
    /// First number that may be missing.
    pub first: u64,
    /// Last number that may be missing.
    pub last: u64,
    /// The damaged data file.
    pub file: String,
    /// Where the damage begins in it, bytes.
    pub offset: u64,
    /// Damaged bytes.
    pub length: u64,
    /// The leaf, where it is known.
    pub leaf: Option<String>,
}

impl From<&Missing> for MissingPackets {
    fn from(missing: &Missing) -> Self {
        Self {
            first: missing.first,
            last: missing.last,
            file: FileName::Data(DataFileId(missing.file)).to_string(),
            offset: missing.offset,
            length: missing.length,
            leaf: missing.leaf.map(|leaf| LeafId(leaf).to_string()),
        }
    }
}

/// The result of a repair, or what one would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// Data files that were read.
    pub files: u64,
    /// Packets that are whole.
    pub packets: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Packets behind the first damage, which are copied to a new data file.
    pub copied_packets: u64,
    /// Bytes of these packets in the data files.
    pub copied_bytes: u64,
    /// Packets that are missing at most, of this repair and those before.
    pub missing_packets: u64,
    /// What is missing, in the order of the log.
    pub missing: Vec<MissingPackets>,
    /// Whether there is anything to repair: damage, or a storage that is FAILED.
    pub is_needed: bool,
    /// Whether the storage was repaired and is open.
    pub is_repaired: bool,
}

/// What is whole of a log.
pub(crate) struct Survey {
    storage: StorageId,
    /// The id of the next data file.
    next_file: u64,
    repairs: RepairFile,
    are_repairs_lost: bool,
    /// Whether there are data files that were not read: those of leaves, or arranged ones.
    has_leaf_files: bool,
    has_replaced_files: bool,
    chain: Vec<LogFile>,
    whole: Whole,
    /// What is behind the first damage, if there is any.
    damage: Option<Damaged>,
}

struct Damaged {
    cut: Cut,
    source: Source,
    salvaged: Salvaged,
}

/// What says which packets there are behind the damage.
enum Source {
    Log(Evidence),
    Index(Indexed),
}

/// Reads the log of the storage in `folder` past the page cache; blocks the thread. `named` are the
/// arranged files that its storage file names.
///
/// # Errors
/// When a file cannot be made durable or opened, or the work is cancelled.
pub(crate) fn survey(
    folder: &Path,
    storage: StorageId,
    named: &[String],
    progress: &Arc<Progress>,
) -> Result<Survey, StorageError> {
    let files = log_files(folder, storage, named)?;
    let chain = chain(&files);
    let known = next_file_of(&chain, &files.repairs);
    let parts = files.parts.iter().map(|part| part.path.clone());
    drop_all_cached(&chain, parts, progress)?;
    let mut survey = Survey {
        storage,
        next_file: files.next_file.max(known),
        repairs: files.repairs.clone(),
        are_repairs_lost: files.are_repairs_lost,
        has_leaf_files: files.has_leaf_files,
        has_replaced_files: files.has_replaced_files,
        chain,
        whole: Whole::default(),
        damage: None,
    };
    // A log that continues files of leaves cannot be read without them, and the batches of files
    // that arranged ones replaced are gone: recovery decides whether such a storage is whole.
    if survey.is_unread() {
        return Ok(survey);
    }
    let (whole, cut) = read(&survey.chain, progress)?;
    survey.whole = whole;
    // What is behind the damage is read twice more.
    let behind = cut.behind(&survey.chain);
    progress.expect(behind.saturating_mul(2));
    let salvage = survey.salvage(&cut, progress);
    let evidence = salvage.evidence(&files)?;
    let salvaged = salvage.run(&evidence, &mut |_, _| Ok(()))?;
    if cut.is_unreadable || evidence.durable > cut.end.batch {
        let source = Source::Log(evidence);
        survey.damage = Some(Damaged {
            cut,
            source,
            salvaged,
        });
    }
    Ok(survey)
}

/// Reads the log of a storage whose index is complete past the page cache, also while it is
/// written, up to what is acknowledged now; blocks the thread.
///
/// # Errors
/// When a file cannot be made durable, the index cannot be read, or the work is cancelled.
pub(crate) fn survey_indexed(
    storage: &Arc<Storage>,
    progress: &Arc<Progress>,
) -> Result<Survey, StorageError> {
    let (chain, _pin) = chain_of_index(storage)?;
    drop_all_cached(&chain, std::iter::empty(), progress)?;
    let (whole, cut) = read(&chain, progress)?;
    let repairs = RepairFile::clone(&storage.repairs());
    let known = next_file_of(&chain, &repairs);
    let mut survey = Survey {
        storage: storage.id,
        next_file: next_file(&storage.folder)?.max(known),
        repairs,
        are_repairs_lost: false,
        has_leaf_files: false,
        has_replaced_files: false,
        chain,
        whole,
        damage: None,
    };
    if cut.at < survey.chain.len() {
        progress.expect(cut.behind(&survey.chain));
        let indexed = Indexed::of(storage, &survey.whole);
        let salvaged = indexed.run(&survey.whole, progress, &mut |_, _| Ok(()))?;
        let source = Source::Index(indexed);
        survey.damage = Some(Damaged {
            cut,
            source,
            salvaged,
        });
    }
    Ok(survey)
}

/// Lets the next reads of these files come from the disk.
fn drop_all_cached(
    chain: &[LogFile],
    parts: impl Iterator<Item = PathBuf>,
    progress: &Progress,
) -> Result<(), StorageError> {
    let bytes = chain.iter().map(|file| file.length);
    progress.begin(bytes.fold(0, u64::saturating_add));
    let data = chain.iter().filter_map(|file| file.path.clone());
    for path in data.chain(parts) {
        progress.check()?;
        drop_cached(&path).map_err(StorageError::io("sync", &path))?;
    }
    Ok(())
}

/// The id after those of the files of a log and of its repairs: a file that is missing keeps its
/// id.
fn next_file_of(chain: &[LogFile], repairs: &RepairFile) -> u64 {
    let of_log = |file: &LogFile| file.id.replaced().unwrap_or(file.id);
    let last = chain.iter().map(|file| of_log(file).0.saturating_add(1));
    let repaired = repairs.repairs.iter().map(|repair| repair.next_file);
    last.chain(repaired).max().unwrap_or(0)
}

/// The id after those of all data files of the log in `folder`, also those that do not belong to it
/// any more.
fn next_file(folder: &Path) -> Result<u64, StorageError> {
    let mut next = 0;
    for entry in std::fs::read_dir(folder).map_err(StorageError::io("list", folder))? {
        let name = entry.map_err(StorageError::io("list", folder))?.file_name();
        if let Some(Ok(FileName::Data(file))) = name.to_str().map(str::parse)
            && file.is_numbered()
        {
            let file = file.replaced().unwrap_or(file);
            next = next.max(file.0.saturating_add(1));
        }
    }
    Ok(next)
}

impl Survey {
    fn salvage<'a>(&'a self, cut: &'a Cut, progress: &'a Progress) -> Salvage<'a> {
        Salvage {
            storage: self.storage,
            chain: &self.chain,
            cut,
            whole: &self.whole,
            progress,
        }
    }

    /// Whether there are data files that were not read, so that only a recovery says whether the
    /// storage is whole.
    pub(crate) fn is_unread(&self) -> bool {
        self.has_leaf_files || self.has_replaced_files
    }

    /// Whether there are files of leaves, which are not surveyed.
    pub(crate) fn has_leaf_files(&self) -> bool {
        self.has_leaf_files
    }

    /// The survey of a storage that was not read and has this many packets, all of them intact.
    pub(crate) fn of_intact(mut self, packets: u64) -> Self {
        self.whole.packets = packets;
        self
    }

    /// Whether the repair file is lost, so that it has to be written again.
    pub(crate) fn are_repairs_lost(&self) -> bool {
        self.are_repairs_lost
    }

    /// Whether the log has to be cut.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damage.is_some()
    }

    /// Bytes that a repair copies, and the number of the packets.
    pub(crate) fn copied(&self) -> (u64, u64) {
        let salvaged = self.damage.as_ref().map(|damage| &damage.salvaged);
        salvaged.map_or((0, 0), |found| (found.bytes, found.packets))
    }

    /// What is whole and what is missing.
    pub(crate) fn report(&self) -> RepairReport {
        let (copied_bytes, copied_packets) = self.copied();
        let repairs = self.repairs(0);
        let files = self.chain.iter().filter(|file| file.path.is_some());
        let behind = self
            .damage
            .as_ref()
            .map(|damage| damage.cut.behind(&self.chain));
        RepairReport {
            files: files.count() as u64,
            packets: self.whole.packets.saturating_add(copied_packets),
            bytes: self.whole.bytes.saturating_add(behind.unwrap_or(0)),
            copied_packets,
            copied_bytes,
            missing_packets: repairs.missing_packets(),
            missing: repairs.missing().map(MissingPackets::from).collect(),
            is_needed: self.is_damaged(),
            is_repaired: false,
        }
    }

    /// The repair file after this repair.
    pub(crate) fn repairs(&self, time: i64) -> RepairFile {
        let mut repairs = self.repairs.clone();
        if self.are_repairs_lost
            && let Some(first) = repairs.repairs.first_mut()
        {
            let salvaged = self.damage.as_ref().map(|damage| &damage.salvaged);
            let salvaged = salvaged.and_then(|found| found.last_number);
            // Whatever is not there may be missing.
            let last = self.whole.last_number.max(salvaged).unwrap_or(0);
            first.next_number = last.saturating_add(1);
            first.missing = vec![Missing {
                first: 0,
                last,
                file: first.cut.map_or(0, |(file, _)| file),
                offset: first.cut.map_or(0, |(_, length)| length),
                length: 0,
                leaf: None,
            }];
        }
        if let Some(Damaged { cut, salvaged, .. }) = &self.damage {
            let last = self.whole.last_number.max(salvaged.last_number);
            let next = last.map_or(0, |last| last.saturating_add(1));
            let next_number = next.max(repairs.next_number());
            repairs.repairs.push(Repair {
                time,
                cut: cut.end.previous.map(|cut| (cut.file.0, cut.length)),
                batch: cut.end.batch,
                next_file: self.next_file,
                copied_packets: salvaged.packets,
                next_number,
                missing: salvaged.missing.clone(),
            });
            repairs.join_neighbours();
        }
        repairs
    }

    /// The temporary name and the name of the file that continues the log.
    pub(crate) fn next_file(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let name = FileName::Data(DataFileId(self.next_file)).to_string();
        let staged = folder.join(format!("{name}{UNPUBLISHED_ENDING}"));
        (staged, folder.join(name))
    }

    /// Removes the file that continues the log, as long as it has its temporary name; blocks the
    /// thread.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub(crate) fn discard(&self, folder: &Path) -> Result<(), StorageError> {
        let (staged, _) = self.next_file(folder);
        match remove_file(&staged) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StorageError::io("remove", staged)(error))
            }
            _ => Ok(()),
        }
    }

    /// Writes the packets behind the damage to the file that continues the log, under its temporary
    /// name; blocks the thread.
    ///
    /// # Errors
    /// When it cannot be written, or the log is not as it was when it was read first.
    pub(crate) fn copy(&self, folder: &Path, progress: &Progress) -> Result<(), StorageError> {
        let Some(damage) = &self.damage else {
            return Ok(());
        };
        let storage = self.storage;
        if !DataFileId(self.next_file).is_of_log() {
            return Err(StorageError::FilesUsedUp { storage });
        }
        let (staged, _) = self.next_file(folder);
        let file = DataFileId(self.next_file);
        let mut rewrite = LogRewrite::create(staged, storage, file, &damage.cut.end)?;
        let mut leaves: HashMap<LeafId, Arc<LeafSpec>> = HashMap::new();
        let mut take = |header: &DataFileHeader, frame: WholeFrame| {
            let leaf = leaves.entry(frame.leaf).or_insert_with(|| {
                let known = self.whole.leaves.get(&frame.leaf);
                Arc::new(LeafSpec {
                    header: header.clone(),
                    recovered: known.map(|known| known.tail),
                })
            });
            let WholeFrame {
                header, payload, ..
            } = frame;
            rewrite.append(Arc::clone(leaf), Frame { header, payload })
        };
        let take: &mut Take<'_> = &mut take;
        progress.expect(damage.cut.behind(&self.chain));
        let again = match &damage.source {
            Source::Log(evidence) => self.salvage(&damage.cut, progress).run(evidence, take)?,
            Source::Index(indexed) => indexed.run(&self.whole, progress, take)?,
        };
        if again != damage.salvaged {
            return Err(StorageError::Io {
                operation: "repair",
                path: folder.to_owned(),
                source: io::Error::other("what can be read changes: the disk is failing"),
            });
        }
        rewrite.finish()
    }
}
