//! Which storages a listing contains.

use storage_format::storage_file::StorageState;

use super::StorageInfo;
use crate::LabelFilter;

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

impl StorageFilter {
    /// Whether state and name of a storage match.
    pub(super) fn matches(&self, info: &StorageInfo) -> bool {
        self.state.is_none_or(|state| info.state == state)
            && self.name.as_ref().is_none_or(|name| info.name == *name)
    }
}
