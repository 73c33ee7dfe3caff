//! Drains the tracer into packets, and the packets into their storage.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use io_trace::{Record, Tracer};
use storage_core::{Engine, NewPacket, Push, StorageError};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use trace_events::io_trace::{Begin, Encoded, Encoder, End};
use trace_format::frame::Facts;
use trace_format::{AgentId, StorageId, StreamId};

use super::{AGENT, IoTraceError, Mode, Reason, STREAM, State, Status, wall_clock};

/// How often buffers are drained.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of a packet that is full.
const PACKET_BYTES: usize = 512 << 10;

/// A packet that is not full is pushed after this long: what a crash may cost.
const PACKET_AGE_MAX: Duration = Duration::from_secs(1);

/// How long a push waits for room among the bytes under way, and how often it looks.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
const ROOM_INTERVAL: Duration = Duration::from_millis(5);

/// The producer epoch of a trace: each has a storage of its own.
const EPOCH: u64 = 1;

pub(super) struct Collector {
    engine: Engine,
    tracer: Arc<Tracer>,
    storage: StorageId,
    agent: AgentId,
    stream: StreamId,
    status: Arc<parking_lot::Mutex<Status>>,
    mode: Mode,
    bytes_max: u64,
    encoder: Encoder,
    /// Packets that wait for the end (ring).
    ring: VecDeque<Encoded>,
    next_sequence: u64,
    last_packet: Instant,
    records: Vec<Record>,
}

impl Collector {
    pub(super) fn new(
        engine: &Engine,
        storage: StorageId,
        begin: &Begin,
        status: Arc<parking_lot::Mutex<Status>>,
    ) -> Result<Self, IoTraceError> {
        let (mode, bytes_max) = {
            let status = status.lock();
            (status.mode, status.bytes_max)
        };
        Ok(Self {
            engine: engine.clone(),
            tracer: Arc::clone(engine.tracer()),
            storage,
            agent: AGENT.parse()?,
            stream: STREAM.parse()?,
            status,
            mode,
            bytes_max,
            encoder: Encoder::new(begin),
            ring: VecDeque::new(),
            next_sequence: 0,
            last_packet: Instant::now(),
            records: Vec::new(),
        })
    }

    /// Collects until it is told to stop, the limit is reached, or the storage fails.
    pub(super) async fn run(mut self, mut stopped: oneshot::Receiver<Reason>) {
        let mut ticks = interval(DRAIN_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = loop {
            let told = tokio::select! {
                biased;
                // Whoever could stop it went away together with the server.
                reason = &mut stopped => Some(reason.unwrap_or(Reason::Shutdown)),
                _ = ticks.tick() => None,
            };
            if let Some(reason) = told {
                break Ok(reason);
            }
            match self.collect().await {
                Ok(None) => {}
                Ok(Some(reason)) => break Ok(reason),
                Err(error) => break Err(error),
            }
        };
        self.tracer.stop();
        let ended = match ended {
            Ok(reason) => self.finish(reason).await.map(|()| reason),
            Err(error) => Err(error),
        };
        // What could be written is a trace, too; what could not is told in the status.
        let finalized = self.engine.finalize_storage(self.storage).await;
        let mut status = self.status.lock();
        status.state = State::Ended;
        status.ended = Some(wall_clock());
        status.reason = Some(*ended.as_ref().unwrap_or(&Reason::Failed));
        if let Some(error) = ended.err().or(finalized.err()) {
            tracing::error!(%error, storage = %self.storage, "the I/O trace is not whole");
            status.error = Some(error.to_string());
        } else {
            let operations = status.drained.recorded;
            tracing::info!(storage = %self.storage, operations, "the I/O trace ended");
        }
    }

    /// Drains the buffers once; says why the trace is to end, when it is.
    async fn collect(&mut self) -> Result<Option<Reason>, StorageError> {
        let mut records = std::mem::take(&mut self.records);
        let drained = self.tracer.drain(&mut records);
        self.status.lock().drained = drained;
        for record in records.drain(..) {
            self.encoder.put(&record);
            if self.encoder.bytes() >= PACKET_BYTES && self.emit().await? {
                return Ok(Some(Reason::Limit));
            }
        }
        self.records = records;
        let is_old = self.last_packet.elapsed() >= PACKET_AGE_MAX;
        if is_old && self.encoder.bytes() > 0 && self.emit().await? {
            return Ok(Some(Reason::Limit));
        }
        Ok(None)
    }

    /// Ends the packet; true when there is no room for another.
    async fn emit(&mut self) -> Result<bool, StorageError> {
        self.last_packet = Instant::now();
        let drained = self.status.lock().drained;
        let packet = self.encoder.finish(&drained);
        let length = packet.bytes.len() as u64;
        let is_first = self.next_sequence == 0;
        let bytes = {
            let mut status = self.status.lock();
            status.bytes += length;
            status.packets += 1;
            status.bytes
        };
        if self.mode == Mode::StopAtLimit || is_first {
            // How the trace was started is never given up.
            self.push(packet).await?;
        } else {
            self.ring.push_back(packet);
            self.give_up_oldest();
        }
        // The next packet may be as long as this one can be, and one more record.
        Ok(self.mode == Mode::StopAtLimit && bytes + 2 * PACKET_BYTES as u64 > self.bytes_max)
    }

    fn give_up_oldest(&mut self) {
        let mut status = self.status.lock();
        while status.bytes > self.bytes_max {
            let Some(oldest) = self.ring.pop_front() else {
                return;
            };
            status.bytes -= oldest.bytes.len() as u64;
            status.packets -= 1;
            status.overwritten += oldest.events;
        }
    }

    /// Writes what is left, and how the trace ended.
    async fn finish(&mut self, reason: Reason) -> Result<(), StorageError> {
        let mut records = std::mem::take(&mut self.records);
        let drained = self.tracer.drain(&mut records);
        self.status.lock().drained = drained;
        if reason != Reason::Limit {
            for record in records.drain(..) {
                self.encoder.put(&record);
                if self.encoder.bytes() >= PACKET_BYTES {
                    self.emit().await?;
                }
            }
            if self.encoder.bytes() > 0 {
                self.emit().await?;
            }
        }
        while let Some(packet) = self.ring.pop_front() {
            self.push(packet).await?;
        }
        let end = End {
            reason: reason.name(),
            drained,
            overwritten: self.status.lock().overwritten,
            clock: self.tracer.now(),
        };
        let packet = self.encoder.end(&end);
        {
            let mut status = self.status.lock();
            status.bytes += packet.bytes.len() as u64;
            status.packets += 1;
        }
        self.push(packet).await
    }

    /// Makes a packet durable.
    async fn push(&mut self, packet: Encoded) -> Result<(), StorageError> {
        let facts = Facts {
            time_span: packet.time_span,
            events: u32::try_from(packet.events).ok(),
            lost: u32::try_from(packet.dropped).ok(),
        };
        let deadline = Instant::now() + ROOM_WAIT_MAX;
        let permit = loop {
            match self.engine.budget().try_acquire(packet.bytes.len() as u64) {
                Ok(permit) => break permit,
                Err(error) if Instant::now() >= deadline => return Err(error),
                // Others are being written; meanwhile the buffers fill, and count what they drop.
                Err(_) => sleep(ROOM_INTERVAL).await,
            }
        };
        let push = Push {
            agent: self.agent.clone(),
            stream: self.stream.clone(),
            packets: vec![NewPacket::new(
                EPOCH,
                self.next_sequence,
                packet.bytes.into(),
                facts,
            )],
            permit,
        };
        let outcome = self.engine.submit(self.storage, push).await?.await;
        self.next_sequence += 1;
        outcome.refused.map_or(Ok(()), Err)
    }
}
