//! The writer task of a storage: numbers packets, owns the pending replies, and alone changes the
//! index tree.
//!
//! A push passes four steps: [`submit`] decides which packets are new and numbers them, the
//! serializer pool turns them into frames, the I/O thread makes the frames durable, and
//! [`complete`] inserts them into the tree and replies. Frames of a stream reach the I/O thread in
//! the order of their sequence, and a log becomes durable in its order, so the durable packets of a
//! stream are always a prefix of what its producer sent.

mod arrange;
mod complete;
mod finalize;
mod flush;
mod group;
mod merge;
mod message;
mod seal;
mod stream;
mod submit;

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
    panic::AssertUnwindSafe,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{
    Future, FutureExt,
    stream::{FuturesOrdered, FuturesUnordered, StreamExt},
};
use io_trace::{Cause, Scope, Tracer};
use storage_format::{
    LeafId,
    frame::FrameHeader,
    storage_file::{StorageFile, StorageState},
};
use tokio::sync::{Semaphore, mpsc, oneshot};

pub(crate) use message::{FinalizeReply, WriterMessage};

use self::{
    arrange::{ArrangeTimes, Arranging},
    flush::{FlushTimes, Flushed},
    group::{Arriving, Group, Reply},
    merge::{MergeTimes, Merged},
    stream::Streams,
};
use crate::{
    StorageError,
    agents::Agents,
    catalog::Catalog,
    checksums::MissingChecksums,
    clock::now_ns,
    config::EngineConfig,
    counters::Counters,
    droppable::Droppable,
    io_thread::{Appended, IoThread, IoThreadError, LeafSpec, LogSpec},
    labels::LabelTypes,
    live_index::LiveIndex,
    panic::panic_message,
    removals,
    replica::ReplicaSlot,
    serializer::{SerializedFrames, SerializerPool},
    space::Space,
    storage::Storage,
    stream_counts::StreamCounts,
    tree::Found,
};

/// Messages that may be queued for a writer.
const MESSAGE_COUNT_MAX: usize = 256;

/// The parts of the engine that all writers share.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) io_thread: IoThread,
    pub(crate) serializers: SerializerPool,
    pub(crate) agents: Arc<Agents>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) space: Arc<Space>,
    pub(crate) labels: Arc<LabelTypes>,
    pub(crate) droppable: Arc<Droppable>,
    pub(crate) stream_counts: Arc<StreamCounts>,
    pub(crate) live_index: Arc<LiveIndex>,
    pub(crate) missing_checksums: Arc<MissingChecksums>,
    /// Where packets must be, too, before they are acknowledged.
    pub(crate) replica: ReplicaSlot,
    /// The turns of storages whose index parts are merged.
    pub(crate) merges: Arc<Semaphore>,
    /// The turns of storages of which full files are arranged.
    pub(crate) arrangings: Arc<Semaphore>,
    /// Set when the engine stops: finalizations end, and the next start continues them.
    pub(crate) is_stopping: Arc<AtomicBool>,
}

enum Ending {
    Finalize(FinalizeReply),
    Stop(oneshot::Sender<()>),
    Pause(oneshot::Sender<Result<(), StorageError>>),
    /// The folder of the storage gets this name.
    Delete(PathBuf, oneshot::Sender<Result<(), StorageError>>),
}

/// Frames in flight: packets of one stream for one leaf.
struct Job {
    id: u64,
    stream: usize,
    leaf: LeafId,
    /// Number of packets.
    count: usize,
    /// The header of each packet; none when the serializers failed.
    headers: Vec<FrameHeader>,
    result: Option<Result<Appended, IoThreadError>>,
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Packets of one stream for one leaf that left the serializers.
struct Serialized {
    stream: usize,
    leaf: LeafId,
    count: usize,
    frames: SerializedFrames,
    request: Option<Arc<str>>,
}

type Appending = (u64, Result<Appended, IoThreadError>);
type FoundRepeat = (u64, usize, Result<Option<Found>, StorageError>);

pub(crate) struct Writer {
    storage: Arc<Storage>,
    services: Services,
    streams: Streams,
    log: Arc<LogSpec>,
    leaves: HashMap<LeafId, Arc<LeafSpec>>,
    /// Jobs in the I/O thread, in order.
    jobs: VecDeque<Job>,
    /// Whether the I/O thread refuses appends until it gets a resume request. It gets one when the
    /// jobs that it refuses have all ended, so that no packet passes an earlier one of its stream.
    is_refusing: bool,
    /// Whether the tree contains all packets of the batches of which it contains any.
    is_at_batch_end: bool,
    groups: HashMap<u64, Group>,
    next_id: u64,
    next_number: u64,
    serializing: FuturesOrdered<Boxed<Serialized>>,
    appending: FuturesUnordered<Boxed<Appending>>,
    finding: FuturesUnordered<Boxed<FoundRepeat>>,
    flushing: Option<Boxed<Flushed>>,
    flush_times: FlushTimes,
    merging: Option<Boxed<Merged>>,
    merge_times: MergeTimes,
    arranging: Option<Boxed<Arranging>>,
    arrange_times: ArrangeTimes,
    has_failed: bool,
}

/// The writer of a storage as others see it, until it ends.
struct Registration {
    storage: Arc<Storage>,
    /// Whether the writer ended by itself.
    has_ended: bool,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.has_ended {
            self.storage.poison.set("the writer task was cancelled");
        }
        *self.storage.writer.write() = None;
    }
}

impl Writer {
    /// Starts the writer of a storage whose tree is loaded; the task belongs to `tasks`.
    pub(crate) fn start(
        storage: &Arc<Storage>,
        services: &Services,
        tasks: &mut tokio::task::JoinSet<()>,
    ) {
        let (messages, inbox) = mpsc::channel(MESSAGE_COUNT_MAX);
        let (next_number, recovered) = match &*storage.tree.read() {
            Some(tree) => (tree.next_number(), tree.recovered_log().clone()),
            None => Default::default(),
        };
        let log = LogSpec {
            storage: storage.id,
            folder: storage.folder.clone(),
            recovered,
            poison: Arc::clone(&storage.poison),
        };
        // Numbers that may be missing are never given again.
        let next_number = storage.repairs().next_number().max(next_number);
        let writer = Self {
            storage: Arc::clone(storage),
            services: services.clone(),
            streams: Streams::default(),
            log: Arc::new(log),
            leaves: HashMap::new(),
            jobs: VecDeque::new(),
            is_refusing: false,
            is_at_batch_end: true,
            groups: HashMap::new(),
            next_id: 0,
            next_number,
            serializing: FuturesOrdered::new(),
            appending: FuturesUnordered::new(),
            finding: FuturesUnordered::new(),
            flushing: None,
            flush_times: FlushTimes::new(services.live_index.join(storage.id)),
            merging: None,
            merge_times: MergeTimes::default(),
            arranging: None,
            arrange_times: ArrangeTimes::default(),
            has_failed: false,
        };
        *storage.writer.write() = Some(messages);
        services.droppable.open(&storage.lane);
        tasks.spawn(writer.run(inbox));
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<WriterMessage>) {
        // Dropped before the writer and its replies, so that nobody who waits for a reply finds a
        // storage that still seems to be written.
        let mut registration = Registration {
            storage: Arc::clone(&self.storage),
            has_ended: false,
        };
        let mut ending: Option<Ending> = None;
        let served = AssertUnwindSafe(self.serve(&mut inbox, &mut ending));
        if let Err(panic) = served.catch_unwind().await {
            let message = panic_message(&*panic);
            let reason = format!("the writer task stopped unexpectedly: {message}");
            self.abandon(&reason, ending).await;
        }
        self.services.droppable.close(&self.storage.lane);
        registration.has_ended = true;
    }

    /// Serves messages until the writer is told to end.
    async fn serve(
        &mut self,
        inbox: &mut mpsc::Receiver<WriterMessage>,
        ending: &mut Option<Ending>,
    ) {
        let lane = Arc::clone(&self.storage.lane);
        self.flush_when_due();
        self.tidy_when_due();
        loop {
            if ending.is_some() && self.is_drained() {
                if self.end(ending).await.is_break() {
                    return;
                }
                continue;
            }
            let is_accepting = ending.is_none() && !self.flush_times.is_behind;
            tokio::select! {
                Some(done) = self.appending.next(), if !self.appending.is_empty() => {
                    self.on_appended(done).await;
                }
                Some(frames) = self.serializing.next(), if !self.serializing.is_empty() => {
                    self.on_serialized(frames).await;
                }
                Some(found) = self.finding.next(), if !self.finding.is_empty() => {
                    self.on_found(found);
                }
                flushed = flush::wait(&mut self.flushing) => self.on_flushed(flushed).await,
                () = self.flush_times.due(), if self.flushing.is_none() => {}
                merged = merge::wait(&mut self.merging) => self.on_merged(merged),
                () = self.merge_times.due() => {}
                arranged = arrange::wait(&mut self.arranging) => self.on_arranged(arranged),
                () = self.arrange_times.due() => {}
                () = lane.wake.notified(), if ending.is_none() => {}
                message = inbox.recv(), if is_accepting => {
                    match self.on_message(message).await {
                        ControlFlow::Continue(requested) => *ending = requested,
                        ControlFlow::Break(()) => return,
                    }
                }
            }
            if ending.is_none() && lane.is_used() && !self.flush_times.is_behind {
                self.take_droppable(false).await;
            }
            self.flush_when_due();
            if ending.is_none() {
                self.tidy_when_due();
            }
        }
    }

    /// Finalizes the storage or saves its tree, once nothing is in flight; breaks when the writer
    /// ends. The reply stays in `ending` until there is an outcome, where a panic cannot drop it.
    async fn end(&mut self, ending: &mut Option<Ending>) -> ControlFlow<()> {
        assert!(self.is_drained(), "a writer ends with nothing in flight");
        // Who waits for the end of the writer may read the folder, or use it again.
        removals::done(&self.storage.folder).await;
        if let Some(Ending::Finalize(reply)) = ending {
            let scope = Scope::within(&self.services.tracer, Cause::Finalize);
            let progress = Arc::clone(&reply.progress);
            let result = scope.around(self.finalize(&progress)).await;
            removals::done(&self.storage.folder).await;
            let is_done = result.is_ok();
            if is_done {
                self.services.droppable.end(self.storage.id);
            }
            if let Some(Ending::Finalize(reply)) = ending.take() {
                reply.send(result);
            }
            if is_done {
                return ControlFlow::Break(());
            }
            self.services.droppable.open(&self.storage.lane);
            return ControlFlow::Continue(());
        }
        if let Some(Ending::Delete(to, _)) = ending {
            let scope = Scope::within(&self.services.tracer, Cause::Manage);
            let moved = scope.around(self.storage.move_away(to.clone())).await;
            if moved.is_ok() {
                crate::fault_point!(async "delete.moved");
                self.forget_files().await;
            } else {
                self.services.droppable.open(&self.storage.lane);
            }
            let is_moved = moved.is_ok();
            if let Some(Ending::Delete(_, reply)) = ending.take() {
                let _ = reply.send(moved);
            }
            if is_moved {
                return ControlFlow::Break(());
            }
            return ControlFlow::Continue(());
        }
        if let Some(Ending::Pause(_)) = ending {
            let saved = if crate::sabotaged!("skip-pause-flush") {
                Ok(())
            } else {
                self.save_tree().await
            };
            let is_saved = saved.is_ok();
            if !is_saved {
                self.services.droppable.open(&self.storage.lane);
            }
            if let Some(Ending::Pause(reply)) = ending.take() {
                let _ = reply.send(saved);
            }
            return if is_saved {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            };
        }
        if let Err(error) = self.save_tree().await {
            tracing::warn!(
                %error, storage = %self.storage.id,
                "the index cannot be saved; the next start scans the data files"
            );
        }
        if let Some(Ending::Stop(reply)) = ending.take() {
            let _ = reply.send(());
        }
        ControlFlow::Break(())
    }

    /// Fails the storage after a panic: everything in flight is refused with the reason.
    async fn abandon(&mut self, reason: &str, ending: Option<Ending>) {
        let storage = Arc::clone(&self.storage);
        storage.poison.set(reason);
        self.services.droppable.close(&storage.lane);
        let not_written = || StorageError::NotWritten {
            storage: storage.id,
            reason: reason.to_owned(),
        };
        let counts = &storage.counts;
        let packets = counts.queued_packets.load(Ordering::Relaxed);
        let bytes = counts.queued_bytes.load(Ordering::Relaxed);
        counts.failed(packets, bytes, now_ns());
        self.services.counters.packets_failed.add(packets);
        for (_, group) in std::mem::take(&mut self.groups) {
            group.abandon(not_written());
        }
        if let Some(Ending::Finalize(reply)) = ending {
            reply.send(Err(not_written()));
        }
        self.take_droppable(true).await;
        self.fail_storage(reason).await;
    }

    /// Executes a message, or returns the ending that it requests; breaks when the writer has
    /// nothing left to do.
    async fn on_message(
        &mut self,
        message: Option<WriterMessage>,
    ) -> ControlFlow<(), Option<Ending>> {
        let ending = match message {
            Some(WriterMessage::Submit {
                push,
                gaps,
                request,
                reply,
            }) => {
                let reply = Reply::To(reply);
                let arriving = Arriving {
                    push,
                    gaps,
                    request,
                    reply,
                };
                self.submit_in_turn(arriving).await;
                return ControlFlow::Continue(None);
            }
            Some(WriterMessage::Finalize { reply }) => Ending::Finalize(reply),
            Some(WriterMessage::Stop { reply }) => Ending::Stop(reply),
            Some(WriterMessage::Pause { reply }) => Ending::Pause(reply),
            Some(WriterMessage::Delete { to, reply }) => {
                self.cancel_merge();
                self.cancel_arranging();
                self.services.droppable.close(&self.storage.lane);
                return ControlFlow::Continue(Some(Ending::Delete(to, reply)));
            }
            None => return ControlFlow::Break(()),
        };
        self.cancel_merge();
        self.cancel_arranging();
        // Packets that were accepted before are still written; nothing is accepted after this.
        self.services.droppable.close(&self.storage.lane);
        self.take_droppable(true).await;
        ControlFlow::Continue(Some(ending))
    }

    /// Takes as many droppable packets as allowed; all of them before the writer ends.
    async fn take_droppable(&mut self, all: bool) {
        while let Some(handed) = self.services.droppable.take(self.storage.id, all) {
            self.submit_droppable(handed).await;
        }
    }

    fn is_drained(&self) -> bool {
        self.groups.is_empty()
            && self.serializing.is_empty()
            && self.appending.is_empty()
            && self.finding.is_empty()
            && self.flushing.is_none()
            && self.merging.is_none()
            && self.arranging.is_none()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id = self.next_id.checked_add(1).expect("ids do not reach 2^64");
        self.next_id
    }

    /// Lets the I/O thread close the log.
    async fn forget_files(&mut self) {
        self.leaves.clear();
        self.services.io_thread.forget(self.storage.id).await;
    }

    /// Marks the storage as failed, in memory and if possible in the storage file.
    async fn fail_storage(&mut self, reason: &str) {
        if self.has_failed {
            return;
        }
        self.has_failed = true;
        tracing::error!(
            storage = %self.storage.id, reason,
            "the storage has failed and is read-only; what was acknowledged can be read"
        );
        self.storage.mark_failed(reason);
        let fail = |file: &mut StorageFile| {
            file.state = StorageState::Failed;
            file.failure.get_or_insert_with(|| reason.to_owned());
            Ok(())
        };
        let Services {
            io_thread, catalog, ..
        } = &self.services;
        if let Err(error) = self.storage.change(io_thread, catalog, fail).await {
            tracing::error!(
                %error,
                "the storage file cannot be updated; the failure is known until the restart only"
            );
        }
    }
}
