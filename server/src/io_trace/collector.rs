//! Moves the tracer's packets into their storage.

use std::sync::Arc;

use storage_core::{Engine, Ring, StorageError};
use storage_format::frame::Facts;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};
use trace_kinds::io_trace::Encoded;

use super::drain::{DRAIN_INTERVAL, Drainer};
use super::status::{Mode, Reason, State, Status};
use super::trace_storage::TraceStorage;
use crate::clock;

pub(super) struct Collector {
    engine: Engine,
    drainer: Drainer,
    storage: TraceStorage,
    status: Arc<parking_lot::Mutex<Status>>,
    mode: Mode,
    bytes_max: u64,
    /// The packets after the first one (ring).
    ring: Option<Ring>,
    /// Packets from before the storage was created.
    early: Vec<Encoded>,
}

impl Collector {
    pub(super) fn new(
        engine: &Engine,
        storage: TraceStorage,
        (drainer, early): (Drainer, Vec<Encoded>),
        status: Arc<parking_lot::Mutex<Status>>,
    ) -> Self {
        let (mode, bytes_max) = {
            let status = status.lock();
            (status.mode, status.bytes_max)
        };
        Self {
            engine: engine.clone(),
            drainer,
            storage,
            status,
            mode,
            bytes_max,
            ring: None,
            early,
        }
    }

    /// Collects until it is stopped, the limit is reached, or the storage fails.
    pub(super) async fn run(mut self, mut stopped: oneshot::Receiver<Reason>) {
        let mut ticks = interval(DRAIN_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = loop {
            let reason = tokio::select! {
                biased;
                // The handle that could stop it was dropped together with the server.
                reason = &mut stopped => Some(reason.unwrap_or(Reason::Shutdown)),
                _ = ticks.tick() => None,
            };
            if let Some(reason) = reason {
                break Ok(reason);
            }
            match self.collect().await {
                Ok(None) => {}
                Ok(Some(reason)) => break Ok(reason),
                Err(error) => break Err(error),
            }
        };
        self.engine.tracer().stop();
        let ended = match ended {
            Ok(reason) => self.finish(reason).await.map(|()| reason),
            Err(error) => Err(error),
        };
        // A partial trace is useful too; the status reports what could not be written.
        let id = self.storage.id();
        let finalized = match self.mode {
            // The packets in the ring are moved into the storage at the next start.
            Mode::Ring if ended.is_err() => Ok(()),
            _ => self.engine.storages().finalize(id).await.map(drop),
        };
        let mut status = self.status.lock();
        status.state = State::Ended;
        status.ended = Some(clock::now_ns());
        status.reason = Some(*ended.as_ref().unwrap_or(&Reason::Failed));
        if let Some(error) = ended.err().or(finalized.err()) {
            tracing::error!(
                %error,
                storage = %id,
                "the I/O trace is incomplete; see its storage for what was recorded"
            );
            status.error = Some(error.to_string());
        } else {
            let operations = status.drained.recorded;
            tracing::info!(
                storage = %id,
                operations,
                "the I/O trace ended; its storage is finalized"
            );
        }
    }

    /// Drains the buffers once; returns the reason if the trace is to end.
    async fn collect(&mut self) -> Result<Option<Reason>, StorageError> {
        let mut packets = std::mem::take(&mut self.early);
        packets.append(&mut self.drainer.drain(false));
        self.status.lock().drained = self.drainer.drained();
        for packet in packets {
            if self.emit(packet).await? {
                return Ok(Some(Reason::Limit));
            }
        }
        Ok(None)
    }

    /// Makes a packet durable; returns true if there is no space for another.
    async fn emit(&mut self, packet: Encoded) -> Result<bool, StorageError> {
        let length = packet.bytes.len() as u64;
        let before = self.status.lock().bytes;
        if self.mode == Mode::StopAtLimit || self.storage.is_empty() {
            // The first packet describes the start of the trace and is never overwritten.
            self.push(packet).await?;
        } else {
            self.append_to_ring(packet, before).await?;
        }
        self.count(length);
        let bytes = before + length;
        // The next packet may be as long as the longest one plus one record.
        let next = 2 * self.drainer.packet_bytes() as u64;
        Ok(self.mode == Mode::StopAtLimit && bytes + next > self.bytes_max)
    }

    /// Appends a packet to the ring; `pushed` bytes are in the storage when the ring begins.
    async fn append_to_ring(&mut self, packet: Encoded, pushed: u64) -> Result<(), StorageError> {
        let id = self.storage.id();
        let ring = match self.ring.take() {
            Some(ring) => ring,
            None => {
                let space = self.bytes_max.saturating_sub(pushed);
                self.engine.rings().begin(id, space).await?
            }
        };
        let facts = facts(&packet);
        let appended = self.engine.rings().append(ring, packet.bytes, facts).await;
        let (ring, overwritten) = appended?;
        self.ring = Some(ring);
        let mut status = self.status.lock();
        status.bytes -= overwritten.bytes;
        status.packets -= overwritten.blocks;
        status.overwritten += overwritten.events;
        Ok(())
    }

    /// Writes the remaining packets and a record of how the trace ended.
    async fn finish(&mut self, reason: Reason) -> Result<(), StorageError> {
        let mut packets = std::mem::take(&mut self.early);
        packets.append(&mut self.drainer.drain(true));
        self.status.lock().drained = self.drainer.drained();
        if reason != Reason::Limit {
            for packet in packets {
                self.emit(packet).await?;
            }
        }
        if self.ring.take().is_some() {
            self.storage.recover_ring().await?;
        }
        let overwritten = self.status.lock().overwritten;
        let packet = self.drainer.end(reason.name(), overwritten);
        let length = packet.bytes.len() as u64;
        self.push(packet).await?;
        self.count(length);
        // The ring is no longer needed: its packets are in the storage.
        self.engine.rings().remove(self.storage.id()).await
    }

    /// Counts a durable packet of this many bytes.
    fn count(&self, bytes: u64) {
        let mut status = self.status.lock();
        status.bytes += bytes;
        status.packets += 1;
    }

    async fn push(&mut self, packet: Encoded) -> Result<(), StorageError> {
        let facts = facts(&packet);
        self.storage.push(packet.bytes.into(), facts).await
    }
}

fn facts(packet: &Encoded) -> Facts {
    Facts {
        time_span: packet.time_span,
        events: u32::try_from(packet.events).ok(),
        lost: u32::try_from(packet.dropped).ok(),
        time_basis: None,
        has_unreadable: false,
    }
}
