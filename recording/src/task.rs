//! The task of one recording: waits for the start, records, and ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use storage_core::{BytePermit, Engine, PendingPush, PushOutcome, StorageError, packet_charge};
use storage_format::storage_file::StorageState;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::RecordingError;
use crate::chain::Chain;
use crate::memory::MemoryShare;
use crate::packet::{OutPacket, Packet};
use crate::recording::{InboxPacket, Intake, Recording, Suspension};
use crate::registry::Registry;
use crate::sink::Sink;
use crate::spec::{Counters, RecordingState, add};

/// The interval at which the clock of a chain advances.
const TICK: Duration = Duration::from_millis(250);
/// Derived packets of one recording in flight to the disk.
const DERIVED_PENDING_MAX: usize = 64;
/// The shortest suspension after a write found no space, ns.
const FULL_NS: i64 = 5_000_000_000;
/// Packets of this size and larger pass the chain on a thread for blocking work, bytes.
const LONG_BYTES: usize = 128 << 10;

/// Why a task ends.
enum End {
    /// The recording has ended for this reason.
    Over(String),
    /// The server stops; the recording resumes after the next start.
    Stopping,
}

/// A packet that is durable or refused, with the memory that it took.
type Ended = (usize, PushOutcome);

/// A recording that is on.
struct Running {
    engine: Engine,
    recording: Arc<Recording>,
    /// `None` while it runs on another thread.
    chain: Option<Chain>,
    sink: Sink,
    derived: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// Memory of the packets in flight.
    in_flight: MemoryShare,
    /// Lets some of the chains work on long packets at the same time.
    working: Arc<Semaphore>,
    /// Derived packets that the storage refused for lack of disk space.
    parked: Vec<OutPacket>,
    /// Packets of the buffer to record before those that arrive.
    backlog: VecDeque<Arc<Packet>>,
    /// Why the recording has to end.
    failure: Option<String>,
}

/// Runs a recording from its current state to its end. `begun` gets a message when the recording
/// accepts packets, or cannot.
pub(crate) async fn run(
    registry: Arc<Registry>,
    recording: Arc<Recording>,
    mut stopping: watch::Receiver<bool>,
    begun: oneshot::Sender<Result<(), RecordingError>>,
) {
    // Dropped at the end: whoever stops the recording waits for that.
    let mut stop = recording.stop.subscribe();
    let end = match wait_for_start(&registry.engine, &recording, &mut stop, &mut stopping).await {
        Some(end) => end,
        None => match Running::begin(&registry, &recording).await {
            Err(error) => {
                let reason = error.to_string();
                // Nobody waits for a recording that was scheduled.
                let _ = begun.send(Err(error));
                End::Over(reason)
            }
            Ok((running, intake)) => {
                let _ = begun.send(Ok(()));
                storage_core::fault_point!(async "recording.on");
                registry.save_or_log().await;
                running.run(intake, &mut stop, &mut stopping).await
            }
        },
    };
    let engine = &registry.engine;
    if let End::Over(mut reason) = end {
        storage_core::fault_point!(async "recording.ending");
        let was_on = recording.state() == RecordingState::On;
        recording.close();
        let storage = recording.spec.storage;
        if was_on {
            if let Err(error) = engine.storages().end_recording(storage).await {
                tracing::warn!(
                    %error, %storage,
                    "the recording ended, but its storage is still in state RECORDING"
                );
            }
            storage_core::fault_point!(async "recording.storage_off");
            if recording.spec.auto_finalize
                && let Err(error) = engine.storages().finalize(storage).await
            {
                reason = format!("{reason}; the storage was not finalized: {error}");
            }
        }
        tracing::info!(recording = %recording.id, %storage, reason, "recording ended");
        storage_core::fault_point!(async "recording.finalized");
        recording.end(storage_core::clock::now_ns(), reason);
        registry.save_or_log().await;
    }
    drop(stop);
}

/// Waits until the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A recorder that was dropped has stopped.
    drop(stopping.wait_for(|stopping| *stopping).await);
}

/// Waits until the recording starts and its storage is recovered; returns an end that comes first.
async fn wait_for_start(
    engine: &Engine,
    recording: &Recording,
    stop: &mut watch::Receiver<Option<String>>,
    stopping: &mut watch::Receiver<bool>,
) -> Option<End> {
    loop {
        if let Some(reason) = stop.borrow_and_update().clone() {
            return Some(End::Over(reason));
        }
        let start = recording.times().0;
        let left = start.map(|start| start.saturating_sub(storage_core::clock::now_ns()));
        let is_on = recording.state() == RecordingState::On || recording.is_triggered();
        if is_on || left.is_some_and(|left| left <= 0) {
            tokio::select! {
                // Without the storage, the recording ends when it begins.
                _ = engine.storages().recovered(recording.spec.storage) => return None,
                () = stopped(stopping) => return Some(End::Stopping),
            }
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
        registry: &Registry,
        recording: &Arc<Recording>,
    ) -> Result<(Self, Intake), RecordingError> {
        let engine = registry.engine.clone();
        let chain = registry.chain(&recording.spec.processors)?;
        engine
            .storages()
            .begin_recording(recording.spec.storage)
            .await?;
        storage_core::fault_point!(async "recording.storage_on");
        let running = Self {
            sink: Sink::new(&engine, recording.spec.storage),
            recording: Arc::clone(recording),
            chain: Some(chain),
            derived: FuturesUnordered::new(),
            in_flight: registry.chain_memory.share(),
            working: Arc::clone(&registry.working),
            parked: Vec::new(),
            backlog: VecDeque::new(),
            failure: None,
            engine,
        };
        let intake = recording.begin(storage_core::clock::now_ns());
        Ok((running, intake))
    }

    async fn run(
        mut self,
        Intake {
            backlog,
            mut arriving,
        }: Intake,
        stop: &mut watch::Receiver<Option<String>>,
        stopping: &mut watch::Receiver<bool>,
    ) -> End {
        self.backlog = backlog.into();
        self.record_backlog().await;
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
                Some(ended) = self.derived.next(), if !self.derived.is_empty() => {
                    self.note_outcome(ended);
                }
                _ = ticks.tick() => {
                    self.tick().await;
                    self.record_backlog().await;
                    let now = storage_core::clock::now_ns();
                    // A suspended recording ends when it can write what it accepted.
                    if !self.is_suspended() && ends.is_some_and(|ends| now >= ends) {
                        break End::Over("the duration is over".to_owned());
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
        match self.engine.storages().get(self.recording.spec.storage) {
            Ok(info) if info.state == StorageState::Recording => {}
            Ok(info) => {
                self.failure = Some(format!("the storage is {}", info.state));
                return;
            }
            Err(error) => {
                self.failure = Some(error.to_string());
                return;
            }
        }
        let now = storage_core::clock::now_ns();
        self.suspend_or_resume(now);
        if self.is_suspended() {
            return;
        }
        let parked = std::mem::take(&mut self.parked);
        self.write_derived(parked).await;
        let out = self.chain.as_mut().map(|chain| chain.tick(now));
        self.write_derived(out.unwrap_or_default()).await;
    }

    fn is_suspended(&self) -> bool {
        self.recording.suspension().is_some()
    }

    /// Suspends the recording when the disk is low, and resumes it when there is space again.
    fn suspend_or_resume(&mut self, now: i64) {
        let is_low = self.engine.is_disk_low();
        match self.recording.suspension() {
            None if is_low => self.suspend(Suspension::DiskLow),
            Some(Suspension::DiskFull(_, since)) if now.saturating_sub(since) < FULL_NS => {}
            Some(_) if !is_low => {
                self.recording.suspend(None);
                tracing::info!(
                    recording = %self.recording.id, storage = %self.recording.spec.storage,
                    "there is enough free space; the recording resumes"
                );
            }
            _ => {}
        }
    }

    fn suspend(&self, suspension: Suspension) {
        if self.recording.suspend(Some(suspension.clone())).is_none() {
            tracing::warn!(
                recording = %self.recording.id, storage = %self.recording.spec.storage,
                ?suspension,
                "the disk is low; the recording is suspended and its senders are told to try again"
            );
        }
    }

    /// Records the packets of the buffer, until the disk is low.
    async fn record_backlog(&mut self) {
        while self.failure.is_none()
            && !self.is_suspended()
            && let Some(packet) = self.backlog.pop_front()
        {
            let permit = self.engine.budget().nothing();
            let bytes = packet.payload.len();
            match self.take(&packet, permit, true).await {
                Ok(Some(pending)) => {
                    for push in pending {
                        self.wait_for(push, bytes);
                    }
                    self.await_some().await;
                }
                Err(error) if is_disk(&error) => self.backlog.push_front(packet),
                Ok(None) | Err(_) => {}
            }
        }
    }

    async fn arrived(&mut self, message: InboxPacket) {
        let InboxPacket {
            packet,
            permit,
            waits,
            reply,
        } = message;
        // A refused packet must not pass the chain: it comes again.
        let pending = match self.recording.check_disk(&self.engine) {
            Ok(()) => self.take(&packet, permit, waits).await,
            Err(error) => Err(error),
        };
        storage_core::fault_point!(async "recording.taken");
        // If the request was cancelled, nobody waits for the packets.
        let _ = reply.send(pending);
    }

    /// Passes a packet through the chain; returns the pending writes of the packet itself, or
    /// `None` when its storage does not accept it any more.
    async fn take(
        &mut self,
        packet: &Arc<Packet>,
        mut permit: BytePermit,
        waits: bool,
    ) -> Result<Option<Vec<PendingPush>>, StorageError> {
        let counters = &self.recording.counters;
        add(&counters.packets, 1);
        add(&counters.bytes, packet.payload.len() as u64);
        let out = self.run_chain(packet).await;
        let (originals, derived): (Vec<_>, Vec<_>) =
            out.into_iter().partition(|packet| packet.derived.is_none());
        let mut pending = Vec::with_capacity(originals.len());
        for packet in originals {
            let permit = permit.split(packet_charge(packet.payload.len() as u64));
            let written = if waits {
                self.sink.write(packet, permit).await.map(Some)
            } else {
                (self.sink.write_droppable(packet, permit).await).map(|()| None)
            };
            match written {
                Ok(push) => {
                    add(&self.recording.counters.written_packets, 1);
                    pending.extend(push);
                }
                Err(error) => {
                    self.note_failure(&error);
                    if !is_over(&error) {
                        return Err(error);
                    }
                    if self.recording.spec.standing {
                        // The next one accepts it.
                        return Err(self.storage_gone());
                    }
                    return Ok(None);
                }
            }
        }
        self.write_derived(derived).await;
        Ok(Some(pending))
    }

    /// The refusal of a packet for a storage that was deleted, or that another node has taken over.
    fn storage_gone(&self) -> StorageError {
        StorageError::Superseded {
            storage: self.recording.spec.storage,
            reason: "it is not here any more, and the standing recording goes on in another one"
                .to_owned(),
        }
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
            let turn = Arc::clone(&self.working).acquire_owned().await;
            let worked = tokio::task::spawn_blocking(move || {
                let out = chain.take(&packet);
                drop(turn);
                (chain, out)
            });
            match worked.await {
                Ok((chain, out)) => (Some(chain), out),
                Err(_) => {
                    self.failure = Some("the chain failed; see the log of the server".to_owned());
                    (None, Vec::new())
                }
            }
        };
        if let Some(chain) = &chain {
            let undecoded = &self.recording.counters.undecoded;
            undecoded.store(chain.undecoded(), std::sync::atomic::Ordering::Relaxed);
        }
        self.chain = chain;
        out
    }

    /// Writes derived packets. Only the end of the recording waits until they are durable.
    async fn write_derived(&mut self, packets: Vec<OutPacket>) {
        let mut packets = packets.into_iter();
        while let Some(packet) = packets.next() {
            let recording = Arc::clone(&self.recording);
            let counters: &Counters = &recording.counters;
            let bytes = packet.payload.len() as u64;
            let nothing = self.engine.budget().nothing();
            match self.sink.write(packet.clone(), nothing).await {
                Ok(pending) => self.wait_for(pending, packet.payload.len()),
                Err(error) if is_disk(&error) => {
                    self.note_failure(&error);
                    self.parked.push(packet);
                    self.parked.extend(packets);
                    return;
                }
                Err(error) => {
                    self.note_failure(&error);
                    // Where the recording ends, nothing writes those after it.
                    let lost = match self.failure {
                        Some(_) => 1 + packets.by_ref().count() as u64,
                        None => 1,
                    };
                    add(&counters.derived_packets, lost);
                    add(&counters.derived_refused, lost);
                    continue;
                }
            }
            add(&counters.derived_packets, 1);
            add(&counters.derived_bytes, bytes);
            self.await_some().await;
        }
    }

    /// Counts the memory of a packet until it is durable.
    fn wait_for(&mut self, pending: PendingPush, bytes: usize) {
        self.in_flight.add(bytes);
        let ended = async move { (bytes, pending.await) };
        self.derived.push(Box::pin(ended));
    }

    /// Waits while too many packets are in flight, or they take too much memory.
    async fn await_some(&mut self) {
        while (self.derived.len() > DERIVED_PENDING_MAX || self.in_flight.is_over())
            && let Some(ended) = self.derived.next().await
        {
            self.note_outcome(ended);
        }
    }

    fn note_outcome(&mut self, (bytes, outcome): Ended) {
        self.in_flight.remove(bytes);
        if let Some(error) = outcome.refused {
            add(&self.recording.counters.derived_refused, 1);
            self.note_failure(&error);
        }
    }

    /// Ends the recording after an error that retrying cannot fix, and suspends it for lack of
    /// disk space.
    fn note_failure(&mut self, error: &StorageError) {
        match error {
            // Also while the object store takes no packets: it does later.
            StorageError::Busy { .. }
            | StorageError::EarlierRefused
            | StorageError::NotReplicated { .. }
            | StorageError::Stopping => {}
            StorageError::DiskLow { .. } | StorageError::FilesLow { .. } => {
                self.suspend(Suspension::DiskLow);
            }
            StorageError::DiskFull { path } => {
                let now = storage_core::clock::now_ns();
                self.suspend(Suspension::DiskFull(path.clone(), now));
            }
            error => self.failure = Some(error.to_string()),
        }
    }

    /// Accepts what is in flight to the recording, and writes what the chain still contains.
    async fn finish(&mut self, mut arriving: mpsc::Receiver<InboxPacket>) {
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
        if !self.parked.is_empty() {
            let parked = std::mem::take(&mut self.parked);
            self.write_derived(parked).await;
            let refused = self.parked.len() as u64;
            add(&self.recording.counters.derived_packets, refused);
            add(&self.recording.counters.derived_refused, refused);
        }
        while let Some(ended) = self.derived.next().await {
            self.note_outcome(ended);
        }
    }
}

/// Whether the storage refuses for lack of disk space.
fn is_disk(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::DiskLow { .. }
            | StorageError::FilesLow { .. }
            | StorageError::DiskFull { .. }
    )
}

/// Whether the storage will never accept a packet again. The recording then ends, and the packet
/// is not refused on its behalf: sending it again would not help.
fn is_over(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::StorageNotFound(_)
            | StorageError::WrongState { .. }
            | StorageError::Failed { .. }
    )
}
