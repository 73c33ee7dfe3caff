//! The life of one recording: waiting for its time, recording, ending; and copies of the buffer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use storage_core::{BytePermit, Engine, PendingPush, PushOutcome, Selection, StorageError};
use storage_format::storage_file::StorageState;
use storage_format::{AgentId, StorageId};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::chain::Chain;
use crate::config::{Instant, ProcessorConfig, check_chain};
use crate::copy::chain_of;
use crate::packet::{OutPacket, Packet};
use crate::recorder::Recorder;
use crate::recording::{Arriving, Pulled, Recording};
use crate::sink::Sink;
use crate::spec::{Counting, RecordingState, add};
use crate::{ConfigError, RecordingError};

/// Time passes in steps of this for chains.
const TICK: Duration = Duration::from_millis(250);
/// Derived packets of one recording on their way to the disk at once.
const DERIVED_WAITING_MAX: usize = 64;
/// Packets from this size on go through a chain on a thread where that may take its time, bytes.
const LONG_BYTES: usize = 128 << 10;

/// Why a task ends.
enum End {
    /// The recording is over, and this is why.
    Over(String),
    /// The server stops; the recording goes on after its next start.
    Stopping,
}

/// Everything a recording has while it is on.
struct Running {
    engine: Engine,
    recording: Arc<Recording>,
    /// Away while it works on another thread.
    chain: Option<Chain>,
    sink: Sink,
    derived: FuturesUnordered<PendingPush>,
    /// A storage that refuses ends the recording.
    failure: Option<String>,
}

/// Lives the life of a recording from where it is.
pub(crate) async fn live(
    recorder: Recorder,
    recording: Arc<Recording>,
    mut stopping: watch::Receiver<bool>,
) {
    // Held to the end: whoever stops the recording waits until it is let go.
    let mut stop = recording.stop.subscribe();
    let end = match wait_for_start(&recording, &mut stop, &mut stopping).await {
        Some(end) => end,
        None => match Running::begin(&recorder, &recording).await {
            Err(error) => End::Over(error.to_string()),
            Ok((running, pulled)) => {
                recorder.keep_or_log().await;
                running.run(pulled, &mut stop, &mut stopping).await
            }
        },
    };
    let engine = &recorder.inner.engine;
    if let End::Over(mut reason) = end {
        let was_on = recording.state() == RecordingState::On;
        recording.close();
        let storage = recording.spec.storage;
        if was_on {
            if let Err(error) = engine.storages().end_recording(storage).await {
                tracing::warn!(%error, %storage, "the storage does not leave RECORDING");
            }
            if recording.spec.auto_finalize
                && let Err(error) = engine.storages().finalize(storage).await
            {
                reason = format!("{reason}; it could not be finalized: {error}");
            }
        }
        tracing::info!(recording = %recording.id, %storage, reason, "a recording ended");
        recording.end(storage_core::clock::now_ns(), reason);
        recorder.keep_or_log().await;
    }
    drop(stop);
}

/// Waits until the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A recorder that is gone has stopped.
    drop(stopping.wait_for(|stopping| *stopping).await);
}

/// Waits until the recording is to be on; gives an end that comes before.
async fn wait_for_start(
    recording: &Recording,
    stop: &mut watch::Receiver<Option<String>>,
    stopping: &mut watch::Receiver<bool>,
) -> Option<End> {
    loop {
        if let Some(reason) = stop.borrow_and_update().clone() {
            return Some(End::Over(reason));
        }
        if recording.state() == RecordingState::On || recording.is_pulled() {
            return None;
        }
        let start = recording.times().0;
        let left = start.map(|start| start.saturating_sub(storage_core::clock::now_ns()));
        if left.is_some_and(|left| left <= 0) {
            return None;
        }
        // Without a start there is a trigger, which changes `stop`.
        let left = left.map_or(3600, |left| left.unsigned_abs() / 1_000_000_000);
        tokio::select! {
            _ = stop.changed() => {}
            () = stopped(stopping) => return Some(End::Stopping),
            () = sleep(Duration::from_secs(left).max(Duration::from_millis(20))) => {}
        }
    }
}

impl Running {
    async fn begin(
        recorder: &Recorder,
        recording: &Arc<Recording>,
    ) -> Result<(Self, Pulled), RecordingError> {
        let inner = &recorder.inner;
        let engine = inner.engine.clone();
        let chain = Chain::new(&recording.spec.processors, recorder.waiting())?;
        engine
            .storages()
            .begin_recording(recording.spec.storage)
            .await?;
        let running = Self {
            sink: Sink::new(&engine, recording.spec.storage),
            recording: Arc::clone(recording),
            chain: Some(chain),
            derived: FuturesUnordered::new(),
            failure: None,
            engine,
        };
        let pulled = recording.begin(storage_core::clock::now_ns());
        Ok((running, pulled))
    }

    async fn run(
        mut self,
        Pulled {
            backlog,
            mut arriving,
        }: Pulled,
        stop: &mut watch::Receiver<Option<String>>,
        stopping: &mut watch::Receiver<bool>,
    ) -> End {
        for packet in backlog {
            let permit = self.engine.budget().nothing();
            if let Ok(pending) = self.take(&packet, permit, true).await {
                self.derived.extend(pending);
                self.settle_some().await;
            }
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ends = self.recording.times().1;
        let end = loop {
            if let Some(reason) = self.failure.take() {
                break End::Over(reason);
            }
            if let Some(reason) = stop.borrow_and_update().clone() {
                break End::Over(reason);
            }
            tokio::select! {
                () = stopped(stopping) => break End::Stopping,
                _ = stop.changed() => {}
                Some(outcome) = self.derived.next(), if !self.derived.is_empty() => {
                    self.settle(outcome);
                }
                _ = ticks.tick() => {
                    self.tick().await;
                    if ends.is_some_and(|ends| storage_core::clock::now_ns() >= ends) {
                        break End::Over("its time is over".to_owned());
                    }
                }
                Some(message) = arriving.recv() => self.arrived(message).await,
            }
        };
        self.finish(arriving).await;
        match self.failure.take() {
            Some(reason) if matches!(end, End::Over(_)) => End::Over(reason),
            _ => end,
        }
    }

    async fn tick(&mut self) {
        if self.engine.is_disk_low() {
            self.failure = Some("the disk is low".to_owned());
            return;
        }
        match self.engine.storages().get(self.recording.spec.storage) {
            Ok(info) if info.state == StorageState::Recording => {}
            Ok(info) => {
                self.failure = Some(format!("its storage is {}", info.state));
                return;
            }
            Err(error) => {
                self.failure = Some(error.to_string());
                return;
            }
        }
        let now = storage_core::clock::now_ns();
        let out = self.chain.as_mut().map(|chain| chain.tick(now));
        self.write_derived(out.unwrap_or_default()).await;
    }

    async fn arrived(&mut self, message: Arriving) {
        let Arriving {
            packet,
            permit,
            waits,
            reply,
        } = message;
        let taken = self.take(&packet, permit, waits).await;
        // Who asked may have gone; then nobody waits for the packets.
        let _ = reply.send(taken);
    }

    /// Sends a packet through the chain; gives what is on its way of the packet itself.
    async fn take(
        &mut self,
        packet: &Arc<Packet>,
        mut permit: BytePermit,
        waits: bool,
    ) -> Result<Vec<PendingPush>, StorageError> {
        let counting = &self.recording.counting;
        add(&counting.packets, 1);
        add(&counting.bytes, packet.payload.len() as u64);
        let out = self.run_chain(packet).await;
        let (own, derived): (Vec<_>, Vec<_>) =
            out.into_iter().partition(|packet| packet.derived.is_none());
        let mut pending = Vec::with_capacity(own.len());
        for packet in own {
            let permit = permit.split(packet.payload.len() as u64);
            let written = match waits {
                true => self.sink.write(packet, permit).await.map(Some),
                false => (self.sink.write_droppable(packet, permit).await).map(|()| None),
            };
            match written {
                Ok(push) => {
                    add(&self.recording.counting.written_packets, 1);
                    pending.extend(push);
                }
                Err(error) => {
                    self.note_failure(&error);
                    if is_over(&error) {
                        break;
                    }
                    return Err(error);
                }
            }
        }
        self.write_derived(derived).await;
        Ok(pending)
    }

    async fn run_chain(&mut self, packet: &Arc<Packet>) -> Vec<OutPacket> {
        let Some(mut chain) = self.chain.take() else {
            return Vec::new();
        };
        let (chain, out) = if packet.payload.len() < LONG_BYTES {
            let out = chain.take(packet);
            (Some(chain), out)
        } else {
            let packet = Arc::clone(packet);
            let worked = tokio::task::spawn_blocking(move || {
                let out = chain.take(&packet);
                (chain, out)
            });
            match worked.await {
                Ok((chain, out)) => (Some(chain), out),
                Err(_) => {
                    self.failure = Some("its chain failed; see the server's log".to_owned());
                    (None, Vec::new())
                }
            }
        };
        if let Some(chain) = &chain {
            let undecoded = &self.recording.counting.undecoded;
            undecoded.store(chain.undecoded(), std::sync::atomic::Ordering::Relaxed);
        }
        self.chain = chain;
        out
    }

    /// Writes what was derived; it becomes durable by itself, and nobody waits for it but the end
    /// of the recording.
    async fn write_derived(&mut self, packets: Vec<OutPacket>) {
        for packet in packets {
            let counting: &Counting = &self.recording.counting;
            add(&counting.derived_packets, 1);
            add(&counting.derived_bytes, packet.payload.len() as u64);
            let nothing = self.engine.budget().nothing();
            match self.sink.write(packet, nothing).await {
                Ok(pending) => self.derived.push(pending),
                Err(error) => {
                    add(&self.recording.counting.derived_refused, 1);
                    self.note_failure(&error);
                    return;
                }
            }
            self.settle_some().await;
        }
    }

    /// Waits while too much is on its way.
    async fn settle_some(&mut self) {
        while self.derived.len() > DERIVED_WAITING_MAX
            && let Some(outcome) = self.derived.next().await
        {
            self.settle(outcome);
        }
    }

    fn settle(&mut self, outcome: PushOutcome) {
        if let Some(error) = outcome.refused {
            add(&self.recording.counting.derived_refused, 1);
            self.note_failure(&error);
        }
    }

    /// What cannot get better by itself ends the recording.
    fn note_failure(&mut self, error: &StorageError) {
        match error {
            StorageError::Busy { .. } | StorageError::EarlierRefused | StorageError::Stopping => {}
            StorageError::DiskLow { .. } | StorageError::DiskFull { .. } => {
                self.failure = Some("the disk is low".to_owned());
            }
            error => self.failure = Some(error.to_string()),
        }
    }

    /// Takes what is on its way to the recording, and writes all that the chain still holds.
    async fn finish(&mut self, mut arriving: mpsc::Receiver<Arriving>) {
        self.recording.close();
        arriving.close();
        while let Some(message) = arriving.recv().await {
            self.arrived(message).await;
        }
        if let Some(mut chain) = self.chain.take()
            && let Ok(out) = tokio::task::spawn_blocking(move || chain.finish()).await
        {
            self.write_derived(out).await;
        }
        while let Some(outcome) = self.derived.next().await {
            self.settle(outcome);
        }
    }
}

/// Whether a storage will never take a packet again. Then the recording is over, and the packet is
/// none of its any more: its agent has nothing to send again.
fn is_over(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::StorageNotFound(_)
            | StorageError::WrongState { .. }
            | StorageError::Failed { .. }
    )
}

/// What is to be copied out of the buffer, and where to.
#[derive(Debug, Clone, PartialEq)]
pub struct CopySpec {
    /// The storage; CREATED ones are opened.
    pub storage: StorageId,
    /// Only what comes from these; empty for all.
    pub agents: Vec<AgentId>,
    /// Only packets that may hold something from here on.
    pub from: Option<Instant>,
    /// Only packets that may hold something before this.
    pub to: Option<Instant>,
    /// Only what matches this, as the processor `query` has it.
    pub query: Option<String>,
    /// What is done with each.
    pub processors: Vec<ProcessorConfig>,
    /// Whether the storage is finalized then.
    pub auto_finalize: bool,
}

impl CopySpec {
    /// The whole chain: the query in front of the processors.
    fn chain(&self) -> Vec<ProcessorConfig> {
        chain_of(self.query.as_ref(), &self.processors)
    }

    fn frame(&self) -> Result<(Option<i64>, Option<i64>), ConfigError> {
        let nanos = |instant: Option<&Instant>| instant.map(Instant::nanos).transpose();
        Ok((nanos(self.from.as_ref())?, nanos(self.to.as_ref())?))
    }

    /// Refuses what could not run.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_chain(&self.chain())?;
        self.frame().map(drop)
    }
}

/// What a copy wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// Packets that were chosen.
    pub chosen_packets: u64,
    /// Packets that are durable in the storage now, derived ones among them.
    pub written_packets: u64,
    /// Their bytes before they were stored.
    pub written_bytes: u64,
}

impl Recorder {
    /// Writes what the buffer holds into a storage, through a chain. All that it counts is durable
    /// when it answers.
    ///
    /// # Errors
    /// When the chain could not run, or the storage does not take packets.
    pub async fn copy_buffer(&self, spec: CopySpec) -> Result<Copied, RecordingError> {
        let engine = &self.inner.engine;
        let mut chain = Chain::new(&spec.chain(), self.waiting())?;
        let (from, to) = spec.frame()?;
        let selection = Selection {
            from,
            to,
            limit: usize::MAX,
            ..Selection::default()
        };
        let mut chosen = self.buffered(&selection);
        chosen.retain(|packet| spec.agents.is_empty() || spec.agents.contains(&packet.agent));
        engine.storages().open(spec.storage).await?;
        let mut sink = Sink::new(engine, spec.storage);
        let mut copied = Copied {
            chosen_packets: chosen.len() as u64,
            ..Copied::default()
        };
        for packet in chosen {
            let worked = tokio::task::spawn_blocking(move || {
                let out = chain.take(&packet);
                (chain, out)
            });
            let failed = |_| ConfigError::new("processors", "the chain failed".to_owned());
            let (back, out) = worked.await.map_err(failed)?;
            chain = back;
            write_all(engine, &mut sink, out, &mut copied).await?;
        }
        write_all(engine, &mut sink, chain.finish(), &mut copied).await?;
        if spec.auto_finalize {
            engine.storages().finalize(spec.storage).await?;
        }
        Ok(copied)
    }
}

/// Writes packets and waits until they are durable.
async fn write_all(
    engine: &Engine,
    sink: &mut Sink,
    packets: Vec<OutPacket>,
    copied: &mut Copied,
) -> Result<(), StorageError> {
    let mut waiting = Vec::with_capacity(packets.len());
    for packet in packets {
        copied.written_packets += 1;
        copied.written_bytes += packet.payload.len() as u64;
        let nothing = engine.budget().nothing();
        waiting.push(sink.write(packet, nothing).await?);
    }
    for pending in waiting {
        if let Some(error) = pending.await.refused {
            return Err(error);
        }
    }
    Ok(())
}
