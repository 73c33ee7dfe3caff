//! Storages of which it is not known any more where they are in the object store, or what the
//! checksums of their granules are: the file that said it is damaged or gone. Both can be made
//! again from the seal.
//!
//! Meanwhile a file with holes is refused: its readers would take the holes for zeros.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use storage_format::StorageId;
use tokio::sync::Notify;

/// The storages of an engine that have lost such a file.
#[derive(Debug, Default)]
pub(super) struct Lost {
    ids: Mutex<BTreeSet<StorageId>>,
    noticed: Notify,
}

impl Lost {
    /// Whether that is news.
    pub(super) fn add(&self, id: StorageId) -> bool {
        let is_new = self.ids.lock().insert(id);
        if is_new {
            self.noticed.notify_one();
        }
        is_new
    }

    pub(super) fn remove(&self, id: StorageId) {
        self.ids.lock().remove(&id);
    }

    pub(super) fn has(&self, id: StorageId) -> bool {
        self.ids.lock().contains(&id)
    }

    pub(super) fn list(&self) -> Vec<StorageId> {
        self.ids.lock().iter().copied().collect()
    }

    /// Ready when there is a new one.
    pub(super) async fn noticed(&self) {
        self.noticed.notified().await;
    }
}
