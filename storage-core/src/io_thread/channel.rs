//! A channel: the log of a storage while it is being written.
//!
//! Waiting frames of all streams are gathered into one batch; while it is written, the next frames
//! gather. Written frames wait for a sync that starts after their write has completed. One write
//! and one sync are in flight at most, in parallel. Frames become durable in the order in which
//! they arrived, so the acknowledged frames of a log are always a prefix of it.
//!
//! A batch begins and ends at a block, so no block with acknowledged bytes is written again.
//!
//! A write that fails because the disk is full, or because the operating system ran out of file
//! descriptors or memory, refuses its frames and those after them. The file
//! ends with the batch before and is never written again, because bytes of the failed write may
//! remain in it; the log continues in a new file. Any other failure, and every failed sync, poisons
//! the storage: a sync is never retried, because the kernel may report success although the data
//! is lost.

use std::{collections::VecDeque, future::Future, ops::ControlFlow, pin::Pin, rc::Rc, sync::Arc};

use io_trace::{Cause, Requests, Scope};
use storage_format::log::PreviousFile;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    Appended, IoThreadConfig, IoThreadError, LogSpec, Reply,
    request::{Append, ChannelRequest, ClosedLog, Ended},
    staging::{Log, SYNC, Writer, failure},
    tail::ClosedFile,
};
use crate::{
    counters::Counters,
    io::{BlockIo, sync_named},
};

/// Bytes of frames that are gathered into one batch.
const BATCH_BYTES: u64 = 4 << 20;
/// Appends that are gathered into one batch.
const BATCH_APPEND_COUNT_MAX: usize = 4096;
/// Appends that may wait in a channel.
const WAITING_COUNT_MAX: usize = 4096;

/// A written append that waits for a sync.
struct Written {
    appended: Appended,
    request: Option<Arc<str>>,
    reply: Reply<Appended>,
}

type Pending<T> = Pin<Box<dyn Future<Output = T>>>;
type WriteDone<F> = (Log<F>, Vec<Append>, Result<Vec<Appended>, IoThreadError>);

pub(super) struct Channel<B: BlockIo> {
    io: Rc<B>,
    config: Rc<IoThreadConfig>,
    counters: Arc<Counters>,
    spec: Arc<LogSpec>,
    /// The log, while no write is in flight.
    log: Option<Log<Rc<B::File>>>,
    /// The newest file before it was closed, until the next write opens it again.
    closed: Option<ClosedFile>,
    /// The newest file, for syncs.
    file: Option<Rc<B::File>>,
    /// All batches with smaller numbers are durable, are written, and are covered by the last sync.
    durable_batches: u64,
    written_batches: u64,
    sync_batches: u64,
    waiting: VecDeque<Append>,
    written: Vec<Written>,
    last_sync: Option<Instant>,
    /// Whether appends are refused until [`ChannelRequest::Resume`].
    is_refusing: bool,
}

enum Step {
    Request(Option<ChannelRequest>),
    Synced(Result<(), IoThreadError>),
    SyncDue,
}

impl<B: BlockIo> Channel<B> {
    pub(super) fn new(
        io: Rc<B>,
        config: Rc<IoThreadConfig>,
        counters: Arc<Counters>,
        spec: Arc<LogSpec>,
        log: ClosedLog,
    ) -> Self {
        let ClosedLog {
            end,
            file,
            leaves,
            is_refusing,
        } = log;
        let durable = end.batch;
        Self {
            io,
            config,
            counters,
            spec,
            log: Some(Log {
                file: None,
                end,
                leaves,
            }),
            closed: file,
            file: None,
            durable_batches: durable,
            written_batches: durable,
            sync_batches: durable,
            waiting: VecDeque::new(),
            written: Vec::new(),
            last_sync: None,
            is_refusing,
        }
    }

    /// Serves requests until the channel is closed.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<ChannelRequest>) {
        let mut write: Option<Pending<WriteDone<Rc<B::File>>>> = None;
        let mut sync: Option<Pending<Result<(), IoThreadError>>> = None;
        let mut syncing: Vec<Written> = Vec::new();
        let mut ending: Option<(oneshot::Sender<Ended>, bool)> = None;
        loop {
            if !self.waiting.is_empty() && self.may_write(sync.is_some()) {
                write = self.next_write();
            }
            let sync_at = match (&sync, self.written.is_empty(), &self.file) {
                (None, false, Some(open)) => match self.sync_delay() {
                    None => {
                        let work = self.start_sync(open);
                        syncing = self.take_written();
                        self.last_sync = Some(Instant::now());
                        let requests = syncing.iter().filter_map(|w| w.request.as_ref()).collect();
                        sync = Some(self.for_requests(requests, work));
                        continue;
                    }
                    at => at,
                },
                _ => None,
            };
            let is_idle = self.waiting.is_empty() && self.written.is_empty();
            if ending.is_some() && is_idle && write.is_none() && sync.is_none() {
                break;
            }
            let step = tokio::select! {
                biased;
                result = wait_for(&mut sync) => Step::Synced(result),
                done = wait_for(&mut write) => {
                    write = None;
                    let (log, appends, result) = done;
                    self.file = log.file.as_ref().map(|open| Rc::clone(&open.file));
                    self.log = Some(log);
                    self.after_write(appends, result);
                    continue;
                }
                () = sleep_until(sync_at) => Step::SyncDue,
                request = inbox.recv(), if self.has_room() && ending.is_none() => {
                    Step::Request(request)
                }
            };
            match step {
                Step::SyncDue => self.last_sync = None,
                Step::Synced(result) => {
                    sync = None;
                    self.after_sync(std::mem::take(&mut syncing), result);
                }
                Step::Request(Some(request)) => match self.take_requests(request, &mut inbox) {
                    ControlFlow::Continue(requested) => ending = requested,
                    ControlFlow::Break(()) => return,
                },
                Step::Request(None) => return,
            }
        }
        if let Some((reply, finishes)) = ending {
            let cause = if finishes {
                Cause::Finalize
            } else {
                Cause::Ingest
            };
            let scope = Scope::within(&self.config.tracer, cause);
            scope.around(self.end(reply, finishes)).await;
        }
    }

    /// Takes a request and what else has arrived, which goes into the same batch; returns the
    /// ending that is requested. Breaks when the log is forgotten.
    fn take_requests(
        &mut self,
        first: ChannelRequest,
        inbox: &mut mpsc::Receiver<ChannelRequest>,
    ) -> ControlFlow<(), Option<(oneshot::Sender<Ended>, bool)>> {
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                ChannelRequest::Append(append) => self.take_append(append),
                ChannelRequest::Resume => self.is_refusing = false,
                ChannelRequest::Close { reply, finishes } => {
                    return ControlFlow::Continue(Some((reply, finishes)));
                }
                ChannelRequest::Forget => return ControlFlow::Break(()),
            }
            next = if self.has_room() {
                inbox.try_recv().ok()
            } else {
                None
            };
        }
        ControlFlow::Continue(None)
    }

    /// Whether a write may start now: only one is in flight, and a file is ended only when all its
    /// batches are durable.
    fn may_write(&self, is_syncing: bool) -> bool {
        let Some(log) = &self.log else { return false };
        let begins_file = log
            .file
            .as_ref()
            .is_some_and(|open| self.writer().is_full(open));
        !begins_file || (!is_syncing && self.written.is_empty())
    }

    fn next_write(&mut self) -> Option<Pending<WriteDone<Rc<B::File>>>> {
        let log = self.log.take()?;
        let batch = self.next_batch();
        let requests = batch
            .iter()
            .filter_map(|append| append.request.as_ref())
            .collect();
        let work = self.start_write(log, batch);
        Some(self.for_requests(requests, work))
    }

    async fn end(mut self, reply: oneshot::Sender<Ended>, finishes: bool) {
        self.file = None;
        let Some(mut log) = self.log.take() else {
            return;
        };
        let mut closed = self.closed.take();
        let result = match self.spec.poison.reason() {
            Some(reason) => Err(IoThreadError::Poisoned(reason)),
            None => self.close_files(&mut log, &mut closed, finishes).await,
        };
        if let Err(IoThreadError::Poisoned(reason)) = &result {
            self.spec.poison.set(reason);
        }
        let Log { end, leaves, .. } = log;
        let log = ClosedLog {
            end,
            file: closed,
            leaves,
            is_refusing: self.is_refusing,
        };
        // The caller may have gone away; the file is closed anyway.
        let _ = reply.send(Ended { log, result });
    }

    /// Truncates preallocated space and closes the newest file; it may be written again unless the
    /// log `finishes`.
    async fn close_files(
        &self,
        log: &mut Log<Rc<B::File>>,
        closed: &mut Option<ClosedFile>,
        finishes: bool,
    ) -> Result<(), IoThreadError> {
        let writer = self.writer();
        if finishes {
            let repaired = std::mem::take(&mut log.end.repaired);
            log.end.uncut.extend(repaired);
            writer.cut_recovered(&mut log.end).await?;
            // The files of a log that has ended may be replaced by arranged ones: if it continues,
            // then in a new file.
            if let Some(ClosedFile { id, tail, .. }) = closed.take() {
                log.end.previous = Some(PreviousFile {
                    file: id,
                    length: tail.length,
                });
            }
        }
        let Some(open) = &log.file else {
            return Ok(());
        };
        let may_continue = !finishes && !writer.is_full(open) && open.tail.length > 0;
        let file = ClosedFile {
            id: open.id,
            salt: open.salt,
            tail: open.tail,
        };
        let before = log.end.previous;
        writer.end_file(log).await?;
        if may_continue {
            *closed = Some(file);
            log.end.previous = before;
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_COUNT_MAX
    }

    fn take_append(&mut self, append: Append) {
        if let Some(reason) = self.spec.poison.reason() {
            return refuse(append, IoThreadError::Poisoned(reason));
        }
        if self.is_refusing {
            return refuse(append, IoThreadError::Aborted);
        }
        self.waiting.push_back(append);
    }

    fn next_batch(&mut self) -> Vec<Append> {
        let mut bytes = 0;
        let mut batch = Vec::new();
        while let Some(append) = self.waiting.front() {
            bytes = append.bytes().saturating_add(bytes);
            let is_full = bytes > BATCH_BYTES || batch.len() >= BATCH_APPEND_COUNT_MAX;
            if !batch.is_empty() && is_full {
                break;
            }
            batch.extend(self.waiting.pop_front());
        }
        assert!(
            !batch.is_empty(),
            "a batch is gathered only while appends wait"
        );
        batch
    }

    fn writer(&self) -> Writer<B> {
        Writer {
            io: Rc::clone(&self.io),
            config: Rc::clone(&self.config),
            counters: Arc::clone(&self.counters),
            spec: Arc::clone(&self.spec),
        }
    }

    /// Attributes work to its requests in the I/O trace.
    fn for_requests<T: 'static>(&self, requests: Requests, work: Pending<T>) -> Pending<T> {
        if requests.is_empty() {
            work
        } else {
            Box::pin(
                requests
                    .scope(&self.config.tracer, Cause::Ingest)
                    .around(work),
            )
        }
    }

    fn start_write(
        &mut self,
        mut log: Log<Rc<B::File>>,
        batch: Vec<Append>,
    ) -> Pending<WriteDone<Rc<B::File>>> {
        let writer = self.writer();
        let durable_mark = self.durable_batches;
        let closed = self.closed.take();
        // A file that is ended must have no other handle.
        self.file = self
            .file
            .take()
            .filter(|_| log.file.as_ref().is_some_and(|open| !writer.is_full(open)));
        Box::pin(async move {
            if let Some(closed) = closed {
                match writer.reopen(&closed).await {
                    Ok(open) => log.file = Some(open),
                    Err(error) => {
                        // The file is complete as it is; the log continues in a new one.
                        let length = closed.tail.length;
                        log.end.previous = Some(PreviousFile {
                            file: closed.id,
                            length,
                        });
                        return (log, batch, Err(error));
                    }
                }
            }
            let result = writer.write(&mut log, &batch, durable_mark).await;
            (log, batch, result)
        })
    }

    fn after_write(&mut self, batch: Vec<Append>, result: Result<Vec<Appended>, IoThreadError>) {
        // A sync that failed meanwhile must not be followed by one for this batch.
        let result = result.and_then(|appended| match self.spec.poison.reason() {
            Some(reason) => Err(IoThreadError::Poisoned(reason)),
            None => Ok(appended),
        });
        match result {
            Ok(appended) => {
                assert_eq!(
                    batch.len(),
                    appended.len(),
                    "every append of a batch has an outcome"
                );
                let end = appended.last().and_then(|last| last.log);
                let (position, _) = end.expect("the last append of a batch has its end");
                assert_eq!(
                    position.batch,
                    self.written_batches.saturating_add(1),
                    "batches are written in their order"
                );
                self.written_batches = position.batch;
                let pairs = batch.into_iter().zip(appended);
                let written = pairs.map(|(append, appended)| Written {
                    appended,
                    request: append.request,
                    reply: append.reply,
                });
                self.written.extend(written);
            }
            Err(error) => {
                self.counters.write_errors.add(1);
                if let IoThreadError::Poisoned(reason) = &error {
                    self.spec.poison.set(reason);
                }
                self.is_refusing = true;
                let following = match &error {
                    IoThreadError::Poisoned(_) => error.clone(),
                    _ => IoThreadError::Aborted,
                };
                batch
                    .into_iter()
                    .for_each(|append| refuse(append, error.clone()));
                self.waiting
                    .drain(..)
                    .for_each(|append| refuse(append, following.clone()));
            }
        }
    }

    /// When the next sync may start; `None` means now.
    fn sync_delay(&self) -> Option<Instant> {
        let due = self.last_sync?.checked_add(self.config.commit_window)?;
        (due > Instant::now()).then_some(due)
    }

    /// The written frames, which a sync that starts now makes durable.
    fn take_written(&mut self) -> Vec<Written> {
        let written = std::mem::take(&mut self.written);
        self.sync_batches = self.written_batches;
        let last = written.last().and_then(|last| last.appended.log);
        assert_eq!(
            last.map(|(position, _)| position.batch),
            Some(self.sync_batches),
            "a sync covers every frame that was written before it"
        );
        written
    }

    fn start_sync(&self, file: &Rc<B::File>) -> Pending<Result<(), IoThreadError>> {
        let (io, file) = (Rc::clone(&self.io), Rc::clone(file));
        let (counters, spec) = (Arc::clone(&self.counters), Arc::clone(&self.spec));
        Box::pin(async move {
            let start = Instant::now();
            crate::fault_point!(async "sync.begin");
            let result = if crate::sabotaged!("skip-sync") {
                Ok(())
            } else {
                sync_named(&*io, &file).await
            };
            crate::fault_point!(async "sync.done");
            counters.syncs.observe(start.elapsed());
            result.map_err(|error| failure(SYNC, spec.folder.clone(), &error))
        })
    }

    fn after_sync(&mut self, synced: Vec<Written>, result: Result<(), IoThreadError>) {
        let result = result.and_then(|()| match self.spec.poison.reason() {
            Some(reason) => Err(IoThreadError::Poisoned(reason)),
            None => Ok(()),
        });
        match result {
            Ok(()) => {
                assert!(
                    self.durable_batches < self.sync_batches
                        && self.sync_batches <= self.written_batches,
                    "a sync acknowledges only batches that were written before it"
                );
                self.durable_batches = self.sync_batches;
                for Written {
                    appended, reply, ..
                } in synced
                {
                    let _ = reply.send(Ok(appended));
                }
            }
            Err(error) => {
                if let IoThreadError::Poisoned(reason) = &error {
                    self.spec.poison.set(reason);
                }
                self.is_refusing = true;
                for written in synced.into_iter().chain(self.written.drain(..)) {
                    let _ = written.reply.send(Err(error.clone()));
                }
                self.waiting
                    .drain(..)
                    .for_each(|append| refuse(append, error.clone()));
            }
        }
    }
}

async fn wait_for<T>(pending: &mut Option<Pending<T>>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn refuse(append: Append, error: IoThreadError) {
    // The caller may have gone away.
    let _ = append.reply.send(Err(error));
}
