//! Cutting a query into splits: with indexes, without reading packets.

use std::ops::Range;

use query_language::Filter;
use storage_format::{LeafId, StorageId, TimeBasis};

use super::{LEAVES_MAX, Split, SplitLeaf, SplitStorage, state_of};
use crate::stored::leaf_source::{KeptPart, LeafSource};
use crate::stored::set::OpenLeaf;
use crate::stored::{StorageSet, StoredLeaf, times};
use crate::{ChunkSource, ReadError, Request};

/// How a query is cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SplitPlan {
    /// At least one, in the order of storages and streams.
    pub splits: Vec<PlannedSplit>,
    /// Chunks that may contain matching events.
    pub kept: usize,
    /// Chunks that were ruled out.
    pub pruned: usize,
}

/// A split, and what is known of it without reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlannedSplit {
    /// The split.
    pub split: Split,
    /// Bytes of its chunks, as stored.
    pub bytes: u64,
    /// Events of its chunks, as far as their number is known; not all of them match.
    pub events: u64,
}

/// What must be read of a leaf.
struct LeafParts {
    storage: StorageId,
    cuts: u32,
    is_finalized: bool,
    leaf: LeafId,
    length: u64,
    state: u32,
    /// Ascending.
    parts: Vec<KeptPart>,
}

impl LeafParts {
    fn new(stored: &StoredLeaf, state: u32, parts: Vec<KeptPart>) -> LeafParts {
        LeafParts {
            storage: stored.leaf.storage,
            cuts: stored.leaf.cuts,
            is_finalized: stored.leaf.checksum.is_some(),
            leaf: stored.leaf.leaf,
            length: stored.leaf.length,
            state,
            parts,
        }
    }
}

impl StorageSet {
    /// Cuts a query into about `count` splits with about the same number of bytes after pruning:
    /// fewer if there are fewer chunks, and more if one would have too many leaves. `question`
    /// identifies the query.
    ///
    /// # Errors
    ///
    /// As [`StorageSet::sources`].
    pub fn split(
        mut self,
        request: &Request,
        question: u32,
        count: u64,
    ) -> Result<SplitPlan, ReadError> {
        let units = self.units(request)?;
        let limits = (request.from, request.to);
        request.bare_times.check(limits, units.into_iter())?;
        let filter = self.bind(request)?;
        let filter = filter.as_ref();
        self.drop_outdated(request)?;
        self.resolve(filter, &[])?;
        let mut plan = SplitPlan::default();
        let mut leaves = Vec::new();
        for undecodable in std::mem::take(&mut self.undecodable) {
            if !undecodable.is_excluded(filter) {
                let stored = &undecodable.stored;
                let state = state_of(stored, TimeBasis::Unknown, stored.leaf.checksum.is_some());
                leaves.push(LeafParts::new(stored, state, Vec::new()));
            }
        }
        for open in std::mem::take(&mut self.leaves) {
            request.cancel.check()?;
            leaves.extend(self.parts_of(open, filter, &mut plan)?);
        }
        leaves.sort_by_key(|leaf| leaf.storage);
        plan.splits = Cutter::new(&leaves, question, count).cut(&leaves);
        Ok(plan)
    }

    /// What must be read of a leaf; `None` if it is ruled out as a whole, and nothing is known of
    /// it that a result has to tell.
    fn parts_of(
        &self,
        open: OpenLeaf,
        filter: Option<&Filter>,
        plan: &mut SplitPlan,
    ) -> Result<Option<LeafParts>, ReadError> {
        let stored = open.stored.clone();
        let basis = times::basis(stored.leaf.path.kind, &stored.trace, &open.context);
        let state = state_of(&stored, basis, stored.leaf.checksum.is_some());
        let (indexed, rest) = open.into_sources(filter, self.cache.clone())?;
        if rest.is_excluded(filter) {
            return Ok(None);
        }
        let mut parts = Vec::new();
        let mut is_told = false;
        if let Some(indexed) = indexed {
            parts = indexed.kept(filter)?;
            plan.pruned += indexed.parts() - parts.len();
            is_told = indexed.unreadable() > Some(0) || !indexed.faults().is_empty();
        }
        let left = left_of(rest, &stored, filter, plan)?;
        parts.extend(left);
        plan.kept += parts.len();
        let is_read = is_told || !parts.is_empty();
        Ok(is_read.then(|| LeafParts::new(&stored, state, parts)))
    }
}

/// What must be read of the part of a leaf that no index covers, packet by packet.
fn left_of(
    rest: LeafSource,
    stored: &StoredLeaf,
    filter: Option<&Filter>,
    plan: &mut SplitPlan,
) -> Result<Vec<KeptPart>, ReadError> {
    if rest.is_timed() {
        let kept = rest.kept(filter)?;
        plan.pruned += rest.parts() - kept.len();
        return Ok(kept);
    }
    // Nothing rules a packet out, and the index of the storage only says where one begins.
    Ok(rest.chunked(stored)?.all())
}

/// Divides parts of leaves among splits.
struct Cutter {
    question: u32,
    count: u64,
    total: u64,
    /// Bytes of the parts so far.
    before: u64,
    /// The number of the open split, among `count`.
    number: u64,
    /// Leaves of the open split.
    leaves: usize,
    splits: Vec<PlannedSplit>,
    open: PlannedSplit,
}

impl Cutter {
    fn new(leaves: &[LeafParts], question: u32, count: u64) -> Cutter {
        let parts = leaves.iter().flat_map(|leaf| &leaf.parts);
        Cutter {
            question,
            count,
            total: parts.map(bytes).sum(),
            before: 0,
            number: 0,
            leaves: 0,
            splits: Vec::new(),
            open: PlannedSplit::default(),
        }
    }

    fn cut(mut self, leaves: &[LeafParts]) -> Vec<PlannedSplit> {
        for leaf in leaves {
            if self.leaves == LEAVES_MAX {
                self.end();
            }
            // Neighbours share a limit: what is between two parts was ruled out.
            let (mut begin, mut end) = (0, 0);
            for part in &leaf.parts {
                let number = self.number_of(part);
                if number != self.number && self.open.bytes > 0 {
                    if end > begin {
                        self.add(leaf, begin..end);
                        begin = end;
                    }
                    self.end();
                }
                self.number = number;
                self.before += bytes(part);
                self.open.bytes += bytes(part);
                self.open.events = self.open.events.saturating_add(part.events);
                end = part.range.end;
            }
            self.add(leaf, begin..leaf.length);
        }
        if self.leaves > 0 || self.splits.is_empty() {
            self.end();
        }
        if let Some(first) = self.splits.first_mut() {
            first.split.is_first = true;
        }
        self.splits
    }

    /// The number of the split that has the middle of the next part.
    fn number_of(&self, part: &KeptPart) -> u64 {
        let middle = u128::from(self.before) * 2 + u128::from(bytes(part));
        let number = middle * u128::from(self.count) / (u128::from(self.total.max(1)) * 2);
        u64::try_from(number).unwrap_or(u64::MAX)
    }

    fn add(&mut self, leaf: &LeafParts, range: Range<u64>) {
        let storages = &mut self.open.split.storages;
        if storages
            .last()
            .is_none_or(|last| last.storage != leaf.storage)
        {
            storages.push(SplitStorage {
                storage: leaf.storage,
                cuts: leaf.cuts,
                is_finalized: leaf.is_finalized,
                leaves: Vec::new(),
            });
        }
        if let Some(last) = storages.last_mut() {
            last.leaves.push(SplitLeaf {
                leaf: leaf.leaf,
                range,
                state: leaf.state,
            });
            self.leaves += 1;
        }
    }

    /// Ends the open split.
    fn end(&mut self) {
        let mut ended = std::mem::take(&mut self.open);
        ended.split.question = self.question;
        self.splits.push(ended);
        self.leaves = 0;
    }
}

fn bytes(part: &KeptPart) -> u64 {
    part.range.end - part.range.start
}
