//! Copies: a selection of the packets of one storage, written into another.
//!
//! A copy is a producer with its own epochs. In each stream of the target it begins a new epoch,
//! later than any existing one, and counts its sequences from 0: those of a selection have gaps,
//! and a packet must never be mistaken for one that another producer pushed.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use io_trace::Cause;
use storage_format::{
    AgentId, Descriptor, Kind, LeafId, StorageId, StreamId, StreamPosition,
    agent_file::{AgentFile, StreamSpec},
    storage_file::StorageState,
};
use tokio::sync::mpsc;

use super::{PacketInfo, PendingPush, transfer::Transfer};
use crate::{
    AgentSpec, LeafBases, NewPacket, Progress, Push, Selection, StorageError, clock::now_ns,
    push::packet_charge, state::accepts_packets, storage::Storage,
};

/// Packets looked up at once.
const PAGE_PACKETS: usize = 256;
/// Delay between two attempts to acquire space for a packet while others use all of it.
const ROOM_WAIT: Duration = Duration::from_millis(5);
/// Pushes in flight.
const PENDING_MAX: usize = 16;

/// Conditions on the packets to copy; empty sets match all.
#[derive(Debug, Clone, Default)]
pub struct CopySelection {
    /// Only packets of these agents.
    pub agents: HashSet<AgentId>,
    /// Only packets of streams with these ids.
    pub streams: HashSet<StreamId>,
    /// Only packets of these kinds.
    pub kinds: HashSet<Kind>,
    /// No packets of these streams.
    pub excluded: HashSet<(AgentId, StreamId)>,
    /// Only packets that may contain events at or after this instant, ns since the epoch.
    pub from: Option<i64>,
    /// Only packets that may contain events before this instant, ns since the epoch.
    pub to: Option<i64>,
    /// As [`Selection::bases`].
    pub bases: LeafBases,
    /// Packets that are copied, too, if other packets of their stream are.
    pub declaring: Declaring,
    /// Copy from a damaged storage, too, without what is behind the damage.
    pub is_incomplete_allowed: bool,
}

impl CopySelection {
    /// Whether a packet that the tree does not exclude is copied.
    #[must_use]
    pub fn includes(&self, packet: &PacketInfo) -> bool {
        self.includes_stream(&packet.agent, &packet.stream, packet.kind)
    }

    /// Whether packets of a stream are copied.
    #[must_use]
    pub fn includes_stream(&self, agent: &AgentId, stream: &StreamId, kind: Kind) -> bool {
        (self.agents.is_empty() || self.agents.contains(agent))
            && (self.streams.is_empty() || self.streams.contains(stream))
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.excluded.is_empty()
                || !self.excluded.contains(&(agent.clone(), stream.clone())))
    }
}

/// Packets that declare what the other packets of their stream mean (`dft`: the unit of times and
/// the names of hashes). A copy of others would mean something else without them.
#[derive(Debug, Clone, Default)]
pub struct Declaring(HashMap<(AgentId, StreamId), DeclaringPackets>);

/// Those of a stream that have yet to be copied.
#[derive(Debug, Clone, Default)]
struct DeclaringPackets {
    numbers: BTreeSet<u64>,
    is_copied: bool,
}

impl Declaring {
    /// Adds the packets of a stream with these numbers.
    pub fn insert(&mut self, stream: (AgentId, StreamId), numbers: impl IntoIterator<Item = u64>) {
        self.0.entry(stream).or_default().numbers.extend(numbers);
    }

    /// The packets to copy before this one of the same stream, ascending.
    pub fn take_before(&mut self, packet: &PacketInfo) -> BTreeSet<u64> {
        if self.0.is_empty() {
            return BTreeSet::new();
        }
        let stream = (packet.agent.clone(), packet.stream.clone());
        let Some(packets) = self.0.get_mut(&stream) else {
            return BTreeSet::new();
        };
        packets.is_copied = true;
        packets.numbers.remove(&packet.entry.number);
        let later = packets.numbers.split_off(&packet.entry.number);
        std::mem::replace(&mut packets.numbers, later)
    }

    /// The packets to copy after the last one of each stream, ascending.
    pub fn take_rest(&mut self) -> BTreeSet<u64> {
        let copied = std::mem::take(&mut self.0).into_values();
        let copied = copied.filter(|packets| packets.is_copied);
        copied.flat_map(|packets| packets.numbers).collect()
    }
}

/// Result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyReport {
    /// Packets written.
    pub packets: u64,
    /// Their bytes as the agents sent them.
    pub bytes: u64,
}

/// A copied packet; it is durable in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedPacket {
    /// The packet in the source.
    pub from: CopiedFrom,
    /// Its leaf in the target.
    pub leaf: LeafId,
    /// Its number in the target.
    pub number: u64,
}

/// A packet in the source of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedFrom {
    /// Its leaf in the source.
    pub leaf: LeafId,
    /// Its number in the source.
    pub number: u64,
    /// Its stored bytes in the source.
    pub descriptor: Descriptor,
}

/// Receives each copied packet. The copy waits for a slow listener.
pub type CopyListener = mpsc::Sender<CopiedPacket>;

impl CopiedFrom {
    /// The source of a copy of this packet.
    #[must_use]
    pub fn of(packet: &PacketInfo) -> Self {
        Self {
            leaf: packet.leaf,
            number: packet.entry.number,
            descriptor: packet.descriptor,
        }
    }
}

/// A push of a copy.
#[derive(Debug)]
pub struct CopyPush {
    /// The source packet; `None` when the packet was derived from many.
    pub from: Option<CopiedFrom>,
    /// The push of that one packet.
    pub push: PendingPush,
}

impl CopyPush {
    /// Waits until the packet is durable, and reports it to the listener.
    ///
    /// # Errors
    /// When it was refused.
    pub async fn wait_durable(self, listener: Option<&CopyListener>) -> Result<(), StorageError> {
        let outcome = self.push.await;
        if let (Some(listener), Some(from)) = (listener, self.from) {
            for receipt in &outcome.receipts {
                let copied = CopiedPacket {
                    from,
                    leaf: receipt.leaf,
                    number: receipt.number,
                };
                // The copy does not depend on the listener.
                let _ = listener.send(copied).await;
            }
        }
        outcome.refused.map_or(Ok(()), Err)
    }
}

/// A running copy.
struct Copying<'a> {
    transfer: &'a Transfer,
    source: Arc<Storage>,
    target: StorageId,
    progress: &'a Progress,
    /// Next position of each stream of the target that was written to.
    next_positions: HashMap<(AgentId, StreamId), StreamPosition>,
    pending: VecDeque<CopyPush>,
    report: CopyReport,
    listener: Option<CopyListener>,
}

impl Transfer {
    /// Copies the packets that match `selection` from one storage to another, which must accept
    /// packets. Packets that were written before a failure remain in the target. The `listener`
    /// receives each packet once it is durable.
    ///
    /// # Errors
    /// When there is no such storage, both are the same, the target accepts no packets, the source
    /// is damaged and the selection does not allow that, a packet cannot be read or written, or the
    /// copy was cancelled.
    pub async fn copy(
        &self,
        source: StorageId,
        target: StorageId,
        selection: &CopySelection,
        progress: &Arc<Progress>,
        listener: Option<CopyListener>,
    ) -> Result<CopyReport, StorageError> {
        let from = self.begin_copy(source, target, selection, progress)?;
        let mut copying = Copying {
            transfer: self,
            source: from,
            target,
            progress,
            next_positions: HashMap::new(),
            pending: VecDeque::new(),
            report: CopyReport::default(),
            listener,
        };
        let mut wanted = Selection {
            from: selection.from,
            to: selection.to,
            limit: PAGE_PACKETS,
            bases: selection.bases.clone(),
            ..Selection::default()
        };
        let mut declaring = selection.declaring.clone();
        loop {
            let page = self.reading.descriptors(source, wanted.clone()).await?;
            for packet in page.items {
                progress.check()?;
                let bytes = u64::from(packet.entry.raw_size);
                if selection.includes(&packet) {
                    copying.copy_all(declaring.take_before(&packet)).await?;
                    copying.copy(packet).await?;
                }
                progress.add(bytes);
            }
            match page.next {
                Some(last) => wanted.after = Some(last),
                None => break,
            }
        }
        copying.copy_all(declaring.take_rest()).await?;
        while !copying.pending.is_empty() {
            copying.wait_for_oldest().await?;
        }
        Ok(copying.report)
    }
}

impl Transfer {
    /// Checks that one storage can be copied to another, and begins `progress`; a deletion of
    /// either storage cancels it.
    fn begin_copy(
        &self,
        source: StorageId,
        target: StorageId,
        selection: &CopySelection,
        progress: &Arc<Progress>,
    ) -> Result<Arc<Storage>, StorageError> {
        let from = self.registry.find(source)?;
        let to = self.registry.find(target)?;
        if source == target {
            return Err(StorageError::Invalid {
                what: "target",
                problem: "is the source of the copy: choose another storage".to_owned(),
            });
        }
        if !selection.is_incomplete_allowed {
            from.check_whole()?;
        }
        if !accepts_packets(to.state()) {
            return Err(to.wrong_state("a copy", "OPEN or RECORDING"));
        }
        from.watch(progress);
        to.watch(progress);
        progress.begin(from.info().totals.raw_bytes);
        Ok(from)
    }

    /// Begins a copy as [`Self::copy`] does, for callers that process packets on the way.
    ///
    /// # Errors
    /// When there is no such storage, both are the same, the target accepts no packets, or the
    /// source is damaged and the selection does not allow that.
    pub fn watch_copy(
        &self,
        source: StorageId,
        target: StorageId,
        selection: &CopySelection,
        progress: &Arc<Progress>,
    ) -> Result<(), StorageError> {
        self.begin_copy(source, target, selection, progress)
            .map(drop)
    }

    /// Registers agent and stream of a packet of an imported storage if they are unknown on this
    /// server.
    ///
    /// # Errors
    /// When the same names mean something else here, or the agent file cannot be read.
    pub async fn adopt_stream(
        &self,
        source: StorageId,
        packet: &PacketInfo,
    ) -> Result<(), StorageError> {
        declare(self, &self.registry.find(source)?, packet).await
    }
}

impl Copying<'_> {
    /// Copies the packets with these numbers.
    async fn copy_all(&mut self, numbers: BTreeSet<u64>) -> Result<(), StorageError> {
        for number in numbers {
            self.progress.check()?;
            let packet = self.transfer.reading.packet(self.source.id, number).await?;
            self.copy(packet).await?;
        }
        Ok(())
    }

    async fn copy(&mut self, packet: PacketInfo) -> Result<(), StorageError> {
        let (agent, stream) = (packet.agent.clone(), packet.stream.clone());
        let from = Some(CopiedFrom::of(&packet));
        let position = self.take_position(&packet).await?;
        let facts = packet.entry.facts;
        let checksum = packet.entry.raw_checksum;
        let size = u64::from(packet.entry.raw_size);
        let charge = packet_charge(size);
        // Wait for the pushes of this copy first, and then for those of everybody else.
        let permit = loop {
            match self.transfer.ingest.budget.try_acquire(charge) {
                Ok(permit) => break permit,
                Err(_) if !self.pending.is_empty() => self.wait_for_oldest().await?,
                Err(_) => {
                    self.progress.check()?;
                    tokio::time::sleep(ROOM_WAIT).await;
                }
            }
        };
        let payload = self
            .transfer
            .reading
            .read_payload(self.source.id, packet)
            .await?;
        let packets = vec![NewPacket {
            position,
            payload,
            checksum,
            facts,
        }];
        let push = Push {
            agent,
            stream,
            packets,
            permit,
        };
        let push = self.transfer.ingest.submit(self.target, push).await?;
        self.pending.push_back(CopyPush { from, push });
        self.report.packets = self.report.packets.saturating_add(1);
        self.report.bytes = self.report.bytes.saturating_add(size);
        while self.pending.len() >= PENDING_MAX {
            self.wait_for_oldest().await?;
        }
        Ok(())
    }

    /// Waits for the oldest push.
    async fn wait_for_oldest(&mut self) -> Result<(), StorageError> {
        match self.pending.pop_front() {
            Some(pending) => pending.wait_durable(self.listener.as_ref()).await,
            None => Ok(()),
        }
    }

    /// The position of the next packet of a stream; a later one is returned by the next call.
    async fn take_position(&mut self, packet: &PacketInfo) -> Result<StreamPosition, StorageError> {
        let key = (packet.agent.clone(), packet.stream.clone());
        if let Some(next) = self.next_positions.get_mut(&key) {
            let position = *next;
            *next = position.next();
            return Ok(position);
        }
        declare(self.transfer, &self.source, packet).await?;
        let (agent, stream) = &key;
        let last = self
            .transfer
            .ingest
            .next_position(self.target, agent, stream)
            .await?;
        let epoch = now_ns().unsigned_abs().max(last.epoch.saturating_add(1));
        let first = StreamPosition::new(epoch, 0);
        self.next_positions.insert(key, first.next());
        Ok(first)
    }
}

/// Registers agent and stream if the storage was imported and they are unknown.
async fn declare(
    transfer: &Transfer,
    source: &Arc<Storage>,
    packet: &PacketInfo,
) -> Result<(), StorageError> {
    let agents = &transfer.agents;
    if packet.kind == Kind::Ctf && agents.get(&packet.agent).is_ok() {
        check_metadata(transfer, source, &packet.agent).await?;
    }
    if let Ok(known) = agents.stream(&packet.agent, &packet.stream) {
        // The same names may mean something else on the server that exported the storage.
        return if known.kind == packet.kind {
            Ok(())
        } else {
            Err(StorageError::StreamKindConflict {
                agent: packet.agent.clone(),
                stream: packet.stream.clone(),
                declared: known.kind,
                wanted: packet.kind,
            })
        };
    }
    let file = agent_file(transfer, source, &packet.agent).await?;
    if agents.get(&packet.agent).is_err() {
        let spec = AgentSpec {
            id: file.id.clone(),
            name: file.name,
            host: file.host,
            attributes: file.attributes,
        };
        agents.register(spec).await?;
        if let Some(metadata) = file.metadata {
            agents.set_metadata(&file.id, metadata.into()).await?;
        }
    }
    let mut streams = file.streams.into_iter();
    let spec: Option<StreamSpec> = streams.find(|spec| spec.id == packet.stream);
    let spec = spec.ok_or_else(|| StorageError::StreamNotFound {
        agent: packet.agent.clone(),
        stream: packet.stream.clone(),
    })?;
    agents.declare_stream(&packet.agent, spec).await?;
    Ok(())
}

/// Packets are decoded with the metadata that their agent has in their storage. A copy gets the
/// metadata that the agent has on this server, so the two must be the same.
async fn check_metadata(
    transfer: &Transfer,
    source: &Arc<Storage>,
    agent: &AgentId,
) -> Result<(), StorageError> {
    if source.state() != StorageState::Finalized {
        // It has no metadata yet.
        return Ok(());
    }
    let there = agent_file(transfer, source, agent).await?.metadata;
    let here = transfer.agents.metadata(agent).await?;
    match (here, there) {
        (Some(here), there) if there.as_ref() != Some(&here) => {
            Err(StorageError::AgentMetadataConflict(agent.clone()))
        }
        (None, Some(there)) => transfer.agents.set_metadata(agent, there.into()).await,
        _ => Ok(()),
    }
}

async fn agent_file(
    transfer: &Transfer,
    source: &Arc<Storage>,
    agent: &AgentId,
) -> Result<AgentFile, StorageError> {
    if source.state() != StorageState::Finalized {
        return Err(StorageError::AgentNotFound(agent.clone()));
    }
    let (source, agent) = (Arc::clone(source), agent.clone());
    let read = move || source.agent_file(&agent);
    transfer.blocking.run(Cause::Query, read).await
}
