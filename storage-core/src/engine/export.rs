//! Export: a finalized storage as one ZIP archive, built while it is read.
//!
//! Derived files come last. They may be replaced while the archive is transferred, so the export
//! opens them at its beginning: small ones are read into memory, larger ones remain open. Files
//! that exceed the limits are omitted, which only means that they are rebuilt after the import.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use flate2::Crc;
use io_trace::Cause;
use storage_format::{
    FormatError, FormatErrorKind, StorageId,
    checksum::crc32c_append,
    integer::usize_of_u64,
    paths::FileName,
    storage_file::{StorageFile, StorageState},
};

use super::{
    blocking::Blocking,
    derived::{DerivedFiles, derived_names},
    transfer::Transfer,
};
use crate::{
    CheckedFile, Counters, Progress, StorageError,
    archive::{ArchivePlan, PlannedEntry},
    checked::Expected,
    read::ReadFile,
    storage::Storage,
};

/// Bytes of a piece; an export has two pieces in memory at most.
const PIECE_BYTES: usize = 256 << 10;
/// A derived file up to this length is read into memory.
const HELD_FILE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of all derived files in memory.
const HELD_BYTES_MAX: u64 = 8 << 20;
/// Derived files that are open at once.
const HELD_OPEN_MAX: usize = 64;
/// Longest derived file of one leaf that is exported: it is in memory while it is checked.
const DERIVED_BYTES_MAX: u64 = 64 << 20;

/// A running export. Dropping it ends the export.
pub struct Export {
    length: u64,
    /// Changes when any byte of the archive does.
    identity: String,
    /// Bytes that are still to be built.
    unbuilt: u64,
    /// Bytes that are built and skipped before the first one that is returned.
    skip: u64,
    /// Bytes that are still to come.
    left: u64,
    blocking: Blocking,
    /// `None` while a step runs, and after the end.
    work: Option<Box<Work>>,
    progress: Arc<Progress>,
}

struct Work {
    storage: Arc<Storage>,
    /// The storage file that the archive contains.
    own: StorageFile,
    counters: Arc<Counters>,
    files: std::vec::IntoIter<(PlannedEntry, Content)>,
    current: Option<Current>,
    /// `None` once the directory is built.
    plan: Option<ArchivePlan>,
    /// The directory and the end, once they are built.
    end: Bytes,
}

/// The source of the bytes of an entry.
enum Content {
    /// In memory: the storage file and small derived files. The checksum of the entry is known.
    InMemory(Vec<u8>),
    /// In a file that is opened when its turn comes and has this CRC32C.
    Listed(u32),
    /// In an open file; the checksum of the entry is known.
    Open(ReadFile),
}

struct Current {
    entry: PlannedEntry,
    path: PathBuf,
    file: ReadFile,
    /// Of a file that the storage file lists: its blocks are compared before they are passed on.
    checked: Option<CheckedFile>,
    offset: u64,
    crc: Crc,
    checksum: u32,
    /// CRC32C in the storage file.
    expected: Option<u32>,
}

impl Transfer {
    /// Exports a finalized storage as a ZIP archive.
    ///
    /// # Errors
    /// When there is no such storage, it is not finalized, or its storage file cannot be read.
    pub async fn export(
        &self,
        id: StorageId,
        progress: Arc<Progress>,
    ) -> Result<Export, StorageError> {
        let storage = self.registry.find(id)?;
        if storage.state() != StorageState::Finalized {
            return Err(storage.wrong_state("an export", "FINALIZED"));
        }
        storage.watch(&progress);
        let name = FileName::Storage(id);
        let opened = Arc::clone(&storage);
        let checker = self.reading.derived.clone();
        let files = self.blocking.run(Cause::Export, move || {
            let bytes = opened.read_own_file()?;
            let path = opened.path(&name);
            let file = StorageFile::decode(&bytes).map_err(StorageError::damaged(path))?;
            // Its length is before it, so that a reader needs nothing else to begin.
            let mut files = vec![in_memory(&name, bytes)];
            let derived = derived(&opened.folder, &checker)?;
            let identity = identity(&files, &derived)
                .map_err(StorageError::io("get the length of", &opened.folder))?;
            let listed = file.files.iter().map(|file| {
                let content = Content::Listed(file.checksum);
                (planned(&file.name, file.length), content)
            });
            files.extend(listed);
            files.extend(derived);
            Ok((files, identity, file))
        });
        let (files, identity, own) = files.await?;
        let length = ArchivePlan::length(files.iter().map(|(entry, _)| entry));
        progress.begin(length);
        let work = Work {
            storage,
            own,
            counters: Arc::clone(&self.reading.counters),
            files: files.into_iter(),
            current: None,
            plan: Some(ArchivePlan::default()),
            end: Bytes::new(),
        };
        Ok(Export {
            length,
            identity: format!("{identity}-{length:x}"),
            unbuilt: length,
            skip: 0,
            left: length,
            blocking: self.blocking.clone(),
            work: Some(Box::new(work)),
            progress,
        })
    }
}

/// What the bytes of an archive depend on. The storage file has the checksums of the files that it
/// lists; a derived file is replaced by one with another inode.
fn identity(
    own: &[(PlannedEntry, Content)],
    derived: &[(PlannedEntry, Content)],
) -> std::io::Result<String> {
    let mut sums = [0, 0];
    for (sum, entries) in sums.iter_mut().zip([own, derived]) {
        for (entry, content) in entries {
            *sum = crc32c_append(*sum, entry.name.as_bytes());
            let version = match content {
                Content::InMemory(bytes) => [u64::from(crc32c_append(0, bytes)), 0],
                Content::Listed(checksum) => [u64::from(*checksum), 0],
                Content::Open(file) => file.version()?,
            };
            for number in [entry.length, version[0], version[1]] {
                *sum = crc32c_append(*sum, &number.to_le_bytes());
            }
        }
    }
    Ok(format!("{:08x}{:08x}", sums[0], sums[1]))
}

fn planned(name: &str, length: u64) -> PlannedEntry {
    PlannedEntry {
        name: name.to_owned(),
        length,
        crc: None,
    }
}

/// An entry whose bytes are in memory.
fn in_memory(name: &FileName, bytes: Vec<u8>) -> (PlannedEntry, Content) {
    let mut crc = Crc::new();
    crc.update(&bytes);
    let entry = PlannedEntry {
        crc: Some(crc.sum()),
        ..planned(&name.to_string(), bytes.len() as u64)
    };
    (entry, Content::InMemory(bytes))
}

/// The existing derived files, as far as the limits allow. The storage file does not contain their
/// lengths, so their headers do, and their checksums.
fn derived(
    folder: &Path,
    checker: &DerivedFiles,
) -> Result<Vec<(PlannedEntry, Content)>, StorageError> {
    let (mut found, mut bytes_left, mut open_left) = (Vec::new(), HELD_BYTES_MAX, HELD_OPEN_MAX);
    for name in derived_names(folder)? {
        let path = folder.join(name.to_string());
        let file = match ReadFile::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(StorageError::io("open", path)(error)),
        };
        let length = file
            .length()
            .map_err(StorageError::io("get the length of", &path))?;
        let is_held = length <= HELD_FILE_BYTES_MAX.min(bytes_left);
        // A bundle is checked a small part at a time.
        let is_bundle = matches!(name, FileName::ChunkIndexes(_) | FileName::Provenances(_));
        let is_long = length > DERIVED_BYTES_MAX && !is_bundle;
        if !is_held && (open_left == 0 || is_long) {
            continue;
        }
        let _turn = checker.turn();
        if let Err(error) = checker.check(&path, &file) {
            tracing::warn!(
                %error, file = %name,
                "a derived file is damaged and is not exported; it is rebuilt after the import"
            );
            continue;
        }
        let failed = |error| StorageError::io("read", &path)(error);
        if is_held {
            let bytes = file.read(0, usize_of_u64(length)).map_err(failed)?;
            bytes_left = bytes_left.saturating_sub(length);
            found.push(in_memory(&name, bytes));
        } else {
            let mut crc = Crc::new();
            let length = file
                .each_window(|bytes| crc.update(bytes))
                .map_err(failed)?;
            let entry = PlannedEntry {
                crc: Some(crc.sum()),
                ..planned(&name.to_string(), length)
            };
            open_left = open_left.saturating_sub(1);
            found.push((entry, Content::Open(file)));
        }
    }
    Ok(found)
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { length, left, .. } = self;
        write!(f, "Export({left} of {length} bytes to come)")
    }
}

impl Export {
    /// Length of the archive in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that are still to come.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// A text that is another one when any byte of the archive is.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns only the `length` bytes from `first` of the archive. Those before are built all the
    /// same: the directory at the end has the checksums of all files.
    pub fn cut(&mut self, first: u64, length: u64) {
        self.skip = first.min(self.length);
        self.left = length.min(self.length.saturating_sub(self.skip));
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// When a file cannot be read or is not as its storage file says, the export was cancelled, or
    /// the storage deleted. Nothing follows an error, and the archive is incomplete then.
    pub async fn next(&mut self) -> Option<Result<Bytes, StorageError>> {
        while self.left > 0 {
            let mut piece = match self.build().await? {
                Ok(piece) => piece,
                Err(error) => return Some(Err(error)),
            };
            let skipped = piece.len().min(usize_of_u64(self.skip));
            drop(piece.split_to(skipped));
            self.skip = self.skip.saturating_sub(skipped as u64);
            piece.truncate(usize_of_u64(self.left.min(piece.len() as u64)));
            self.left = self.left.saturating_sub(piece.len() as u64);
            if !piece.is_empty() {
                return Some(Ok(piece));
            }
        }
        None
    }

    /// Builds the next bytes of the archive; `None` at its end.
    ///
    /// # Errors
    /// When a file cannot be read or is not as its storage file says, the export was cancelled, or
    /// the storage deleted. Nothing follows an error, and the archive is incomplete then.
    async fn build(&mut self) -> Option<Result<Bytes, StorageError>> {
        let mut work = self.work.take()?;
        if let Err(cancelled) = self.progress.check() {
            return Some(Err(cancelled));
        }
        let step = self.blocking.run(Cause::Export, move || {
            let piece = work.step()?;
            Ok((work, piece))
        });
        match step.await {
            Ok((_, piece)) if piece.is_empty() => {
                assert_eq!(
                    self.unbuilt, 0,
                    "an archive has the length that was announced"
                );
                None
            }
            Ok((work, piece)) => {
                assert!(
                    piece.len() as u64 <= self.unbuilt,
                    "an archive has the length that was announced"
                );
                self.progress.add(piece.len() as u64);
                self.unbuilt = self.unbuilt.saturating_sub(piece.len() as u64);
                self.work = Some(work);
                Some(Ok(piece))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl Work {
    /// The next piece; empty at the end.
    fn step(&mut self) -> Result<Bytes, StorageError> {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        while piece.len() < PIECE_BYTES {
            if let Some(current) = &mut self.current {
                if current.read_into(&mut piece)? {
                    let Current { entry, crc, .. } = self
                        .current
                        .take()
                        .expect("the current file was checked above");
                    let plan = self
                        .plan
                        .as_mut()
                        .expect("the directory is built after all files");
                    piece.extend(plan.descriptor(&entry, crc.sum()));
                }
            } else if let Some((entry, content)) = self.files.next() {
                self.begin(entry, content, &mut piece)?;
            } else if let Some(plan) = self.plan.take() {
                self.end = plan.end().into();
            } else if self.end.is_empty() {
                break;
            } else {
                let count = self.end.len().min(PIECE_BYTES.saturating_sub(piece.len()));
                piece.extend_from_slice(&self.end.split_to(count));
            }
        }
        Ok(piece.into())
    }

    fn begin(
        &mut self,
        entry: PlannedEntry,
        content: Content,
        piece: &mut Vec<u8>,
    ) -> Result<(), StorageError> {
        let plan = self
            .plan
            .as_mut()
            .expect("the directory is built after all files");
        let path = self.storage.folder.join(&entry.name);
        let mut checked = None;
        let (file, expected) = match content {
            Content::InMemory(bytes) => {
                piece.extend(plan.local(&entry));
                piece.extend(bytes);
                piece.extend(plan.descriptor(&entry, 0));
                return Ok(());
            }
            Content::Listed(expected) => {
                let file = ReadFile::open(&path).map_err(StorageError::io("open", &path))?;
                checked = Some(self.storage.checked.file(
                    (&self.storage.folder, &entry.name),
                    &file,
                    (
                        &self.own,
                        Expected {
                            length: entry.length,
                            checksum: expected,
                        },
                    ),
                    &self.counters,
                ));
                (file, Some(expected))
            }
            Content::Open(file) => (file, None),
        };
        piece.extend(plan.local(&entry));
        self.current = Some(Current {
            entry,
            path,
            file,
            checked,
            offset: 0,
            crc: Crc::new(),
            checksum: 0,
            expected,
        });
        Ok(())
    }
}

impl Current {
    /// Reads until the piece is full; `true` once the file is complete and matches its checksum.
    fn read_into(&mut self, piece: &mut Vec<u8>) -> Result<bool, StorageError> {
        let begin = piece.len();
        let left = self.entry.length.saturating_sub(self.offset);
        let space = PIECE_BYTES.saturating_sub(begin) as u64;
        let count = usize_of_u64(left.min(space));
        if let Some(checked) = &self.checked {
            checked.ensure_blocking(&(self.offset..self.offset.saturating_add(count as u64)))?;
        }
        piece.resize(begin.saturating_add(count), 0);
        let read = self.file.fill(&mut piece[begin..], self.offset);
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(self.offset.max(1)),
            _ => StorageError::io("read", &self.path)(error),
        })?;
        let offset = self.offset.saturating_add(count as u64);
        self.offset = offset;
        self.crc.update(&piece[begin..]);
        self.checksum = crc32c_append(self.checksum, &piece[begin..]);
        match offset == self.entry.length {
            true if self
                .expected
                .is_some_and(|expected| expected != self.checksum) =>
            {
                Err(self.damaged(0))
            }
            // The checksum of a derived file was computed by this export.
            true if self.entry.crc.is_some_and(|crc| crc != self.crc.sum()) => Err(self.damaged(0)),
            is_complete => Ok(is_complete),
        }
    }

    /// The file does not match the storage file: no archive is better than one that hides the
    /// damage.
    fn damaged(&self, offset: u64) -> StorageError {
        let kind = match offset {
            0 => FormatErrorKind::Checksum {
                stored: self.expected.unwrap_or_default(),
                computed: self.checksum,
            },
            available => FormatErrorKind::Truncated {
                needed: self.entry.length,
                available,
            },
        };
        StorageError::damaged(&self.path)(FormatError {
            what: "file",
            offset,
            kind,
        })
    }
}
