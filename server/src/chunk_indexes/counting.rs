//! The events of storages that are being written, where packets could not be counted when they
//! arrived: for want of readable metadata, or because they are too long. Chunk indexes count them.

use std::collections::HashMap;
use std::time::Duration;

use io_trace::Cause;
use query_engine::PacketTimes;
use storage_core::{Engine, LeafFile, LeafInfo, LeafPackets, StorageError, StorageInfo};
use storage_format::data_file::HEADER_BYTES as LEAF_HEADER_BYTES;
use storage_format::frame::{FrameHeader, FrameLocation, HEADER_BYTES};
use storage_format::storage_file::StorageState;
use storage_format::{Kind, LeafId, LeafType, StorageId, TimeBasis};
use tokio::time::{Instant, timeout_at};
use trace_kinds::has_events;

use super::counts::{Arrived, EventCount, LeafCount};
use super::state::ChunkIndexes;

/// How long a reader waits for packets that can be counted now.
const WAIT: Duration = Duration::from_secs(1);
/// Bytes of leaves whose packets a reader looks at itself.
const LOOK_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a plain leaf that are read at once.
const FRAMES_WINDOW_BYTES: u64 = 64 << 10;

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
                Ok(true) if self.due(id).is_empty() => return,
                Ok(_) => {}
                // Of a storage that cannot be read now, what is known is told.
                Err(_) => return,
            }
            self.known.lock().uncounted.insert(id);
            self.count_wake.notify_one();
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
        let mut metadata = HashMap::new();
        for key in keys.iter().filter(|key| key.path.kind == Kind::Ctf) {
            let agent = &key.path.agent;
            if !metadata.contains_key(agent) {
                let checksum = engine.reading().metadata_checksum(id, agent).await?;
                metadata.insert(agent.clone(), checksum);
            }
        }
        let (changed, bytes) = {
            let mut known = self.known.lock();
            known.counts.entry(id).or_default().begin(&keys, &metadata)
        };
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
                let mut count = changed.get(&info.leaf).copied().unwrap_or_default();
                let arrived = match info.leaf_type {
                    LeafType::Array => of_entries(&info, &count, &packets)?,
                    LeafType::Plain => of_frames(id, &info, &count, &bytes),
                };
                if let Some(arrived) = arrived {
                    count.arrived = arrived;
                    count.is_plain = info.leaf_type == LeafType::Plain;
                    looked.push((info.leaf, count));
                }
            }
            Ok::<_, StorageError>(looked)
        });
        let looked = looked.await.map_err(|_| StorageError::Stopping)??;
        let mut known = self.known.lock();
        let Some(count) = known.counts.get_mut(&id) else {
            return Ok(true);
        };
        count.is_known |= looked.len() == changed_count;
        for (leaf, looked) in looked {
            if let Some(count) = count.leaves.get_mut(&leaf)
                && count.metadata == looked.metadata
                && count.arrived.to < looked.arrived.to
            {
                count.arrived = looked.arrived;
                count.is_plain = looked.is_plain;
            }
        }
        Ok(true)
    }

    /// The leaves with packets that an index may count.
    pub(super) fn due(&self, id: StorageId) -> HashMap<LeafId, LeafCount> {
        let known = self.known.lock();
        let leaves = known.counts.get(&id).into_iter();
        let leaves = leaves.flat_map(|count| &count.leaves);
        let due = leaves.filter(|(_, count)| count.is_due());
        due.map(|(leaf, count)| (*leaf, *count)).collect()
    }

    /// These leaves were due, and their packets were counted; if that failed, it does again with
    /// the same metadata and length.
    pub(super) fn tried(&self, id: StorageId, due: &HashMap<LeafId, LeafCount>) {
        let mut known = self.known.lock();
        let Some(counts) = known.counts.get_mut(&id) else {
            return;
        };
        for (leaf, due) in due {
            if let Some(count) = counts.leaves.get_mut(leaf)
                && count.metadata == due.metadata
            {
                count.tried = Some(due.arrived.to);
            }
        }
    }

    /// The chunk index of a leaf covers its bytes up to `to`, and has so many events. Blocks the
    /// thread.
    pub(super) fn indexed(
        &self,
        id: StorageId,
        leaf: LeafId,
        (packets, basis): (Option<&dyn PacketTimes>, TimeBasis),
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
        if count
            .metadata
            .is_some_and(|metadata| !basis.is_of(metadata))
        {
            return;
        }
        let arrived = match (packets, count.indexed) {
            _ if count.arrived.to == to => Ok(count.arrived),
            (Some(packets), before) if !count.is_plain => {
                let before = before.map(|(arrived, _)| arrived);
                let before = before.filter(|arrived| arrived.to <= to);
                let before = before.unwrap_or_default();
                before.up_to(to, count.metadata, |from, each| packets.each(from, each))
            }
            _ => return,
        };
        let Ok(arrived) = arrived else { return };
        let mut known = self.known.lock();
        let counts = known.counts.get_mut(&id);
        if let Some(known) = counts.and_then(|count| count.leaves.get_mut(&leaf))
            && known.metadata == count.metadata
        {
            known.indexed = Some((arrived, events));
        }
    }
}

/// The packets of a leaf, of which those `before` are known, from its entries in the index tree;
/// `None` if they are not in memory now. Blocks the thread.
fn of_entries(
    info: &LeafInfo,
    before: &LeafCount,
    packets: &LeafPackets,
) -> Result<Option<Arrived>, StorageError> {
    let (arrived, metadata) = (before.arrived, before.metadata);
    let arrived = arrived.up_to(info.length, metadata, |from, each| packets.each(from, each))?;
    Ok((arrived.packets == info.totals.packets).then_some(arrived))
}

/// The packets of a plain leaf, which has no entries, from the headers of its frames; `None` if one
/// is damaged. Blocks the thread.
fn of_frames(
    id: StorageId,
    info: &LeafInfo,
    before: &LeafCount,
    bytes: &LeafFile,
) -> Option<Arrived> {
    let mut arrived = before.arrived;
    arrived.to = arrived.to.max(LEAF_HEADER_BYTES as u64);
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
            arrived.add(&header.facts, before.metadata);
            arrived.to = arrived.to.saturating_add(header.frame_bytes());
        }
        if window.end == info.length && arrived.to < info.length {
            return None;
        }
    }
    (arrived.to == info.length).then_some(arrived)
}
