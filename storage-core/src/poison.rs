//! Whether the disk failed under a storage.

use std::sync::OnceLock;

/// Set once, by the first failure; from then on nothing of the storage is acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<String>);

impl Poison {
    /// Poisons the storage; only the first reason is kept.
    pub(crate) fn set(&self, reason: &str) {
        self.0.get_or_init(|| reason.to_owned());
    }

    /// What failed, when something did.
    pub(crate) fn reason(&self) -> Option<String> {
        self.0.get().cloned()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}
