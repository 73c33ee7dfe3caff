//! The derived files next to the data files of storages.

use std::{
    collections::HashMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
};

use bytes::{Bytes, BytesMut};
use io_trace::Cause;
use parking_lot::{Mutex, MutexGuard};
use storage_format::{
    FormatError, FormatErrorKind, StorageId,
    paths::{FileName, FileRole},
};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, mpsc};

use super::{FileInfo, blocking::Blocking, registry::Registry};
use crate::{
    Damage, Progress, StorageError, VerifyReport,
    io::remove_file,
    io_thread::{IoThread, Piece},
    read::ReadFile,
    space::Space,
    storage::Storage,
    tier::forget_file,
    traced::on_thread,
    writer::Services,
};

/// Bytes of a derived file that are gathered before they are written.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces of a derived file that wait to be written.
const PIECE_COUNT_MAX: usize = 4;

/// Reads a range of a derived file.
pub type ReadDerived<'r> = dyn FnMut(Range<u64>) -> io::Result<Vec<u8>> + 'r;

/// Compares a derived file of a length with the checksums in it. This crate does not know what is
/// in derived files.
pub type DerivedCheck = fn(&FileName, u64, &mut ReadDerived<'_>) -> Result<(), DerivedFault>;

/// Why a derived file is not used.
#[derive(Debug)]
pub enum DerivedFault {
    /// It is damaged at this offset.
    Damaged(u64),
    /// It cannot be read.
    Io(io::Error),
}

/// A derived file in the folder of a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedInfo {
    /// Its name.
    pub name: FileName,
    /// Its path.
    pub path: PathBuf,
    /// Number of its bytes.
    pub length: u64,
}

/// Takes the bytes of a derived file while it is made.
#[derive(Debug)]
pub struct DerivedSink {
    gathered: BytesMut,
    pieces: mpsc::Sender<Piece>,
    space: Arc<Space>,
}

impl DerivedSink {
    /// A sink, and what comes out of it.
    fn new(space: &Arc<Space>) -> (Self, mpsc::Receiver<Piece>) {
        let (pieces, written) = mpsc::channel(PIECE_COUNT_MAX);
        let sink = Self {
            gathered: BytesMut::new(),
            pieces,
            space: Arc::clone(space),
        };
        (sink, written)
    }

    /// Appends bytes; waits while earlier ones are being written. Blocks the thread.
    ///
    /// # Errors
    /// When the disk is low, or writing failed.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        for part in bytes.chunks(PIECE_BYTES) {
            self.gathered.extend_from_slice(part);
            if self.gathered.len() >= PIECE_BYTES {
                self.space.check()?;
                self.send()?;
            }
        }
        Ok(())
    }

    /// Refuses to go on where the file would take space that ingest needs to resume.
    pub(crate) fn check_spare(&self, bytes: usize) -> Result<(), StorageError> {
        self.space.check_spare(bytes as u64)
    }

    fn send(&mut self) -> Result<(), StorageError> {
        let piece = self.gathered.split().freeze();
        self.put(Piece::Bytes(piece))
    }

    fn put(&mut self, piece: Piece) -> Result<(), StorageError> {
        let sent = self.pieces.blocking_send(piece);
        // The writing ended, and its result says why.
        sent.map_err(|_| StorageError::Stopping)
    }
}

/// Derived files of storages: publishing and removing them.
#[derive(Debug, Clone)]
pub struct DerivedFiles {
    registry: Arc<Registry>,
    io_thread: IoThread,
    space: Arc<Space>,
    blocking: Blocking,
    check: Arc<OnceLock<DerivedCheck>>,
    /// Held while a whole file is in memory.
    turns: Arc<Mutex<()>>,
    publications: Arc<Publications>,
    sums: Arc<Sums>,
}

/// Checksums of files that were computed, with the version of the file.
type Sums = Mutex<HashMap<PathBuf, ([u64; 2], u64, u32)>>;

/// Files of which the checksums are remembered: those of some thousand storages.
const SUM_COUNT_MAX: usize = 1 << 14;

/// The locks of files that are being published: a file has one temporary name.
type Publications = Mutex<HashMap<(StorageId, FileName), Weak<AsyncMutex<()>>>>;

impl DerivedFiles {
    pub(super) fn new(registry: &Arc<Registry>, services: &Services, blocking: &Blocking) -> Self {
        Self {
            registry: Arc::clone(registry),
            io_thread: services.io_thread.clone(),
            space: Arc::clone(&services.space),
            blocking: blocking.clone(),
            check: Arc::default(),
            turns: Arc::default(),
            publications: Arc::default(),
            sums: Arc::default(),
        }
    }

    /// Waits until no other derived file is in memory to be checked; blocks the thread.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turns.lock()
    }

    /// Waits until no other publication of a file is running.
    async fn publication(&self, id: StorageId, name: &FileName) -> OwnedMutexGuard<()> {
        let lock = {
            let mut publications = self.publications.lock();
            publications.retain(|_, lock| lock.strong_count() > 0);
            let known = publications.entry((id, name.clone())).or_default();
            known.upgrade().unwrap_or_else(|| {
                let lock = Arc::default();
                *known = Arc::downgrade(&lock);
                lock
            })
        };
        lock.lock_owned().await
    }

    /// Lets derived files be checked before they are sent. The first call counts.
    pub fn check_with(&self, check: DerivedCheck) {
        let _ = self.check.set(check);
    }

    /// Compares a derived file with the checksums in it.
    pub(super) fn check(&self, path: &Path, file: &ReadFile) -> Result<(), StorageError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (Some(check), Ok(name)) = (self.check.get(), name.parse()) else {
            return Ok(());
        };
        let failed = |error| StorageError::io("read", path)(error);
        let length = file.length().map_err(failed)?;
        let mut read = |range: Range<u64>| {
            let bytes = usize::try_from(range.end.saturating_sub(range.start));
            file.read(range.start, bytes.map_err(io::Error::other)?)
        };
        check(&name, length, &mut read).map_err(|fault| match fault {
            DerivedFault::Damaged(offset) => {
                let kind = FormatErrorKind::Field { name: "checksum" };
                let what = "derived file";
                StorageError::damaged(path)(FormatError { what, offset, kind })
            }
            DerivedFault::Io(error) => failed(error),
        })
    }

    /// Publishes a derived file next to a data file; replaces an older one.
    ///
    /// # Errors
    /// When there is no such storage, the file is not a derived one, the disk is low, or it cannot
    /// be written.
    pub async fn publish(
        &self,
        id: StorageId,
        name: FileName,
        bytes: Bytes,
    ) -> Result<(), StorageError> {
        let storage = self.registry.find(id)?;
        if !is_derived(name.role()) {
            return Err(not_derived(&name));
        }
        self.space.check()?;
        let _alone = self.publication(id, &name).await;
        let (folder, path) = (storage.folder.clone(), storage.path(&name));
        forget_file(&path);
        let published = self
            .io_thread
            .publish(folder, name.to_string(), bytes)
            .await;
        published.map_err(StorageError::io("write", path))?;
        storage.checked.forget_damage(&name.to_string());
        Ok(())
    }

    /// Publishes a derived file while `make` makes it on a thread; replaces an older one. Nothing
    /// is published when `make` fails, or returns `false` with its result.
    ///
    /// # Errors
    /// When there is no such storage, the file is not a derived one, the disk is low, it cannot be
    /// written, or `make` fails.
    pub async fn publish_made<T, E>(
        &self,
        id: StorageId,
        name: FileName,
        make: impl FnOnce(&mut DerivedSink) -> Result<(bool, T), E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StorageError> + Send + 'static,
    {
        let storage = self.registry.find(id)?;
        if !is_derived(name.role()) {
            return Err(not_derived(&name).into());
        }
        self.space.check()?;
        let _alone = self.publication(id, &name).await;
        let (folder, published) = (storage.folder.clone(), name.to_string());
        let place = (folder, published.clone());
        forget_file(&storage.path(&name));
        let (is_published, made) = publish_made(&self.io_thread, &self.space, place, make).await?;
        if is_published {
            storage.checked.forget_damage(&published);
        }
        Ok(made)
    }

    /// Removes a derived file if it exists.
    ///
    /// # Errors
    /// When there is no such storage, the file is not a derived one, or it cannot be removed.
    pub async fn remove(&self, id: StorageId, name: FileName) -> Result<(), StorageError> {
        let storage = self.registry.find(id)?;
        if !is_derived(name.role()) {
            return Err(not_derived(&name));
        }
        let path = storage.path(&name);
        forget_file(&path);
        let removed = self
            .blocking
            .run(Cause::Index, move || match remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(StorageError::io("remove", path)(error))
                }
                _ => Ok(()),
            });
        removed.await?;
        storage.checked.forget_damage(&name.to_string());
        Ok(())
    }

    /// Length and CRC32C of a derived file; `None` if it does not exist or is not derived. Derived
    /// files are not in the storage file: they may appear and disappear.
    pub(super) async fn find(
        &self,
        storage: &Arc<Storage>,
        name: FileName,
    ) -> Result<Option<(u64, u32)>, StorageError> {
        if !is_derived(name.role()) {
            return Ok(None);
        }
        let (storage, this) = (Arc::clone(storage), self.clone());
        let find = move || derived_file(&storage, &name, &this);
        let found = self.blocking.run(Cause::Range, find).await?;
        Ok(found.map(|found| (found.length, found.checksum.unwrap_or_default())))
    }

    /// The existing derived files of a finalized storage; blocks the thread. One that has not
    /// changed since the last list is not read again.
    pub(super) fn list(&self, storage: &Storage) -> Result<Vec<FileInfo>, StorageError> {
        let mut listed = Vec::new();
        for name in derived_names(&storage.folder)? {
            let path = storage.path(&name);
            let file = match ReadFile::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(StorageError::io("open", path)(error)),
            };
            let summed = self.sum(&path, &file);
            let (length, checksum) = summed.map_err(StorageError::io("read", path))?;
            listed.push(FileInfo {
                name: name.to_string(),
                role: name.role(),
                length,
                checksum: Some(checksum),
            });
        }
        Ok(listed)
    }

    /// Compares all derived files of a storage with the checksums in them, and adds what is damaged
    /// to the report of its verification; blocks the thread.
    pub(super) fn verify(
        &self,
        storage: &Storage,
        progress: &Progress,
        report: &mut VerifyReport,
    ) -> Result<(), StorageError> {
        for name in derived_names(&storage.folder)? {
            if progress.is_cancelled.load(Ordering::Relaxed) {
                report.is_cancelled = true;
                break;
            }
            // A chunk index is made again, and its damage is gone then.
            let is_remembered = name.role() == FileRole::Provenance;
            let found = derived_file(storage, &name, self);
            let is_lost = found.as_ref().is_err_and(StorageError::is_loss);
            let (offset, what) = match found {
                Ok(found) => {
                    if let Some(found) = &found {
                        report.files = report.files.saturating_add(1);
                        report.bytes = report.bytes.saturating_add(found.length);
                    }
                    // It is intact, or was replaced or removed meanwhile.
                    if is_remembered {
                        storage.checked.forget_damage(&name.to_string());
                    }
                    continue;
                }
                Err(StorageError::Damaged { source, .. }) => {
                    let what = "it does not match the checksums in it";
                    (source.offset, what.to_owned())
                }
                Err(error) => (0, error.to_string()),
            };
            let damage = Damage {
                file: name.to_string(),
                offset,
                what,
            };
            if is_remembered && is_lost {
                let remedy = "check the disk, and push the files again: provenance is reported \
                              again, and no packet is stored twice";
                storage.remember_damage(&damage, remedy);
            }
            report.damage.push(damage);
        }
        Ok(())
    }

    fn sum(&self, path: &Path, file: &ReadFile) -> io::Result<(u64, u32)> {
        let version = file.version()?;
        if let Some(&(known, length, checksum)) = self.sums.lock().get(path)
            && known == version
        {
            return Ok((length, checksum));
        }
        let (length, checksum) = file.checksum()?;
        let mut sums = self.sums.lock();
        if sums.len() >= SUM_COUNT_MAX {
            sums.clear();
        }
        sums.insert(path.to_owned(), (version, length, checksum));
        Ok((length, checksum))
    }
}

/// Publishes a file in a folder while `make` makes it on a thread; replaces an older one. Nothing
/// is published when `make` fails, or returns `false` with its result.
pub(super) async fn publish_made<T, E>(
    io_thread: &IoThread,
    space: &Arc<Space>,
    (folder, name): (PathBuf, String),
    make: impl FnOnce(&mut DerivedSink) -> Result<(bool, T), E> + Send + 'static,
) -> Result<(bool, T), E>
where
    T: Send + 'static,
    E: From<StorageError> + Send + 'static,
{
    let (mut sink, written) = DerivedSink::new(space);
    let make = move || -> Result<(bool, T), E> {
        let (is_wanted, made) = make(&mut sink)?;
        if is_wanted {
            sink.send()?;
            sink.put(Piece::End)?;
        }
        Ok((is_wanted, made))
    };
    let path = folder.join(&name);
    let publishing = io_thread.publish_pieces(folder, name, written);
    let making = on_thread(io_trace::current(), make);
    let (made, published) = tokio::join!(making, publishing);
    match (made.map_err(|_| StorageError::Stopping)?, published) {
        (Ok((false, made)), _) => Ok((false, made)),
        (Ok((true, made)), Ok(())) => Ok((true, made)),
        // The writing ended because the making did, and left nothing.
        (Err(error), Err(writing)) if writing.kind() == io::ErrorKind::Interrupted => Err(error),
        (_, Err(error)) => Err(StorageError::io("write", path)(error).into()),
        (Err(error), Ok(())) => Err(error),
    }
}

/// The derived files in the folder of a storage, in any state; blocks the thread.
pub(super) fn derived_in(storage: &Storage) -> Result<Vec<DerivedInfo>, StorageError> {
    let mut derived = Vec::new();
    for name in derived_names(&storage.folder)? {
        let path = storage.path(&name);
        match std::fs::metadata(&path) {
            Ok(metadata) => derived.push(DerivedInfo {
                name,
                path,
                length: metadata.len(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StorageError::io("get the length of", path)(error)),
        }
    }
    Ok(derived)
}

/// The derived files in the folder of a storage, sorted; blocks the thread.
pub(super) fn derived_names(folder: &Path) -> Result<Vec<FileName>, StorageError> {
    let failed = |error| StorageError::io("list", folder)(error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy().parse::<FileName>();
        found.extend(name.ok().filter(|name| is_derived(name.role())));
    }
    found.sort();
    Ok(found)
}

/// A derived file as it is now, checked by `checker`; `None` if it does not exist. Blocks the
/// thread.
fn derived_file(
    storage: &Storage,
    name: &FileName,
    checker: &DerivedFiles,
) -> Result<Option<FileInfo>, StorageError> {
    let path = storage.path(name);
    let _turn = checker.turn();
    let file = match ReadFile::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::io("open", path)(error)),
    };
    checker.check(&path, &file)?;
    let (length, checksum) = file.checksum().map_err(StorageError::io("read", path))?;
    Ok(Some(FileInfo {
        name: name.to_string(),
        role: name.role(),
        length,
        checksum: Some(checksum),
    }))
}

fn not_derived(name: &FileName) -> StorageError {
    StorageError::Invalid {
        what: "derived file",
        problem: format!("{name} is not one"),
    }
}

/// Whether files of this role can be rebuilt.
pub(super) fn is_derived(role: FileRole) -> bool {
    matches!(role, FileRole::ChunkIndex | FileRole::Provenance)
}
