//! Section `[access]`.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The document of the tokens in the data folder.
pub(crate) const TOKENS_FILE: &str = "tokens.json";

/// Whether a data folder has tokens. What they are is read at the start of the server.
pub(super) fn has_tokens(data_dir: &Path) -> bool {
    data_dir.join(TOKENS_FILE).is_file()
}

/// Section `[access]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessConfig {
    /// Whether `/metrics` is served without a token, as health is.
    pub metrics_open: bool,
}

impl Default for AccessConfig {
    fn default() -> Self {
        Self { metrics_open: true }
    }
}
