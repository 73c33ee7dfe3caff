//! Pushing packets into a storage: one, or many as they arrive.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use http::HeaderMap;
use storage_core::{Accepted, Engine, NewPacket, PendingPush, Push, PushOutcome, StorageError};
use storage_format::{Kind, StreamPosition, batch};
use trace_kinds::StreamContext;

use super::admission::Reservation;
use super::body::BodyReader;
use super::encoding::ContentEncoding;
use super::error::IngestError;
use super::facts::{FactsReader, FactsReaders};
use super::metadata::MetadataCache;
use super::records::Records;
use super::target::Target;
use crate::config::{BenchConfig, IngestConfig};
use crate::media_type::media_type;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::receipts::Receipts;

/// Packets of a batch are passed to the engine in groups of about this many bytes, and at most this
/// many packets.
const GROUP_BYTES: u64 = 512 << 10;
const GROUP_PACKETS_MAX: usize = 1024;
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
}

impl Pusher {
    pub(crate) fn new(
        engine: Engine,
        metrics: Arc<Metrics>,
        limits: IngestConfig,
        bench: BenchConfig,
    ) -> Self {
        Self {
            engine,
            metrics,
            limits,
            bench,
            facts: FactsReaders::default(),
            traces: MetadataCache::default(),
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
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Receipts, Problem> {
        let encoding = ContentEncoding::of(headers)?;
        let waits = !prefers_async(headers);
        let window = self.limits.zstd_window_bytes_max;
        // Agent, stream and storage are checked before the body is read.
        let kind = self.kind(&target)?;
        if is_batch(headers)? {
            let max = self.limits.request_bytes_max;
            let body_reader = BodyReader::new(body, encoding, window, "body", max)?;
            self.push_many(&target, kind, body_reader, waits).await
        } else {
            let position = position(headers)?;
            let max = self.limits.packet_bytes_max;
            let body_reader = BodyReader::new(body, encoding, window, "packet", max)?;
            self.push_one(&target, kind, position, body_reader, waits)
                .await
        }
    }

    /// The kind of the stream.
    pub(super) fn kind(&self, target: &Target) -> Result<Kind, StorageError> {
        let agent = self.engine.agents().get(&target.agent)?;
        let stream = agent.stream(&target.stream);
        stream
            .map(|stream| stream.kind)
            .ok_or_else(|| StorageError::StreamNotFound {
                agent: target.agent.clone(),
                stream: target.stream.clone(),
            })
    }

    async fn push_one(
        &self,
        target: &Target,
        kind: Kind,
        position: StreamPosition,
        body_reader: BodyReader,
        waits: bool,
    ) -> Result<Receipts, Problem> {
        let budget = self.engine.budget();
        let mut reservation =
            Reservation::wait_for(budget, target.agent.as_str(), body_reader.reserved_bytes())
                .await?;
        let payload = body_reader.read_all(&mut reservation).await?;
        if payload.is_empty() {
            return Err(IngestError::Empty.into());
        }
        self.arrived(1, payload.len() as u64);
        let mut receipts = Receipts::new(waits);
        if self.bench.discard {
            receipts.add_not_durable(position);
            return Ok(receipts);
        }
        let (mut facts, _) = self.reader(target, kind).await?;
        let facts = facts.of(position, &payload);
        let permit = reservation.into_packet_permit(payload.len());
        let push = Push {
            agent: target.agent.clone(),
            stream: target.stream.clone(),
            packets: vec![NewPacket::new(position, payload, facts)],
            permit,
        };
        if waits {
            let pending = self.engine.ingest().submit(target.storage, push).await?;
            add_receipts(pending.await, &mut receipts)?;
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
        target: &Target,
        kind: Kind,
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
            facts: self.reader(target, kind).await?.0,
            records,
            reservation: None,
            group: Vec::new(),
            group_bytes: 0,
            waits,
            waiting: VecDeque::new(),
            receipts: Receipts::new(waits),
        };
        let read = batch.read_records().await;
        // Packets that arrived before an error are submitted and remain stored.
        let submitted = batch.submit().await;
        let finished = batch.finish_groups().await;
        match finished.and(submitted).and(read) {
            Ok(()) => Ok(batch.receipts),
            Err(problem) => Err(problem.member("receipts", batch.receipts.into_value())),
        }
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
    facts: FactsReader<'a>,
    records: Records,
    /// Memory for the group and some packets after it.
    reservation: Option<Reservation>,
    group: Vec<NewPacket>,
    group_bytes: u64,
    /// Whether receipts wait for the disk.
    waits: bool,
    /// Groups that wait for the disk, in order.
    waiting: VecDeque<PendingPush>,
    receipts: Receipts,
}

impl Batch<'_> {
    /// Reads records until the end of the body or the first error.
    async fn read_records(&mut self) -> Result<(), Problem> {
        while let Some(header) = self.records.head().await? {
            let length = u64::from(header.length);
            self.reserve_for(length).await?;
            let payload = self.records.payload(&header).await?;
            self.group_bytes += length;
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
            if is_full || !self.records.is_buffered() {
                self.submit().await?;
            }
        }
        Ok(())
    }

    /// Reserves memory for one more packet of the group: from this request's reservation, from free
    /// memory, from packets of this request that complete, and at last from other requests.
    async fn reserve_for(&mut self, bytes: u64) -> Result<(), Problem> {
        if self
            .reservation
            .as_ref()
            .is_some_and(|reservation| reservation.left() >= self.group_bytes + bytes)
        {
            return Ok(());
        }
        self.submit().await?;
        self.reservation = None;
        let budget = self.pusher.engine.budget();
        let wanted = bytes.max(GROUP_BYTES);
        loop {
            match Reservation::try_new(budget, wanted)
                .or_else(|_| Reservation::try_new(budget, bytes))
            {
                Ok(reservation) => {
                    self.reservation = Some(reservation);
                    return Ok(());
                }
                Err(StorageError::Busy { .. }) => match self.waiting.pop_front() {
                    Some(pending) => self.finish_group(pending).await?,
                    None => {
                        let agent = self.target.agent.as_str();
                        self.reservation = Some(Reservation::wait_for(budget, agent, bytes).await?);
                        return Ok(());
                    }
                },
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Passes the group to the engine.
    async fn submit(&mut self) -> Result<(), Problem> {
        let Some(reservation) = self.reservation.as_mut().filter(|_| !self.group.is_empty()) else {
            return Ok(());
        };
        let packets = std::mem::take(&mut self.group);
        let bytes = std::mem::take(&mut self.group_bytes);
        self.pusher.arrived(packets.len() as u64, bytes);
        if self.pusher.bench.discard {
            for packet in &packets {
                self.receipts.add_not_durable(packet.position);
            }
            return Ok(());
        }
        let push = Push {
            agent: self.target.agent.clone(),
            stream: self.target.stream.clone(),
            packets,
            permit: reservation.split(bytes),
        };
        let (engine, storage) = (&self.pusher.engine, self.target.storage);
        if !self.waits {
            let accepted = engine.ingest().submit_droppable(storage, push, false)?;
            return add_accepted(accepted, &mut self.receipts);
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
        add_receipts(pending.await, &mut self.receipts)
    }

    /// Waits for everything that was submitted, up to the first refusal.
    async fn finish_groups(&mut self) -> Result<(), Problem> {
        while let Some(pending) = self.waiting.pop_front() {
            self.finish_group(pending).await?;
        }
        Ok(())
    }
}

/// Adds the receipts of a group; the first refused packet ends the request.
fn add_receipts(outcome: PushOutcome, receipts: &mut Receipts) -> Result<(), Problem> {
    for receipt in &outcome.receipts {
        receipts.add(receipt);
    }
    match outcome.refused {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
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
