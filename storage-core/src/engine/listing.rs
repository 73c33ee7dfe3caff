//! Listing storages.

use storage_format::storage_file::StorageState;

use super::{Engine, StorageInfo};
use crate::LabelFilter;

/// Which storages are wanted; `None` takes all.
#[derive(Debug, Clone, Default)]
pub struct StorageFilter {
    /// Only those in this state.
    pub state: Option<StorageState>,
    /// Only those with this name.
    pub name: Option<String>,
    /// Only those with all of these labels.
    pub labels: Vec<LabelFilter>,
}

impl StorageFilter {
    fn takes(&self, info: &StorageInfo) -> bool {
        self.state.is_none_or(|state| info.state == state)
            && self.name.as_ref().is_none_or(|name| info.name == *name)
    }
}

impl Engine {
    /// The storages that `filter` takes, sorted by id, so by time of creation.
    #[must_use]
    pub fn storages(&self, filter: &StorageFilter) -> Vec<StorageInfo> {
        let storages: Vec<_> = self.inner.storages.read().values().cloned().collect();
        let mut infos: Vec<_> = storages
            .iter()
            .map(|storage| storage.info())
            .filter(|info| filter.takes(info))
            .filter(|info| {
                filter
                    .labels
                    .iter()
                    .all(|label| self.has_label(info, label))
            })
            .collect();
        infos.sort_by_key(|info| info.id);
        infos
    }
}
