//! A Delta Lake table of events in the bucket, for engines that read such tables.
//!
//! The table is the log `_delta_log/%020d.json` below its prefix, and the Parquet files that the
//! log names. A commit makes the next object of the log, which must not exist yet:
//! [`Bucket::create`] decides between several writers, and tells who lost, who then reads the
//! winner's commit and tries the number after it.
//!
//! A storage is in the table at most once, whatever crashes or is repeated: the commit that adds
//! its files also has a transaction identifier (`txn`) named after the storage, with version 1, and
//! the commit that removes them one with version 2. Every writer has read all commits before its
//! own, so none adds a storage that was added or removed. Programs that rewrite files of the table
//! keep these identifiers.
//!
//! See `docs/decisions/0224-events-of-storages-are-a-delta-lake-table.md` for types of columns.
//! Writers read commits one by one from the first; checkpoints are written for readers. The table
//! asks others not to clean its log up. If somebody did so none the less, it cannot be opened,
//! which is said.

mod actions;
mod checkpoint;
mod files;
mod log;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use storage_format::StorageId;

pub use actions::{ColumnStatistics, DataFile, FileStatistics};
pub use checkpoint::Checkpoint;
pub use schema::{DeltaColumn, DeltaSchema, DeltaType};

use self::actions::Action;
use self::log::Log;
use crate::{Bucket, Creation, TierError, clock, nonce};

/// What adding a storage did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addition {
    /// This version of the table has it.
    Added(u64),
    /// An earlier commit added it: nothing was done.
    AlreadyThere,
    /// It was removed from the table, and does not come back: nothing was done.
    Removed,
}

/// The longest commit that is read.
const COMMIT_BYTES_MAX: u64 = 256 << 20;

/// Now, in milliseconds since the epoch.
fn now() -> i64 {
    clock::now_ns() / 1_000_000
}

/// A table in the bucket.
#[derive(Debug)]
pub struct DeltaTable {
    bucket: Bucket,
    /// The folder of the table, without a slash at its end.
    prefix: String,
    log: Log,
    /// The version behind the last checkpoint that is known.
    checkpointed: u64,
}

impl DeltaTable {
    /// Opens the table at `prefix`, or makes an empty one with these columns, and a column
    /// `storage` by which it is partitioned.
    ///
    /// # Errors
    /// When the store fails, the log is damaged or does not begin at its first commit, the table
    /// has other columns, or only newer programs may write to it.
    pub async fn open_or_create(
        bucket: Bucket,
        prefix: &str,
        schema: &DeltaSchema,
    ) -> Result<Self, TierError> {
        let mut table = Self::read(bucket, prefix).await?;
        if table.log.next == 0 {
            table.create(schema).await?;
        }
        table.log.check(&table.key(0), schema)?;
        Ok(table)
    }

    /// Opens the table at `prefix`, if there is one.
    ///
    /// # Errors
    /// As [`Self::open_or_create`].
    pub async fn open(
        bucket: Bucket,
        prefix: &str,
        schema: &DeltaSchema,
    ) -> Result<Option<Self>, TierError> {
        let table = Self::read(bucket, prefix).await?;
        if table.log.next == 0 {
            return Ok(None);
        }
        table.log.check(&table.key(0), schema)?;
        Ok(Some(table))
    }

    async fn read(bucket: Bucket, prefix: &str) -> Result<Self, TierError> {
        let mut table = Self {
            bucket,
            prefix: prefix.trim_matches('/').to_owned(),
            log: Log::default(),
            checkpointed: 0,
        };
        table.refresh().await?;
        Ok(table)
    }

    async fn create(&mut self, schema: &DeltaSchema) -> Result<(), TierError> {
        let folder = format!("{}/_delta_log", self.prefix);
        let left = self.bucket.list_all(&folder).await?;
        let is_commit = |key: &str| key.ends_with(".json") || key.ends_with(".parquet");
        if let Some(first) = left.iter().find(|listed| is_commit(&listed.key)) {
            // Or another has made the table just now.
            self.refresh().await?;
            if self.log.next > 0 {
                return Ok(());
            }
            return Err(TierError::damaged(
                &self.key(0),
                format!(
                    "it is not there, and `{}` is: another program has cleaned the log of the \
                     table up; make the table anew at another prefix",
                    first.key
                ),
            ));
        }
        let first = actions::creating(&nonce::nonce().hyphenated().to_string(), schema, now());
        // Another may make the table at the same time; then its columns count.
        let make = |log: &Log| (log.next == 0).then(|| first.clone());
        self.commit("CREATE TABLE", make).await?;
        Ok(())
    }

    /// The key of a version in the log.
    fn key(&self, version: u64) -> String {
        format!("{}/_delta_log/{version:020}.json", self.prefix)
    }

    /// Reads the commits that were made since.
    ///
    /// # Errors
    /// When the store fails, or a commit is damaged.
    pub async fn refresh(&mut self) -> Result<(), TierError> {
        loop {
            let key = self.key(self.log.next);
            let Some(body) = self.bucket.get_at_most(&key, COMMIT_BYTES_MAX).await? else {
                return Ok(());
            };
            self.log.apply(&key, &body)?;
        }
    }

    /// Makes the next commit of what `make` returns for the log as it is then; none without.
    /// Returns its version.
    async fn commit(
        &mut self,
        operation: &str,
        mut make: impl FnMut(&Log) -> Option<Vec<Action>>,
    ) -> Result<Option<u64>, TierError> {
        loop {
            let Some(actions) = make(&self.log) else {
                return Ok(None);
            };
            let (version, key) = (self.log.next, self.key(self.log.next));
            let body = actions::body(operation, &actions, (now(), &clock::nonce()));
            match self.bucket.create(&key, Bytes::from(body)).await? {
                Creation::Made => {
                    self.refresh().await?;
                    return Ok(Some(version));
                }
                Creation::Exists(other) => {
                    self.log.apply(&key, &other)?;
                    self.refresh().await?;
                }
            }
        }
    }

    /// Adds the files of a storage, which are in the bucket already, below the folder of the table.
    /// To repeat it after a failure does no harm, also with other files.
    ///
    /// # Errors
    /// When the store fails: then it may have been added or not.
    pub async fn add_storage(
        &mut self,
        storage: StorageId,
        files: &[DataFile],
    ) -> Result<Addition, TierError> {
        self.refresh().await?;
        let make = |log: &Log| {
            let is_new = log.version_of(storage).is_none();
            is_new.then(|| actions::adding(storage, files, now()))
        };
        let made = self.commit("WRITE", make).await?;
        Ok(match (made, self.log.version_of(storage)) {
            (Some(version), _) => Addition::Added(version),
            (None, Some(actions::ADDED)) => Addition::AlreadyThere,
            (None, _) => Addition::Removed,
        })
    }

    /// Removes a storage that was added, and returns the paths of its files, which readers of
    /// earlier versions may still want. Of one that is not there, there are none.
    ///
    /// # Errors
    /// When the store fails: then it may have been removed or not.
    pub async fn remove_storage(&mut self, storage: StorageId) -> Result<Vec<String>, TierError> {
        self.refresh().await?;
        let mut removed = Vec::new();
        let make = |log: &Log| {
            let is_there = log.version_of(storage) == Some(actions::ADDED);
            is_there.then(|| {
                removed = log.files_of(storage);
                actions::removing(storage, &removed, now())
            })
        };
        let made = self.commit("DELETE", make).await?;
        let removed = removed.into_iter().map(|(path, _)| path);
        Ok(made.map(|_| removed.collect()).unwrap_or_default())
    }

    /// Whether a storage was ever added, as of the last commit that was read.
    #[must_use]
    pub fn was_added(&self, storage: StorageId) -> bool {
        self.log.version_of(storage).is_some()
    }

    /// The storages that are in the table, as of the last commit that was read.
    #[must_use]
    pub fn storages(&self) -> Vec<StorageId> {
        self.log.storages()
    }

    /// The files of the table, by their paths below its folder, with their lengths in bytes, as of
    /// the last commit that was read.
    #[must_use]
    pub fn files(&self) -> BTreeMap<&str, u64> {
        self.log.files()
    }

    /// The version of the table: the number of the last commit that was read.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.log.next.saturating_sub(1)
    }
}
