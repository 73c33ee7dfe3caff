//! Uploading a finalized storage: its large files as objects, its small ones and all checksums as
//! the heads, and then the seal, which makes it visible as a whole.
//!
//! *Invariant:* a seal names only objects that are complete, and only `Bucket::create` of the seal
//! decides between two nodes. Everything before it can be repeated, and what a failed upload
//! leaves is named by no seal.

mod heads;
mod journal;
mod object;

use std::{
    collections::HashSet,
    fs::File,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use storage_format::{StorageId, paths::FileName};
use tokio::task::spawn_blocking;

use self::{
    heads::assemble,
    journal::{Entry, Finished, Journal},
    object::{Sender, Source, joined, refused},
};
use crate::{
    Bucket, Creation, Heads, Hint, Seal, SealedObject, TierError, clock, hints, keys, removal,
    seal::{FILE_BYTES_MAX, FORMAT, check_name},
};

/// Files that are read at once. The parts in memory are limited over all of them.
const FILES_AT_ONCE: usize = 4;

/// A file of a finalized storage on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    /// Its name in the folder of the storage.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub length: u64,
    /// CRC32C of its bytes, if the storage lists it: then the upload of other bytes is refused.
    /// Derived files are not listed.
    pub checksum: Option<u32>,
}

/// Stores all of a local file under a key that nobody used before. Returns its length.
///
/// # Errors
/// When the file cannot be read, or the store refuses or does not answer: then there is no object,
/// or a complete one.
pub async fn store_file(bucket: &Bucket, key: &str, file: File) -> Result<u64, TierError> {
    let sender = Sender::new(bucket);
    let source = Source::of(file, Path::new(key))?;
    let length = source.length();
    let sent = sender.send(key, source, |_| Ok(()), &|_| ()).await?;
    sent.map(|_| length)
        .ok_or_else(|| TierError::Settings("the server stops".into()))
}

/// What is uploaded.
#[derive(Debug, Clone)]
pub struct Upload {
    /// The storage.
    pub storage: StorageId,
    /// The name of this node.
    pub node: String,
    /// Now, ns since the epoch.
    pub now: i64,
    /// The storage file.
    pub storage_file: Bytes,
    /// Files that a reader needs at once: they go into the heads.
    pub small: Vec<LocalFile>,
    /// Files of which a reader needs ranges.
    pub large: Vec<LocalFile>,
    /// Where this node notes which files are complete. One upload at a time uses it; it may be
    /// removed when the storage is sealed.
    pub journal: PathBuf,
}

/// How an upload ended.
#[derive(Debug, Clone)]
pub enum Uploaded {
    /// This node sealed the storage, now or by a try before that was interrupted.
    Sealed {
        /// The seal.
        seal: Seal,
        /// The sums of all large files, one after another: the end of the heads.
        sums: Bytes,
        /// Where they begin in the heads.
        sums_at: u64,
    },
    /// Another node sealed the storage before. What was uploaded here is named by no seal.
    SealedByOther(Seal),
    /// The storage was removed after a try before this had its seal ready: what is here is the
    /// storage that was removed.
    Removed,
}

/// Uploads a storage and seals it. A repeated upload continues an interrupted one: it does not read
/// the files again that the journal lists. `progress` hears of bytes of large files that are in the
/// store, each once.
///
/// Dropping the future stops the upload; parts of unfinished objects then remain until a lifecycle
/// rule of the bucket removes them.
///
/// # Errors
/// When a local file is not what the storage lists, the store does not answer, or
/// [`TierError::Gone`] when the storage was removed. Nothing is sealed then, or it is not known.
pub async fn upload(
    bucket: &Bucket,
    upload: Upload,
    progress: impl Fn(u64) + Send + Sync,
) -> Result<Uploaded, TierError> {
    let storage = upload.storage;
    upload.check()?;
    let path = upload.journal.clone();
    let (journal, entries) = joined(spawn_blocking(move || Journal::open(&path)).await)?;
    let had_seal = entries.iter().any(|entry| matches!(entry, Entry::Seal(_)));
    if had_seal && removal::is_gone(bucket, storage).await? {
        return Ok(Uploaded::Removed);
    }
    removal::refuse_gone(bucket, storage).await?;
    if let Some(seal) = Seal::get(bucket, storage).await? {
        return sealed_before(bucket, seal, &entries, upload.now).await;
    }
    fault_point!("tier.upload.begun");
    let work = Work {
        bucket,
        upload: &upload,
        sender: Sender::new(bucket),
        journal,
        entries,
    };
    let files = work.large_files(&progress).await?;
    let (seal, sums, sums_at) = work.heads(files).await?;
    let body = seal.encode()?;
    if sabotaged!("evict-first") {
        for file in &upload.large {
            // Whatever becomes of it: this is the defect.
            let _ = std::fs::remove_file(&file.path);
        }
    }
    work.note(Entry::Seal(seal.nonce.clone())).await?;
    fault_point!("tier.upload.seal_noted");
    removal::refuse_gone(bucket, storage).await?;
    match bucket.create(&keys::seal(storage), body).await? {
        Creation::Made => {}
        Creation::Exists(body) => {
            let seal = Seal::decode(storage, &body)?;
            return sealed_before(bucket, seal, &work.entries, upload.now).await;
        }
    }
    fault_point!("tier.upload.sealed");
    // A removal may have looked for the seal just before it was there.
    if removal::is_gone(bucket, storage).await? {
        removal::remove_objects(bucket, storage).await?;
        return Err(TierError::Gone(keys::storage(storage)));
    }
    hints::note(bucket, Hint::Sealed, storage, upload.now).await;
    fault_point!("tier.upload.told");
    Ok(Uploaded::Sealed {
        seal,
        sums,
        sums_at,
    })
}

/// There was a seal already: that of another node, or of this upload before it was interrupted.
async fn sealed_before(
    bucket: &Bucket,
    seal: Seal,
    entries: &[Entry],
    now: i64,
) -> Result<Uploaded, TierError> {
    let is_own = |entry: &Entry| matches!(entry, Entry::Seal(nonce) if *nonce == seal.nonce);
    if !entries.iter().any(is_own) {
        return Ok(Uploaded::SealedByOther(seal));
    }
    let heads = Heads::get(bucket, &seal).await?;
    let sums_at = seal.sums_at();
    let sums = heads
        .bytes()
        .slice(usize::try_from(sums_at).unwrap_or(usize::MAX)..);
    hints::note(bucket, Hint::Sealed, seal.storage, now).await;
    Ok(Uploaded::Sealed {
        seal,
        sums,
        sums_at,
    })
}

impl Upload {
    /// Whether a seal can name these files; asked before anything is sent.
    fn check(&self) -> Result<(), TierError> {
        let mut seen = HashSet::from([FileName::Storage(self.storage).to_string()]);
        for file in self.small.iter().chain(&self.large) {
            let problem = match check_name(self.storage, &file.name) {
                Err(problem) => problem,
                Ok(()) if !seen.insert(file.name.clone()) => "it is named twice".into(),
                Ok(()) if file.length > FILE_BYTES_MAX => {
                    format!("it has {} bytes, {FILE_BYTES_MAX} are allowed", file.length)
                }
                Ok(()) => continue,
            };
            return Err(refused(&file.path, problem));
        }
        Ok(())
    }
}

/// An upload that is under way.
struct Work<'a> {
    bucket: &'a Bucket,
    upload: &'a Upload,
    sender: Sender<'a>,
    journal: Journal,
    entries: Vec<Entry>,
}

impl Work<'_> {
    async fn large_files(
        &self,
        progress: &(impl Fn(u64) + Send + Sync),
    ) -> Result<Vec<Finished>, TierError> {
        let files = self.upload.large.iter();
        let files: Vec<_> = files.map(|file| self.large_file(file, progress)).collect();
        // All of them end, also after an error: each lets the store forget its parts.
        let files: Vec<_> = stream::iter(files).buffered(FILES_AT_ONCE).collect().await;
        let files: Result<Vec<Option<Finished>>, TierError> = files.into_iter().collect();
        // After this nothing was stopped.
        Ok(files?.into_iter().flatten().collect())
    }

    /// Sends a file; `None` if the upload of another one failed meanwhile.
    async fn large_file(
        &self,
        file: &LocalFile,
        progress: &(impl Fn(u64) + Send + Sync),
    ) -> Result<Option<Finished>, TierError> {
        if self.sender.is_stopped() {
            return Ok(None);
        }
        let sent = self.send_file(file, progress).await;
        if sent.is_err() {
            self.sender.stop();
        }
        sent
    }

    async fn send_file(
        &self,
        file: &LocalFile,
        progress: &(impl Fn(u64) + Send + Sync),
    ) -> Result<Option<Finished>, TierError> {
        let (path, length) = (file.path.clone(), file.length);
        let opened = spawn_blocking(move || Source::open(&path, length)).await;
        let (source, modified) = joined(opened)?;
        if let Some(finished) = self.finished(file, modified).await? {
            progress(file.length);
            return Ok(Some(finished));
        }
        let key = keys::file(self.upload.storage, &file.name, &clock::nonce());
        let check = |checksum| file.check(checksum);
        let sent = self.sender.send(&key, source, check, progress).await?;
        let Some(sums) = sent else { return Ok(None) };
        fault_point!("tier.upload.file_sent");
        let finished = Finished {
            name: file.name.clone(),
            key,
            length: file.length,
            modified,
            checksum: sums.checksum,
            sums: sums.granules,
        };
        self.note(Entry::File(finished.clone())).await?;
        fault_point!("tier.upload.file_noted");
        Ok(Some(finished))
    }

    /// The object of a file that an interrupted upload completed, if it is still there.
    async fn finished(
        &self,
        file: &LocalFile,
        modified: i64,
    ) -> Result<Option<Finished>, TierError> {
        let storage = self.upload.storage;
        let fits = |found: &&Finished| {
            found.name == file.name
                && found.length == file.length
                && keys::is_file(storage, &file.name, &found.key)
                && match file.checksum {
                    Some(checksum) => found.checksum == checksum,
                    // A derived file may have been rebuilt with other bytes.
                    None => found.modified == modified,
                }
        };
        let entries = self.entries.iter().rev();
        let mut files = entries.filter_map(|entry| match entry {
            Entry::File(file) => Some(file),
            Entry::Seal(_) => None,
        });
        let Some(found) = files.find(fits) else {
            return Ok(None);
        };
        let object = self.bucket.head(&found.key).await?;
        let is_there = object.is_some_and(|object| object.length == file.length);
        Ok(is_there.then(|| found.clone()))
    }

    async fn note(&self, entry: Entry) -> Result<(), TierError> {
        let journal = self.journal.clone();
        joined(spawn_blocking(move || journal.append(&entry)).await)
    }

    /// Sends the heads; returns the seal, and the sums with their place in the heads.
    async fn heads(&self, files: Vec<Finished>) -> Result<(Seal, Bytes, u64), TierError> {
        let upload = self.upload;
        let (storage, small) = (upload.storage, upload.small.clone());
        let storage_file = upload.storage_file.clone();
        let assembled = spawn_blocking(move || assemble(storage, &storage_file, &small, files));
        let assembled = joined(assembled.await)?;
        let nonce = clock::nonce();
        let key = keys::heads(storage, &nonce);
        let source = Source::Memory(assembled.bytes.clone());
        let sent = self.sender.send(&key, source, |_| Ok(()), &|_| ()).await?;
        let Some(sums) = sent else {
            return Err(TierError::Settings("the upload was stopped".into()));
        };
        fault_point!("tier.upload.heads_sent");
        let seal = Seal {
            format: FORMAT,
            storage,
            nonce,
            node: upload.node.clone(),
            sealed: upload.now,
            heads: SealedObject {
                key,
                length: assembled.bytes.len() as u64,
                checksum: sums.checksum,
            },
            small: assembled.small,
            files: assembled.files,
        };
        let sums_at = seal.sums_at();
        let sums = assembled
            .bytes
            .slice(usize::try_from(sums_at).unwrap_or(usize::MAX)..);
        Ok((seal, sums, sums_at))
    }
}

impl LocalFile {
    /// Compares the bytes that were read with what the storage lists.
    fn check(&self, checksum: u32) -> Result<(), TierError> {
        match self.checksum {
            Some(listed) if listed != checksum => {
                let what = format!(
                    "its bytes have the CRC32C {checksum:08x}, the storage lists {listed:08x}: \
                     the file is damaged, verify the storage"
                );
                Err(refused(&self.path, what))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
