//! The scrub: reads all files of finalized storages, and the complete data files of others, again
//! and again, slowly, past the page cache, and compares them with their checksums.
//!
//! A disk forgets without a word, and a file that nobody reads is noticed when it is needed. The
//! scrub remembers in the data folder where it was (decision 0079).

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use io_trace::Cause;
use storage_format::{
    DataFileId, StorageId,
    checksum_file::PieceSums,
    paths::{FileName, FileRole},
    storage_file::{FileEntry, StorageFile, StorageState},
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    blocking::Blocking, documents::Documents, registry::Registry, scrub_position::ScrubPosition,
    trees::TreeLoader,
};
use crate::{
    StorageError,
    checksums::read_checksums,
    clock::now_ns,
    damage::Damage,
    io::{BUFFER_BYTES, DirectFile},
    io_thread::Tail,
    listed::{differences, differences_of_log},
    storage::Storage,
    tier::has_slot,
    writer::Services,
};

/// Buffers that are read between two pauses.
const BUFFERS_AT_ONCE: usize = 4;
/// How often the position is saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// The document that remembers the position.
const DOCUMENT: &str = "scrub";

/// The scrub of an engine.
pub(super) struct Scrub {
    pub(super) registry: Arc<Registry>,
    pub(super) services: Services,
    pub(super) trees: Arc<TreeLoader>,
    pub(super) documents: Documents,
    pub(super) blocking: Blocking,
}

/// A pass over the storages.
struct Pass<'a> {
    scrub: &'a Scrub,
    position: ScrubPosition,
    saved: Instant,
    /// When what was read so far is due.
    due: Instant,
}

/// What a file must be.
enum Expected {
    /// As the storage file lists it.
    Listed(FileEntry),
    /// A file of a log, durable to its end.
    Log(DataFileId, Tail),
}

impl Scrub {
    /// Runs until the engine stops.
    pub(super) async fn run(self) {
        let config = Arc::clone(&self.services.config);
        if config.scrub_bytes_per_second == 0 {
            return;
        }
        let document = self.documents.read(DOCUMENT).await.ok().flatten();
        let mut position = ScrubPosition::decode(&document.unwrap_or_default());
        let counters = Arc::clone(&self.services.counters);
        counters
            .scrub_finished_seconds
            .set(position.finished_seconds());
        sleep(config.scrub_delay).await;
        loop {
            if let Some(wait) = position.wait(now_ns(), config.scrub_pass_interval) {
                sleep(wait).await;
                continue;
            }
            let mut pass = Pass {
                scrub: &self,
                position,
                saved: Instant::now(),
                due: Instant::now(),
            };
            pass.run().await;
            position = pass.position;
        }
    }
}

impl Pass<'_> {
    async fn run(&mut self) {
        self.position.begin(now_ns());
        let storages = self.scrub.registry.all().into_iter();
        let mut ids: Vec<StorageId> = storages.map(|storage| storage.id).collect();
        ids.sort_unstable();
        let after = self.position.after;
        for id in ids
            .into_iter()
            .filter(|id| after.is_none_or(|after| *id > after))
        {
            // It may have been deleted, and one that is not recovered yet has its turn later.
            if let Ok(storage) = self.scrub.registry.find(id) {
                self.storage(&storage).await;
            }
            self.position.after = Some(id);
            self.save(SAVE_INTERVAL).await;
        }
        self.position.finish(now_ns());
        self.save(Duration::ZERO).await;
        let counters = &self.scrub.services.counters;
        counters.scrub_passes.add(1);
        counters
            .scrub_finished_seconds
            .set(self.position.finished_seconds());
        let ScrubPosition { bytes, places, .. } = self.position;
        tracing::info!(
            bytes,
            damaged = places,
            "all storages were read and compared"
        );
    }

    async fn save(&mut self, interval: Duration) {
        if self.saved.elapsed() < interval {
            return;
        }
        self.saved = Instant::now();
        let document = Bytes::from(self.position.encode());
        if let Err(error) = self.scrub.documents.write(DOCUMENT, document).await {
            tracing::warn!(%error, "the scrub cannot remember where it is; after a restart it begins again");
        }
    }

    async fn storage(&mut self, storage: &Arc<Storage>) {
        let file = storage.info();
        if storage.is_unreadable() {
            return;
        }
        if file.state == StorageState::Finalized {
            self.listed(storage, &file).await;
        } else {
            self.log(storage).await;
        }
        storage.forget_damage_of_others();
    }

    /// The files that a finalized storage lists, and the second copy of its storage file.
    async fn listed(&mut self, storage: &Arc<Storage>, file: &StorageFile) {
        self.own_files(storage).await;
        for entry in file.files.clone() {
            let path = storage.folder.join(&entry.name);
            let expected = Expected::Listed(entry);
            self.file(storage, file, path, expected).await;
        }
    }

    /// The storage file and its second copy, of which each is restored from the other.
    async fn own_files(&mut self, storage: &Arc<Storage>) {
        let own = Arc::clone(storage);
        let check = move || own.check_copy();
        let name = FileName::Storage(storage.id).to_string();
        match self.scrub.blocking.run(Cause::Verify, check).await {
            Ok(restored) => {
                for (file, error) in restored {
                    self.position.places = self.position.places.saturating_add(1);
                    self.scrub.services.counters.scrub_places.add(1);
                    tracing::warn!(%error, storage = %storage.id, %file, "the scrub found a damaged file, and restored it");
                }
                storage.checked.forget_damage(&name);
            }
            Err(error) if error.is_loss() || matches!(error, StorageError::DiskFull { .. }) => {
                let what = error.to_string();
                let file = name.clone();
                self.note(
                    storage,
                    &name,
                    vec![Damage {
                        file,
                        offset: 0,
                        what,
                    }],
                );
            }
            // The storage is being deleted, or the server stops.
            Err(_) => {}
        }
    }

    /// The data files of a storage to which nothing is written any more.
    async fn log(&mut self, storage: &Arc<Storage>) {
        let complete = storage.tree.read().as_ref().map(|tree| {
            // The ids of arranged files are greater than that of the file that is written.
            let written = tree.position().map(|position| position.file);
            let mut files = tree.files().clone();
            files.retain(|id, _| Some(*id) != written);
            files
        });
        for (id, tail) in complete.unwrap_or_default() {
            let path = storage.path(&FileName::Data(id));
            let file = storage.info();
            let expected = Expected::Log(id, tail);
            self.file(storage, &file, path, expected).await;
        }
    }

    async fn file(
        &mut self,
        storage: &Arc<Storage>,
        own: &StorageFile,
        path: PathBuf,
        expected: Expected,
    ) {
        // Its bytes may be absent here, and are compared when they are fetched.
        if has_slot(&path) {
            return;
        }
        let limit = match &expected {
            Expected::Listed(_) => u64::MAX,
            Expected::Log(_, tail) => tail.length,
        };
        let summed = self.sum(path.clone(), limit).await;
        if is_over(storage, &expected) || has_slot(&path) {
            return;
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_index =
            matches!(&expected, Expected::Listed(entry) if entry.role == FileRole::Index);
        let found = match summed {
            Ok(sums) => match self.compare(storage, own, &name, expected, sums).await {
                Some(found) => found,
                None => return,
            },
            Err(StorageError::Stopping | StorageError::Exhausted { .. }) => return,
            Err(error) => vec![Damage {
                file: name.clone(),
                offset: 0,
                what: error.to_string(),
            }],
        };
        self.note(storage, &name, found.clone());
        if !found.is_empty() && is_index {
            let replaced = self.scrub.trees.replace_part(storage, &path).await;
            match replaced {
                Ok(()) if !is_listed(storage, &name) => storage.checked.forget_damage(&name),
                // It says in the log why.
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// What is damaged in a file; `None` if that could not be found out.
    async fn compare(
        &self,
        storage: &Arc<Storage>,
        own: &StorageFile,
        name: &str,
        expected: Expected,
        sums: PieceSums,
    ) -> Option<Vec<Damage>> {
        let (storage, own, name) = (Arc::clone(storage), own.clone(), name.to_owned());
        let compare = move || {
            Ok(match expected {
                Expected::Listed(entry) => {
                    let known = read_checksums(&storage.folder, &own).and_then(Result::ok);
                    differences(&storage, &entry, sums, known.as_ref())
                }
                Expected::Log(_, tail) => {
                    differences_of_log(&name, tail, &sums).into_iter().collect()
                }
            })
        };
        let compared = self.scrub.blocking.run(Cause::Verify, compare).await;
        compared.ok()
    }

    /// Remembers what is damaged in a file, and that nothing else of it is.
    fn note(&mut self, storage: &Storage, name: &str, found: Vec<Damage>) {
        if found.is_empty() {
            storage.checked.forget_damage(name);
        } else {
            // What was compared before may have come from the page cache.
            storage.checked.forget();
        }
        self.position.places = self.position.places.saturating_add(found.len() as u64);
        let new = storage.checked.scrubbed.replace(name, found);
        for damage in new.places {
            self.scrub.services.counters.scrub_places.add(1);
            tracing::error!(
                storage = %storage.id, file = name, offset = damage.offset, what = damage.what,
                "the scrub found damage; check the disk, and restore the file from an export or a \
                 backup"
            );
        }
        if new.more > 0 {
            self.scrub.services.counters.scrub_places.add(new.more);
            tracing::error!(
                storage = %storage.id, file = name, places = new.more,
                "the scrub found more damage of the file, which is not listed"
            );
        }
    }

    /// The checksums of the first `limit` bytes of a file, read no faster than the rate allows.
    async fn sum(&mut self, path: PathBuf, limit: u64) -> Result<PieceSums, StorageError> {
        let scrub = self.scrub;
        let blocking = &scrub.blocking;
        let place = path.clone();
        let open = move || DirectFile::open(&place).map_err(StorageError::io("open", place));
        let mut file = blocking.run(Cause::Verify, open).await?;
        let mut sums = PieceSums::default();
        loop {
            let path = path.clone();
            let before = sums.length();
            let step = move || {
                let is_at_end = read_some(&mut file, &mut sums, limit)
                    .map_err(|error| read_failed(&path, error))?;
                Ok((file, sums, is_at_end))
            };
            let is_at_end;
            (file, sums, is_at_end) = blocking.run(Cause::Verify, step).await?;
            self.pause(sums.length().saturating_sub(before)).await;
            if is_at_end {
                return Ok(sums);
            }
        }
    }

    /// Waits until bytes that were read are due.
    async fn pause(&mut self, bytes: u64) {
        let services = &self.scrub.services;
        self.position.bytes = self.position.bytes.saturating_add(bytes);
        services.counters.scrub_bytes.add(bytes);
        let nanos = u128::from(bytes).saturating_mul(1_000_000_000);
        let nanos = nanos.checked_div(u128::from(services.config.scrub_bytes_per_second));
        let takes = Duration::from_nanos(u64::try_from(nanos.unwrap_or(0)).unwrap_or(u64::MAX));
        // What a slow disk lost is not caught up.
        let due = self.due.max(Instant::now());
        self.due = due.checked_add(takes).unwrap_or(due);
        sleep_until(self.due).await;
    }
}

fn read_failed(path: &Path, error: io::Error) -> StorageError {
    StorageError::io("read", path)(error)
}

/// Reads the next buffers; whether that was the end.
fn read_some(file: &mut DirectFile, sums: &mut PieceSums, limit: u64) -> io::Result<bool> {
    for _ in 0..BUFFERS_AT_ONCE {
        let bytes = file.read(sums.length())?;
        let left = usize::try_from(limit.saturating_sub(sums.length())).unwrap_or(usize::MAX);
        let part = &bytes[..bytes.len().min(left)];
        sums.extend(part);
        if part.len() < BUFFER_BYTES {
            return Ok(true);
        }
    }
    Ok(sums.length() >= limit)
}

fn is_listed(storage: &Storage, name: &str) -> bool {
    storage.info().files.iter().any(|file| file.name == name)
}

/// Whether a file was removed or replaced meanwhile, with its storage or by a change of it.
fn is_over(storage: &Storage, expected: &Expected) -> bool {
    if storage.is_deleted.load(std::sync::atomic::Ordering::SeqCst) {
        return true;
    }
    match expected {
        Expected::Listed(entry) => {
            let now = storage.info();
            !now.files.iter().any(|listed| listed == entry)
        }
        Expected::Log(id, tail) => {
            let tree = storage.tree.read();
            let now = tree.as_ref().and_then(|tree| tree.files().get(id));
            now != Some(tail)
        }
    }
}
