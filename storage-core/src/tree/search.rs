//! Searches packets by number, by position, and by agent, stream, kind and time.
//!
//! A search first copies what it needs from the tree under the lock (a few entries of memory by
//! value, blocks of parts by reference) and then reads blocks and frames without it.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range, sync::Arc};

use storage_format::{
    AgentId, Kind, LeafId, StreamId, StreamPosition, TimeBasis,
    data_file::LeafPath,
    index_part::{Extent, PacketEntry},
};

use super::{
    BlockCache, IndexTree, Leaf, LeafBases, PartBlock, Segment, SegmentBody,
    block_cache::Block,
    time_index::{TimeIndex, overlaps},
};
use crate::StorageError;

/// Conditions on packets.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only packets of this agent.
    pub agent: Option<AgentId>,
    /// Only packets of streams with this id.
    pub stream: Option<StreamId>,
    /// Only packets of this kind.
    pub kind: Option<Kind>,
    /// Only packets that may contain events at or after this instant, ns since the epoch.
    pub from: Option<i64>,
    /// Only packets that may contain events before this instant, ns since the epoch.
    pub to: Option<i64>,
    /// Only packets with a number above this.
    pub after: Option<u64>,
    /// At most this many packets.
    pub limit: usize,
    /// The current time bases. The basis of other leaves follows from their kind, and where it is
    /// unknown, no packet is excluded by its time.
    pub bases: LeafBases,
}

impl Selection {
    fn frame(&self) -> (i64, i64) {
        (self.from.unwrap_or(i64::MIN), self.to.unwrap_or(i64::MAX))
    }

    /// Whether packets of a leaf with this path may match.
    #[must_use]
    pub fn matches_path(&self, path: &LeafPath) -> bool {
        self.agent.as_ref().is_none_or(|agent| *agent == path.agent)
            && self
                .stream
                .as_ref()
                .is_none_or(|stream| *stream == path.stream)
            && self.kind.is_none_or(|kind| kind == path.kind)
    }

    fn first_number(&self) -> u64 {
        self.after.map_or(0, |after| after.saturating_add(1))
    }

    /// Whether a packet of a matching leaf with this time basis matches.
    pub(crate) fn matches_entry(&self, entry: &PacketEntry, basis: TimeBasis) -> bool {
        let (from, to) = self.frame();
        let span = basis.known(&entry.facts).time_span;
        entry.number >= self.first_number() && overlaps(span, from, to)
    }
}

/// A found packet.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) leaf: LeafId,
    pub(crate) path: Arc<LeafPath>,
    pub(crate) entry: PacketEntry,
    /// Where its bytes are, as far as the search met it.
    pub(crate) extent: Option<Extent>,
}

/// The location of entries that are not in memory.
#[derive(Debug, Clone)]
pub(crate) enum EntryLocation {
    /// In the block of its leaf in an index part.
    Block(PartBlock),
    /// In the frames of a plain leaf, within these bytes of it.
    Frames(Range<u64>),
}

/// A result of a lookup under the lock.
#[derive(Debug)]
pub(crate) enum Candidate {
    /// The packet itself.
    Found(Found),
    /// A location that may contain the packet.
    Maybe {
        leaf: LeafId,
        path: Arc<LeafPath>,
        location: EntryLocation,
    },
}

/// A run of matching packets of one leaf, sorted by number.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) leaf: LeafId,
    pub(crate) path: Arc<LeafPath>,
    /// No packet of the run has a smaller number.
    first_number: u64,
    /// The time basis of its packets.
    basis: TimeBasis,
    body: RunBody,
}

#[derive(Debug)]
enum RunBody {
    Entries(std::vec::IntoIter<PacketEntry>),
    Unread(EntryLocation),
    Block(PartBlock, Arc<Block>, Range<usize>),
}

impl IndexTree {
    /// Where the packet with this number is or may be.
    pub(crate) fn find_number(&self, number: u64) -> Vec<Candidate> {
        let is_in =
            |segment: &Segment| (segment.numbers.first..=segment.numbers.last).contains(&number);
        self.find(
            |_| true,
            is_in,
            |entries| {
                entries
                    .binary_search_by_key(&number, |entry| entry.number)
                    .ok()
            },
        )
    }

    /// Where the packet of a stream at this position is or may be.
    pub(crate) fn find_position(
        &self,
        agent: &AgentId,
        stream: &StreamId,
        wanted: StreamPosition,
    ) -> Vec<Candidate> {
        let is_of = |leaf: &Leaf| leaf.path.agent == *agent && leaf.path.stream == *stream;
        let is_in = |segment: &Segment| {
            (segment.numbers.first_position..=segment.numbers.last_position).contains(&wanted)
        };
        self.find(is_of, is_in, |entries| {
            entries
                .binary_search_by_key(&wanted, |entry| entry.position)
                .ok()
        })
    }

    fn find(
        &self,
        matches_leaf: impl Fn(&Leaf) -> bool,
        matches_segment: impl Fn(&Segment) -> bool,
        find_entry: impl Fn(&[PacketEntry]) -> Option<usize>,
    ) -> Vec<Candidate> {
        let mut found = Vec::new();
        for leaf in self.leaves.values().filter(|leaf| matches_leaf(leaf)) {
            for segment in leaf.segments().filter(|segment| matches_segment(segment)) {
                let (id, path) = (leaf.id, || Arc::new(leaf.path.clone()));
                let maybe = |location| Candidate::Maybe {
                    leaf: id,
                    path: path(),
                    location,
                };
                match &segment.body {
                    SegmentBody::Memory(entries) => {
                        let entry = find_entry(entries).and_then(|at| entries.get(at));
                        found.extend(entry.map(|&entry| {
                            Candidate::Found(Found {
                                leaf: id,
                                path: path(),
                                entry,
                                extent: segment.extent_at(entry.offset),
                            })
                        }));
                    }
                    SegmentBody::Part(block) => {
                        found.push(maybe(EntryLocation::Block(block.clone())))
                    }
                    SegmentBody::Plain(_) => {
                        found.push(maybe(EntryLocation::Frames(segment.covered.clone())))
                    }
                }
            }
        }
        found
    }

    /// The runs that may contain packets of `selection`.
    pub(crate) fn select(&self, selection: &Selection) -> Vec<Run> {
        self.runs(self.leaves.values(), selection)
    }

    /// The runs of one leaf that may contain packets of `selection`.
    pub(crate) fn select_leaf(&self, leaf: LeafId, selection: &Selection) -> Vec<Run> {
        self.runs(self.leaves.get(&leaf), selection)
    }

    fn runs<'a>(
        &self,
        leaves: impl IntoIterator<Item = &'a Leaf>,
        selection: &Selection,
    ) -> Vec<Run> {
        let mut runs = Vec::new();
        let first = selection.first_number();
        for leaf in leaves
            .into_iter()
            .filter(|leaf| selection.matches_path(&leaf.path))
        {
            let path = Arc::new(leaf.path.clone());
            let basis = selection.bases.of(leaf.id, path.kind);
            for segment in leaf
                .segments()
                .filter(|segment| segment.numbers.last >= first)
            {
                let body = match &segment.body {
                    SegmentBody::Memory(entries) => {
                        let times = leaf.live_times(segment);
                        let entries = wanted_entries(entries, times, selection, basis);
                        RunBody::Entries(entries.into_iter())
                    }
                    SegmentBody::Part(block) => {
                        RunBody::Unread(EntryLocation::Block(block.clone()))
                    }
                    SegmentBody::Plain(_) => {
                        RunBody::Unread(EntryLocation::Frames(segment.covered.clone()))
                    }
                };
                runs.push(Run {
                    leaf: leaf.id,
                    path: Arc::clone(&path),
                    first_number: segment.numbers.first.max(first),
                    basis,
                    body,
                });
            }
        }
        runs
    }
}

impl Leaf {
    /// The time index of `segment` if it is the live one.
    fn live_times(&self, segment: &Segment) -> Option<&TimeIndex> {
        let live = self.live.as_ref()?;
        std::ptr::eq(&raw const live.segment, segment).then_some(&live.times)
    }
}

fn wanted_entries(
    entries: &[PacketEntry],
    times: Option<&TimeIndex>,
    selection: &Selection,
    basis: TimeBasis,
) -> Vec<PacketEntry> {
    let first = selection.first_number();
    let range = times.map_or(0..entries.len(), |times| {
        times.candidates(selection.frame(), basis)
    });
    let start = range
        .start
        .max(entries.partition_point(|entry| entry.number < first));
    let candidates = entries.get(start..range.end).unwrap_or_default();
    let wanted = candidates
        .iter()
        .filter(|entry| selection.matches_entry(entry, basis));
    wanted.take(selection.limit).copied().collect()
}

impl Run {
    /// The extent that contains the byte `offset` of the leaf, if the run knows it.
    fn extent_at(&self, offset: u64) -> Option<Extent> {
        match &self.body {
            RunBody::Block(place, block, _) => block.extent_at(place, offset),
            RunBody::Entries(_) | RunBody::Unread(_) => None,
        }
    }

    /// The next matching packet.
    fn next(
        &mut self,
        selection: &Selection,
        read: &dyn ReadEntries,
    ) -> Result<Option<PacketEntry>, StorageError> {
        loop {
            match &mut self.body {
                RunBody::Entries(entries) => return Ok(entries.next()),
                RunBody::Block(place, block, range) => {
                    let Some(at) = range.next() else {
                        return Ok(None);
                    };
                    let entry = block.entry(place, at)?;
                    if selection.matches_entry(&entry, self.basis) {
                        return Ok(Some(entry));
                    }
                }
                RunBody::Unread(EntryLocation::Block(place)) => {
                    let block = read.cache().get(place)?;
                    let mut range = block.times.candidates(selection.frame(), self.basis);
                    let first = selection.first_number();
                    range.start = range
                        .start
                        .max(block.entries().first_at_or_after_number(first));
                    self.body = RunBody::Block(place.clone(), block, range);
                }
                RunBody::Unread(EntryLocation::Frames(range)) => {
                    let (mut wanted, basis) = (Vec::new(), self.basis);
                    read.frames(self.leaf, range.clone(), &mut |entry| {
                        if selection.matches_entry(entry, basis) {
                            wanted.push(*entry);
                        }
                        wanted.len() < selection.limit
                    })?;
                    self.body = RunBody::Entries(wanted.into_iter());
                }
            }
        }
    }
}

/// Reads what is not in memory.
pub(crate) trait ReadEntries {
    /// The cache of blocks.
    fn cache(&self) -> &BlockCache;
    /// Visits the packets in `range` of `leaf` until the visitor returns `false`.
    fn frames(
        &self,
        leaf: LeafId,
        range: Range<u64>,
        visit: &mut dyn FnMut(&PacketEntry) -> bool,
    ) -> Result<(), StorageError>;
}

/// Finds one packet in the results of a lookup.
pub(crate) fn resolve(
    candidates: Vec<Candidate>,
    read: &dyn ReadEntries,
    find: impl Fn(&Block) -> Option<usize>,
    is_wanted: impl Fn(&PacketEntry) -> bool,
) -> Result<Option<Found>, StorageError> {
    for candidate in candidates {
        match candidate {
            Candidate::Found(found) => return Ok(Some(found)),
            Candidate::Maybe {
                leaf,
                path,
                location: EntryLocation::Block(place),
            } => {
                let (block, at) = read.cache().find(&place, &find)?;
                if let Some(at) = at {
                    let entry = block.entry(&place, at)?;
                    return Ok(Some(Found {
                        leaf,
                        path,
                        extent: block.extent_at(&place, entry.offset),
                        entry,
                    }));
                }
            }
            Candidate::Maybe {
                leaf,
                path,
                location: EntryLocation::Frames(range),
            } => {
                let mut found = None;
                read.frames(leaf, range, &mut |entry| {
                    found = is_wanted(entry).then_some(*entry);
                    found.is_none()
                })?;
                if let Some(entry) = found {
                    return Ok(Some(Found {
                        leaf,
                        path,
                        entry,
                        extent: None,
                    }));
                }
            }
        }
    }
    Ok(None)
}

/// Merges runs into one list, sorted by packet number, of at most `selection.limit` packets.
pub(crate) fn merge(
    mut runs: Vec<Run>,
    selection: &Selection,
    read: &dyn ReadEntries,
) -> Result<Vec<Found>, StorageError> {
    // A run enters with the smallest number it can have, and is read only when it is next.
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = runs
        .iter()
        .enumerate()
        .map(|(at, run)| Reverse((run.first_number, at)))
        .collect();
    let mut heads: Vec<Option<PacketEntry>> = vec![None; runs.len()];
    let mut found = Vec::new();
    while let Some(Reverse((_, at))) = next.pop() {
        if found.len() >= selection.limit {
            break;
        }
        let (Some(run), Some(head)) = (runs.get_mut(at), heads.get_mut(at)) else {
            continue;
        };
        if let Some(entry) = head.take() {
            found.push(Found {
                leaf: run.leaf,
                path: Arc::clone(&run.path),
                entry,
                extent: run.extent_at(entry.offset),
            });
        }
        *head = run.next(selection, read)?;
        if let Some(entry) = head {
            next.push(Reverse((entry.number, at)));
        }
    }
    Ok(found)
}
