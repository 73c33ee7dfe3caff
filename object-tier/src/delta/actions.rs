//! What a commit says: a line of JSON for each action.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use storage_format::StorageId;

use super::schema::{DeltaSchema, STORAGE};

/// The version of the transaction of a storage that is in the table, and of one that is no more.
pub(super) const ADDED: i64 = 1;
pub(super) const REMOVED: i64 = 2;
/// The newest protocol that the files of this table need.
pub(super) const READER_VERSION: u32 = 1;
pub(super) const WRITER_VERSION: u32 = 2;
/// Longer texts are no limits in statistics.
const LIMIT_BYTES_MAX: usize = 256;

/// A Parquet file of a storage.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFile {
    /// Its path below the folder of the table, without characters that URLs escape.
    pub path: String,
    /// Its length in bytes.
    pub length: u64,
    /// What is known of its rows, by which readers choose files.
    pub statistics: FileStatistics,
}

/// What is known of the rows of a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FileStatistics {
    /// Their number.
    pub rows: u64,
    /// By name, as far as something is known.
    pub columns: BTreeMap<String, ColumnStatistics>,
}

/// What is known of a column in a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ColumnStatistics {
    /// No value is smaller.
    pub min: Option<Value>,
    /// No value is larger.
    pub max: Option<Value>,
    /// Rows without a value.
    pub nulls: Option<u64>,
}

impl FileStatistics {
    /// The statistics as the text that an `add` has.
    fn text(&self) -> String {
        let limits = |of: fn(&ColumnStatistics) -> &Option<Value>| {
            let limits = self.columns.iter().filter_map(|(name, column)| {
                let limit = of(column).as_ref()?;
                let is_short = limit
                    .as_str()
                    .is_none_or(|text| text.len() <= LIMIT_BYTES_MAX);
                is_short.then(|| (name.clone(), limit.clone()))
            });
            limits.collect::<serde_json::Map<String, Value>>()
        };
        let nulls = self.columns.iter();
        let nulls = nulls.filter_map(|(name, column)| Some((name.clone(), json!(column.nulls?))));
        json!({
            "numRecords": self.rows,
            "minValues": limits(|column| &column.min),
            "maxValues": limits(|column| &column.max),
            "nullCount": nulls.collect::<serde_json::Map<String, Value>>(),
        })
        .to_string()
    }
}

/// An action as it is written: an object with one member.
pub(super) type Action = Value;

/// The name of the transactions of a storage.
fn application(storage: StorageId) -> String {
    format!("tracehold/{storage}")
}

/// The storage of a transaction, if it is one of this table.
pub(super) fn storage_of(application: &str) -> Option<StorageId> {
    application.strip_prefix("tracehold/")?.parse().ok()
}

fn transaction(storage: StorageId, version: i64, now: i64) -> Action {
    json!({ "txn": {
        "appId": application(storage), "version": version, "lastUpdated": now,
    }})
}

/// The first commit: the table without files.
pub(super) fn creating(id: &str, schema: &DeltaSchema, now: i64) -> Vec<Action> {
    let protocol = json!({
        "minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION,
    });
    let metadata = json!({
        "id": id,
        "name": "events",
        "format": { "provider": "parquet", "options": {} },
        "schemaString": schema.text(),
        "partitionColumns": [STORAGE],
        // The log is read from its first commit.
        "configuration": { "delta.enableExpiredLogCleanup": "false" },
        "createdTime": now,
    });
    vec![
        json!({ "protocol": protocol }),
        json!({ "metaData": metadata }),
    ]
}

/// A commit that adds a storage.
pub(super) fn adding(storage: StorageId, files: &[DataFile], now: i64) -> Vec<Action> {
    let mut actions = vec![transaction(storage, ADDED, now)];
    actions.extend(files.iter().map(|file| {
        json!({ "add": {
            "path": file.path,
            "partitionValues": { STORAGE: storage.to_string() },
            "size": file.length,
            "modificationTime": now,
            "dataChange": true,
            "stats": file.statistics.text(),
        }})
    }));
    actions
}

/// A commit that removes a storage, whose files these are.
pub(super) fn removing(storage: StorageId, files: &[(String, u64)], now: i64) -> Vec<Action> {
    let mut actions = vec![transaction(storage, REMOVED, now)];
    actions.extend(files.iter().map(|(path, length)| {
        json!({ "remove": {
            "path": path,
            "deletionTimestamp": now,
            "dataChange": true,
            "extendedFileMetadata": true,
            "partitionValues": { STORAGE: storage.to_string() },
            "size": length,
        }})
    }));
    actions
}

/// A commit as it is stored. Bodies of different writers differ by the nonce.
pub(super) fn body(operation: &str, actions: &[Action], (now, nonce): (i64, &str)) -> Vec<u8> {
    let info = json!({ "commitInfo": {
        "timestamp": now,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": concat!("Tracehold/", env!("CARGO_PKG_VERSION")),
        "txnId": nonce,
    }});
    let lines = [&info].into_iter().chain(actions);
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    lines.into_bytes()
}

/// The actions of a line that matter here; others are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub(super) add: Option<Add>,
    pub(super) remove: Option<Remove>,
    pub(super) txn: Option<Transaction>,
    pub(super) protocol: Option<Protocol>,
    #[serde(rename = "metaData")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Add {
    pub(super) path: String,
    pub(super) size: u64,
    #[serde(default)]
    pub(super) partition_values: BTreeMap<String, Option<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remove {
    pub(super) path: String,
    pub(super) deletion_timestamp: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Transaction {
    pub(super) app_id: String,
    pub(super) version: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub(super) min_reader_version: u32,
    pub(super) min_writer_version: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) schema_string: String,
    #[serde(default)]
    pub(super) partition_columns: Vec<String>,
}
