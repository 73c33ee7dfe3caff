//! What the commits of a table say together.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use storage_format::StorageId;

use super::actions::{
    ADDED, Action, Line, Metadata, READER_VERSION, REMOVED, WRITER_VERSION, storage_of,
};
use super::schema::{DeltaSchema, STORAGE};
use crate::TierError;

/// A file of the table.
#[derive(Debug)]
struct File {
    length: u64,
    storage: Option<String>,
    /// The action that added it, as JSON.
    add: String,
}

/// The commits that were read.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The number of the first commit that was not read.
    pub(super) next: u64,
    files: BTreeMap<String, File>,
    /// Files of storages that were removed, and when, in ms since the epoch.
    removed: BTreeMap<String, i64>,
    /// The actions that removed files, by path: when, and as JSON.
    tombstones: BTreeMap<String, (i64, String)>,
    /// The last transaction of each application, as JSON.
    transactions: BTreeMap<String, String>,
    /// The last `protocol` and `metaData`, as JSON.
    head: BTreeMap<&'static str, String>,
    /// The version of the last transaction of each storage.
    versions: HashMap<StorageId, i64>,
    metadata: Option<Metadata>,
}

impl Log {
    /// Adds the next commit.
    ///
    /// # Errors
    /// When it cannot be read, or only newer programs may write to the table.
    pub(super) fn apply(&mut self, key: &str, body: &[u8]) -> Result<(), TierError> {
        let mut lines: Vec<Line> = Vec::new();
        let mut actions = Vec::new();
        for line in body.split(|byte| *byte == b'\n') {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let damaged = |error: serde_json::Error| {
                TierError::damaged(key, format!("line {}: {error}", lines.len() + 1))
            };
            let action: Action = serde_json::from_slice(line).map_err(damaged)?;
            let line = Line::deserialize(&action).map_err(damaged)?;
            check_protocol(key, &line)?;
            lines.push(line);
            actions.push(action);
        }
        let is_removal = |line: &Line| {
            let removed = line.txn.as_ref().filter(|txn| txn.version == REMOVED);
            removed.is_some_and(|txn| storage_of(&txn.app_id).is_some())
        };
        let is_removal = lines.iter().any(is_removal);
        // An action may remove a file and another one add it again; the order does not count.
        for (line, action) in lines.iter().zip(&actions) {
            if let Some(remove) = &line.remove {
                self.files.remove(&remove.path);
                let when = remove.deletion_timestamp.unwrap_or(0);
                let tombstone = (when, action.to_string());
                self.tombstones.insert(remove.path.clone(), tombstone);
                if is_removal {
                    let since = remove.deletion_timestamp.unwrap_or(0);
                    self.removed.insert(remove.path.clone(), since);
                }
            }
        }
        for (line, action) in lines.into_iter().zip(actions) {
            self.keep(&line, &action);
            if let Some(add) = line.add {
                let storage = add.partition_values.get(STORAGE).cloned().flatten();
                let file = File {
                    length: add.size,
                    storage,
                    add: action.to_string(),
                };
                self.removed.remove(&add.path);
                self.tombstones.remove(&add.path);
                self.files.insert(add.path, file);
            }
            let storage = line.txn.as_ref().and_then(|txn| storage_of(&txn.app_id));
            if let Some((storage, txn)) = storage.zip(line.txn) {
                self.versions.insert(storage, txn.version);
            }
            self.metadata = line.metadata.or(self.metadata.take());
        }
        self.next += 1;
        Ok(())
    }

    /// Keeps what a checkpoint needs of an action besides files.
    fn keep(&mut self, line: &Line, action: &Action) {
        if let Some(txn) = &line.txn {
            let transaction = action.to_string();
            self.transactions.insert(txn.app_id.clone(), transaction);
        }
        if line.protocol.is_some() {
            self.head.insert("protocol", action.to_string());
        }
        if line.metadata.is_some() {
            self.head.insert("metaData", action.to_string());
        }
    }

    /// The number of actions that a checkpoint has at most.
    pub(super) fn actions_max(&self) -> usize {
        self.head.len() + self.transactions.len() + self.tombstones.len() + self.files.len()
    }

    /// The actions of a checkpoint: all that count, and files that were removed after `since`, in
    /// ms since the epoch.
    pub(super) fn actions(&self, since: i64) -> Vec<Action> {
        let tombstones = self.tombstones.values();
        let tombstones = tombstones.filter(|(when, _)| *when > since);
        let texts = (self.head.values())
            .chain(self.transactions.values())
            .chain(tombstones.map(|(_, text)| text))
            .chain(self.files.values().map(|file| &file.add));
        let action = |text: &String| {
            let mut action: Action = serde_json::from_str(text).ok()?;
            for of_file in ["add", "remove"] {
                if let Some(of_file) = action.get_mut(of_file) {
                    // A checkpoint changes nothing.
                    of_file["dataChange"] = false.into();
                }
            }
            Some(action)
        };
        texts.filter_map(action).collect()
    }

    /// Checks that files with these columns belong to the table.
    pub(super) fn check(&self, key: &str, schema: &DeltaSchema) -> Result<(), TierError> {
        let metadata = self.metadata.as_ref();
        let metadata = metadata.ok_or_else(|| TierError::damaged(key, "it has no metaData"))?;
        if metadata.partition_columns != [STORAGE] {
            let columns = &metadata.partition_columns;
            let problem = format!(
                "the table is partitioned by {columns:?} and not by `{STORAGE}`: it is another one; \
                 choose another prefix"
            );
            return Err(TierError::damaged(key, problem));
        }
        let schema = schema.missing_in(&metadata.schema_string);
        schema.map_err(|problem| TierError::damaged(key, problem))
    }

    pub(super) fn version_of(&self, storage: StorageId) -> Option<i64> {
        self.versions.get(&storage).copied()
    }

    /// The storages that are in the table.
    pub(super) fn storages(&self) -> Vec<StorageId> {
        let versions = self.versions.iter();
        let added = versions.filter(|(_, version)| **version == ADDED);
        added.map(|(storage, _)| *storage).collect()
    }

    /// Whether a file is in the table, or was removed with its storage and may still be read.
    pub(super) fn knows(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.removed.contains_key(path)
    }

    /// The files that were removed with their storages until then, in ms since the epoch.
    pub(super) fn removed_until(&self, until: i64) -> Vec<String> {
        let removed = self.removed.iter();
        let due = removed.filter(|(_, since)| **since <= until);
        due.map(|(path, _)| path.clone()).collect()
    }

    /// Forgets a removed file: it is deleted.
    pub(super) fn forget_removed(&mut self, path: &str) {
        self.removed.remove(path);
    }

    /// Paths and lengths of the files of a storage.
    pub(super) fn files_of(&self, storage: StorageId) -> Vec<(String, u64)> {
        let storage = storage.to_string();
        let files = self.files.iter();
        let files = files.filter(|(_, file)| file.storage.as_ref() == Some(&storage));
        files
            .map(|(path, file)| (path.clone(), file.length))
            .collect()
    }

    pub(super) fn files(&self) -> BTreeMap<&str, u64> {
        let files = self.files.iter();
        files
            .map(|(path, file)| (path.as_str(), file.length))
            .collect()
    }
}

fn check_protocol(key: &str, line: &Line) -> Result<(), TierError> {
    let Some(protocol) = &line.protocol else {
        return Ok(());
    };
    let (reader, writer) = (protocol.min_reader_version, protocol.min_writer_version);
    if reader <= READER_VERSION && writer <= WRITER_VERSION {
        return Ok(());
    }
    let problem = format!(
        "the table needs version {reader} of readers and {writer} of writers, and this program has \
         {READER_VERSION} and {WRITER_VERSION}: another program upgraded it; make a table at \
         another prefix"
    );
    Err(TierError::damaged(key, problem))
}
