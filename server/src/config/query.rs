//! Section `[query]`.

use query_language::FieldPath;
use serde::{Deserialize, Serialize};

use super::invalid::InvalidSetting;

/// Section `[query]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueryConfig {
    /// Maximum number of concurrent queries.
    pub concurrent_max: u32,
    /// Threads per query; 0 = one per core.
    pub threads: u32,
    /// Bytes of rows that one query holds in memory to sort them; more rows spill to a file.
    pub waiting_bytes_max: u64,
    /// Uncompressed size of a row group in Parquet results.
    pub row_group_bytes_max: u64,
    /// Longest result sent over HTTP/1.0, buffered and with its length; 0 = none.
    pub whole_answer_bytes_max: u64,
    /// Bytes of all files of events together; those used least recently are removed for others.
    pub event_files_bytes_max: u64,
    /// Memory for Bloom filters, shared by all queries.
    pub filter_cache_bytes_max: u64,
    /// Packet bytes per chunk of a chunk index.
    pub chunk_bytes: u64,
    /// Fields to index in addition to those of each kind.
    pub index_fields: Vec<String>,
    /// Growth of a data file after which its chunk index is updated.
    pub index_growth_bytes_min: u64,
}

impl Default for QueryConfig {
    fn default() -> Self {
        Self {
            concurrent_max: 8,
            threads: 0,
            waiting_bytes_max: 32 << 20,
            row_group_bytes_max: 16 << 20,
            whole_answer_bytes_max: 1 << 20,
            event_files_bytes_max: 32 << 30,
            filter_cache_bytes_max: 32 << 20,
            chunk_bytes: 2 << 20,
            index_fields: Vec::new(),
            index_growth_bytes_min: 16 << 20,
        }
    }
}

impl QueryConfig {
    /// The fields that cannot be indexed, or are listed twice, in whatever spelling.
    pub(super) fn invalid(&self) -> Option<InvalidSetting> {
        let fields = &self.index_fields;
        let path = |at: usize| FieldPath::new(&fields[at]);
        let what = (0..fields.len()).find_map(|at| {
            let field = &fields[at];
            if field.trim().is_empty() || field.split('.').any(str::is_empty) {
                return Some(format!("contains {field:?}, which is not a field"));
            }
            let before = (0..at).find(|&before| path(before) == path(at))?;
            Some(match &fields[before] {
                same if same == field => format!("contains {field:?} twice"),
                other => format!("contains {other:?} and {field:?}, which are the same field"),
            })
        })?;
        Some(InvalidSetting {
            key: "query.index_fields".to_owned(),
            what,
            remedy: "list each field once, such as [\"args.epoch\", \"args.step\"]".to_owned(),
        })
    }
}
