//! Accepts packets: new ones get a number, duplicates get their first receipt.

use std::sync::Arc;

use storage_format::{
    Arrival, Codec, LeafId, OutOfOrder, StorageId, StreamPosition,
    data_file::{Bucket, DataFileHeader, LeafPath},
    storage_file::StorageState,
};

use super::{
    Arriving, Boxed, FoundRepeat, Group, Serialized, Writer,
    group::Reply,
    stream::{InFlight, Stream},
};
use crate::{
    NewPacket, PacketSummary, Push, StorageError,
    clock::{now_ns, random_u64},
    droppable::Handed,
    io_thread::{LeafSpec, Tail},
    push::{Gaps, check_packet},
    serializer::{Numbered, serialize},
    state::accepts_packets,
    storage::StorageReader,
    tree::resolve,
};

/// What happens to a packet.
enum Verdict {
    New,
    /// The same packet is in flight.
    Repeat,
    /// The same packet may be durable already.
    Known,
    Refused(StorageError),
}

impl Writer {
    /// Accepts a push after the droppable packets of its stream that arrived before.
    pub(super) async fn submit_in_turn(&mut self, mut arriving: Arriving) {
        let Arriving { push, gaps, .. } = &mut arriving;
        if self.storage.lane.is_used() && *gaps != Gaps::RepeatsOnly {
            let (storage, droppable) = (self.storage.id, Arc::clone(&self.services.droppable));
            while let Some(handed) = droppable.take_of(storage, &push.agent, &push.stream) {
                self.submit_droppable(handed).await;
            }
            let lost_until = droppable.pass(storage, push, *gaps == Gaps::Taken);
            if let Some(position) = lost_until
                && *gaps == Gaps::Refused
            {
                *gaps = Gaps::UpTo(position);
            }
        }
        self.submit(arriving).await;
    }

    /// Accepts a push for which nobody waits.
    pub(super) async fn submit_droppable(&mut self, handed: Handed) {
        let Handed {
            push,
            gaps,
            in_writer,
        } = handed;
        let arriving = Arriving {
            push,
            gaps,
            // Its request has a reply already.
            request: None,
            reply: Reply::Droppable(in_writer),
        };
        self.submit(arriving).await;
    }

    /// Accepts a push, or refuses it.
    async fn submit(&mut self, arriving: Arriving) {
        #[cfg(test)]
        if let Some(plan) = &self.services.config.faults {
            plan.panic_at(crate::io::faulty::Operation::Submit);
        }
        if let Some(reason) = self.storage.poison.reason() {
            // A failure between two pushes is found here.
            self.fail_storage(&reason).await;
        }
        let (at, arrival) = match self.stream_for(&arriving) {
            Ok(at) => (at, now_ns()),
            Err(error) => return refuse_all(arriving, error),
        };
        let bucket = self.bucket(&arriving.push, arrival);
        self.take(at, arriving, bucket, arrival).await;
    }

    async fn take(
        &mut self,
        at: usize,
        Arriving {
            push,
            gaps,
            request,
            reply,
        }: Arriving,
        bucket: Option<Bucket>,
        arrival: i64,
    ) {
        let group_id = self.new_id();
        let Push {
            packets, permit, ..
        } = push;
        let mut group = Group::new(packets.len(), reply, permit);
        let mut new = Vec::with_capacity(packets.len());
        for (slot, packet) in packets.into_iter().enumerate() {
            let position = packet.position;
            match self.judge(at, &packet, gaps) {
                Verdict::New => new.push(self.number(at, packet, (group_id, slot), arrival)),
                Verdict::Repeat => {
                    if let Some(packet) = self.streams.get(at).in_flight(position) {
                        packet.repeats.push((group_id, slot));
                    }
                }
                Verdict::Known => {
                    let expected = gaps.has_same_bytes().then(|| packet.summary());
                    self.find_known(at, (position, expected), group_id, slot);
                }
                Verdict::Refused(error) => {
                    group.refuse_from(slot, error);
                    break;
                }
            }
        }
        let is_complete = group.is_complete();
        self.groups.insert(group_id, group);
        if is_complete {
            self.finish_group(group_id);
        }
        if !new.is_empty() {
            crate::fault_point!(async "ingest.numbered");
            self.serialize(at, new, bucket, request).await;
        }
    }

    fn stream_for(
        &mut self,
        Arriving { push, reply, .. }: &Arriving,
    ) -> Result<usize, StorageError> {
        if let Some(reason) = self.storage.poison.reason() {
            return Err(StorageError::Failed {
                storage: self.storage.id,
                reason,
            });
        }
        let state = self.storage.state();
        // Packets that were accepted before a finalization began are part of the storage.
        let was_accepted =
            matches!(reply, Reply::Droppable(_)) && state == StorageState::Finalizing;
        if !accepts_packets(state) && !was_accepted {
            return Err(self.storage.wrong_state("a push", "OPEN or RECORDING"));
        }
        self.services.space.check()?;
        if self.flush_times.is_exhausted() {
            // Memory for the index is used up, and it cannot be written.
            let path = self.storage.folder.clone();
            return Err(StorageError::DiskFull { path });
        }
        let declared = || self.services.agents.stream(&push.agent, &push.stream);
        if let Some(at) = self.streams.find(&push.agent, &push.stream) {
            // A declaration may have changed the codec or the leaf type since.
            self.streams.get(at).spec = declared()?;
            return Ok(at);
        }
        let spec = declared()?;
        let tree = self.storage.tree.read();
        let Some(tree) = &*tree else {
            return Err(StorageError::Stopping);
        };
        Ok(self.streams.add(Stream::new(
            push.agent.clone(),
            spec,
            tree,
            &self.services.stream_counts,
        )))
    }

    fn judge(&mut self, at: usize, packet: &NewPacket, gaps: Gaps) -> Verdict {
        if let Err(error) = check_packet(packet, self.services.config.packet_bytes_max) {
            return Verdict::Refused(error);
        }
        let position = packet.position;
        let stream = self.streams.get(at);
        if let Some(first) = stream.in_flight(position) {
            return match conflict(position, first.summary, packet.summary()) {
                Some(error) if gaps.has_same_bytes() => Verdict::Refused(error),
                _ => Verdict::Repeat,
            };
        }
        match (position.follows(stream.next), gaps) {
            (Ok(Arrival::Duplicate) | Err(OutOfOrder::StaleEpoch { .. }), _) => {
                return Verdict::Known;
            }
            (Ok(Arrival::Next), Gaps::RepeatsOnly) => {
                return Verdict::Refused(StorageError::SequenceGap {
                    epoch: position.epoch,
                    expected: position.sequence,
                    found: position.sequence,
                });
            }
            (Ok(Arrival::Next), _) | (Err(OutOfOrder::Gap { .. }), Gaps::Taken) => {}
            (Err(OutOfOrder::Gap { .. }), Gaps::UpTo(lost_until)) if position == lost_until => {}
            (Err(gap @ OutOfOrder::Gap { .. }), _) => return Verdict::Refused(gap.into()),
        }
        if stream.is_failing {
            Verdict::Refused(StorageError::EarlierRefused)
        } else {
            Verdict::New
        }
    }

    fn number(
        &mut self,
        at: usize,
        packet: NewPacket,
        owner: (u64, usize),
        arrival: i64,
    ) -> Numbered {
        let number = self.next_number;
        self.next_number = number.checked_add(1).expect("packets do not reach 2^64");
        let NewPacket {
            position,
            payload,
            checksum,
            facts,
        } = packet;
        let size = u32::try_from(payload.len());
        let size = size.expect("the size of a packet is checked when it is accepted");
        let stream = self.streams.get(at);
        assert!(
            position >= stream.next,
            "packets of a stream are numbered in the order of their positions"
        );
        let last = stream.in_flight.back();
        assert!(
            last.is_none_or(|last| last.position < position),
            "packets in flight are sorted by position"
        );
        stream.next = position.next();
        stream.in_flight.push_back(InFlight {
            position,
            summary: PacketSummary { size, checksum },
            owner,
            repeats: Vec::new(),
        });
        Numbered {
            number,
            position,
            arrival,
            facts: facts.valid(),
            raw: payload,
            raw_checksum: checksum,
        }
    }

    /// Finds the first receipt of a packet that should be durable, with these bytes.
    fn find_known(
        &mut self,
        at: usize,
        (position, expected): (StreamPosition, Option<PacketSummary>),
        group: u64,
        slot: usize,
    ) {
        let storage = Arc::clone(&self.storage);
        let stream = self.streams.get(at);
        let (agent, id) = (stream.agent.clone(), stream.spec.id.clone());
        let find = move || {
            let look_ups = match &*storage.tree.read() {
                Some(tree) => tree.find_position(&agent, &id, position),
                None => return Err(StorageError::Stopping),
            };
            resolve(
                look_ups,
                &StorageReader(&storage),
                |block| block.entries().find_position(position),
                |entry| entry.position == position,
            )
        };
        let next = stream.next;
        let repaired = self.missing_at(at, position);
        self.finding.push(Box::pin(async move {
            let found = tokio::task::spawn_blocking(find).await;
            let found = found.unwrap_or(Err(StorageError::Stopping));
            let found = found.and_then(|found| match found {
                None if repaired.is_some_and(|repaired| repaired()) => {
                    Err(StorageError::RepeatMissing {
                        epoch: position.epoch,
                        sequence: position.sequence,
                        expected: next.sequence,
                    })
                }
                None if position.epoch == next.epoch => Err(StorageError::PacketLeftOut {
                    epoch: position.epoch,
                    sequence: position.sequence,
                    expected: next.sequence,
                }),
                None => Err(StorageError::EpochStale {
                    current: next.epoch,
                    found: position.epoch,
                }),
                Some(found) => {
                    let first = PacketSummary {
                        size: found.entry.raw_size,
                        checksum: found.entry.raw_checksum,
                    };
                    let refused = expected.and_then(|found| conflict(position, first, found));
                    refused.map_or(Ok(Some(found)), Err)
                }
            });
            let done: FoundRepeat = (group, slot, found);
            done
        }));
    }

    /// For a storage that was repaired: whether a packet that is not found may be missing.
    fn missing_at(
        &mut self,
        at: usize,
        position: StreamPosition,
    ) -> Option<impl FnOnce() -> bool + Send + use<>> {
        let storage = Arc::clone(&self.storage);
        let repairs = storage.repairs();
        if repairs.repairs.is_empty() {
            return None;
        }
        let stream = self.streams.get(at);
        let (agent, id) = (stream.agent.clone(), stream.spec.id.clone());
        Some(move || {
            let around = match &*storage.tree.read() {
                Some(tree) => tree.numbers_around(&agent, &id, position),
                None => (0, u64::MAX),
            };
            repairs.is_any_missing(around.0, around.1)
        })
    }

    async fn serialize(
        &mut self,
        at: usize,
        new: Vec<Numbered>,
        bucket: Option<Bucket>,
        request: Option<Arc<str>>,
    ) {
        let count = new.len();
        assert!(count > 0, "a job has packets");
        let bytes: u64 = new.iter().map(|packet| packet.raw.len() as u64).sum();
        self.storage.counts.arrived(count as u64, bytes, now_ns());
        self.services.counters.packets_arrived.add(count as u64);
        let leaf = match self.streams.get(at).leaf {
            Some((last, leaf)) if last == bucket && self.leaves.contains_key(&leaf) => leaf,
            _ => self.leaf_for(at, bucket),
        };
        if let Some(tree) = &mut *self.storage.tree.write() {
            tree.announce(leaf, count);
        }
        let stream = self.streams.get(at);
        stream.leaf = Some((bucket, leaf));
        let codec = stream.spec.codec;
        let frames: Boxed<Serialized> = if codec == Codec::None {
            let frames = new
                .into_iter()
                .map(|packet| serialize(packet, codec, 0))
                .collect();
            Box::pin(std::future::ready(Serialized {
                stream: at,
                leaf,
                count,
                frames: Ok(frames),
                request,
            }))
        } else {
            let frames = self.services.serializers.submit(new, codec).await;
            Box::pin(async move {
                let frames = frames.await;
                Serialized {
                    stream: at,
                    leaf,
                    count,
                    frames: frames.unwrap_or_else(|_| Err("the serializers have ended".into())),
                    request,
                }
            })
        };
        self.serializing.push_back(frames);
    }

    /// The time bucket of a push: by the time of its first packet, or by its arrival.
    fn bucket(&self, push: &Push, arrival: i64) -> Option<Bucket> {
        let first = push.packets.first();
        let span = first.and_then(|packet| packet.facts.time_span);
        let time = span.map_or(arrival, |(begin, _)| begin);
        match i64::try_from(self.services.config.time_bucket.as_nanos()) {
            Ok(0) | Err(_) => None,
            Ok(length) => Some(Bucket {
                begin: time.div_euclid(length).saturating_mul(length),
                length: length.unsigned_abs(),
            }),
        }
    }

    /// The leaf of a stream for `bucket`, created if there is none; the last leaf of the stream if
    /// the storage may not have more.
    fn leaf_for(&mut self, at: usize, bucket: Option<Bucket>) -> LeafId {
        let storage = Arc::clone(&self.storage);
        let mut tree = storage.tree.write();
        let tree = tree
            .as_mut()
            .expect("the tree of a storage with a writer is loaded");
        let stream = self.streams.get(at);
        let path = LeafPath {
            agent: stream.agent.clone(),
            kind: stream.spec.kind,
            stream: stream.spec.id.clone(),
            bucket,
        };
        let is_full = tree.leaf_count() >= self.services.config.leaf_count_max;
        let last = stream.leaf.filter(|_| is_full);
        let leaf = match (tree.leaf_at(&path), last) {
            (Some(leaf), _) | (None, Some((_, leaf))) => leaf,
            (None, None) => {
                let leaf = new_leaf_id();
                tree.add_leaf(leaf, stream.spec.leaf_type, &path);
                leaf
            }
        };
        let known = tree
            .leaf(leaf)
            .expect("the leaf was found in or added to the tree");
        let spec = || Arc::new(leaf_spec(storage.id, known));
        self.leaves.entry(leaf).or_insert_with(spec);
        leaf
    }
}

/// The error for a packet whose position has other bytes already.
fn conflict(
    position: StreamPosition,
    stored: PacketSummary,
    found: PacketSummary,
) -> Option<StorageError> {
    (stored != found).then_some(StorageError::PacketConflict {
        epoch: position.epoch,
        sequence: position.sequence,
        stored,
        found,
    })
}

/// A leaf, for the I/O thread.
fn new_leaf_id() -> LeafId {
    loop {
        if let Some(leaf) = LeafId::of_random(random_u64()) {
            return leaf;
        }
    }
}

fn leaf_spec(storage: StorageId, leaf: &crate::tree::Leaf) -> LeafSpec {
    LeafSpec {
        header: DataFileHeader {
            storage,
            leaf: leaf.id,
            leaf_type: leaf.leaf_type,
            path: leaf.path.clone(),
            created: now_ns(),
        },
        recovered: (leaf.tail != Tail::default()).then_some(leaf.tail),
    }
}

fn refuse_all(Arriving { push, reply, .. }: Arriving, error: StorageError) {
    let mut group = Group::new(push.packets.len(), reply, push.permit);
    group.refuse_from(0, error);
    group.finish();
}
