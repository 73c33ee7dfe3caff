//! The index tree of a storage: agent → kind → stream → time bucket → leaf.
//!
//! The packets of a leaf are in segments, in the order of the leaf: index parts that
//! were written, at most one segment that is being written as a part, and the live segment in
//! memory. Readers combine them. Memory is bounded: the live segments are written out as a part
//! when they are too large, and blocks of parts are read on demand, through a bounded cache.

mod bases;
mod block_cache;
mod leaf;
mod part;
mod pin;
mod search;
mod time_index;
mod totals;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use storage_format::{
    AgentId, DataFileId, LeafId, LeafType, StorageId, StreamId, StreamPosition,
    data_file::{self, LeafPath},
    index_part::{
        DataFileEntry, Extent, Footer, IndexPartBuilder, IndexPartHeader, LeafEntry, LeafNumbers,
        LogPosition, NewLeaf, PacketEntry, TimeBases,
    },
};

pub use bases::LeafBases;
pub(crate) use block_cache::BlockCache;
use leaf::Live;
pub(crate) use leaf::extend_extents;
pub(crate) use leaf::{Leaf, PacketOrder, Segment, SegmentBody};
pub(crate) use part::{IndexPart, PartBlock};
pub(crate) use pin::FilePin;
pub use search::Selection;
pub(crate) use search::{Found, ReadEntries, merge, resolve};

use crate::io_thread::{LogEnd, Tail};

/// The index tree of one storage.
#[derive(Debug)]
pub(crate) struct IndexTree {
    storage: StorageId,
    leaves: BTreeMap<LeafId, Leaf>,
    by_path: HashMap<LeafPath, LeafId>,
    /// The leaves of each stream of each agent.
    by_stream: HashMap<AgentId, BTreeMap<StreamId, Vec<LeafId>>>,
    parts: Vec<Arc<IndexPart>>,
    /// Keeps replaced data files until their last reader has ended.
    pin: Arc<FilePin>,
    /// The durable end of each data file.
    files: BTreeMap<DataFileId, Tail>,
    /// The position in the log after the last packets of the tree.
    position: Option<LogPosition>,
    /// Where recovery found that the log continues.
    recovered_log: LogEnd,
    live_packets: usize,
    live_extents: usize,
    live_leaves: usize,
    uncovered_bytes: u64,
    /// Bytes of packets as stored, of each agent.
    stored_bytes: BTreeMap<AgentId, u64>,
}

/// The live segments that were removed from a tree to be written as an index part.
#[derive(Debug)]
pub(crate) struct Sealed {
    header: IndexPartHeader,
    leaves: Vec<(LeafId, LeafPath, Arc<Segment>)>,
    files: Vec<DataFileEntry>,
    position: Option<LogPosition>,
}

impl Sealed {
    /// The bytes of the index part, with its footer and time bases.
    pub(crate) fn encode(&self) -> (Vec<u8>, Footer, TimeBases) {
        self.encode_with(self.header)
    }

    /// The same with another header.
    pub(crate) fn encode_with(&self, header: IndexPartHeader) -> (Vec<u8>, Footer, TimeBases) {
        let mut builder = IndexPartBuilder::new(header);
        for (leaf, path, segment) in &self.leaves {
            let entries = match &segment.body {
                SegmentBody::Memory(entries) => Some(entries.as_slice()),
                _ => None,
            };
            builder.add_leaf(NewLeaf {
                leaf: *leaf,
                path: path.clone(),
                entries,
                extents: &segment.extents,
                covered: segment.covered.clone(),
                covered_checksum: segment.covered_checksum,
                totals: segment.totals,
                numbers: segment.numbers,
            });
        }
        builder.finish(self.files.clone(), self.position)
    }

    pub(crate) fn header(&self) -> IndexPartHeader {
        self.header
    }
}

impl IndexTree {
    pub(crate) fn new(storage: StorageId) -> Self {
        Self {
            storage,
            leaves: BTreeMap::new(),
            by_path: HashMap::new(),
            by_stream: HashMap::new(),
            parts: Vec::new(),
            pin: Arc::default(),
            files: BTreeMap::new(),
            position: None,
            recovered_log: LogEnd::default(),
            live_packets: 0,
            live_extents: 0,
            live_leaves: 0,
            uncovered_bytes: 0,
            stored_bytes: BTreeMap::new(),
        }
    }

    /// Whether a part that was read from disk continues what the tree knows of every leaf.
    pub(crate) fn is_followed_by(&self, part: &IndexPart) -> bool {
        // The footer was checked when it was decoded: records of one leaf follow each other.
        let entries = part.footer.leaves.iter();
        let mut before = None;
        let mut first = entries.filter(|entry| before.replace(entry.leaf) != Some(entry.leaf));
        first.all(|entry| {
            let leaf = self.leaves.get(&entry.leaf);
            leaf.map_or_else(
                || entry.covered.start == data_file::HEADER_BYTES as u64,
                |leaf| leaf.is_followed_by(entry),
            )
        })
    }

    /// Adds a part; parts come in the order of their ordinals, and those from disk are checked with
    /// [`Self::is_followed_by`] before.
    pub(crate) fn add_part(&mut self, part: &Arc<IndexPart>) {
        assert_eq!(
            part.header.storage, self.storage,
            "a tree has the parts of its storage"
        );
        for block in part.blocks() {
            let entry = block.entry();
            add_stored(
                &mut self.stored_bytes,
                &entry.path.agent,
                entry.totals.stored_bytes,
            );
            let leaf = self.leaf_or_new(entry.leaf, entry.leaf_type, &entry.path);
            leaf.add_part(&block);
            if part.is_of_leaf_files() {
                let tail = leaf.tail;
                self.files.insert(DataFileId::of_leaf(entry.leaf), tail);
            }
        }
        for entry in &part.footer.files {
            let known = self.files.entry(entry.file).or_default();
            if entry.length >= known.length {
                *known = Tail {
                    length: entry.length,
                    checksum: entry.checksum,
                };
            }
        }
        let position = part.footer.position;
        if position.map(|position| position.batch) >= self.position.map(|position| position.batch) {
            self.position = position;
        }
        self.parts.push(Arc::clone(part));
    }

    fn leaf_or_new(&mut self, id: LeafId, leaf_type: LeafType, path: &LeafPath) -> &mut Leaf {
        let Self {
            leaves,
            by_path,
            by_stream,
            ..
        } = self;
        leaves.entry(id).or_insert_with(|| {
            by_path.entry(path.clone()).or_insert(id);
            let of_agent = by_stream.entry(path.agent.clone()).or_default();
            let of_stream = of_agent.entry(path.stream.clone()).or_default();
            of_stream.push(id);
            Leaf::new(id, leaf_type, path.clone())
        })
    }

    /// Adds a leaf without packets.
    pub(crate) fn add_leaf(&mut self, id: LeafId, leaf_type: LeafType, path: &LeafPath) {
        self.leaf_or_new(id, leaf_type, path);
    }

    /// The leaf at `path`.
    pub(crate) fn leaf_at(&self, path: &LeafPath) -> Option<LeafId> {
        self.by_path.get(path).copied()
    }

    /// Whether the file with this name is one of its parts.
    pub(crate) fn has_part(&self, name: &str) -> bool {
        self.parts.iter().any(|part| part.path.ends_with(name))
    }

    pub(crate) fn leaf(&self, id: LeafId) -> Option<&Leaf> {
        self.leaves.get(&id)
    }

    pub(crate) fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.leaves.values()
    }

    pub(crate) fn parts(&self) -> &[Arc<IndexPart>] {
        &self.parts
    }

    /// Whether an index part is damaged or gone, as far as its blocks were read.
    pub(crate) fn has_lost_part(&self) -> bool {
        self.parts.iter().any(|part| part.is_lost())
    }

    /// Announces that `packets` of a leaf are in flight.
    pub(crate) fn announce(&mut self, leaf: LeafId, packets: usize) {
        if let Some(leaf) = self.leaves.get_mut(&leaf) {
            leaf.in_flight = leaf.in_flight.saturating_add(packets);
        }
    }

    /// Removes the announcement of packets that became durable or were refused.
    pub(crate) fn remove_announced(&mut self, leaf: LeafId, packets: usize) {
        if let Some(leaf) = self.leaves.get_mut(&leaf) {
            assert!(
                leaf.in_flight >= packets,
                "every packet with an outcome was announced before"
            );
            leaf.in_flight = leaf.in_flight.saturating_sub(packets);
        }
    }

    /// Inserts packets of a leaf that are durable now: `extent` says where they are, and `tail` is
    /// the end of the leaf after them.
    pub(crate) fn insert(
        &mut self,
        id: LeafId,
        entries: impl IntoIterator<Item = PacketEntry>,
        extent: &Extent,
        tail: Tail,
    ) {
        let Some(leaf) = self.leaves.get_mut(&id) else {
            return;
        };
        if leaf.live.is_none() {
            self.live_leaves = self.live_leaves.saturating_add(1);
        }
        let before = leaf.tail.length;
        let (mut inserted, mut stored): (usize, u64) = (0, 0);
        for entry in entries {
            leaf.push(&entry);
            stored = stored.saturating_add(u64::from(entry.stored_size));
            inserted = inserted.saturating_add(1);
        }
        assert!(tail.length >= before, "the tail of a leaf only grows");
        assert!(
            inserted == 0 || leaf.order().ends_at(tail.length),
            "the packets of a leaf cover it up to its tail"
        );
        assert_eq!(
            extent.leaf_end(),
            tail.length,
            "an extent ends with the last packet in it"
        );
        add_stored(&mut self.stored_bytes, &leaf.path.agent, stored);
        leaf.place(extent);
        self.live_extents = self.live_extents.saturating_add(1);
        leaf.tail = tail;
        if leaf.leaf_type == LeafType::Array {
            self.live_packets = self.live_packets.saturating_add(inserted);
        }
        self.uncovered_bytes = self
            .uncovered_bytes
            .saturating_add(tail.length.saturating_sub(before));
    }

    /// Packets that are in memory only.
    pub(crate) fn live_packets(&self) -> usize {
        self.live_packets
    }

    /// Packets or extents that are in memory only, whichever are more.
    pub(crate) fn live_records(&self) -> usize {
        self.live_packets.max(self.live_extents)
    }

    /// Bytes of memory of the live segments, roughly.
    pub(crate) fn live_bytes(&self) -> u64 {
        let packet = size_of::<PacketEntry>().saturating_add(time_index::PACKET_BYTES);
        let packets = self.live_packets.saturating_mul(packet);
        let extents = self.live_extents.saturating_mul(size_of::<Extent>());
        let records = packets.saturating_add(extents);
        // Lists that double when they are full are three quarters full on average.
        let records = records.saturating_add(records / 3);
        let leaves = self.live_leaves.saturating_mul(size_of::<Live>());
        records.saturating_add(leaves) as u64
    }

    /// Notes the end of a data file and of the log, when all packets before it are in the tree.
    pub(crate) fn reach(&mut self, position: LogPosition, tail: Tail) {
        self.reach_in(position.file, position, tail);
    }

    /// As [`Self::reach`], when the packets before `position` are in `file`: another than that of
    /// the position if it was replaced.
    pub(crate) fn reach_in(&mut self, file: DataFileId, position: LogPosition, tail: Tail) {
        let before = self.position.map_or(0, |position| position.batch);
        assert!(position.batch >= before, "the end of a log only grows");
        self.position = Some(position);
        self.set_file(file, tail);
    }

    /// Notes the end of a data file.
    pub(crate) fn set_file(&mut self, file: DataFileId, tail: Tail) {
        let known = self.files.entry(file).or_default();
        assert!(
            tail.length >= known.length,
            "the tail of a data file only grows"
        );
        *known = tail;
    }

    pub(crate) fn storage(&self) -> StorageId {
        self.storage
    }

    /// What readers of the data files hold while they read.
    pub(crate) fn pin(&self) -> &Arc<FilePin> {
        &self.pin
    }

    /// Runs of consecutive bytes of leaves in the data files.
    pub(crate) fn run_count(&self) -> u64 {
        let of_part = |entry: &LeafEntry| u64::from(entry.block_extents.max(1));
        let parts = self.parts.iter().flat_map(|part| &part.footer.leaves);
        let live = self.leaves.values().flat_map(Leaf::segments);
        let live = live.map(|segment| segment.extents.len() as u64);
        parts.map(of_part).chain(live).sum()
    }

    /// Where recovery found that the log continues.
    pub(crate) fn recovered_log(&self) -> &LogEnd {
        &self.recovered_log
    }

    pub(crate) fn set_recovered_log(&mut self, end: LogEnd) {
        self.recovered_log = end;
    }

    /// The durable end of each data file.
    pub(crate) fn files(&self) -> &BTreeMap<DataFileId, Tail> {
        &self.files
    }

    /// The position in the log after the last packets of the tree.
    pub(crate) fn position(&self) -> Option<LogPosition> {
        self.position
    }

    /// Bytes of data files that no index part covers.
    pub(crate) fn uncovered_bytes(&self) -> u64 {
        self.uncovered_bytes
    }

    /// Removes the live segments to be written; `None` when there is nothing to write, or when a
    /// part is being written already.
    pub(crate) fn seal(&mut self, created: i64) -> Option<Sealed> {
        if self.leaves.values().any(|leaf| leaf.sealed.is_some()) {
            return None;
        }
        let mut leaves = Vec::new();
        for leaf in self.leaves.values_mut() {
            if let Some(segment) = leaf.seal() {
                leaves.push((leaf.id, leaf.path.clone(), segment));
            }
        }
        if leaves.is_empty() && !self.parts.is_empty() {
            return None;
        }
        self.live_packets = 0;
        self.live_extents = 0;
        self.live_leaves = 0;
        self.uncovered_bytes = 0;
        let ordinal = self.parts.last().map_or(0, |part| {
            let next = part.header.ordinal.checked_add(1);
            next.expect("the ordinals of parts count from 0")
        });
        let header = IndexPartHeader {
            storage: self.storage,
            ordinal,
            first_ordinal: ordinal,
            created,
        };
        Some(Sealed {
            header,
            leaves,
            files: self.grown_files(),
            position: self.position,
        })
    }

    /// The data files that are longer than the parts say. So a part names the files that its
    /// extents are in, and no others: what replaces a file need not change all later parts.
    fn grown_files(&self) -> Vec<DataFileEntry> {
        let mut known = HashMap::<DataFileId, u64>::new();
        for entry in self.parts.iter().flat_map(|part| &part.footer.files) {
            let length = known.entry(entry.file).or_default();
            *length = entry.length.max(*length);
        }
        let grown = self.files.iter();
        let grown = grown.filter(|(file, tail)| known.get(file) != Some(&tail.length));
        let entry = |(&file, tail): (&DataFileId, &Tail)| DataFileEntry {
            file,
            length: tail.length,
            checksum: tail.checksum,
        };
        grown.map(entry).collect()
    }

    /// Whether arranged files replaced files of the log.
    pub(crate) fn has_replaced_files(&self) -> bool {
        self.files.keys().any(|file| file.replaced().is_some())
    }

    /// Puts an arranged file into the place of a file of the log: `parts` replace those with the
    /// same ordinals, and describe its packets there. Returns the parts and the pin from before:
    /// `path` is removed when the last reader of the file has ended.
    pub(crate) fn replace_file(
        &mut self,
        file: DataFileId,
        by: (DataFileId, Tail),
        parts: &[Arc<IndexPart>],
        path: std::path::PathBuf,
    ) -> (Vec<Arc<IndexPart>>, Arc<FilePin>) {
        let before = parts.iter().flat_map(|part| self.parts_merged(part));
        let before: Vec<_> = before.collect();
        let known = self.files.remove(&file);
        assert!(known.is_some(), "a file of the log is replaced once");
        self.set_file(by.0, by.1);
        let next = self.pin.replace_some(vec![path]);
        (before, std::mem::replace(&mut self.pin, next))
    }

    /// Replaces the sealed segments by the part that contains them.
    pub(crate) fn part_written(&mut self, part: &Arc<IndexPart>) {
        for entry in &part.footer.leaves {
            let leaf = self.leaves.get(&entry.leaf);
            assert!(
                leaf.is_some_and(|leaf| entry.covered.end <= leaf.tail.length),
                "an index part covers only durable bytes"
            );
            let sealed = leaf.and_then(|leaf| leaf.sealed.as_ref());
            assert!(
                sealed.is_some_and(|sealed| sealed.covered == entry.covered
                    && sealed.covered_checksum == entry.covered_checksum),
                "a written index part covers the sealed segments"
            );
        }
        for leaf in self.leaves.values_mut() {
            // They are a part of the tree still.
            if let Some(sealed) = leaf.sealed.take()
                && let Some(stored) = self.stored_bytes.get_mut(&leaf.path.agent)
            {
                *stored = stored.saturating_sub(sealed.totals.stored_bytes);
            }
        }
        self.add_part(part);
    }

    /// Replaces parts by the one into which they were merged; returns them.
    pub(crate) fn parts_merged(&mut self, merged: &Arc<IndexPart>) -> Vec<Arc<IndexPart>> {
        let ordinals = merged.ordinals();
        let mut parts = self.parts.iter();
        let at = parts.position(|part| ordinals.contains(&part.header.ordinal));
        let at = at.expect("the parts that are merged stay until the merged one is complete");
        let count = (self.parts.iter().skip(at))
            .take_while(|part| ordinals.contains(&part.header.ordinal))
            .count();
        let replaced = self
            .parts
            .splice(at..at.saturating_add(count), [Arc::clone(merged)]);
        let replaced: Vec<_> = replaced.collect();
        let ends = replaced.first().zip(replaced.last());
        assert!(
            ends.is_some_and(
                |(first, last)| *first.ordinals().start() == *ordinals.start()
                    && last.header.ordinal == *ordinals.end()
            ),
            "a merged part has the ordinals of the parts that it replaces"
        );
        let mut blocks = merged.blocks().peekable();
        while let Some(leaf) = blocks.peek().map(|block| block.entry().leaf) {
            let of_leaf = std::iter::from_fn(|| blocks.next_if(|block| block.entry().leaf == leaf));
            let known = self.leaves.get_mut(&leaf);
            let known = known.expect("a merged part describes the leaves of its parts");
            known.replace_parts(&ordinals, of_leaf);
        }
        replaced
    }

    /// Restores the sealed segments: the part could not be written.
    pub(crate) fn part_refused(&mut self) {
        for leaf in self.leaves.values_mut() {
            let was_live = leaf.live.is_some();
            let (packets, bytes) = leaf.unseal();
            let is_new = leaf.live.is_some() && !was_live;
            self.live_leaves = self.live_leaves.saturating_add(usize::from(is_new));
            self.live_packets = self.live_packets.saturating_add(packets);
            self.live_extents = self.live_extents.saturating_add(packets);
            self.uncovered_bytes = self.uncovered_bytes.saturating_add(bytes);
        }
    }

    /// Bytes of packets as stored, of each agent.
    pub(crate) fn bytes_by_agent(&self) -> &BTreeMap<AgentId, u64> {
        &self.stored_bytes
    }

    /// Whether an agent has packets.
    pub(crate) fn has_agent(&self, agent: &AgentId) -> bool {
        self.by_stream.contains_key(agent)
    }

    /// The next position of a stream: it follows every durable packet.
    pub(crate) fn next_position(&self, agent: &AgentId, stream: &StreamId) -> StreamPosition {
        let leaves = self.by_stream.get(agent).and_then(|all| all.get(stream));
        let leaves = leaves.into_iter().flatten();
        let segments = leaves
            .filter_map(|id| self.leaves.get(id))
            .flat_map(Leaf::segments);
        let last = segments.map(|segment| segment.numbers.last_position).max();
        last.map_or(StreamPosition::default(), StreamPosition::next)
    }

    /// Numbers of packets of a stream before and after a position at which it has none; not always
    /// the nearest ones.
    pub(crate) fn numbers_around(
        &self,
        agent: &AgentId,
        stream: &StreamId,
        position: StreamPosition,
    ) -> (u64, u64) {
        let leaves = self.by_stream.get(agent).and_then(|all| all.get(stream));
        let leaves = leaves.into_iter().flatten();
        let segments = leaves
            .filter_map(|id| self.leaves.get(id))
            .flat_map(Leaf::segments);
        let (mut before, mut after) = (0, u64::MAX);
        for LeafNumbers {
            first,
            last,
            first_position,
            last_position,
        } in segments.map(|segment| segment.numbers)
        {
            if last_position < position {
                before = before.max(last);
            } else if first_position < position {
                before = before.max(first);
                after = after.min(last);
            } else {
                after = after.min(first);
            }
        }
        (before, after)
    }

    /// The number after the last packet.
    pub(crate) fn next_number(&self) -> u64 {
        let segments = self.leaves.values().flat_map(Leaf::segments);
        segments
            .map(|segment| segment.numbers.last.saturating_add(1))
            .max()
            .unwrap_or(0)
    }
}

fn add_stored(sums: &mut BTreeMap<AgentId, u64>, agent: &AgentId, bytes: u64) {
    match sums.get_mut(agent) {
        Some(sum) => *sum = sum.saturating_add(bytes),
        None => drop(sums.insert(agent.clone(), bytes)),
    }
}
