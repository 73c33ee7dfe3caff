//! Section `[retention]`.

use serde::{Deserialize, Serialize};

/// Section `[retention]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Time after which a finalized storage is deleted; 0 = never.
    pub age_seconds_max: u64,
    /// Bytes of all finalized storages; beyond, the oldest is deleted; 0 = no limit.
    pub bytes_max: u64,
    /// Only storages with this label, as `?label=` selects them; empty = all.
    pub label: String,
    /// Interval of the checks.
    pub check_seconds: u64,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            age_seconds_max: 0,
            bytes_max: 0,
            label: String::new(),
            check_seconds: 60,
        }
    }
}
