//! Section `[query]`.

use serde::{Deserialize, Serialize};

/// Section `[query]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueryConfig {
    /// Queries that run at once.
    pub concurrent_max: u32,
    /// Threads of one query; 0 = one a core.
    pub threads: u32,
    /// Rows of one query that wait in memory for earlier ones before they are put aside in a file.
    pub waiting_bytes_max: u64,
    /// Bytes of a row group of a Parquet answer, before they are compressed.
    pub row_group_bytes_max: u64,
    /// Longest answer that is sent over HTTP/1.0, whole and with its length; 0 = none.
    pub whole_answer_bytes_max: u64,
    /// Memory for Bloom filters that queries share.
    pub filter_cache_bytes_max: u64,
    /// Packet bytes of a chunk of a chunk index.
    pub chunk_bytes: u64,
    /// Fields that are indexed besides those of each kind.
    pub index_fields: Vec<String>,
    /// Bytes by which a data file grows before its chunk index is written again.
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
            filter_cache_bytes_max: 32 << 20,
            chunk_bytes: 2 << 20,
            index_fields: Vec::new(),
            index_growth_bytes_min: 16 << 20,
        }
    }
}

impl QueryConfig {
    /// The settings that cannot be 0.
    pub(super) fn positive(&self) -> [(&'static str, u64); 3] {
        [
            ("query.concurrent_max", u64::from(self.concurrent_max)),
            ("query.chunk_bytes", self.chunk_bytes),
            ("query.row_group_bytes_max", self.row_group_bytes_max),
        ]
    }
}
