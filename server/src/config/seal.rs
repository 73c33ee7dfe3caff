//! Section `[seal]`.

use serde::{Deserialize, Serialize};

use super::invalid::InvalidSetting;

/// Section `[seal]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SealSettings {
    /// Whether finalization seals storages.
    pub at_finalization: bool,
    /// File with the private key that signs seals; empty: seals are not signed.
    pub key_file: String,
}

impl SealSettings {
    /// The settings that contradict each other.
    pub(super) fn invalid(&self) -> Option<InvalidSetting> {
        let is_useless = !self.at_finalization && !self.key_file.is_empty();
        is_useless.then(|| InvalidSetting {
            key: "seal.key_file".to_owned(),
            what: "is set, but seal.at_finalization is false: nothing is signed".to_owned(),
            remedy: "set seal.at_finalization to true, or remove seal.key_file".to_owned(),
        })
    }
}
