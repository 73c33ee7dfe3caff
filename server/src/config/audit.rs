//! Section `[audit]`.

use serde::{Deserialize, Serialize};

/// Section `[audit]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// A file of at least this many bytes is complete; the log continues in a new one.
    pub file_bytes_max: u64,
    /// Complete files that are kept.
    pub files_max: u32,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            file_bytes_max: 16 << 20,
            files_max: 16,
        }
    }
}
