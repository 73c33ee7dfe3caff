//! A channel: the open data file of a leaf.
//!
//! Waiting frames are gathered into one write; while it runs, the next frames gather. Written
//! frames wait for a sync that starts after their write has completed. One write and one sync are
//! in flight at most, in parallel. Frames become durable in the order in which they arrived, so the
//! acknowledged frames of a file are always a prefix of it.
//!
//! Direct writes are multiples of blocks. The last block of a write is padded with zeros and
//! written again by the next write: the bytes before the tail are the same in both, so a torn
//! sector cannot damage what was acknowledged.
//!
//! A write that fails because the disk is full, or because the operating system ran out of file
//! descriptors or memory, refuses its frames and those after them, and leaves the tail unchanged.
//! Any other failure, and every failed sync, poisons the storage: a sync is never retried, because
//! the kernel may report success although the data is lost.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::{collections::VecDeque, future::Future, pin::Pin, rc::Rc, sync::Arc};

use io_trace::{Cause, Requests, Scope};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    Appended, ChannelSpec, IoThreadConfig, IoThreadError, Reply, Tail,
    request::{Append, ChannelRequest, Ended},
    staging::{OpenFile, SYNC, Writer, failure},
};
use crate::{counters::Counters, io::BlockIo};

/// Bytes of frames that are gathered into one write.
const BATCH_BYTES: u64 = 4 << 20;

/// A written append that waits for a sync.
struct Written {
    appended: Appended,
    request: Option<Arc<str>>,
    reply: Reply<Appended>,
}

type Pending<T> = Pin<Box<dyn Future<Output = T>>>;
type WriteDone<F> = (
    Option<OpenFile<F>>,
    Vec<Append>,
    Result<Vec<Appended>, IoThreadError>,
);

pub(super) struct Channel<B: BlockIo> {
    io: Rc<B>,
    config: Rc<IoThreadConfig>,
    counters: Arc<Counters>,
    spec: Arc<ChannelSpec>,
    known: Option<Tail>,
    durable: Option<Tail>,
    /// The end of the frames that were written, and of those that the last sync covers.
    written_end: u64,
    sync_end: u64,
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
        spec: Arc<ChannelSpec>,
        known: Option<Tail>,
    ) -> Self {
        Self {
            io,
            config,
            counters,
            spec,
            known,
            durable: known,
            written_end: known.map_or(0, |tail| tail.length),
            sync_end: 0,
            waiting: VecDeque::new(),
            written: Vec::new(),
            last_sync: None,
            is_refusing: false,
        }
    }

    /// Serves requests until the channel is closed.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<ChannelRequest>) {
        let mut file: Option<Rc<B::File>> = None;
        let mut state: Option<OpenFile<Rc<B::File>>> = None;
        let mut write: Option<Pending<WriteDone<Rc<B::File>>>> = None;
        let mut sync: Option<Pending<Result<(), IoThreadError>>> = None;
        let mut syncing: Vec<Written> = Vec::new();
        let mut ending: Option<(oneshot::Sender<Ended>, bool)> = None;
        loop {
            if write.is_none() && !self.waiting.is_empty() {
                let batch = self.next_batch();
                let requests = batch
                    .iter()
                    .filter_map(|append| append.request.as_ref())
                    .collect();
                let work = self.start_write(state.take(), batch);
                write = Some(self.for_requests(requests, work));
            }
            let sync_at = match (&sync, self.written.is_empty(), &file) {
                (None, false, Some(open)) => match self.sync_delay() {
                    None => {
                        syncing = self.take_written();
                        self.last_sync = Some(Instant::now());
                        let requests = syncing.iter().filter_map(|w| w.request.as_ref()).collect();
                        sync = Some(self.for_requests(requests, self.start_sync(open)));
                        continue;
                    }
                    at => at,
                },
                _ => None,
            };
            if ending.is_some() && write.is_none() && sync.is_none() && self.written.is_empty() {
                break;
            }
            let step = tokio::select! {
                biased;
                result = wait_for(&mut sync) => Step::Synced(result),
                done = wait_for(&mut write) => {
                    write = None;
                    let (open, appends, result) = done;
                    file = open.as_ref().map(|open| Rc::clone(&open.file)).or(file);
                    state = open;
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
                Step::Request(Some(ChannelRequest::Append(append))) => self.take_append(append),
                Step::Request(Some(ChannelRequest::Resume)) => self.is_refusing = false,
                Step::Request(Some(ChannelRequest::Close { reply, cuts })) => {
                    ending = Some((reply, cuts));
                }
                Step::Request(Some(ChannelRequest::Forget) | None) => return,
            }
        }
        drop(file);
        if let Some((reply, cuts)) = ending {
            let cause = if cuts { Cause::Finalize } else { Cause::Ingest };
            let scope = Scope::within(&self.config.tracer, cause);
            scope.around(self.end(state, reply, cuts)).await;
        }
    }

    async fn end(
        mut self,
        state: Option<OpenFile<Rc<B::File>>>,
        reply: oneshot::Sender<Ended>,
        cuts: bool,
    ) {
        let result = match state {
            None if cuts && self.known.is_some() => match self.writer().open(self.known).await {
                Ok(state) => self.close_file(Some(state)).await,
                Err(error) => Err(error),
            },
            state => self.close_file(state).await,
        };
        // The caller may have gone away; the file is closed anyway.
        let _ = reply.send(Ended {
            tail: self.durable,
            result,
        });
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < 1024
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
            if !batch.is_empty() && bytes > BATCH_BYTES {
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
        &self,
        state: Option<OpenFile<Rc<B::File>>>,
        batch: Vec<Append>,
    ) -> Pending<WriteDone<Rc<B::File>>> {
        let writer = self.writer();
        let known = self.known;
        Box::pin(async move {
            let mut state = match state {
                Some(state) => state,
                None => match writer.open(known).await {
                    Ok(state) => state,
                    Err(error) => return (None, batch, Err(error)),
                },
            };
            let result = writer.write(&mut state, &batch).await;
            (Some(state), batch, result)
        })
    }

    fn after_write(&mut self, batch: Vec<Append>, result: Result<Vec<Appended>, IoThreadError>) {
        match result {
            Ok(appended) => {
                assert_eq!(
                    batch.len(),
                    appended.len(),
                    "every append of a batch has an outcome"
                );
                for Appended { offsets, tail } in &appended {
                    assert!(
                        offsets
                            .first()
                            .is_none_or(|&first| first > self.written_end)
                            && offsets.last().is_none_or(|&last| last < tail.length)
                            && tail.length >= self.written_end,
                        "frames are written after the frames before them"
                    );
                    self.written_end = tail.length;
                }
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
        self.sync_end = self.written_end;
        assert_eq!(
            written.last().map(|last| last.appended.tail.length),
            Some(self.sync_end),
            "a sync covers every frame that was written before it"
        );
        written
    }

    fn start_sync(&self, file: &Rc<B::File>) -> Pending<Result<(), IoThreadError>> {
        let (io, file) = (Rc::clone(&self.io), Rc::clone(file));
        let (counters, spec) = (Arc::clone(&self.counters), Arc::clone(&self.spec));
        Box::pin(async move {
            let start = Instant::now();
            let result = io.sync_data(&file).await;
            counters.syncs.observe(start.elapsed());
            result.map_err(|error| failure(&spec, SYNC, &error))
        })
    }

    fn after_sync(&mut self, synced: Vec<Written>, result: Result<(), IoThreadError>) {
        let result = result.and_then(|()| match self.spec.poison.reason() {
            Some(reason) => Err(IoThreadError::Poisoned(reason)),
            None => Ok(()),
        });
        match result {
            Ok(()) => {
                for Written {
                    appended, reply, ..
                } in synced
                {
                    assert!(
                        self.durable
                            .is_none_or(|durable| durable.length <= appended.tail.length),
                        "the durable tail of a file only grows"
                    );
                    assert!(
                        appended.tail.length <= self.sync_end,
                        "a sync acknowledges only frames that were written before it"
                    );
                    self.durable = Some(appended.tail);
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

    /// Truncates preallocated space and makes the length durable.
    async fn close_file(
        &mut self,
        state: Option<OpenFile<Rc<B::File>>>,
    ) -> Result<(), IoThreadError> {
        let Some(state) = state else { return Ok(()) };
        let mut result = match self.spec.poison.reason() {
            Some(reason) => Err(IoThreadError::Poisoned(reason)),
            None => Ok(()),
        };
        if result.is_ok() {
            // Refused frames may also be after the durable tail.
            let length = self.durable.map_or(0, |tail| tail.length);
            assert!(
                length <= state.tail.length,
                "a file is truncated to its durable frames, never extended"
            );
            result = match self.io.set_length(&state.file, length).await {
                Ok(()) => {
                    let synced = self.io.sync_data(&state.file).await;
                    synced.map_err(|error| failure(&self.spec, SYNC, &error))
                }
                Err(error) => Err(failure(&self.spec, "cut", &error)),
            };
        }
        if let Err(IoThreadError::Poisoned(reason)) = &result {
            self.spec.poison.set(reason);
        }
        if let Ok(file) = Rc::try_unwrap(state.file)
            && let Err(error) = self.io.close(file).await
        {
            tracing::warn!(%error, leaf = %self.spec.leaf(), "a data file cannot be closed");
        }
        result
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
