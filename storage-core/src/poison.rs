//! The poison of a storage: set when a write failed, or a task that writes it.

use std::sync::OnceLock;

/// Set once, by the first failure; after it nothing of the storage is acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<String>);

impl Poison {
    /// Poisons the storage; the first reason remains.
    pub(crate) fn set(&self, reason: &str) {
        self.0.get_or_init(|| reason.to_owned());
    }

    /// What failed, if anything did.
    pub(crate) fn reason(&self) -> Option<String> {
        self.0.get().cloned()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}
