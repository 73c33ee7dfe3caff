//! Splits: parts of a query, which several workers answer.
//!
//! A split is a list of ranges of leaves, in bytes, that begin and end between packets. Packets are
//! decoded independently of each other, so the events of the splits are those of the query. Bytes
//! of a leaf never change, neither when it grows nor when its storage is finalized or arranged.
//! What else may change how they are read is in the split, and a split that was made before such a
//! change is refused: a repair that cut the log, other trace metadata, another unit of times.

mod encoding;
mod planning;

use std::collections::HashMap;
use std::ops::Range;

use storage_format::checksum::crc32c;
use storage_format::{LeafId, StorageId, TimeBasis};

pub use encoding::SplitError;
pub use planning::{PlannedSplit, SplitPlan};

use super::{Leaf, StorageSet, StoredLeaf, times};
use crate::ReadError;

/// Leaves of one split: what names more would be too long for the body of a request. A query of
/// more leaves has more splits than are wanted.
const LEAVES_MAX: usize = 1 << 14;

/// A part of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// Identifies the query: a split of one is no part of another.
    pub question: u32,
    /// Whether it tells what is missing in the storages, which is in no part of them.
    pub is_first: bool,
    /// The storages, ascending.
    pub storages: Vec<SplitStorage>,
}

/// What a split reads of a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitStorage {
    /// The storage.
    pub storage: StorageId,
    /// The repairs that cut its log, as of [`Leaf::cuts`].
    pub cuts: u32,
    /// Whether it was finalized.
    pub is_finalized: bool,
    /// Parts of its leaves.
    pub leaves: Vec<SplitLeaf>,
}

/// What a split reads of a leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitLeaf {
    /// The leaf.
    pub leaf: LeafId,
    /// Its bytes, from packet to packet.
    pub range: Range<u64>,
    /// A checksum of what its events depend on beside these bytes.
    pub state: u32,
}

impl Split {
    /// What it reads of a storage.
    pub fn of_storage(&self, storage: StorageId) -> Option<&SplitStorage> {
        self.storages.iter().find(|part| part.storage == storage)
    }

    fn leaves(&self) -> impl Iterator<Item = (&SplitStorage, &SplitLeaf)> {
        let parts = self.storages.iter();
        parts.flat_map(|part| part.leaves.iter().map(move |leaf| (part, leaf)))
    }
}

/// A checksum of what the events of a leaf depend on beside the bytes of its packets.
fn state_of(stored: &StoredLeaf, basis: TimeBasis, is_finalized: bool) -> u32 {
    let mut bytes = stored.trace.checksum.to_le_bytes().to_vec();
    match basis {
        TimeBasis::Bytes => bytes.push(0),
        TimeBasis::Number(number) => {
            bytes.push(1);
            bytes.extend(number.to_le_bytes());
        }
        TimeBasis::Unknown => bytes.push(2),
    }
    let checksum = stored.leaf.checksum.filter(|_| is_finalized);
    bytes.extend(checksum.unwrap_or_default().to_le_bytes());
    crc32c(&bytes)
}

/// Why a part of a leaf is not what it was when the query was split.
fn changed(part: (&SplitStorage, &SplitLeaf), leaf: &Leaf, state: u32) -> Option<&'static str> {
    let (of_storage, of_leaf) = part;
    if of_storage.cuts != leaf.cuts {
        return Some("the log of the storage was repaired");
    }
    if of_storage.is_finalized && leaf.checksum.is_none() {
        return Some("the storage is not finalized any more");
    }
    if of_leaf.range.end > leaf.length {
        return Some("the stream has fewer bytes");
    }
    let reason = "its bytes, its trace metadata or its unit of times are others";
    (of_leaf.state != state).then_some(reason)
}

impl StorageSet {
    /// Narrows the set to a part of a query. Leaves of no part remain for what others refer to in
    /// them, such as texts of hashes, and have no events.
    ///
    /// # Errors
    ///
    /// When a leaf is not what it was when the query was split.
    pub fn select(&mut self, split: &Split) -> Result<(), ReadError> {
        let mut parts: HashMap<(StorageId, LeafId), (&SplitStorage, &SplitLeaf)> = split
            .leaves()
            .map(|part| ((part.0.storage, part.1.leaf), part))
            .collect();
        for open in &mut self.leaves {
            let leaf = &open.stored.leaf;
            let Some(part) = parts.remove(&(leaf.storage, leaf.leaf)) else {
                open.within = 0..0;
                continue;
            };
            let basis = times::basis(leaf.path.kind, &open.stored.trace, &open.context);
            let state = state_of(&open.stored, basis, part.0.is_finalized);
            check(part, changed(part, leaf, state))?;
            open.within = part.1.range.clone();
        }
        let mut failed = None;
        self.undecodable.retain(|undecodable| {
            let leaf = &undecodable.stored.leaf;
            let Some(part) = parts.remove(&(leaf.storage, leaf.leaf)) else {
                return false;
            };
            let state = state_of(&undecodable.stored, TimeBasis::Unknown, part.0.is_finalized);
            let checked = check(part, changed(part, leaf, state));
            failed = failed.take().or(checked.err());
            true
        });
        match (failed, parts.into_values().next()) {
            (Some(error), _) => Err(error),
            (None, Some(part)) => check(part, Some("the stream is not there any more")),
            (None, None) => Ok(()),
        }
    }
}

fn check(part: (&SplitStorage, &SplitLeaf), why: Option<&'static str>) -> Result<(), ReadError> {
    match why {
        None => Ok(()),
        Some(why) => Err(ReadError::SplitOutdated {
            place: format!("leaf {} of storage {}", part.1.leaf, part.0.storage),
            why,
        }),
    }
}
