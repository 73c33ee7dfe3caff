//! Packets pushed without a storage: into the buffer, and to the recordings that accept them.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use recording::{HandedOut, Packet, Recorded, Recorder};
use storage_core::{BytePermit, Quotas, StorageError, check_position, packet_charge};
use storage_format::frame::Facts;
use storage_format::{AgentId, Kind, StorageId, StreamId, StreamPosition};
use trace_kinds::StreamContext;
use trace_kinds::dft::TimeUnit;

use super::admission::{Reservation, is_busy};
use super::body::BodyReader;
use super::encoding::ContentEncoding;
use super::error::IngestError;
use super::facts::FactsReader;
use super::push::{Pusher, is_batch, position, prefers_async};
use super::records::Records;
use super::shares::RequestShares;
use super::target::Target;
use crate::problem::Problem;
use crate::receipts::Receipts;

/// Packets of one request that wait for the disk at once.
const WAITING_MAX: usize = 64;

/// A submitted packet and its pending receipts, one per storage.
struct Waiting {
    position: StreamPosition,
    recorded: Vec<Recorded>,
    handed_out: Option<HandedOut>,
}

/// The packets of one request.
struct FanOut<'a> {
    recorder: &'a Recorder,
    quotas: &'a Quotas,
    shares: RequestShares,
    agent: AgentId,
    stream: StreamId,
    kind: Kind,
    context: Arc<StreamContext>,
    /// Whether the agent waits until its packets are durable.
    waits: bool,
    waiting: VecDeque<Waiting>,
    receipts: Receipts,
}

impl Pusher {
    /// Reads the body of one request and passes its packets to the buffer and the recordings. A
    /// packet has a receipt for each storage that it was written to; a packet that no recording
    /// accepted has one receipt that is not durable.
    pub(crate) async fn fan_out(
        &self,
        recorder: &Recorder,
        (agent, stream): (AgentId, StreamId),
        head: &Parts,
        body: Body,
    ) -> Result<Receipts, Problem> {
        let headers = &head.headers;
        let encoding = ContentEncoding::of(headers)?;
        let waits = !prefers_async(headers);
        let window = (self.limits.zstd_window_bytes_max, &self.decoders);
        let target = Target {
            // Facts are remembered per stream, and the buffer belongs to no storage.
            storage: StorageId::from_bytes([0; 16]),
            agent: agent.clone(),
            stream: stream.clone(),
        };
        let kind = self.kind(&target)?;
        let (mut facts, context) = self.reader(&target, kind).await?;
        let mut fan = FanOut {
            recorder,
            quotas: self.engine.quotas(),
            shares: self.shares.of(&head.extensions),
            context,
            agent,
            stream,
            kind,
            waits,
            waiting: VecDeque::new(),
            receipts: self.receipts(waits),
        };
        if !is_batch(headers)? {
            let position = position(headers)?;
            let max = self.limits.packet_bytes_max;
            let body_reader = BodyReader::new(body, encoding, window, "packet", max)?;
            return self.fan_out_one(fan, facts, position, body_reader).await;
        }
        let max = self.limits.request_bytes_max;
        let body_reader = BodyReader::new(body, encoding, window, "body", max)?;
        let mut records = Records::new(
            body_reader,
            self.limits.packet_bytes_max,
            u64::from(self.limits.batch_packets_max),
        );
        let submitted = async {
            while let Some(header) = records.head().await? {
                let charge = packet_charge(u64::from(header.length));
                let mut reservation = self.reserve_for(&mut fan, charge).await?;
                let payload = records.payload(&header, &mut reservation).await?;
                self.arrived(1, payload.len() as u64);
                let position = header.position;
                let packet_facts = facts.of(position, &payload);
                fan.set_unit(facts.unit());
                let now = storage_core::clock::now_ns();
                fan.submit(
                    position,
                    payload,
                    packet_facts,
                    now,
                    reservation.into_permit(),
                )
                .await?;
            }
            Ok(())
        };
        let submitted = submitted.await;
        fan.receipts.set_unreadable(facts.unreadable());
        fan.finish(submitted).await
    }

    async fn fan_out_one(
        &self,
        mut fan: FanOut<'_>,
        mut facts: FactsReader<'_>,
        position: StreamPosition,
        body_reader: BodyReader,
    ) -> Result<Receipts, Problem> {
        let budget = self.engine.budget();
        let holder = fan.shares.holder(fan.agent.as_str());
        let mut reservation =
            Reservation::wait_for_packet(budget, holder, body_reader.reserved_bytes()).await?;
        let payload = body_reader.read_all(&mut reservation, holder).await?;
        if payload.is_empty() {
            return Err(IngestError::Empty.into());
        }
        self.arrived(1, payload.len() as u64);
        let packet_facts = facts.of(position, &payload);
        fan.set_unit(facts.unit());
        fan.receipts.set_unreadable(facts.unreadable());
        let now = storage_core::clock::now_ns();
        let permit = reservation.into_packet_permit(payload.len());
        let submitted = fan
            .submit(position, payload, packet_facts, now, permit)
            .await;
        fan.finish(submitted).await
    }

    /// Reserves memory for a packet: free memory, or what earlier packets of this request return.
    async fn reserve_for(&self, fan: &mut FanOut<'_>, bytes: u64) -> Result<Reservation, Problem> {
        let budget = self.engine.budget();
        loop {
            let holder = fan.shares.holder(fan.agent.as_str());
            match Reservation::try_new(budget, holder, bytes) {
                Err(error) if is_busy(&error) && !fan.waiting.is_empty() => {
                    fan.finish_oldest().await?;
                }
                Err(error) if is_busy(&error) => {
                    return Ok(Reservation::wait_for(budget, holder, bytes).await?);
                }
                submitted => return Ok(submitted?),
            }
        }
    }
}

impl FanOut<'_> {
    /// Sets the time unit of the packet, as far as the stream has declared it.
    fn set_unit(&mut self, unit: Option<TimeUnit>) {
        let unit = unit.unwrap_or_default();
        if unit != self.context.unit {
            self.context = Arc::new(StreamContext {
                unit,
                ..StreamContext::clone(&self.context)
            });
        }
    }

    async fn submit(
        &mut self,
        position: StreamPosition,
        payload: Bytes,
        facts: Facts,
        arrival: i64,
        permit: BytePermit,
    ) -> Result<(), Problem> {
        // Before the packet enters the buffer, from which no storage would take it.
        check_position(position)?;
        self.quotas.check(&self.agent)?;
        let packet = Packet {
            agent: self.agent.clone(),
            stream: self.stream.clone(),
            kind: self.kind,
            position: Some(position),
            payload,
            facts,
            arrival,
            context: Arc::clone(&self.context),
        };
        let delivered = self.recorder.push(packet, permit, self.waits).await?;
        self.waiting.push_back(Waiting {
            position,
            recorded: delivered.recorded,
            handed_out: delivered.handed_out,
        });
        if self.waiting.len() > WAITING_MAX {
            self.finish_oldest().await?;
        }
        Ok(())
    }

    /// Waits for the receipts of the oldest packet.
    async fn finish_oldest(&mut self) -> Result<(), Problem> {
        let Some(Waiting {
            position,
            recorded,
            handed_out,
        }) = self.waiting.pop_front()
        else {
            return Ok(());
        };
        let mut is_durable = false;
        let mut refused = None;
        for Recorded {
            storage,
            pending,
            is_duplicate,
        } in recorded
        {
            let outcome = pending.await;
            for receipt in &outcome.receipts {
                is_durable = true;
                self.receipts.add_for(storage, receipt);
            }
            match outcome.refused {
                None => {}
                // The storage did not accept the packet when it was pushed first.
                Some(
                    StorageError::SequenceGap { .. }
                    | StorageError::EpochStale { .. }
                    | StorageError::PacketLeftOut { .. }
                    | StorageError::RepeatMissing { .. },
                ) if is_duplicate => {}
                Some(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            self.recorder
                .refused(&self.agent, &self.stream, position)
                .await;
            return Err(error.into());
        }
        if !is_durable {
            self.receipts.add_not_durable(position);
        }
        if let Some(handed_out) = handed_out {
            handed_out.acknowledged();
        }
        Ok(self.receipts.reserve().await?)
    }

    /// Waits for all submitted packets and returns the first error.
    async fn finish(mut self, submitted: Result<(), Problem>) -> Result<Receipts, Problem> {
        let mut finished = Ok(());
        while !self.waiting.is_empty() {
            finished = finished.and(self.finish_oldest().await);
        }
        match finished.and(submitted) {
            Ok(()) => Ok(self.receipts),
            Err(problem) => Err(problem.receipts(self.receipts)),
        }
    }
}
