//! What the times of packets rest on at present, as who looks into packets tells it.

use std::{collections::HashMap, sync::Arc};

use storage_format::{Kind, LeafId, TimeBasis};

/// What the times in packets of leaves rest on at present.
#[derive(Debug, Clone, Default)]
pub struct LeafBases(Arc<HashMap<LeafId, TimeBasis>>);

impl LeafBases {
    /// That of a leaf; where it was not told, what the kind of its packets alone tells.
    #[must_use]
    pub fn of(&self, leaf: LeafId, kind: Kind) -> TimeBasis {
        let told = self.0.get(&leaf).copied();
        told.unwrap_or(TimeBasis::of_kind(kind))
    }
}

impl FromIterator<(LeafId, TimeBasis)> for LeafBases {
    fn from_iter<T: IntoIterator<Item = (LeafId, TimeBasis)>>(told: T) -> Self {
        Self(Arc::new(told.into_iter().collect()))
    }
}
