//! The current time bases of leaves, as the decoders of packets determine them.

use std::{collections::HashMap, sync::Arc};

use storage_format::{Kind, LeafId, TimeBasis};

/// The current time bases of leaves.
#[derive(Debug, Clone, Default)]
pub struct LeafBases(Arc<HashMap<LeafId, TimeBasis>>);

impl LeafBases {
    /// The time basis of a leaf; for an unknown leaf, the one that follows from the kind.
    #[must_use]
    pub fn of(&self, leaf: LeafId, kind: Kind) -> TimeBasis {
        let known = self.0.get(&leaf).copied();
        known.unwrap_or(TimeBasis::of_kind(kind))
    }
}

impl FromIterator<(LeafId, TimeBasis)> for LeafBases {
    fn from_iter<T: IntoIterator<Item = (LeafId, TimeBasis)>>(bases: T) -> Self {
        Self(Arc::new(bases.into_iter().collect()))
    }
}
