//! Export: a finalized storage as one ZIP archive, made while it is read.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use flate2::Crc;
use io_trace::Cause;
use trace_format::{
    FormatError, FormatErrorKind, StorageId,
    checksum::crc32c_append,
    paths::FileName,
    storage_file::{StorageFile, StorageState},
};

use super::Engine;
use crate::{
    Progress, StorageError,
    archive::{ArchivePlan, PlannedEntry},
    read::{ReadFile, read_small},
};

/// Bytes handed out at once; an export holds two pieces at most.
const PIECE_BYTES: usize = 256 << 10;

/// A storage on its way out. Dropping it ends the export.
pub struct Export {
    length: u64,
    /// Bytes that were not handed out yet.
    left: u64,
    engine: Engine,
    /// `None` while a step is under way, and after the end.
    work: Option<Box<Work>>,
    progress: Arc<Progress>,
}

struct Work {
    folder: PathBuf,
    /// The storage file, which comes first.
    first: Option<Vec<u8>>,
    files: std::vec::IntoIter<(PlannedEntry, u32)>,
    current: Option<Current>,
    /// `None` once the directory was made.
    plan: Option<ArchivePlan>,
    /// The directory and the end, once it was made.
    end: Bytes,
}

struct Current {
    entry: PlannedEntry,
    path: PathBuf,
    file: ReadFile,
    offset: u64,
    crc: Crc,
    checksum: u32,
    expected: u32,
}

impl Engine {
    /// Makes a ZIP archive of a finalized storage.
    ///
    /// # Errors
    /// When there is no such storage, it is not finalized, or its storage file cannot be read.
    pub async fn export_storage(
        &self,
        id: StorageId,
        progress: Arc<Progress>,
    ) -> Result<Export, StorageError> {
        let storage = self.find(id)?;
        if storage.state() != StorageState::Finalized {
            return Err(storage.wrong_state("an export", "FINALIZED"));
        }
        storage.watch(&progress);
        let name = FileName::Storage(id);
        let path = storage.path(&name);
        let first = self.blocking(Cause::Export, move || {
            let max = u64::from(trace_format::limits::ENVELOPE_BODY_BYTES_MAX);
            let bytes = read_small(&path, max).map_err(StorageError::io("read", &path))?;
            let file = StorageFile::decode(&bytes).map_err(StorageError::damaged(&path))?;
            Ok((bytes, file))
        });
        let (bytes, description) = first.await?;
        let mut crc = Crc::new();
        crc.update(&bytes);
        // Its length stands before it, so that a reader needs nothing else to begin.
        let first = PlannedEntry {
            crc: Some(crc.sum()),
            ..planned(&name.to_string(), bytes.len() as u64)
        };
        let mut files = vec![(first, 0)];
        let listed = description.files.into_iter();
        files.extend(listed.map(|file| (planned(&file.name, file.length), file.checksum)));
        let length = ArchivePlan::length(files.iter().map(|(entry, _)| entry));
        progress.begin(length);
        let work = Work {
            folder: storage.folder.clone(),
            first: Some(bytes),
            files: files.into_iter(),
            current: None,
            plan: Some(ArchivePlan::default()),
            end: Bytes::new(),
        };
        Ok(Export {
            length,
            left: length,
            engine: self.clone(),
            work: Some(Box::new(work)),
            progress,
        })
    }
}

fn planned(name: &str, length: u64) -> PlannedEntry {
    PlannedEntry {
        name: name.to_owned(),
        length,
        crc: None,
    }
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { length, left, .. } = self;
        write!(f, "Export({left} of {length} bytes to come)")
    }
}

impl Export {
    /// Bytes of the whole archive.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of it that are still to come.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes of the archive; `None` at its end.
    ///
    /// # Errors
    /// When a file cannot be read or is not as its storage file says, the export was cancelled, or
    /// the storage deleted. Nothing follows an error, and what was handed out is no whole archive.
    pub async fn next(&mut self) -> Option<Result<Bytes, StorageError>> {
        let mut work = self.work.take()?;
        if let Err(cancelled) = self.progress.check() {
            return Some(Err(cancelled));
        }
        let step = self.engine.blocking(Cause::Export, move || {
            let piece = work.step()?;
            Ok((work, piece))
        });
        match step.await {
            Ok((_, piece)) if piece.is_empty() => None,
            Ok((work, piece)) => {
                self.progress.add(piece.len() as u64);
                self.left -= piece.len() as u64;
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
                    let Current { entry, crc, .. } = self.current.take().expect("it was there");
                    let plan = self.plan.as_mut().expect("the directory comes last");
                    piece.extend(plan.descriptor(&entry, crc.sum()));
                }
            } else if let Some((entry, expected)) = self.files.next() {
                self.begin(entry, expected, &mut piece)?;
            } else if let Some(plan) = self.plan.take() {
                self.end = plan.end().into();
            } else if self.end.is_empty() {
                break;
            } else {
                let count = self.end.len().min(PIECE_BYTES - piece.len());
                piece.extend_from_slice(&self.end.split_to(count));
            }
        }
        Ok(piece.into())
    }

    fn begin(
        &mut self,
        entry: PlannedEntry,
        expected: u32,
        piece: &mut Vec<u8>,
    ) -> Result<(), StorageError> {
        let plan = self.plan.as_mut().expect("the directory comes last");
        piece.extend(plan.local(&entry));
        if let Some(bytes) = self.first.take() {
            piece.extend(bytes);
            piece.extend(plan.descriptor(&entry, 0));
            return Ok(());
        }
        let path = self.folder.join(&entry.name);
        let file = ReadFile::open(&path).map_err(StorageError::io("open", &path))?;
        self.current = Some(Current {
            entry,
            path,
            file,
            offset: 0,
            crc: Crc::new(),
            checksum: 0,
            expected,
        });
        Ok(())
    }
}

impl Current {
    /// Reads on until the piece is full; `true` once the file is complete and as it has to be.
    fn read_into(&mut self, piece: &mut Vec<u8>) -> Result<bool, StorageError> {
        let begin = piece.len();
        let left = self.entry.length - self.offset;
        let room = (PIECE_BYTES - begin) as u64;
        piece.resize(begin + left.min(room) as usize, 0);
        let read = self.file.fill(&mut piece[begin..], self.offset);
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(self.offset.max(1)),
            _ => StorageError::io("read", &self.path)(error),
        })?;
        let offset = self.offset + (piece.len() - begin) as u64;
        self.offset = offset;
        self.crc.update(&piece[begin..]);
        self.checksum = crc32c_append(self.checksum, &piece[begin..]);
        match offset == self.entry.length {
            true if self.checksum != self.expected => Err(self.damaged(0)),
            is_complete => Ok(is_complete),
        }
    }

    /// The file is not what the storage file says: better no archive than one that hides it.
    fn damaged(&self, offset: u64) -> StorageError {
        let kind = match offset {
            0 => FormatErrorKind::Checksum {
                stored: self.expected,
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
