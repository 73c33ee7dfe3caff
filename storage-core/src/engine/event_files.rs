//! Event files: the events of one kind of a finalized storage, in a format of other programs. They
//! are made on request, kept with their checksums, and removed when their space is needed. What is
//! in them is unknown here.
//!
//! ```text
//! <storage folder>/events/<kind>.parquet    the file
//!                         <kind>.facts      what is known of it, as lines of text:
//!     tracehold event file 1
//!     length 4194309
//!     skipped 0
//!     pieces 0a1b2c3d 4e5f6071              CRC32C of each 4 MiB
//!     sum 99aabbcc                          CRC32C of all lines before
//! ```
//!
//! The facts are written last: a file without them is not complete, and is made again.

use std::{
    fmt::Write as _,
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use io_trace::{Cause, FileTag};
use storage_format::{
    DataFileId, Kind, StorageId,
    checksum::crc32c,
    checksum_file::{PIECE_BYTES, PieceSums},
    paths::{EVENTS_FOLDER, UNPUBLISHED_ENDING},
    storage_file::StorageState,
};

use super::{blocking::Blocking, derived::DerivedSink, derived::publish_made, registry::Registry};
use crate::{
    CheckedFile, Counters, StorageError,
    checked::{Expected, file_beside},
    io::{create_folder, remove_file},
    io_thread::IoThread,
    read::{ReadFile, read_small},
    space::Space,
    storage::Storage,
    traced::tag,
    writer::Services,
};

const FILE_ENDING: &str = "parquet";
const FACTS_ENDING: &str = "facts";
const FIRST_LINE: &str = "tracehold event file 1";
/// Longest file with facts that is read: that of 4 TiB.
const FACTS_BYTES_MAX: u64 = 16 << 20;

/// An event file that is open.
#[derive(Debug, Clone)]
pub struct EventFile {
    /// The open file.
    pub file: Arc<File>,
    /// Its name in the I/O trace.
    pub tag: FileTag,
    /// What to call before bytes of it are passed on.
    pub checked: CheckedFile,
    /// Length in bytes.
    pub length: u64,
    /// CRC32C of the checksums of its pieces.
    pub checksum: u32,
    /// Number of parts of the storage that could not be read when it was made.
    pub skipped: u64,
    /// When it was made, in seconds since the epoch.
    pub modified: Option<u64>,
}

/// An event file in the folder of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFileInfo {
    /// The storage.
    pub storage: StorageId,
    /// The kind of its events.
    pub kind: Kind,
    /// Bytes on disk.
    pub length: u64,
}

/// Takes the bytes of an event file while it is made.
#[derive(Debug)]
pub struct EventSink<'s> {
    sink: &'s mut DerivedSink,
    sums: PieceSums,
}

/// Free space is looked at whenever this many bytes were written.
const SPACE_STEP_BYTES: u64 = 1 << 20;

impl EventSink<'_> {
    /// Appends bytes; waits while earlier ones are being written. Blocks the thread.
    ///
    /// # Errors
    /// When the disk is low, or writing failed.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let step = |length: u64| length.div_ceil(SPACE_STEP_BYTES);
        let before = self.sums.length();
        self.sums.extend(bytes);
        if step(self.sums.length()) > step(before) {
            self.sink.check_spare(bytes.len())?;
        }
        self.sink.write(bytes)
    }
}

/// Event files of finalized storages.
#[derive(Debug, Clone)]
pub struct EventFiles {
    registry: Arc<Registry>,
    io_thread: IoThread,
    space: Arc<Space>,
    blocking: Blocking,
    counters: Arc<Counters>,
}

impl EventFiles {
    pub(super) fn new(registry: &Arc<Registry>, services: &Services, blocking: &Blocking) -> Self {
        Self {
            registry: Arc::clone(registry),
            io_thread: services.io_thread.clone(),
            space: Arc::clone(&services.space),
            blocking: blocking.clone(),
            counters: Arc::clone(&services.counters),
        }
    }

    fn finalized(&self, id: StorageId) -> Result<Arc<Storage>, StorageError> {
        let storage = self.registry.find(id)?;
        if storage.state() == StorageState::Finalized {
            Ok(storage)
        } else {
            Err(storage.wrong_state("reading a file of events", "FINALIZED"))
        }
    }

    /// Opens an event file; `None` if there is no complete one.
    ///
    /// # Errors
    /// When there is no such storage, or it is not finalized.
    pub async fn open(&self, id: StorageId, kind: Kind) -> Result<Option<EventFile>, StorageError> {
        let storage = self.finalized(id)?;
        let (path, facts) = paths(&storage, kind);
        let tag = tag(self.blocking.tracer(), &path);
        let counters = Arc::clone(&self.counters);
        let open = move || {
            // Whatever is wrong with it, it is made again.
            let facts = read_small(&facts, FACTS_BYTES_MAX).ok();
            let facts = facts.and_then(|bytes| Facts::decode(&bytes));
            let Some((facts, file)) = facts.zip(ReadFile::open(&path).ok()) else {
                return Ok(None);
            };
            let expected = Expected {
                length: facts.length,
                checksum: facts.checksum(),
            };
            let shared = file.tagged(tag.clone());
            let file = Arc::clone(shared.file());
            let modified = file.metadata().ok().map(|about| about.mtime());
            let pieces = (expected, facts.pieces);
            let checked = file_beside((id, path), &shared, pieces, &counters);
            Ok(checked.check_length().is_ok().then_some(EventFile {
                file,
                tag,
                checked,
                length: expected.length,
                checksum: expected.checksum,
                skipped: facts.skipped,
                modified: modified.and_then(|seconds| u64::try_from(seconds).ok()),
            }))
        };
        self.blocking.run(Cause::Range, open).await
    }

    /// Publishes an event file while `make` makes it on a thread; replaces an older one. `make`
    /// returns the number of parts that could not be read. Nothing is published when it fails.
    ///
    /// # Errors
    /// When there is no such storage, it is not finalized, the disk is low, the file cannot be
    /// written, or `make` fails.
    pub async fn make<E>(
        &self,
        id: StorageId,
        kind: Kind,
        make: impl FnOnce(&mut EventSink<'_>) -> Result<u64, E> + Send + 'static,
    ) -> Result<(), E>
    where
        E: From<StorageError> + Send + 'static,
    {
        let storage = self.finalized(id)?;
        self.space.check()?;
        self.remove(id, kind).await?;
        let folder = storage.folder.join(EVENTS_FOLDER);
        let created = folder.clone();
        let create = move || match create_folder(&created) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(StorageError::io("create", created)(error))
            }
            _ => Ok(()),
        };
        self.blocking.run(Cause::Query, create).await?;
        let make = move |sink: &mut DerivedSink| -> Result<(bool, Facts), E> {
            let sums = PieceSums::default();
            let mut sink = EventSink { sink, sums };
            let skipped = make(&mut sink)?;
            Ok((true, Facts::new(sink.sums, skipped)))
        };
        let place = (folder.clone(), format!("{kind}.{FILE_ENDING}"));
        let (_, facts) = publish_made(&self.io_thread, &self.space, place, make).await?;
        let (name, bytes) = (format!("{kind}.{FACTS_ENDING}"), facts.encode());
        let path = folder.join(&name);
        let published = self.io_thread.publish(folder, name, bytes.into()).await;
        Ok(published.map_err(StorageError::io("write", path))?)
    }

    /// Removes an event file if it exists. Who has it open reads on.
    ///
    /// # Errors
    /// When there is no such storage, or it cannot be removed.
    pub async fn remove(&self, id: StorageId, kind: Kind) -> Result<(), StorageError> {
        let storage = self.registry.find(id)?;
        let (path, facts) = paths(&storage, kind);
        let remove = move || {
            // The facts first: what is left is not complete.
            for path in [facts, path] {
                match remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(StorageError::io("remove", path)(error));
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        self.blocking.run(Cause::Query, remove).await
    }

    /// Bytes of all event files of all storages together.
    ///
    /// # Errors
    /// When the server is shutting down.
    pub async fn bytes(&self) -> Result<u64, StorageError> {
        let lengths = self.list().await?.into_iter().map(|info| info.length);
        Ok(lengths.fold(0, u64::saturating_add))
    }

    /// All event files of all storages, those that were made first at the front.
    ///
    /// # Errors
    /// When the server is shutting down.
    pub async fn list(&self) -> Result<Vec<EventFileInfo>, StorageError> {
        let storages = self.registry.all();
        let list = move || {
            let mut found = Vec::new();
            for storage in storages {
                for &kind in Kind::ALL {
                    let (path, _) = paths(&storage, kind);
                    // One that cannot be seen is not counted.
                    if let Ok(about) = std::fs::metadata(&path) {
                        let info = EventFileInfo {
                            storage: storage.id,
                            kind,
                            length: about.len(),
                        };
                        found.push((about.modified().ok(), info));
                    }
                }
            }
            found.sort_by_key(|(made, info)| (*made, info.storage));
            Ok(found.into_iter().map(|(_, info)| info).collect())
        };
        self.blocking.run(Cause::Query, list).await
    }
}

/// Removes what a killed server left of files that it made; blocks the thread. Nobody makes one
/// meanwhile. Neither a request nor the removal of the longest unused file would meet it.
pub(super) fn sweep(folder: &Path) {
    let events = folder.join(EVENTS_FOLDER);
    let names = match std::fs::read_dir(&events) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(
                %error, path = %events.display(),
                "files of events cannot be listed; the next start looks again"
            );
            return;
        }
    };
    let is_left = |path: &PathBuf| match path.extension().and_then(|it| it.to_str()) {
        Some(FILE_ENDING) => !path.with_extension(FACTS_ENDING).exists(),
        _ => path
            .as_os_str()
            .as_bytes()
            .ends_with(UNPUBLISHED_ENDING.as_bytes()),
    };
    let paths = names.flatten().map(|name| name.path());
    for path in paths.filter(is_left) {
        if let Err(error) = remove_file(&path) {
            tracing::warn!(
                %error, path = %path.display(),
                "what is left of a file of events cannot be removed; the next start tries again"
            );
        }
    }
}

/// Where an event file of a storage is, and its facts.
fn paths(storage: &Storage, kind: Kind) -> (PathBuf, PathBuf) {
    let folder: &Path = &storage.folder;
    let named = |ending: &str| folder.join(EVENTS_FOLDER).join(format!("{kind}.{ending}"));
    (named(FILE_ENDING), named(FACTS_ENDING))
}

/// What is known of an event file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Facts {
    length: u64,
    skipped: u64,
    pieces: Vec<u32>,
}

impl Facts {
    fn new(sums: PieceSums, skipped: u64) -> Self {
        let length = sums.length();
        // It is no data file: only the checksums are used.
        let pieces = sums.finish(DataFileId(0)).pieces;
        Self {
            length,
            skipped,
            pieces,
        }
    }

    fn checksum(&self) -> u32 {
        let pieces: Vec<u8> = self
            .pieces
            .iter()
            .flat_map(|sum| sum.to_le_bytes())
            .collect();
        crc32c(&pieces)
    }

    fn encode(&self) -> Vec<u8> {
        let (length, skipped) = (self.length, self.skipped);
        let mut text = format!("{FIRST_LINE}\nlength {length}\nskipped {skipped}\npieces");
        for piece in &self.pieces {
            // Writing to memory does not fail.
            let _ = write!(text, " {piece:08x}");
        }
        text.push('\n');
        let sum = crc32c(text.as_bytes());
        let _ = writeln!(text, "sum {sum:08x}");
        text.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, sum) = text.split_once("sum ")?;
        if u32::from_str_radix(sum.strip_suffix('\n')?, 16).ok()? != crc32c(body.as_bytes()) {
            return None;
        }
        let mut lines = body.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name);
        value(FIRST_LINE)?;
        let length: u64 = value("length ")?.parse().ok()?;
        let skipped = value("skipped ")?.parse().ok()?;
        let pieces = value("pieces")?.split_ascii_whitespace();
        let pieces: Option<Vec<u32>> = pieces
            .map(|sum| u32::from_str_radix(sum, 16).ok())
            .collect();
        let pieces = pieces?;
        (pieces.len() as u64 == length.div_ceil(PIECE_BYTES)).then_some(Self {
            length,
            skipped,
            pieces,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a killed server left of a file goes, and what is complete stays.
    #[test]
    fn a_sweep_leaves_complete_files() {
        let folder = tempfile::tempdir().unwrap();
        sweep(folder.path());
        let events = folder.path().join(EVENTS_FOLDER);
        std::fs::create_dir(&events).unwrap();
        let complete = ["raw.parquet", "raw.facts"];
        let left = ["spans.parquet.tmp", "spans.facts.tmp", "ctf.parquet"];
        for name in complete.iter().chain(&left) {
            std::fs::write(events.join(name), b"x").unwrap();
        }
        sweep(folder.path());
        for name in complete {
            assert!(events.join(name).exists(), "{name}");
        }
        for name in left {
            assert!(!events.join(name).exists(), "{name}");
        }
    }

    #[test]
    fn facts_come_back_unless_they_are_damaged() {
        for length in [0, 1, PIECE_BYTES, PIECE_BYTES + 5] {
            let mut sums = PieceSums::default();
            sums.extend(&vec![7; usize::try_from(length).unwrap()]);
            let facts = Facts::new(sums, 3);
            let bytes = facts.encode();
            assert_eq!(Facts::decode(&bytes), Some(facts));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert_eq!(Facts::decode(&damaged), None, "{at}");
                assert_eq!(Facts::decode(&bytes[..at]), None, "{at}");
            }
        }
    }
}
