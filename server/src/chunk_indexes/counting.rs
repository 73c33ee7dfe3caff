//! The events of storages that are being written, where packets could not be counted when they
//! arrived: for want of readable metadata, or because they are too long. Chunk indexes count them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use io_trace::Cause;
use query_engine::PacketTimes;
use storage_core::{Engine, LeafFile, LeafInfo, LeafKey, LeafPackets, StorageError, StorageInfo};
use storage_format::data_file::HEADER_BYTES as LEAF_HEADER_BYTES;
use storage_format::frame::{Facts, FrameHeader, FrameLocation, HEADER_BYTES};
use storage_format::index_part::PacketEntry;
use storage_format::storage_file::StorageState;
use storage_format::{Kind, LeafId, LeafType, StorageId, StreamNames};
use tokio::time::{Instant, timeout_at};
use trace_kinds::has_events;

use super::state::ChunkIndexes;

/// How long a reader waits for packets that can be counted now.
const WAIT: Duration = Duration::from_secs(1);
/// Bytes of leaves whose packets a reader looks at itself.
const LOOK_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a plain leaf that are read at once.
const FRAMES_WINDOW_BYTES: u64 = 64 << 10;

/// The events of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventCount {
    /// Events, without those of derived streams.
    pub(crate) events: u64,
    /// Packets whose events are not among them; `None` until it is known.
    pub(crate) uncounted_packets: Option<u64>,
}

/// The packets of a leaf up to one of its bytes, as they were counted when they arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Arrived {
    to: u64,
    packets: u64,
    events: u64,
    uncounted: u64,
}

impl Arrived {
    fn add(&mut self, facts: &Facts) {
        self.packets += 1;
        match facts.events {
            Some(events) => self.events = self.events.saturating_add(u64::from(events)),
            None => self.uncounted += 1,
        }
    }

    /// The packets up to `to`, from those that `each` visits after a byte.
    fn up_to<E>(
        mut self,
        to: u64,
        each: impl FnOnce(u64, &mut dyn FnMut(&PacketEntry)) -> Result<(), E>,
    ) -> Result<Self, E> {
        let wanted = self.to..to;
        let mut add = |entry: &PacketEntry| {
            if wanted.contains(&entry.offset.saturating_sub(HEADER_BYTES as u64)) {
                self.add(&entry.facts);
            }
        };
        each(wanted.start, &mut add)?;
        self.to = to;
        Ok(self)
    }
}

/// What is known of the events of one leaf.
#[derive(Debug, Clone, Copy, Default)]
struct LeafCount {
    is_derived: bool,
    is_plain: bool,
    arrived: Arrived,
    /// The packets that its chunk index covers, and the events in it.
    indexed: Option<(Arrived, u64)>,
    /// The metadata of its agent, and its length, when its packets were last to be counted.
    tried: Option<(Option<u32>, u64)>,
}

impl LeafCount {
    fn uncounted(&self) -> u64 {
        let counted = self.indexed.map_or(0, |(arrived, _)| arrived.uncounted);
        self.arrived.uncounted.saturating_sub(counted)
    }

    /// Whether an index may count more: its agent has other metadata than the last time, or the
    /// leaf has grown by a part of what an index would be made of again.
    fn is_due(&self, kind: Kind, metadata: Option<u32>) -> bool {
        let is_readable = kind != Kind::Ctf || metadata.is_some();
        let has_changed = |(tried, length): (Option<u32>, u64)| {
            tried != metadata || self.arrived.to.saturating_sub(length) > length / 4
        };
        is_readable && self.uncounted() > 0 && self.tried.is_none_or(has_changed)
    }
}

/// What is known of the events of one storage.
#[derive(Debug, Default)]
pub(super) struct StorageCount {
    leaves: HashMap<LeafId, LeafCount>,
    /// Whether all that was there was looked at once.
    is_known: bool,
}

impl StorageCount {
    /// Its events, of which so many were counted when they arrived.
    fn of(&self, arrived: u64) -> EventCount {
        let leaves = || self.leaves.values().filter(|leaf| !leaf.is_derived);
        let sum = |terms: &mut dyn Iterator<Item = u64>| terms.fold(0, u64::saturating_add);
        let indexed = || leaves().filter_map(|leaf| leaf.indexed);
        let more = sum(&mut indexed().map(|(_, events)| events));
        let less = sum(&mut indexed().map(|(arrived, _)| arrived.events));
        EventCount {
            events: arrived.saturating_add(more).saturating_sub(less),
            uncounted_packets: self
                .is_known
                .then(|| sum(&mut leaves().map(LeafCount::uncounted))),
        }
    }

    /// Forgets the leaves that are no longer there, and those that were cut; returns those with
    /// packets that were not looked at, and the bytes of these.
    fn begin(&mut self, keys: &[LeafKey]) -> (HashMap<LeafId, Arrived>, u64) {
        let lengths: HashMap<LeafId, u64> = keys.iter().map(|key| (key.leaf, key.length)).collect();
        self.leaves
            .retain(|leaf, count| lengths.get(leaf).is_some_and(|to| count.arrived.to <= *to));
        let names: StreamNames = keys.iter().map(|key| &key.path).collect();
        let (mut changed, mut bytes) = (HashMap::new(), 0_u64);
        for key in keys {
            let path = &key.path;
            let count = self.leaves.entry(key.leaf).or_default();
            count.is_derived = names.has_source_of(path.kind, &path.agent, &path.stream);
            if count.arrived.to < key.length {
                changed.insert(key.leaf, count.arrived);
                bytes = bytes.saturating_add(key.length - count.arrived.to);
            }
        }
        self.is_known |= changed.is_empty();
        (changed, bytes)
    }
}

impl ChunkIndexes {
    /// The events that queries find in a storage, as far as that is known.
    pub(crate) fn events_of(&self, info: &StorageInfo) -> EventCount {
        let known = self.known.lock();
        let is_finalized = info.state == StorageState::Finalized;
        if let Some(count) = known.events.get(&info.id).filter(|_| is_finalized) {
            return *count;
        }
        let arrived = info.totals.events;
        let count = known.counts.get(&info.id).map(|count| count.of(arrived));
        let count = count.unwrap_or(EventCount {
            events: arrived,
            uncounted_packets: None,
        });
        EventCount {
            uncounted_packets: match info.totals.packets {
                0 => Some(0),
                _ => count.uncounted_packets.filter(|_| !is_finalized),
            },
            ..count
        }
    }

    /// Looks at the packets of a storage that arrived since the last time, and waits a moment until
    /// those are counted that can be.
    pub(crate) async fn count(&self, engine: &Engine, id: StorageId) {
        let deadline = Instant::now() + WAIT;
        loop {
            let counted = self.counted.notified();
            tokio::pin!(counted);
            counted.as_mut().enable();
            match self.look(engine, id, LOOK_BYTES_MAX).await {
                Ok(true) if self.due(engine, id).await.is_empty() => return,
                Ok(_) => {}
                // Of a storage that cannot be read now, what is known is told.
                Err(_) => return,
            }
            self.check(id);
            if timeout_at(deadline, counted).await.is_err() {
                return;
            }
        }
    }

    /// Looks at the packets that arrived since the last time, if they have at most so many bytes;
    /// whether it did.
    pub(super) async fn look(
        &self,
        engine: &Engine,
        id: StorageId,
        bytes_max: u64,
    ) -> Result<bool, StorageError> {
        let (info, mut keys) = engine.reading().leaf_keys(id).await?;
        keys.retain(|key| has_events(key.path.kind));
        if info.state == StorageState::Finalized {
            return Ok(true);
        }
        let (changed, bytes) = self.known.lock().counts.entry(id).or_default().begin(&keys);
        if changed.is_empty() || bytes > bytes_max {
            return Ok(changed.is_empty());
        }
        let changed_count = changed.len();
        let reading = engine.reading();
        let is_changed = |leaf, _: &_| changed.contains_key(&leaf);
        let found = reading.leaves_among(id, is_changed).await?;
        let leaves = found.leaves.iter().map(|info| {
            let packets = reading.leaf_packets(&found, info.leaf);
            let bytes = reading.leaf_bytes(info, Cause::Index);
            (info.clone(), packets, bytes)
        });
        let leaves: Vec<_> = leaves.collect();
        let looked = tokio::task::spawn_blocking(move || {
            let mut looked = Vec::with_capacity(leaves.len());
            for (info, packets, bytes) in leaves {
                let before = changed.get(&info.leaf).copied().unwrap_or_default();
                let arrived = match info.leaf_type {
                    LeafType::Array => of_entries(&info, before, &packets)?,
                    LeafType::Plain => of_frames(id, &info, before, &bytes),
                };
                looked.extend(arrived.map(|arrived| (info.leaf, info.leaf_type, arrived)));
            }
            Ok::<_, StorageError>(looked)
        });
        let looked = looked.await.map_err(|_| StorageError::Stopping)??;
        let mut known = self.known.lock();
        let Some(count) = known.counts.get_mut(&id) else {
            return Ok(true);
        };
        count.is_known |= looked.len() == changed_count;
        for (leaf, leaf_type, arrived) in looked {
            if let Some(count) = count.leaves.get_mut(&leaf)
                && count.arrived.to < arrived.to
            {
                count.arrived = arrived;
                count.is_plain = leaf_type == LeafType::Plain;
            }
        }
        Ok(true)
    }

    /// The leaves with packets that an index may count.
    pub(super) async fn due(&self, engine: &Engine, id: StorageId) -> HashSet<LeafId> {
        let uncounted: HashMap<LeafId, LeafCount> = {
            let known = self.known.lock();
            let leaves = known
                .counts
                .get(&id)
                .into_iter()
                .flat_map(|count| &count.leaves);
            let leaves = leaves.filter(|(_, count)| count.uncounted() > 0);
            leaves.map(|(leaf, count)| (*leaf, *count)).collect()
        };
        let mut due = HashSet::new();
        if uncounted.is_empty() {
            return due;
        }
        let keys = engine.reading().leaf_keys(id).await;
        for key in keys.map_or_else(|_| Vec::new(), |(_, keys)| keys) {
            let Some(count) = uncounted.get(&key.leaf) else {
                continue;
            };
            let metadata = self.metadata_of(engine, id, &key).await;
            if count.is_due(key.path.kind, metadata) {
                due.insert(key.leaf);
            }
        }
        due
    }

    async fn metadata_of(&self, engine: &Engine, id: StorageId, key: &LeafKey) -> Option<u32> {
        if key.path.kind != Kind::Ctf {
            return None;
        }
        let reading = engine.reading();
        let checksum = reading.metadata_checksum(id, &key.path.agent).await;
        checksum.ok().flatten()
    }

    /// The packets of these leaves are to be counted now; if that fails, it does for the same
    /// metadata and length.
    pub(super) async fn try_once<'k>(
        &self,
        engine: &Engine,
        id: StorageId,
        keys: impl Iterator<Item = &'k LeafKey>,
    ) {
        for key in keys {
            let metadata = self.metadata_of(engine, id, key).await;
            let mut known = self.known.lock();
            let count = known.counts.get_mut(&id);
            if let Some(count) = count.and_then(|count| count.leaves.get_mut(&key.leaf)) {
                count.tried = Some((metadata, count.arrived.to));
            }
        }
    }

    /// The chunk index of a leaf covers its bytes up to `to`, and has so many events. Blocks the
    /// thread.
    pub(super) fn indexed(
        &self,
        id: StorageId,
        leaf: LeafId,
        packets: Option<&dyn PacketTimes>,
        (to, events): (u64, u64),
    ) {
        let count = {
            let known = self.known.lock();
            let count = known
                .counts
                .get(&id)
                .and_then(|count| count.leaves.get(&leaf));
            count.copied()
        };
        // Most leaves were counted when they arrived.
        let Some(count) = count.filter(|count| count.arrived.uncounted > 0 && to > 0) else {
            return;
        };
        let arrived = match (packets, count.indexed) {
            _ if count.arrived.to == to => Ok(count.arrived),
            (Some(packets), before) if !count.is_plain => {
                let before = before.map(|(arrived, _)| arrived);
                let before = before.filter(|arrived| arrived.to <= to);
                let before = before.unwrap_or_default();
                before.up_to(to, |from, each| packets.each(from, each))
            }
            _ => return,
        };
        let Ok(arrived) = arrived else { return };
        let mut known = self.known.lock();
        let counts = known.counts.get_mut(&id);
        if let Some(count) = counts.and_then(|count| count.leaves.get_mut(&leaf)) {
            count.indexed = Some((arrived, events));
        }
    }
}

/// The packets of a leaf, of which `before` are known, from its entries in the index tree; `None` if
/// they are not in memory now. Blocks the thread.
fn of_entries(
    info: &LeafInfo,
    before: Arrived,
    packets: &LeafPackets,
) -> Result<Option<Arrived>, StorageError> {
    let arrived = before.up_to(info.length, |from, each| packets.each(from, each))?;
    Ok((arrived.packets == info.totals.packets).then_some(arrived))
}

/// The packets of a plain leaf, which has no entries, from the headers of its frames; `None` if one
/// is damaged. Blocks the thread.
fn of_frames(id: StorageId, info: &LeafInfo, before: Arrived, bytes: &LeafFile) -> Option<Arrived> {
    let mut arrived = Arrived {
        to: before.to.max(LEAF_HEADER_BYTES as u64),
        ..before
    };
    while arrived.to < info.length {
        let window = arrived.to..info.length.min(arrived.to + FRAMES_WINDOW_BYTES);
        let (read, _) = bytes.read(std::slice::from_ref(&window)).ok()?.pop()?;
        while let Some(rest) = usize::try_from(arrived.to - window.start)
            .ok()
            .and_then(|at| read.get(at..))
            .filter(|rest| rest.len() >= HEADER_BYTES)
        {
            let location = FrameLocation {
                storage: id,
                leaf: info.leaf,
                offset: arrived.to,
            };
            let header = FrameHeader::decode(rest, location).ok()?;
            arrived.add(&header.facts);
            arrived.to = arrived.to.saturating_add(header.frame_bytes());
        }
        if window.end == info.length && arrived.to < info.length {
            return None;
        }
    }
    (arrived.to == info.length).then_some(arrived)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(packets: u64, uncounted: u64) -> LeafCount {
        LeafCount {
            arrived: Arrived {
                to: 1000,
                packets,
                events: 10,
                uncounted,
            },
            ..LeafCount::default()
        }
    }

    #[test]
    fn a_leaf_is_due_once_for_its_metadata_and_length() {
        let tried = |metadata, length| LeafCount {
            tried: Some((metadata, length)),
            ..leaf(5, 2)
        };
        let (ctf, dft) = (Kind::Ctf, Kind::Dft);
        for (what, count, kind, metadata, is_due) in [
            ("new", leaf(5, 2), ctf, Some(1), true),
            ("all counted", leaf(5, 0), ctf, Some(1), false),
            ("no metadata", leaf(5, 2), ctf, None, false),
            ("needs none", leaf(5, 2), dft, None, true),
            ("tried", tried(Some(1), 1000), ctf, Some(1), false),
            ("other metadata", tried(Some(1), 1000), ctf, Some(2), true),
            ("grown a little", tried(Some(1), 800), ctf, Some(1), false),
            ("grown", tried(Some(1), 799), ctf, Some(1), true),
        ] {
            assert_eq!(count.is_due(kind, metadata), is_due, "{what}");
        }
    }

    #[test]
    fn events_in_indexes_replace_those_that_arrived() {
        let indexed = LeafCount {
            indexed: Some((leaf(4, 2).arrived, 50)),
            ..leaf(6, 3)
        };
        let derived = LeafCount {
            is_derived: true,
            ..indexed
        };
        let mut count = StorageCount {
            leaves: [(1, leaf(2, 0)), (2, indexed), (3, derived)]
                .map(|(id, count)| (LeafId(id), count))
                .into(),
            is_known: false,
        };
        // 10 events of each leaf arrived, and those of the derived one are not counted.
        let of = |count: &StorageCount| {
            let EventCount {
                events,
                uncounted_packets,
            } = count.of(20);
            (events, uncounted_packets)
        };
        assert_eq!(of(&count), (60, None));
        count.is_known = true;
        assert_eq!(of(&count), (60, Some(1)));
    }
}
