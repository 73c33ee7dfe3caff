//! Section `[quota]`.

use serde::{Deserialize, Serialize};
use storage_core::QuotaDefaults;

/// Section `[quota]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaConfig {
    /// Bytes that all agents together may store; 0 = no limit.
    pub bytes_max: u64,
    /// Bytes that an agent may store that has no quota of its own; 0 = no limit.
    pub agent_bytes_max: u64,
    /// Interval at which it is determined what agents have stored.
    pub check_seconds: u64,
}

impl Default for QuotaConfig {
    fn default() -> Self {
        Self {
            bytes_max: 0,
            agent_bytes_max: 0,
            check_seconds: 5,
        }
    }
}

impl QuotaConfig {
    /// The quotas of the engine.
    pub(super) fn defaults(&self) -> QuotaDefaults {
        let limit = |bytes: u64| (bytes > 0).then_some(bytes);
        QuotaDefaults {
            all_bytes_max: limit(self.bytes_max),
            agent_bytes_max: limit(self.agent_bytes_max),
        }
    }
}
