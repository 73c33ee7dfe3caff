//! Cached results of queries over finalized storages: derived, bounded, and ignored when damaged.

use std::{
    collections::HashSet,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use bytes::Bytes;
use io_trace::{Access, Block, BlockType, Cause, FileTag, Operation};
use parking_lot::Mutex;
use storage_format::{
    StorageId, cached_file, checksum::crc32c, paths::CACHE_FOLDER, storage_file::StorageState,
};

use super::{blocking::Blocking, registry::Registry};
use crate::{
    StorageError,
    io::{create_folder, remove_file},
    io_thread::IoThread,
    read::read_small,
    space::Space,
    storage::Storage,
    traced::tag_in_scope,
    writer::Services,
};

/// Longest result that is cached, in bytes.
pub const CACHED_BYTES_MAX: usize = 1 << 20;
/// Cached results of a storage; the oldest is removed for the next.
const CACHED_COUNT_MAX: usize = 64;

/// Ending of their files.
const ENDING: &str = "cached";

/// Cached results of aggregated queries of finalized storages.
#[derive(Debug, Clone)]
pub struct QueryCache {
    registry: Arc<Registry>,
    io_thread: IoThread,
    space: Arc<Space>,
    blocking: Blocking,
    writing: Arc<Writing>,
}

/// The files that are being written.
#[derive(Debug, Default)]
struct Writing(Mutex<HashSet<PathBuf>>);

impl Writing {
    /// Begins with a file, until the guard is dropped; `None` while somebody else writes it.
    fn begin(self: &Arc<Self>, path: &Path) -> Option<WritingGuard> {
        let is_first = self.0.lock().insert(path.to_owned());
        is_first.then(|| WritingGuard(Arc::clone(self), path.to_owned()))
    }
}

struct WritingGuard(Arc<Writing>, PathBuf);

impl Drop for WritingGuard {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
    }
}

impl QueryCache {
    pub(super) fn new(registry: &Arc<Registry>, services: &Services, blocking: &Blocking) -> Self {
        Self {
            registry: Arc::clone(registry),
            io_thread: services.io_thread.clone(),
            space: Arc::clone(&services.space),
            blocking: blocking.clone(),
            writing: Arc::default(),
        }
    }

    /// The cached result for this key, if the storage is finalized.
    ///
    /// # Errors
    /// When there is no such storage.
    pub async fn get(&self, id: StorageId, key: &str) -> Result<Option<Bytes>, StorageError> {
        let storage = self.registry.find(id)?;
        if storage.state() != StorageState::Finalized {
            return Ok(None);
        }
        let path = storage.folder.join(CACHE_FOLDER).join(name_of(key));
        let key = key.to_owned();
        self.blocking
            .run(Cause::Query, move || {
                let fixed_max = cached_file::HEAD_BYTES + CACHED_BYTES_MAX;
                let max = fixed_max.saturating_add(key.len()) as u64;
                let tag = tag_in_scope(&path);
                let started = tag.as_ref().map(FileTag::begin);
                // A result that cannot be read is a miss.
                let answer = read_small(&path, max)
                    .ok()
                    .and_then(|file| answer_in(file.into(), &key));
                if let (Some(tag), Some(started)) = (&tag, started) {
                    let length = answer.as_ref().map_or(0, |answer| answer.len() as u64);
                    tag.end(started, Operation::Lookup, || Access {
                        offset: Some(0),
                        asked: length,
                        done: length,
                        errno: 0,
                        cache_hit: Some(answer.is_some()),
                        block: Some(Block::of(tag, BlockType::Answer, length)),
                    });
                }
                Ok(answer)
            })
            .await
    }

    /// Caches a result of a finalized storage; results longer than [`CACHED_BYTES_MAX`] are not
    /// cached, and neither is one that another request caches at this moment.
    ///
    /// # Errors
    /// When there is no such storage, the disk is low, or it cannot be written.
    pub async fn put(&self, id: StorageId, key: &str, answer: &[u8]) -> Result<(), StorageError> {
        let storage = self.registry.find(id)?;
        let put = self.put_in(&storage, key, answer).await;
        put.map_err(|error| storage.unless_deleted(error))
    }

    async fn put_in(
        &self,
        storage: &Storage,
        key: &str,
        answer: &[u8],
    ) -> Result<(), StorageError> {
        if storage.state() != StorageState::Finalized || answer.len() > CACHED_BYTES_MAX {
            return Ok(());
        }
        self.space.check()?;
        let folder = storage.folder.join(CACHE_FOLDER);
        let (name, bytes) = (name_of(key), cached_file::encode(key, answer));
        let path = folder.join(&name);
        // The same query was executed twice at once, with the same result.
        let Some(_writing) = self.writing.begin(&path) else {
            return Ok(());
        };
        let prepared = folder.clone();
        self.blocking
            .run(Cause::Query, move || {
                match create_folder(&prepared) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                        return Err(StorageError::io("create", prepared)(error));
                    }
                    _ => {}
                }
                remove_oldest(&prepared)
                    .map_err(StorageError::io("remove old results from", prepared))
            })
            .await?;
        let published = self.io_thread.publish(folder, name, bytes.into()).await;
        published.map_err(StorageError::io("write", path))
    }
}

fn name_of(key: &str) -> String {
    let (front, back) = key.as_bytes().split_at(key.len() / 2);
    let (first, second) = (crc32c(key.as_bytes()), crc32c(&[back, front].concat()));
    format!("{first:08x}{second:08x}.{ENDING}")
}

/// The result in a file, if the file is intact and of `key`.
fn answer_in(file: Bytes, key: &str) -> Option<Bytes> {
    let found = cached_file::decode(&file)?;
    (file[found.key] == *key.as_bytes()).then(|| file.slice(found.result))
}

/// Removes the oldest results until there is space for one more.
fn remove_oldest(folder: &Path) -> std::io::Result<()> {
    let mut results = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let about = match entry.metadata() {
            // A temporary file that got its name meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            about => about?,
        };
        let written = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        results.push((written, entry.path()));
    }
    results.sort();
    let beyond = results
        .len()
        .saturating_add(1)
        .saturating_sub(CACHED_COUNT_MAX);
    for (_, path) in results.into_iter().take(beyond) {
        match remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_back_under_its_key_only() {
        let file = Bytes::from(cached_file::encode("count name == 'x'", b"{\"count\":7}\n"));
        let found = answer_in(file.clone(), "count name == 'x'");
        assert_eq!(found.as_deref(), Some(&b"{\"count\":7}\n"[..]));
        assert_eq!(answer_in(file.clone(), "count name == 'y'"), None);
        assert_eq!(answer_in(file, "count name == 'x"), None);
    }

    #[test]
    fn a_file_is_written_once_at_a_time() {
        let writing = Arc::<Writing>::default();
        let first = writing.begin(Path::new("a"));
        assert!(first.is_some() && writing.begin(Path::new("b")).is_some());
        assert!(writing.begin(Path::new("a")).is_none());
        drop(first);
        assert!(writing.begin(Path::new("a")).is_some());
    }

    #[test]
    fn the_oldest_results_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..CACHED_COUNT_MAX + 9 {
            remove_oldest(folder.path()).unwrap();
            std::fs::write(folder.path().join(number.to_string()), b"x").unwrap();
        }
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            CACHED_COUNT_MAX
        );
    }
}
