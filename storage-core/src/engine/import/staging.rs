//! Writes the files of an archive to a folder, and compares them with its storage file.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use storage_format::{
    DataFileId, FormatErrorKind, LeafId, StorageId,
    paths::{FileName, FileRole},
    storage_file::{FileEntry, StorageFile, StorageState},
};

use super::super::{
    derived::derived_names, registry::Registry, texts::check_texts, transfer::Transfer,
};
use crate::{
    BytePermit, Holder, Progress, StorageError,
    archive::ArchiveSink,
    io::{StagedFile, remove_file},
    space::Space,
    tree::IndexPart,
};

/// Longest storage file that is accepted, in bytes: it is read into memory.
const STORAGE_FILE_BYTES_MAX: usize = 32 << 20;
/// Bytes by which files may expand beyond the size of the archive, while no storage file gives
/// their length.
const UNKNOWN_BYTES_MAX: u64 = 1 << 30;

/// What a storage file takes in memory, as a multiple of its length: its bytes, its content, and
/// the files that are still missing.
const DESCRIPTION_MEMORY_RATIO: u64 = 4;
/// What is remembered of a file that arrives before the storage file, besides its name.
const EARLY_MEMORY_BYTES: u64 = 96;

/// The folder of an import and the files so far.
pub(super) struct Staging<'a> {
    registry: &'a Registry,
    space: &'a Space,
    folder: PathBuf,
    progress: &'a Arc<Progress>,
    description: Option<(StorageFile, Vec<u8>)>,
    /// Files in the storage file that have not arrived; empty before the storage file arrives.
    missing: HashMap<String, FileEntry>,
    /// Length and checksum of the files that arrived before the storage file.
    early: HashMap<String, (u64, u32)>,
    /// Bytes of files whose length the storage file does not give.
    unknown_bytes: u64,
    /// What it has in memory.
    permit: BytePermit,
    current: Current,
}

enum Current {
    None,
    /// The storage file, in memory.
    Description(StorageId, Vec<u8>),
    /// A file, and its expected length and checksum if they are known.
    File(String, StagedFile, Option<FileEntry>),
    /// A derived file: the storage file does not describe it, and its readers check
    /// whether it belongs to its data file.
    Derived(StagedFile),
    /// A file that is skipped.
    Skipped,
}

impl<'a> Staging<'a> {
    pub(super) fn new(
        transfer: &'a Transfer,
        folder: PathBuf,
        progress: &'a Arc<Progress>,
    ) -> Result<Self, StorageError> {
        // Ids of agents contain no slash.
        let holder = Holder {
            agent: "/imports",
            shares: std::slice::from_ref(&transfer.import_share),
        };
        Ok(Self {
            permit: transfer.ingest.budget.try_acquire_for(holder, 0)?,
            registry: &transfer.registry,
            space: &transfer.space,
            folder,
            progress,
            description: None,
            missing: HashMap::new(),
            early: HashMap::new(),
            unknown_bytes: 0,
            current: Current::None,
        })
    }

    /// Writes the storage file once all other files are there; returns it and its bytes.
    pub(super) fn finish(mut self) -> Result<(StorageFile, Vec<u8>), StorageError> {
        let Some((file, bytes)) = self.description.take() else {
            return Err(refused(
                "",
                "the archive has no storage file, so it is not a storage",
            ));
        };
        if let Some(name) = self.missing.keys().min() {
            return Err(refused(
                name,
                "is listed in the storage file but is not there",
            ));
        }
        self.remove_unrelated(&file)?;
        for name in [FileName::Storage(file.id), FileName::StorageCopy(file.id)] {
            let mut staged = StagedFile::create(self.folder.join(name.to_string()))?;
            staged.write(&bytes)?;
            staged.finish()?;
        }
        Ok((file, bytes))
    }

    fn describe(&mut self, id: StorageId, bytes: Vec<u8>) -> Result<(), StorageError> {
        let name = FileName::Storage(id).to_string();
        let file = StorageFile::decode(&bytes).map_err(|error| match error.kind {
            FormatErrorKind::Checksum { .. } | FormatErrorKind::Truncated { .. } => {
                refused(&name, format!("is damaged: {error}"))
            }
            _ => refused(&name, format!("is not a storage file: {error}")),
        })?;
        if file.id != id {
            return Err(refused(&name, format!("describes storage {}", file.id)));
        }
        if file.state != StorageState::Finalized {
            return Err(refused(&name, "is of a storage that is not finalized"));
        }
        check_texts(
            Some(&file.name),
            Some(&file.description),
            Some(&file.labels),
        )
        .map_err(|error| refused(&name, error.to_string()))?;
        // One that cannot be read is replaced.
        let existing = self.registry.known(id);
        if existing.is_ok_and(|existing| !existing.is_unreadable()) {
            return Err(StorageError::StorageExists(id));
        }
        let mut to_come = 0_u64;
        for listed in &file.files {
            check_listed(listed)?;
            match self.early.remove(&listed.name) {
                Some(found) => check_found(listed, found)?,
                None => {
                    to_come = to_come.saturating_add(listed.length);
                    if self
                        .missing
                        .insert(listed.name.clone(), listed.clone())
                        .is_some()
                    {
                        return Err(refused(&listed.name, "is listed twice in the storage file"));
                    }
                }
            }
        }
        let unlisted = self.early.keys().filter(|name| derived_of(name).is_none());
        if let Some(name) = unlisted.min() {
            return Err(refused(name, "is not listed in the storage file"));
        }
        self.space.check_room(to_come)?;
        self.description = Some((file, bytes));
        Ok(())
    }

    /// Removes the derived files that belong to no leaf and no data file of the storage.
    fn remove_unrelated(&self, file: &StorageFile) -> Result<(), StorageError> {
        let mut related: HashSet<DerivedOf> = HashSet::new();
        let listed_names = file.files.iter().map(|listed| listed.name.parse());
        related.extend(listed_names.filter_map(|name| match name {
            Ok(FileName::Data(file)) => Some(DerivedOf::Data(file)),
            _ => None,
        }));
        for listed in file
            .files
            .iter()
            .filter(|file| file.role == FileRole::Index)
        {
            // A damaged part is reported when the storage is read.
            if let Ok(part) = IndexPart::open(&self.folder.join(&listed.name), file.id) {
                let leaves = part.footer.leaves.iter();
                related.extend(leaves.map(|entry| DerivedOf::Leaf(entry.leaf)));
            }
        }
        for name in derived_names(&self.folder)? {
            let name = name.to_string();
            if derived_of(&name).is_some_and(|of| !related.contains(&of)) {
                let path = self.folder.join(name);
                remove_file(&path).map_err(StorageError::io("remove", path))?;
            }
        }
        Ok(())
    }

    /// Counts bytes of files of unknown length.
    fn count_unknown(&mut self, bytes: usize) -> Result<(), StorageError> {
        self.unknown_bytes = self.unknown_bytes.saturating_add(bytes as u64);
        let came = self.progress.bytes_done.load(Ordering::Relaxed);
        if self.unknown_bytes > came.saturating_add(UNKNOWN_BYTES_MAX) {
            Err(refused("", "it expands to far more bytes than it has"))
        } else {
            Ok(())
        }
    }
}

impl ArchiveSink for Staging<'_> {
    fn begin(&mut self, name: &str) -> Result<Option<u64>, StorageError> {
        let Ok(parsed) = name.parse::<FileName>() else {
            return Err(refused(name, "is not a file of a storage"));
        };
        let listed = self.missing.remove(name);
        let length = listed.as_ref().map(|listed| listed.length);
        self.current = match parsed {
            FileName::Storage(id) if self.description.is_none() => {
                Current::Description(id, Vec::new())
            }
            FileName::Storage(_) => return Err(refused(name, "is a second storage file")),
            FileName::Local(_)
            | FileName::StorageCopy(_)
            | FileName::Tier(_)
            | FileName::TierSums(_) => Current::Skipped,
            _ if listed.is_some() || self.description.is_none() => {
                let file = StagedFile::create(self.folder.join(name))?;
                Current::File(name.to_owned(), file, listed)
            }
            FileName::ChunkIndex(_)
            | FileName::ChunkIndexes(_)
            | FileName::Provenance(_)
            | FileName::Provenances(_) => {
                Current::Derived(StagedFile::create(self.folder.join(name))?)
            }
            _ => return Err(refused(name, "is not listed in the storage file")),
        };
        Ok(length)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.progress.check()?;
        match &mut self.current {
            Current::None => {}
            Current::Description(id, whole) => {
                if whole.len().saturating_add(bytes.len()) > STORAGE_FILE_BYTES_MAX {
                    let name = FileName::Storage(*id).to_string();
                    let what = format!("has more than {STORAGE_FILE_BYTES_MAX} bytes");
                    return Err(refused(&name, what));
                }
                let needed = DESCRIPTION_MEMORY_RATIO.saturating_mul(bytes.len() as u64);
                self.permit.try_grow(needed, self.permit.bytes())?;
                whole.extend_from_slice(bytes);
            }
            Current::File(name, file, listed) => {
                let max = listed.as_ref().map(|listed| listed.length);
                let length = file.length().saturating_add(bytes.len() as u64);
                if max.is_some_and(|max| length > max) {
                    return Err(refused(name, "is longer than the storage file says"));
                }
                self.space.check()?;
                file.write(bytes)?;
                if max.is_none() {
                    self.count_unknown(bytes.len())?;
                }
            }
            Current::Derived(file) => {
                self.space.check()?;
                file.write(bytes)?;
                self.count_unknown(bytes.len())?;
            }
            Current::Skipped => self.count_unknown(bytes.len())?,
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), StorageError> {
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None | Current::Skipped => Ok(()),
            Current::Derived(file) => file.finish().map(drop),
            Current::Description(id, bytes) => self.describe(id, bytes),
            Current::File(name, file, listed) => {
                let found = file.finish()?;
                match listed {
                    Some(listed) => check_found(&listed, found),
                    None => {
                        let needed = EARLY_MEMORY_BYTES.saturating_add(name.len() as u64);
                        self.permit.try_grow(needed, self.permit.bytes())?;
                        self.early.insert(name, found);
                        Ok(())
                    }
                }
            }
        }
    }
}

/// What a derived file describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DerivedOf {
    Leaf(LeafId),
    Data(DataFileId),
}

fn derived_of(name: &str) -> Option<DerivedOf> {
    match name.parse() {
        Ok(FileName::ChunkIndex(leaf) | FileName::Provenance(leaf)) => Some(DerivedOf::Leaf(leaf)),
        Ok(FileName::ChunkIndexes(file) | FileName::Provenances(file)) => {
            Some(DerivedOf::Data(file))
        }
        _ => None,
    }
}

/// Whether a storage file may list such a file.
fn check_listed(listed: &FileEntry) -> Result<(), StorageError> {
    let role = listed.name.parse::<FileName>().map(|name| name.role());
    let is_sound = role == Ok(listed.role)
        && !matches!(
            listed.role,
            FileRole::Storage
                | FileRole::StorageCopy
                | FileRole::Local
                | FileRole::Tier
                | FileRole::TierSums
        );
    if is_sound {
        Ok(())
    } else {
        Err(refused(
            &listed.name,
            "is listed in the storage file, which may not list it",
        ))
    }
}

fn check_found(listed: &FileEntry, found: (u64, u32)) -> Result<(), StorageError> {
    if found == (listed.length, listed.checksum) {
        Ok(())
    } else {
        Err(refused(
            &listed.name,
            "has another length or checksum than the storage file says",
        ))
    }
}

fn refused(entry: &str, problem: impl Into<String>) -> StorageError {
    StorageError::ArchiveRefused {
        entry: entry.chars().take(160).collect(),
        problem: problem.into(),
    }
}
