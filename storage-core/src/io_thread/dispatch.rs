//! Dispatches requests to channels, and limits the number of open files.

use std::{collections::HashMap, panic::AssertUnwindSafe, rc::Rc, sync::Arc, time::Duration};

use futures_util::FutureExt;
use io_trace::{Cause, Scope};
use storage_format::LeafId;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    ChannelSpec, IoThreadConfig, IoThreadError, IoThreadRequest, Tail,
    channel::Channel,
    publish::publish,
    request::{Append, ChannelRequest, Ended},
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
    open: HashMap<LeafId, Open>,
    /// Tails of channels whose file is closed.
    closed: HashMap<LeafId, Tail>,
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
    let mut ticks = interval(idle / 2);
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
    let leaves: Vec<_> = dispatcher.open.keys().copied().collect();
    for leaf in leaves {
        dispatcher.close(leaf, false).await;
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
                frames,
                request,
                reply,
            } => {
                let channel = self.channel(&spec).await;
                let append = Append {
                    frames,
                    request,
                    reply,
                };
                // A channel ends early only by a panic, which poisons its storage; the reply is
                // dropped with the request then.
                let _ = channel.send(ChannelRequest::Append(append)).await;
            }
            IoThreadRequest::Resume { leaf } => {
                if let Some(open) = self.open.get(&leaf) {
                    let _ = open.requests.send(ChannelRequest::Resume).await;
                }
            }
            IoThreadRequest::Finish { spec, reply } => {
                let tail = self.finish(&spec).await;
                // The caller may have gone away.
                let _ = reply.send(tail);
            }
            IoThreadRequest::Forget { leaf, reply } => {
                if let Some(open) = self.open.remove(&leaf) {
                    let _ = open.requests.send(ChannelRequest::Forget).await;
                }
                self.closed.remove(&leaf);
                let _ = reply.send(());
            }
            // Published in a task of its own, so that a large index part delays no channel.
            IoThreadRequest::Publish {
                folder,
                name,
                bytes,
                scope,
                reply,
            } => {
                let io = Rc::clone(&self.io);
                let counters = Arc::clone(&self.counters);
                self.spawn(scope, async move {
                    let result = publish(&*io, &folder, &name, &bytes).await;
                    counters.files_published.add(u64::from(result.is_ok()));
                    let _ = reply.send(result);
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

    /// The open channel of a leaf; opens it, and closes the least recently used one, as needed.
    async fn channel(&mut self, spec: &Arc<ChannelSpec>) -> &mpsc::Sender<ChannelRequest> {
        let leaf = spec.leaf();
        if !self.open.contains_key(&leaf) {
            while self.open.len() >= self.config.open_channel_count_max.max(1) {
                let oldest = self.open.iter().min_by_key(|(_, open)| open.last_used);
                let Some((&oldest, _)) = oldest else { break };
                self.close(oldest, false).await;
            }
            assert!(
                self.open.len() < self.config.open_channel_count_max.max(1),
                "the number of open data files is bounded"
            );
            let known = self.closed.remove(&leaf).or(spec.recovered);
            let reached = |tail: Option<Tail>| tail.map_or(0, |tail| tail.length);
            assert!(
                reached(known) >= reached(spec.recovered),
                "a data file is opened at or after the last packet of the index tree"
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
                        "the task that writes data file {} stopped unexpectedly: {message}",
                        failing.leaf()
                    );
                    failing.poison.set(&reason);
                }
            });
            self.open.insert(
                leaf,
                Open {
                    requests,
                    last_used: Instant::now(),
                },
            );
            self.counters.channels_open.set(self.open.len() as u64);
        }
        let open = self
            .open
            .get_mut(&leaf)
            .expect("the channel was opened above");
        open.last_used = Instant::now();
        &open.requests
    }

    async fn close_idle(&mut self, idle: Duration) {
        let now = Instant::now();
        let is_idle = |open: &Open| now.duration_since(open.last_used) >= idle;
        let leaves: Vec<_> = self
            .open
            .iter()
            .filter(|(_, open)| is_idle(open))
            .map(|(&leaf, _)| leaf)
            .collect();
        for leaf in leaves {
            self.close(leaf, false).await;
        }
    }

    /// Closes a channel and stores its tail.
    async fn close(&mut self, leaf: LeafId, cuts: bool) -> Option<Ended> {
        let open = self.open.remove(&leaf)?;
        let (reply, ended) = oneshot::channel();
        let _ = open
            .requests
            .send(ChannelRequest::Close { reply, cuts })
            .await;
        let ended = ended.await.ok()?;
        if let Some(tail) = ended.tail {
            self.closed.insert(leaf, tail);
        }
        self.counters.channels_open.set(self.open.len() as u64);
        Some(ended)
    }

    async fn finish(&mut self, spec: &Arc<ChannelSpec>) -> Result<Tail, IoThreadError> {
        let leaf = spec.leaf();
        if !self.open.contains_key(&leaf) && !self.closed.contains_key(&leaf) {
            // Not written since the start: a torn tail may still have to be truncated.
            self.channel(spec).await;
        }
        if let Some(ended) = self.close(leaf, true).await {
            ended.result?;
        }
        if let Some(reason) = spec.poison.reason() {
            return Err(IoThreadError::Poisoned(reason));
        }
        self.closed
            .get(&leaf)
            .copied()
            .or(spec.recovered)
            .ok_or(IoThreadError::Stopped)
    }
}
