//! Which storages a listing contains.
//!
//! Storages are known by id, and ids sort by the time of creation. A listing takes a few of them at
//! a time from where the last page ended, so that a page costs what it looks at, and not what there
//! is; nothing of a storage is copied before it is known to match.

use std::sync::Arc;

use storage_format::{StorageId, storage_file::StorageState};

use super::{StorageInfo, Storages, label_values::has_label};
use crate::{LabelFilter, storage::Storage};

/// Storages that are taken from the registry at once, while it is locked.
const TAKEN: usize = 64;

/// Conditions on storages; `None` matches all.
#[derive(Debug, Clone, Default)]
pub struct StorageFilter {
    /// Only storages in this state.
    pub state: Option<StorageState>,
    /// Only storages that are being recovered, or only others.
    pub recovering: Option<bool>,
    /// Only storages with this name.
    pub name: Option<String>,
    /// Only storages with all of these labels.
    pub labels: Vec<LabelFilter>,
}

/// Where a listing begins, and how it goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListOrder {
    /// After this storage, which may be gone; from the beginning without it.
    pub after: Option<StorageId>,
    /// The newest storage first.
    pub is_newest_first: bool,
}

impl StorageFilter {
    /// Whether a storage matches, except for its labels.
    fn matches(&self, storage: &Storage) -> bool {
        let is_recovering = !storage.readiness.is_ready();
        self.recovering.is_none_or(|wanted| wanted == is_recovering)
            && self.state.is_none_or(|wanted| wanted == storage.state())
            && (self.name.as_ref()).is_none_or(|wanted| *wanted == storage.file.read().name)
    }
}

impl Storages {
    /// The storages that match `filter`, sorted by id, which is the order of creation.
    #[must_use]
    pub fn list(&self, filter: &StorageFilter) -> Vec<StorageInfo> {
        self.each(filter, ListOrder::default(), |_| true).collect()
    }

    /// The storages that match `filter` and `wants`, one after another. One that is created
    /// meanwhile may be among them or not.
    pub fn each<'a>(
        &'a self,
        filter: &'a StorageFilter,
        order: ListOrder,
        wants: impl Fn(StorageId) -> bool + 'a,
    ) -> impl Iterator<Item = StorageInfo> + 'a {
        let mut after = order.after;
        let batches = std::iter::from_fn(move || {
            let batch = self.registry.after(after, order.is_newest_first, TAKEN);
            after = batch.last().map(|storage| storage.id).or(after);
            (!batch.is_empty()).then_some(batch)
        });
        let has_labels = |storage: &Arc<Storage>| {
            let file = storage.file.read();
            let mut labels = filter.labels.iter();
            labels.all(|label| has_label(&self.services.labels, &file, label))
        };
        batches
            .flatten()
            .filter(move |storage| wants(storage.id))
            .filter(move |storage| filter.matches(storage) && has_labels(storage))
            .map(|storage| storage.info())
    }
}
