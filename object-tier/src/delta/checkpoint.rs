//! Checkpoints of the log, so that readers of a table need not read all commits.
//!
//! A checkpoint is `_delta_log/%020d.checkpoint.parquet`, and `_delta_log/_last_checkpoint` names a
//! late one. This crate says what is in it; the Parquet file is made by whoever calls.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{DeltaTable, now};
use crate::TierError;

/// Commits after a checkpoint before the next one, at least.
const COMMITS_MIN: u64 = 10;
/// Further commits for each so many actions: so the work of all checkpoints grows with the log, not
/// with its square.
const ACTIONS_A_COMMIT: u64 = 10;
/// For so long, in ms, a checkpoint names files that were removed, for programs that delete them
/// (the default of `delta.deletedFileRetentionDuration`).
const TOMBSTONES_KEPT: i64 = 7 * 24 * 3600 * 1000;

/// A checkpoint to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The last version of the table that it contains.
    pub version: u64,
    /// Its actions, as in commits.
    pub actions: Vec<Value>,
}

/// The object that names the last checkpoint.
#[derive(Debug, Serialize, Deserialize)]
struct LastCheckpoint {
    version: u64,
    /// Number of actions.
    size: u64,
}

impl DeltaTable {
    fn log_key(&self, name: &str) -> String {
        format!("{}/_delta_log/{name}", self.prefix)
    }

    /// Whether the log has grown so much since the last checkpoint that is known.
    fn is_checkpoint_due(&self) -> bool {
        let commits = self.log.next.saturating_sub(self.checkpointed);
        let actions = u64::try_from(self.log.actions_max()).unwrap_or(u64::MAX);
        commits >= COMMITS_MIN.max(actions / ACTIONS_A_COMMIT)
    }

    /// The next checkpoint, if it is time for one: of the last commit that was read.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn due_checkpoint(&mut self) -> Result<Option<Checkpoint>, TierError> {
        if !self.is_checkpoint_due() {
            return Ok(None);
        }
        // Another node may have made one. Without the object, or with one that cannot be read,
        // there is none.
        let found = self.bucket.get(&self.log_key("_last_checkpoint")).await?;
        let last = found.and_then(|body| serde_json::from_slice::<LastCheckpoint>(&body).ok());
        if let Some(last) = last.filter(|last| last.version < self.log.next) {
            self.checkpointed = self.checkpointed.max(last.version + 1);
        }
        let is_due = self.is_checkpoint_due();
        Ok(is_due.then(|| Checkpoint {
            version: self.version(),
            actions: self.log.actions(now() - TOMBSTONES_KEPT),
        }))
    }

    /// Stores a checkpoint as a Parquet file, and names it.
    ///
    /// # Errors
    /// When the store fails: then it may be there or not, and the table is as it was.
    pub async fn store_checkpoint(
        &mut self,
        checkpoint: &Checkpoint,
        file: Vec<u8>,
    ) -> Result<(), TierError> {
        let version = checkpoint.version;
        let key = self.log_key(&format!("{version:020}.checkpoint.parquet"));
        // Another node that makes it writes the same actions.
        self.bucket.create(&key, Bytes::from(file)).await?;
        let last = LastCheckpoint {
            version,
            size: checkpoint.actions.len() as u64,
        };
        let last = serde_json::to_vec(&last).unwrap_or_default();
        let key = self.log_key("_last_checkpoint");
        self.bucket.put(&key, Bytes::from(last)).await?;
        self.checkpointed = self.checkpointed.max(version + 1);
        Ok(())
    }
}
