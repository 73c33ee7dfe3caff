//! Dispatches requests to channels, and limits the number of open files.

use std::{collections::HashMap, panic::AssertUnwindSafe, rc::Rc, sync::Arc, time::Duration};

use futures_util::FutureExt;
use io_trace::{Cause, Scope};
use storage_format::StorageId;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    IoThreadConfig, IoThreadError, IoThreadRequest, LogSpec,
    channel::Channel,
    publish::publish,
    request::{Append, ChannelRequest, ClosedLog, Ended},
};
use crate::{counters::Counters, io::BlockIo, panic::panic_message};

/// Requests that may be queued for one channel.
const CHANNEL_REQUEST_COUNT_MAX: usize = 256;

struct Open {
    requests: mpsc::Sender<ChannelRequest>,
    last_used: Instant,
}

struct Dispatcher<B: BlockIo> {
    io: Rc<B>,
    config: Rc<IoThreadConfig>,
    counters: Arc<Counters>,
    open: HashMap<StorageId, Open>,
    /// Logs whose file is closed.
    closed: HashMap<StorageId, ClosedLog>,
    channels: JoinSet<()>,
}

/// Serves requests until [`IoThreadRequest::Stop`] or until every handle is dropped.
pub(super) async fn run<B: BlockIo>(
    io: B,
    config: &IoThreadConfig,
    counters: Arc<Counters>,
    mut inbox: mpsc::Receiver<IoThreadRequest>,
) {
    let mut dispatcher = Dispatcher {
        io: Rc::new(io),
        config: Rc::new(config.clone()),
        counters,
        open: HashMap::new(),
        closed: HashMap::new(),
        channels: JoinSet::new(),
    };
    let idle = config.channel_idle.max(Duration::from_millis(10));
    let mut ticks = interval(idle.checked_div(2).expect("two is not zero"));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            request = inbox.recv() => match request {
                None | Some(IoThreadRequest::Stop) => break,
                Some(request) => dispatcher.serve(request).await,
            },
            _ = ticks.tick() => dispatcher.close_idle(idle).await,
        }
        while dispatcher.channels.try_join_next().is_some() {}
    }
    let storages: Vec<_> = dispatcher.open.keys().copied().collect();
    for storage in storages {
        dispatcher.close(storage, false).await;
    }
    while dispatcher.channels.join_next().await.is_some() {}
}

impl<B: BlockIo> Dispatcher<B> {
    async fn serve(&mut self, request: IoThreadRequest) {
        #[cfg(test)]
        if let Some(plan) = &self.config.faults {
            plan.panic_at(crate::io::faulty::Operation::Dispatch);
        }
        match request {
            IoThreadRequest::Append {
                spec,
                leaf,
                frames,
                request,
                reply,
            } => {
                let channel = self.channel(&spec).await;
                let append = Append {
                    leaf,
                    frames,
                    request,
                    reply,
                };
                // A channel ends early only by a panic, which poisons its storage; the reply is
                // dropped with the request then.
                let _ = channel.send(ChannelRequest::Append(append)).await;
            }
            IoThreadRequest::Resume { storage } => {
                if let Some(open) = self.open.get(&storage) {
                    let _ = open.requests.send(ChannelRequest::Resume).await;
                } else if let Some(closed) = self.closed.get_mut(&storage) {
                    closed.is_refusing = false;
                }
            }
            IoThreadRequest::Finish { spec, reply } => {
                let finished = self.finish(&spec).await;
                // The caller may have gone away.
                let _ = reply.send(finished);
            }
            IoThreadRequest::Forget { storage, reply } => {
                if let Some(open) = self.open.remove(&storage) {
                    let _ = open.requests.send(ChannelRequest::Forget).await;
                }
                self.closed.remove(&storage);
                let _ = reply.send(());
            }
            // Published in a task of its own, so that a large index part delays no channel.
            IoThreadRequest::Publish {
                folder,
                name,
                content,
                hold,
                scope,
                reply,
            } => {
                let io = Rc::clone(&self.io);
                let counters = Arc::clone(&self.counters);
                self.spawn(scope, async move {
                    let result = publish(&*io, &folder, &name, content).await;
                    counters.files_published.add(u64::from(result.is_ok()));
                    let _ = reply.send(result);
                    drop(hold);
                });
            }
            IoThreadRequest::SyncFolder {
                folder,
                scope,
                reply,
            } => {
                let io = Rc::clone(&self.io);
                self.spawn(scope, async move {
                    let _ = reply.send(io.sync_folder(&folder).await);
                });
            }
            IoThreadRequest::Stop => {}
        }
    }

    /// Spawns work in its own task, inside a scope of the I/O trace.
    fn spawn(&mut self, scope: Option<Scope>, work: impl Future<Output = ()> + 'static) {
        match scope {
            Some(scope) => self.channels.spawn_local(scope.around(work)),
            None => self.channels.spawn_local(work),
        };
    }

    /// The open channel of a log; opens it, and closes the least recently used one, as needed.
    async fn channel(&mut self, spec: &Arc<LogSpec>) -> &mpsc::Sender<ChannelRequest> {
        let storage = spec.storage;
        if !self.open.contains_key(&storage) {
            while self.open.len() >= self.config.open_channel_count_max.max(1) {
                let oldest = self.open.iter().min_by_key(|(_, open)| open.last_used);
                let Some((&oldest, _)) = oldest else { break };
                self.close(oldest, false).await;
            }
            assert!(
                self.open.len() < self.config.open_channel_count_max.max(1),
                "the number of open data files is bounded"
            );
            let known = self.closed.remove(&storage);
            let known = known.unwrap_or_else(|| ClosedLog {
                end: spec.recovered.clone(),
                ..ClosedLog::default()
            });
            assert!(
                known.end.batch >= spec.recovered.batch,
                "a log continues at or after the last batch of the index tree"
            );
            let (requests, inbox) = mpsc::channel(CHANNEL_REQUEST_COUNT_MAX);
            let channel = Channel::new(
                Rc::clone(&self.io),
                Rc::clone(&self.config),
                Arc::clone(&self.counters),
                Arc::clone(spec),
                known,
            );
            let ingest = Scope::within(&self.config.tracer, Cause::Ingest);
            let failing = Arc::clone(spec);
            let serve = AssertUnwindSafe(channel.run(inbox)).catch_unwind();
            self.spawn(Some(ingest), async move {
                if let Err(panic) = serve.await {
                    let message = panic_message(&*panic);
                    let reason = format!(
                        "the task that writes storage {} stopped unexpectedly: {message}",
                        failing.storage
                    );
                    failing.poison.set(&reason);
                }
            });
            self.open.insert(
                storage,
                Open {
                    requests,
                    last_used: Instant::now(),
                },
            );
            self.counters.channels_open.set(self.open.len() as u64);
        }
        let open = self
            .open
            .get_mut(&storage)
            .expect("the channel was opened above");
        open.last_used = Instant::now();
        &open.requests
    }

    async fn close_idle(&mut self, idle: Duration) {
        let now = Instant::now();
        let is_idle = |open: &Open| now.duration_since(open.last_used) >= idle;
        let storages: Vec<_> = self
            .open
            .iter()
            .filter(|(_, open)| is_idle(open))
            .map(|(&storage, _)| storage)
            .collect();
        for storage in storages {
            self.close(storage, false).await;
        }
    }

    /// Closes a channel and stores its log.
    async fn close(
        &mut self,
        storage: StorageId,
        finishes: bool,
    ) -> Option<Result<(), IoThreadError>> {
        let open = self.open.remove(&storage)?;
        let (reply, ended) = oneshot::channel();
        let _ = open
            .requests
            .send(ChannelRequest::Close { reply, finishes })
            .await;
        let Ended { log, result } = ended.await.ok()?;
        self.closed.insert(storage, log);
        self.counters.channels_open.set(self.open.len() as u64);
        Some(result)
    }

    async fn finish(&mut self, spec: &Arc<LogSpec>) -> Result<u64, IoThreadError> {
        if let Some(reason) = spec.poison.reason() {
            return Err(IoThreadError::Poisoned(reason));
        }
        // Also a log that was not written since the start: a torn end may have to be truncated.
        self.channel(spec).await;
        match self.close(spec.storage, true).await {
            Some(result) => result?,
            None => return Err(IoThreadError::Stopped),
        }
        let closed = self.closed.get(&spec.storage);
        Ok(closed.map_or(0, |log| log.end.next_file))
    }
}
