//! The I/O thread: owns the ends of all logs and alone assigns the offsets of frames.
//!
//! One thread with one runtime. Requests arrive in a bounded queue. The log of each storage that is
//! being written is a channel with its own task (see [`channel`]), which gathers waiting frames of
//! all streams into one batch and syncs once for all of them. [`publish`] writes all other
//! files.

mod assembly;
mod channel;
mod dispatch;
mod publish;
mod request;
mod rewrite;
mod staging;
mod tail;

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use io_trace::{Scope, Tracer, current};
use rustix::io::Errno;
use storage_format::{
    StorageId,
    data_file::DataFileHeader,
    frame::FrameHeader,
    index_part::{Extent, LogPosition},
};
use tokio::sync::{Notify, OwnedMutexGuard, mpsc, oneshot};

use publish::Content;
pub(crate) use publish::Piece;
pub(crate) use rewrite::LogRewrite;
pub(crate) use tail::{LogEnd, Tail};

use crate::{
    config::IoChoice,
    counters::Counters,
    io::{BlockIo, BlockingIo, TracedIo},
    panic::panic_message,
    poison::Poison,
};

/// Requests that may be queued for the I/O thread.
const REQUEST_COUNT_MAX: usize = 1024;

/// Configuration of the I/O thread.
#[derive(Debug, Clone)]
pub(crate) struct IoThreadConfig {
    pub(crate) choice: IoChoice,
    pub(crate) buffer_count: usize,
    pub(crate) commit_window: Duration,
    pub(crate) open_channel_count_max: usize,
    pub(crate) channel_idle: Duration,
    pub(crate) preallocation_bytes_max: u64,
    pub(crate) data_file_bytes_max: u64,
    pub(crate) tracer: Arc<Tracer>,
    #[cfg(test)]
    pub(crate) faults: Option<Arc<crate::io::faulty::FaultPlan>>,
}

/// The log of a storage, as the writer describes it.
#[derive(Debug)]
pub(crate) struct LogSpec {
    pub(crate) storage: StorageId,
    /// The folder of the storage.
    pub(crate) folder: PathBuf,
    /// Where the log continued when the writer started.
    pub(crate) recovered: LogEnd,
    /// Whether this storage has failed.
    pub(crate) poison: Arc<Poison>,
}

/// A leaf, as the writer describes it.
#[derive(Debug)]
pub(crate) struct LeafSpec {
    pub(crate) header: DataFileHeader,
    /// The end of its bytes when the writer met it first; `None` for a leaf without bytes.
    pub(crate) recovered: Option<Tail>,
}

/// A packet that is ready for the disk.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) header: FrameHeader,
    /// The stored payload.
    pub(crate) payload: Bytes,
}

/// Frames that are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Appended {
    /// Offset of each payload in the leaf.
    pub(crate) offsets: Vec<u64>,
    /// The tail of the leaf after the last of them.
    pub(crate) tail: Tail,
    /// Where the frames are, with the header of a new leaf.
    pub(crate) extent: Extent,
    /// With the last frames of a batch: the position after it, and the tail of the data file.
    pub(crate) log: Option<(LogPosition, Tail)>,
}

/// Why frames were not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IoThreadError {
    /// No space is left; nothing is lost, and appending can resume when there is space.
    #[error("no space is left on the device of {path}")]
    Full { path: PathBuf },
    /// The operating system ran out of a resource; as [`Self::Full`].
    #[error("{operation} of {path} failed: {errno}")]
    Exhausted {
        operation: &'static str,
        path: PathBuf,
        errno: Errno,
    },
    /// The log has had as many data files as there are ids; nothing is lost.
    #[error("the log has no id left for another data file")]
    FilesUsedUp,
    /// An earlier write of the same log was refused.
    #[error("an earlier packet of the same stream was refused")]
    Aborted,
    /// The storage has failed and is read-only.
    #[error("{0}")]
    Poisoned(String),
    /// The I/O thread has ended.
    #[error("the server is stopping")]
    Stopped,
}

/// A request to the I/O thread.
pub(crate) enum IoThreadRequest {
    /// Append frames and make them durable.
    Append {
        spec: Arc<LogSpec>,
        leaf: Arc<LeafSpec>,
        frames: Vec<Frame>,
        /// The request that sent them, for the I/O trace.
        request: Option<Arc<str>>,
        reply: Reply<Appended>,
    },
    /// Accept appends to this log again after a refusal.
    Resume { storage: StorageId },
    /// Write waiting frames, truncate preallocated space, make the log durable and close its file.
    Finish {
        spec: Arc<LogSpec>,
        reply: Reply<u64>,
    },
    /// Close the file without another write and forget the log: the storage is being deleted.
    Forget {
        storage: StorageId,
        reply: oneshot::Sender<()>,
    },
    /// Publish a file durably.
    Publish {
        folder: PathBuf,
        name: String,
        content: Content,
        /// Dropped at the end.
        hold: Option<Hold>,
        /// Its cause, for the I/O trace.
        scope: Option<Scope>,
        reply: oneshot::Sender<io::Result<()>>,
    },
    /// Make the names in a folder durable.
    SyncFolder {
        folder: PathBuf,
        /// Its cause, for the I/O trace.
        scope: Option<Scope>,
        reply: oneshot::Sender<io::Result<()>>,
    },
    /// Finish every channel and stop.
    Stop,
}

/// Keeps others from a change for as long as one of its clones exists.
pub(crate) type Hold = Arc<OwnedMutexGuard<()>>;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, IoThreadError>>;

/// How the I/O thread ended.
#[derive(Debug, Default)]
struct ThreadEnd {
    /// Set when it is asked to stop.
    is_stopping: AtomicBool,
    /// Set when it panicked.
    failure: Poison,
    /// Wakes the task that waits for a failure.
    failed: Notify,
}

/// How often, and in which steps, a lost reply waits for the panic that lost it to be recorded.
const LOST_REPLY_CHECKS: usize = 100;
const LOST_REPLY_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A handle to the I/O thread.
#[derive(Debug, Clone)]
pub(crate) struct IoThread {
    requests: mpsc::Sender<IoThreadRequest>,
    end: Arc<ThreadEnd>,
    /// Name of the implementation in use.
    pub(crate) io_name: &'static str,
}

impl IoThread {
    /// Starts the I/O thread; it ends after
    /// [`IoThreadRequest::Stop`].
    pub(crate) fn start(
        config: IoThreadConfig,
        counters: Arc<Counters>,
    ) -> io::Result<(Self, std::thread::JoinHandle<()>)> {
        let (requests, inbox) = mpsc::channel(REQUEST_COUNT_MAX);
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let end = Arc::<ThreadEnd>::default();
        let thread_end = Arc::clone(&end);
        let run = move || {
            let ran = catch_unwind(AssertUnwindSafe(|| run(&config, counters, inbox, &ready)));
            if let Err(panic) = ran {
                let message = panic_message(&*panic);
                let reason = format!("the I/O thread stopped unexpectedly: {message}");
                thread_end.failure.set(&reason);
                thread_end.failed.notify_one();
            }
        };
        let thread = std::thread::Builder::new()
            .name("io-thread".into())
            .spawn(run)?;
        let io_name = is_ready.recv().map_err(io::Error::other)??;
        Ok((
            Self {
                requests,
                end,
                io_name,
            },
            thread,
        ))
    }

    /// Asks the I/O thread to finish every channel and stop.
    pub(crate) async fn stop(&self) {
        self.end.is_stopping.store(true, Ordering::Relaxed);
        // A thread that has ended has stopped.
        let _ = self.requests.send(IoThreadRequest::Stop).await;
    }

    /// Why the I/O thread ended, if it ended unexpectedly.
    pub(crate) fn failure(&self) -> Option<String> {
        self.end.failure.reason()
    }

    /// Waits until the I/O thread ends unexpectedly; one task may wait.
    pub(crate) async fn failed(&self) -> String {
        loop {
            if let Some(reason) = self.failure() {
                return reason;
            }
            self.end.failed.notified().await;
        }
    }

    /// Why there is no reply to a request. A panic drops the replies before its message is known,
    /// so this waits a moment for the message.
    pub(crate) async fn lost_reply(&self, poison: &Poison) -> IoThreadError {
        if self.end.is_stopping.load(Ordering::Relaxed) {
            return IoThreadError::Stopped;
        }
        for _ in 0..LOST_REPLY_CHECKS {
            if let Some(reason) = poison.reason().or_else(|| self.failure()) {
                return IoThreadError::Poisoned(reason);
            }
            tokio::time::sleep(LOST_REPLY_CHECK_INTERVAL).await;
        }
        IoThreadError::Poisoned("the I/O thread dropped a request without a reply".into())
    }

    /// The error of a request without a data file that got no reply.
    async fn lost_request(&self) -> io::Error {
        let poison = Poison::default();
        io::Error::other(self.lost_reply(&poison).await)
    }

    /// Sends a request; waits while the queue is full.
    pub(crate) async fn send(&self, request: IoThreadRequest) -> Result<(), IoThreadError> {
        match self.requests.send(request).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.lost_reply(&Poison::default()).await),
        }
    }

    /// Waits for the reply to a request that was sent; `None` when the thread has ended without.
    ///
    /// A request that is sent while the thread ends stays in the queue, with its reply, as long as
    /// the queue has senders: longer than anybody should wait.
    pub(crate) async fn reply<T>(&self, mut reply: oneshot::Receiver<T>) -> Option<T> {
        tokio::select! {
            biased;
            replied = &mut reply => replied.ok(),
            // The thread drops its end of the queue last.
            () = self.requests.closed() => reply.try_recv().ok(),
        }
    }

    /// Closes the file of a log and forgets the log. A thread that has ended has closed it as well.
    pub(crate) async fn forget(&self, storage: StorageId) {
        let (reply, done) = oneshot::channel();
        let forget = IoThreadRequest::Forget { storage, reply };
        if self.send(forget).await.is_ok() {
            let _ = self.reply(done).await;
        }
    }

    /// Publishes a small file durably.
    pub(crate) async fn publish(
        &self,
        folder: PathBuf,
        name: String,
        bytes: Bytes,
    ) -> io::Result<()> {
        self.publish_content(folder, name, Content::Whole(bytes), None)
            .await
    }

    /// As [`Self::publish`]. The hold lasts until the file is published, also when nobody waits for
    /// that any more: a file has one temporary name.
    pub(crate) async fn publish_holding(
        &self,
        folder: PathBuf,
        name: String,
        bytes: Bytes,
        hold: &Hold,
    ) -> io::Result<()> {
        let hold = Some(Arc::clone(hold));
        self.publish_content(folder, name, Content::Whole(bytes), hold)
            .await
    }

    /// Publishes a file durably while it is made: until [`Piece::End`]. When the sender of the
    /// pieces goes away before, nothing is published.
    pub(crate) async fn publish_pieces(
        &self,
        folder: PathBuf,
        name: String,
        pieces: mpsc::Receiver<Piece>,
    ) -> io::Result<()> {
        self.publish_content(folder, name, Content::Pieces(pieces), None)
            .await
    }

    async fn publish_content(
        &self,
        folder: PathBuf,
        name: String,
        content: Content,
        hold: Option<Hold>,
    ) -> io::Result<()> {
        let (reply, done) = oneshot::channel();
        let request = IoThreadRequest::Publish {
            folder,
            name,
            content,
            hold,
            scope: current(),
            reply,
        };
        self.send(request).await.map_err(io::Error::other)?;
        match self.reply(done).await {
            Some(result) => result,
            None => Err(self.lost_request().await),
        }
    }

    /// Makes the names in a folder durable.
    pub(crate) async fn sync_folder(&self, folder: PathBuf) -> io::Result<()> {
        let (reply, done) = oneshot::channel();
        let request = IoThreadRequest::SyncFolder {
            folder,
            scope: current(),
            reply,
        };
        self.send(request).await.map_err(io::Error::other)?;
        match self.reply(done).await {
            Some(result) => result,
            None => Err(self.lost_request().await),
        }
    }

    /// Finishes a log: its files are complete and durable. Returns the id that a next file would
    /// have.
    pub(crate) async fn finish(&self, spec: Arc<LogSpec>) -> Result<u64, IoThreadError> {
        let (reply, done) = oneshot::channel();
        let poison = Arc::clone(&spec.poison);
        self.send(IoThreadRequest::Finish { spec, reply }).await?;
        match self.reply(done).await {
            Some(result) => result,
            None => Err(self.lost_reply(&poison).await),
        }
    }
}

type Ready = std::sync::mpsc::SyncSender<io::Result<&'static str>>;

fn run(
    config: &IoThreadConfig,
    counters: Arc<Counters>,
    inbox: mpsc::Receiver<IoThreadRequest>,
    ready: &Ready,
) {
    #[cfg(test)]
    if let Some(plan) = &config.faults {
        let io = BlockingIo::new(config.buffer_count);
        let io = crate::io::faulty::FaultyIo::new(io, Arc::clone(plan));
        return run_current_thread(io, config, counters, inbox, || {
            let _ = ready.send(Ok("faulty"));
        });
    }
    let inbox = match config.choice {
        IoChoice::Blocking => inbox,
        choice => match run_uring(config, &counters, inbox, ready) {
            Ok(()) => return,
            Err((inbox, error)) if choice == IoChoice::Auto => {
                tracing::warn!(%error, "there is no io_uring; writing with blocking calls");
                inbox
            }
            Err((_, error)) => {
                // The receiver ends only with the engine that waits for it.
                let _ = ready.send(Err(error));
                return;
            }
        },
    };
    run_blocking(config, counters, inbox, ready);
}

type Refused = (mpsc::Receiver<IoThreadRequest>, io::Error);

/// Without the crate that makes rings, which does not compile for musl.
#[cfg(target_env = "musl")]
fn run_uring(
    _config: &IoThreadConfig,
    _counters: &Arc<Counters>,
    inbox: mpsc::Receiver<IoThreadRequest>,
    _ready: &Ready,
) -> Result<(), Refused> {
    let why = "this program was built for musl, where it has no io_uring";
    Err((inbox, io::Error::new(io::ErrorKind::Unsupported, why)))
}

#[cfg(not(target_env = "musl"))]
fn run_uring(
    config: &IoThreadConfig,
    counters: &Arc<Counters>,
    inbox: mpsc::Receiver<IoThreadRequest>,
    ready: &Ready,
) -> Result<(), Refused> {
    use crate::io::uring::{self, UringIo};

    if let Err(error) = uring::probe() {
        return Err((inbox, error));
    }
    uring::run(async {
        match UringIo::new(config.buffer_count) {
            Ok(io) => {
                let _ = ready.send(Ok("io_uring"));
                let io = TracedIo::new(io, Arc::clone(&config.tracer));
                dispatch::run(io, config, Arc::clone(counters), inbox).await;
                Ok(())
            }
            Err(error) => Err((inbox, error)),
        }
    })
}

fn run_blocking(
    config: &IoThreadConfig,
    counters: Arc<Counters>,
    inbox: mpsc::Receiver<IoThreadRequest>,
    ready: &Ready,
) {
    let io = BlockingIo::new(config.buffer_count);
    run_current_thread(io, config, counters, inbox, || {
        let _ = ready.send(Ok("blocking"));
    });
}

/// Runs the I/O thread with any implementation on a runtime of this thread.
pub(crate) fn run_current_thread<B: BlockIo>(
    io: B,
    config: &IoThreadConfig,
    counters: Arc<Counters>,
    inbox: mpsc::Receiver<IoThreadRequest>,
    started: impl FnOnce(),
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(16)
        .thread_name("io-blocking")
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the I/O thread cannot start its runtime");
            return;
        }
    };
    started();
    let local = tokio::task::LocalSet::new();
    let io = TracedIo::new(io, Arc::clone(&config.tracer));
    local.block_on(&runtime, dispatch::run(io, config, counters, inbox));
}
