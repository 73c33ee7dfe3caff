//! Pushing packets into a storage: one, or many as they arrive.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use http::HeaderMap;
use http::request::Parts;
use storage_core::{
    Accepted, Engine, NewPacket, PendingPush, Push, PushOutcome, StorageError, packet_charge,
};
use storage_format::batch::RecordHeader;
use storage_format::{AgentId, Kind, StreamId, StreamPosition, batch, is_reserved};
use trace_kinds::StreamContext;

use super::admission::{Reservation, is_busy};
use super::body::BodyReader;
use super::encoding::{ContentEncoding, DecoderMemory};
use super::error::IngestError;
use super::facts::{FactsReader, FactsReaders};
use super::metadata::MetadataCache;
use super::records::Records;
use super::shares::{ProtocolShares, RequestShares};
use super::target::Target;
use crate::config::{BenchConfig, IngestConfig};
use crate::media_type::media_type;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::receipts::{ReceiptMemory, Receipts};

/// Packets of a batch are passed to the engine in groups of about this many bytes, and at most this
/// many packets.
const GROUP_BYTES: u64 = 512 << 10;
const GROUP_PACKETS_MAX: usize = 1024;
/// Memory that is reserved for a group: full groups of packets of 1 KiB and more fit.
const GROUP_RESERVED_BYTES: u64 = 832 << 10;
/// A request reserves at most this share of the budget for a group that has not arrived.
const GROUP_BUDGET_SHARE: u64 = 64;
/// Groups of one request that wait for the disk at once.
const GROUPS_WAITING_MAX: usize = 64;

/// Accepts bodies of packets.
pub(crate) struct Pusher {
    pub(super) engine: Engine,
    metrics: Arc<Metrics>,
    pub(super) limits: IngestConfig,
    bench: BenchConfig,
    facts: FactsReaders,
    traces: MetadataCache,
    receipt_memory: ReceiptMemory,
    pub(super) shares: ProtocolShares,
    pub(super) decoders: DecoderMemory,
}

impl Pusher {
    pub(crate) fn new(
        engine: Engine,
        metrics: Arc<Metrics>,
        limits: IngestConfig,
        bench: BenchConfig,
    ) -> Self {
        let limits_bytes = limits.in_flight_bytes_max;
        Self {
            shares: ProtocolShares::new("pushes of packets", &limits),
            decoders: DecoderMemory::new(limits.decoder_bytes_max()),
            engine,
            metrics,
            limits,
            bench,
            facts: FactsReaders::default(),
            traces: MetadataCache::default(),
            receipt_memory: ReceiptMemory::new(limits_bytes),
        }
    }

    /// The reader of facts for the packets of one request, and the context that decodes their
    /// events.
    pub(super) async fn reader(
        &self,
        target: &Target,
        kind: Kind,
    ) -> Result<(FactsReader<'_>, Arc<StreamContext>), StorageError> {
        let trace = self.traces.of(&self.engine, &target.agent, kind).await?;
        let context = Arc::clone(&trace.context);
        Ok((self.facts.stream(trace, target, kind), context))
    }

    /// Reads the body of one request and returns the receipts of its packets in order. All packets
    /// are durable, unless the agent does not wait for that (`Prefer: respond-async`).
    pub(crate) async fn push(
        &self,
        target: Target,
        head: &Parts,
        body: Body,
    ) -> Result<Receipts, Problem> {
        let headers = &head.headers;
        let encoding = ContentEncoding::of(headers)?;
        let waits = !prefers_async(headers);
        let window = (self.limits.zstd_window_bytes_max, &self.decoders);
        // Agent, stream and storage are checked before the body is read.
        let kind = self.kind(&target)?;
        self.engine.quotas().check(&target.agent)?;
        let shares = self.shares.of(&head.extensions);
        if is_batch(headers)? {
            let max = self.limits.request_bytes_max;
            let body_reader = BodyReader::new(body, encoding, window, "body", max)?;
            let of = (&target, kind, shares);
            self.push_many(of, body_reader, waits).await
        } else {
            let position = position(headers)?;
            let max = self.limits.packet_bytes_max;
            let body_reader = BodyReader::new(body, encoding, window, "packet", max)?;
            let of = (&target, kind, shares);
            self.push_one(of, position, body_reader, waits).await
        }
    }

    /// Counts a push that was refused for its stream.
    pub(crate) fn refused(&self, agent: &AgentId, stream: &StreamId, problem: &Problem) {
        let is_gap = problem.code() == "sequence_gap";
        self.engine.count_refused(agent, stream, is_gap);
    }

    /// The kind of the stream.
    pub(super) fn kind(&self, target: &Target) -> Result<Kind, StorageError> {
        let agent = self.engine.agents().get(&target.agent)?;
        let stream = agent.stream(&target.stream);
        let kind =
            stream
                .map(|stream| stream.kind)
                .ok_or_else(|| StorageError::StreamNotFound {
                    agent: target.agent.clone(),
                    stream: target.stream.clone(),
                })?;
        // A recording may have declared it.
        if is_reserved(kind, target.stream.as_str()) {
            return Err(StorageError::StreamReserved(target.stream.clone()));
        }
        Ok(kind)
    }

    async fn push_one(
        &self,
        (target, kind, shares): (&Target, Kind, RequestShares),
        position: StreamPosition,
        body_reader: BodyReader,
        waits: bool,
    ) -> Result<Receipts, Problem> {
        let budget = self.engine.budget();
        let holder = shares.holder(target.agent.as_str());
        let mut reservation =
            Reservation::wait_for_packet(budget, holder, body_reader.reserved_bytes()).await?;
        let payload = body_reader.read_all(&mut reservation, holder).await?;
        if payload.is_empty() {
            return Err(IngestError::Empty.into());
        }
        self.arrived(1, payload.len() as u64);
        let mut receipts = self.receipts(waits);
        if self.bench.discard {
            receipts.add_not_durable(position);
            return Ok(receipts);
        }
        storage_core::fault_point!(async "push.read");
        let (mut facts, _) = self.reader(target, kind).await?;
        let packet_facts = facts.of(position, &payload);
        receipts.set_unreadable(facts.unreadable());
        let permit = reservation.into_packet_permit(payload.len());
        let push = Push {
            agent: target.agent.clone(),
            stream: target.stream.clone(),
            packets: vec![NewPacket::new(position, payload, packet_facts)],
            permit,
        };
        if waits {
            let pending = self.engine.ingest().submit(target.storage, push).await?;
            if let Some(refused) = add_receipts(pending.await, &mut receipts).await? {
                return Err(refused.into());
            }
        } else {
            let accepted = self
                .engine
                .ingest()
                .submit_droppable(target.storage, push, false)?;
            add_accepted(accepted, &mut receipts)?;
        }
        Ok(receipts)
    }

    async fn push_many(
        &self,
        (target, kind, shares): (&Target, Kind, RequestShares),
        body_reader: BodyReader,
        waits: bool,
    ) -> Result<Receipts, Problem> {
        let records = Records::new(
            body_reader,
            self.limits.packet_bytes_max,
            u64::from(self.limits.batch_packets_max),
        );
        let mut batch = Batch {
            pusher: self,
            target,
            shares,
            facts: self.reader(target, kind).await?.0,
            records,
            reservation: None,
            group: Vec::new(),
            group_bytes: 0,
            group_charge: 0,
            waits,
            waiting: VecDeque::new(),
            refused: None,
            receipts: self.receipts(waits),
        };
        let read = batch.read_records().await;
        storage_core::fault_point!(async "push.many_read");
        // Packets that arrived before an error are submitted and remain stored.
        let submitted = batch.submit().await;
        let finished = batch.finish_groups().await;
        match finished.and(submitted).and(read) {
            Ok(()) => {
                batch.receipts.set_unreadable(batch.facts.unreadable());
                Ok(batch.receipts)
            }
            Err(problem) => Err(problem.receipts(batch.receipts)),
        }
    }

    /// No receipts yet, for a request.
    pub(super) fn receipts(&self, waits: bool) -> Receipts {
        Receipts::new(waits, &self.receipt_memory)
    }

    pub(super) fn arrived(&self, packets: u64, bytes: u64) {
        self.metrics.ingest_packets.inc_by(packets);
        self.metrics.ingest_bytes.inc_by(bytes);
    }
}

/// A body of many packets.
struct Batch<'a> {
    pusher: &'a Pusher,
    target: &'a Target,
    shares: RequestShares,
    facts: FactsReader<'a>,
    records: Records,
    /// Memory for the group and some packets after it.
    reservation: Option<Reservation>,
    group: Vec<NewPacket>,
    /// Payload bytes of the group, and what it takes of the budget.
    group_bytes: u64,
    group_charge: u64,
    /// Whether receipts wait for the disk.
    waits: bool,
    /// Groups that wait for the disk, in order.
    waiting: VecDeque<PendingPush>,
    /// The first refusal of a group, found while the next record was awaited.
    refused: Option<StorageError>,
    receipts: Receipts,
}

impl Batch<'_> {
    /// Reads records until the end of the body or the first error.
    async fn read_records(&mut self) -> Result<(), Problem> {
        while let Some(header) = self.next_header().await? {
            let length = u64::from(header.length);
            let charge = packet_charge(length);
            self.reserve_for(charge).await?;
            let payload = match &mut self.reservation {
                Some(reservation) => self.records.payload(&header, reservation).await?,
                None => return Err(StorageError::Stopping.into()),
            };
            self.group_bytes += length;
            self.group_charge += charge;
            let position = header.position;
            let facts = self.facts.of(position, &payload);
            self.group.push(NewPacket {
                position,
                payload,
                // Verified when the record was read.
                checksum: header.checksum,
                facts,
            });
            let is_full = self.group_bytes >= GROUP_BYTES || self.group.len() >= GROUP_PACKETS_MAX;
            // While the next record is in transit, the disk can write these.
            let is_buffered = self.records.is_buffered();
            if is_full || !is_buffered {
                self.submit().await?;
            }
            if !is_buffered {
                // Nobody waits for memory of a client that pauses.
                self.reservation = None;
            }
        }
        Ok(())
    }

    /// The header of the next record. While it is awaited, receipts of earlier groups are
    /// consumed, so that they take no memory for as long as a client pauses.
    async fn next_header(&mut self) -> Result<Option<RecordHeader>, Problem> {
        if self.waiting.is_empty() || self.records.is_buffered() {
            return Ok(self.records.head().await?);
        }
        let mut header = pin!(self.records.head());
        while self.refused.is_none()
            && let Some(pending) = self.waiting.front_mut()
        {
            tokio::select! {
                biased;
                header = &mut header => return Ok(header?),
                outcome = pending => {
                    self.waiting.pop_front();
                    self.refused = add_receipts(outcome, &mut self.receipts).await?;
                }
            }
        }
        Ok(header.await?)
    }

    /// Reserves memory for one more packet of the group: from this request's reservation, from free
    /// memory, from packets of this request that complete, and at last from other requests.
    async fn reserve_for(&mut self, bytes: u64) -> Result<(), Problem> {
        if self
            .reservation
            .as_ref()
            .is_some_and(|reservation| reservation.left() >= self.group_charge + bytes)
        {
            return Ok(());
        }
        self.submit().await?;
        self.reservation = None;
        let budget = self.pusher.engine.budget();
        let share = self.pusher.limits.in_flight_bytes_max / GROUP_BUDGET_SHARE;
        let wanted = bytes.max(GROUP_RESERVED_BYTES.min(share));
        loop {
            let holder = self.shares.holder(self.target.agent.as_str());
            match Reservation::try_new(budget, holder, wanted) {
                Ok(reservation) => {
                    self.reservation = Some(reservation);
                    return Ok(());
                }
                Err(error) if is_busy(&error) => match self.waiting.pop_front() {
                    Some(pending) => self.finish_group(pending).await?,
                    None => {
                        self.reservation =
                            Some(Reservation::wait_for(budget, holder, wanted).await?);
                        return Ok(());
                    }
                },
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Passes the group to the engine.
    async fn submit(&mut self) -> Result<(), Problem> {
        if let Some(refused) = self.refused.take() {
            // The groups that follow are refused as well.
            self.waiting.clear();
            return Err(refused.into());
        }
        let Some(reservation) = self.reservation.as_mut().filter(|_| !self.group.is_empty()) else {
            return Ok(());
        };
        self.pusher.engine.quotas().check(&self.target.agent)?;
        let packets = std::mem::take(&mut self.group);
        let bytes = std::mem::take(&mut self.group_bytes);
        let charge = std::mem::take(&mut self.group_charge);
        self.pusher.arrived(packets.len() as u64, bytes);
        if self.pusher.bench.discard {
            for packet in &packets {
                self.receipts.add_not_durable(packet.position);
            }
            return Ok(self.receipts.reserve().await?);
        }
        let push = Push {
            agent: self.target.agent.clone(),
            stream: self.target.stream.clone(),
            packets,
            permit: reservation.split(charge),
        };
        let (engine, storage) = (&self.pusher.engine, self.target.storage);
        if !self.waits {
            let accepted = engine.ingest().submit_droppable(storage, push, false)?;
            add_accepted(accepted, &mut self.receipts)?;
            return Ok(self.receipts.reserve().await?);
        }
        let pending = engine.ingest().submit(storage, push).await?;
        self.waiting.push_back(pending);
        if self.waiting.len() > GROUPS_WAITING_MAX
            && let Some(pending) = self.waiting.pop_front()
        {
            self.finish_group(pending).await?;
        }
        Ok(())
    }

    async fn finish_group(&mut self, pending: PendingPush) -> Result<(), Problem> {
        let refused = add_receipts(pending.await, &mut self.receipts).await?;
        refused.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Waits for everything that was submitted, up to the first refusal.
    async fn finish_groups(&mut self) -> Result<(), Problem> {
        while let Some(pending) = self.waiting.pop_front() {
            self.finish_group(pending).await?;
        }
        Ok(())
    }
}

/// Adds the receipts of a group; returns why a packet was refused, which ends the request.
async fn add_receipts(
    outcome: PushOutcome,
    receipts: &mut Receipts,
) -> Result<Option<StorageError>, StorageError> {
    for receipt in &outcome.receipts {
        receipts.add(receipt);
    }
    receipts.reserve().await?;
    Ok(outcome.refused)
}

/// Adds the accepted packets; the first refused packet ends the request.
fn add_accepted(accepted: Accepted, receipts: &mut Receipts) -> Result<(), Problem> {
    for packet in &accepted.packets {
        receipts.add_accepted(packet);
    }
    match accepted.refused {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
}

/// Whether the body has many packets; other media types are refused.
pub(super) fn is_batch(headers: &HeaderMap) -> Result<bool, IngestError> {
    let media_type = media_type(headers);
    if media_type.eq_ignore_ascii_case(batch::MEDIA_TYPE.as_bytes()) {
        Ok(true)
    } else if media_type.eq_ignore_ascii_case(b"application/octet-stream") {
        Ok(false)
    } else {
        let shown = String::from_utf8_lossy(&media_type[..media_type.len().min(64)]).into_owned();
        Err(IngestError::MediaTypeUnsupported(shown))
    }
}

/// Whether the agent does not wait until its packets are durable (RFC 7240 section 4.1).
pub(crate) fn prefers_async(headers: &HeaderMap) -> bool {
    let values = headers.get_all("prefer").iter();
    let mut preferences = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    preferences.any(|each| each.trim_ascii().eq_ignore_ascii_case(b"respond-async"))
}

/// Position of a single packet.
pub(super) fn position(headers: &HeaderMap) -> Result<StreamPosition, IngestError> {
    let number = |name: &'static str| {
        let value = headers.get(name).ok_or(IngestError::Header {
            name,
            what: "is missing",
        })?;
        let digits = value.to_str().ok().filter(|text| !text.starts_with('+'));
        digits
            .and_then(|digits| digits.parse().ok())
            .ok_or(IngestError::Header {
                name,
                what: "is not a 64-bit number",
            })
    };
    Ok(StreamPosition {
        epoch: number("tracehold-epoch")?,
        sequence: number("tracehold-sequence")?,
    })
}
