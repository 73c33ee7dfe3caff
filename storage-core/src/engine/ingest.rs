//! Pushing packets.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use storage_format::{AgentId, StorageId, StreamId, StreamPosition, storage_file::StorageState};
use tokio::sync::oneshot;

use super::{registry::Registry, trees::TreeLoader};
use crate::{
    Accepted, ByteBudget, Push, PushOutcome, Replica, Replicated, StorageError,
    push::{Gaps, check_packet},
    state::accepts_packets,
    storage::Storage,
    writer::{Services, WriterMessage},
};

/// A push in flight; resolves when its packets are durable, here and in the replica if there is
/// one, or refused.
#[derive(Debug)]
pub struct PendingPush {
    outcome: oneshot::Receiver<PushOutcome>,
    storage: Arc<Storage>,
    /// Whether the writer ended without an outcome.
    is_lost: bool,
    replication: Option<Replication>,
}

/// What a push waits for once its packets are on the disk.
#[derive(Debug)]
enum Replication {
    Wanted {
        replica: Arc<dyn Replica>,
        agent: AgentId,
        stream: StreamId,
    },
    Waiting(Replicated, PushOutcome),
}

impl Replication {
    /// What to wait for until the replica has the packet with this number.
    fn begin(&self, storage: StorageId, number: u64) -> Option<Replicated> {
        match self {
            Self::Wanted {
                replica,
                agent,
                stream,
            } => Some(replica.wait(storage, agent, stream, number)),
            Self::Waiting(..) => None,
        }
    }
}

impl Future for PendingPush {
    type Output = PushOutcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<PushOutcome> {
        if let Some(Replication::Waiting(..)) = self.replication {
            return self.poll_replication(context);
        }
        if !self.is_lost {
            match Pin::new(&mut self.outcome).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(outcome)) => {
                    let last = outcome.receipts.last().map(|receipt| receipt.number);
                    let wanted = self.replication.take().zip(last);
                    let id = self.storage.id;
                    let waiting = wanted.and_then(|(wanted, last)| wanted.begin(id, last));
                    let Some(waiting) = waiting else {
                        return Poll::Ready(outcome);
                    };
                    self.replication = Some(Replication::Waiting(waiting, outcome));
                    return self.poll_replication(context);
                }
                Poll::Ready(Err(_)) => self.is_lost = true,
            }
        }
        // The writer ended before it accepted the push. After a panic, the reason is recorded a
        // moment after the outcome is dropped.
        if self.storage.is_ending_unexpectedly() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let refused = match self.storage.poison.reason() {
            Some(reason) => StorageError::NotWritten {
                storage: self.storage.id,
                reason,
            },
            None => not_taken(&self.storage),
        };
        Poll::Ready(PushOutcome {
            receipts: Vec::new(),
            refused: Some(refused),
            permit: None,
        })
    }
}

impl PendingPush {
    /// The outcome once the replica has the packets, or why it does not have them: then none is
    /// acknowledged, although they are on the disk.
    fn poll_replication(&mut self, context: &mut Context<'_>) -> Poll<PushOutcome> {
        let Some(Replication::Waiting(mut replicated, outcome)) = self.replication.take() else {
            return Poll::Pending;
        };
        match Pin::new(&mut replicated).poll(context) {
            Poll::Pending => {
                self.replication = Some(Replication::Waiting(replicated, outcome));
                Poll::Pending
            }
            Poll::Ready(Ok(())) => Poll::Ready(outcome),
            Poll::Ready(Err(refused)) => Poll::Ready(PushOutcome {
                receipts: Vec::new(),
                refused: Some(refused),
                permit: outcome.permit,
            }),
        }
    }
}

fn not_taken(storage: &Storage) -> StorageError {
    if storage.is_deleted.load(Ordering::SeqCst) {
        StorageError::StorageNotFound(storage.id)
    } else if storage.is_between_writers() {
        storage.not_open_now()
    } else if accepts_packets(storage.state()) {
        StorageError::Stopping
    } else {
        storage.wrong_state("a push", "OPEN or RECORDING")
    }
}

/// Pushing packets into storages.
#[derive(Debug, Clone)]
pub struct Ingest {
    pub(super) registry: Arc<Registry>,
    pub(super) services: Services,
    pub(super) budget: ByteBudget,
    pub(super) trees: Arc<TreeLoader>,
}

impl Ingest {
    /// Sends packets to the writer of a storage, in order; waits while its queue is full.
    ///
    /// Pushes of one caller are processed in the order of the calls, so a caller may submit several
    /// before it awaits the first outcome.
    ///
    /// # Errors
    /// When there is no such storage or its state does not allow it. Errors of single packets are
    /// in the outcome.
    pub async fn submit(&self, id: StorageId, push: Push) -> Result<PendingPush, StorageError> {
        self.hand_over(id, push, Gaps::Refused).await
    }

    /// As [`Self::submit`], for callers that store a part of a stream: sequences still grow, and
    /// some may be missing.
    ///
    /// # Errors
    /// As for [`Self::submit`].
    pub async fn submit_part(
        &self,
        id: StorageId,
        push: Push,
    ) -> Result<PendingPush, StorageError> {
        self.hand_over(id, push, Gaps::Taken).await
    }

    /// Requests the receipts of packets that were pushed before, and accepts no new packets: a
    /// packet that is neither durable nor in flight is refused as a gap or a stale epoch.
    ///
    /// # Errors
    /// As for [`Self::submit`].
    pub async fn submit_repeat(
        &self,
        id: StorageId,
        push: Push,
    ) -> Result<PendingPush, StorageError> {
        self.hand_over(id, push, Gaps::RepeatsOnly).await
    }

    /// Accepts packets whose agent does not wait: they are written unless their space is needed
    /// before the writer accepts them. With `part`, sequences may be missing.
    ///
    /// # Errors
    /// When there is no such storage or stream, the state does not allow it, or the disk is low.
    /// Errors of single packets are in the reply.
    pub fn submit_droppable(
        &self,
        id: StorageId,
        mut push: Push,
        part: bool,
    ) -> Result<Accepted, StorageError> {
        let storage = self.registry.find(id)?;
        if let Some(reason) = storage.poison.reason() {
            let storage = id;
            return Err(StorageError::Failed { storage, reason });
        }
        if !accepts_packets(storage.state()) || storage.is_between_writers() {
            return Err(not_taken(&storage));
        }
        let Services {
            space,
            agents,
            droppable,
            config,
            ..
        } = &self.services;
        space.check()?;
        agents.stream(&push.agent, &push.stream)?;
        for packet in &push.packets {
            check_packet(packet, config.packet_bytes_max)?;
        }
        let durable = match &*storage.tree.read() {
            Some(tree) => tree.next_position(&push.agent, &push.stream),
            None => StreamPosition::default(),
        };
        // They make room for others, so they are no share that the agent takes from them.
        push.permit.leave_share();
        let accepted = droppable.offer((id, &storage.lane), push, durable, part);
        let accepted = accepted.map_err(|_| not_taken(&storage))?;
        // These bytes can be dropped for others now.
        self.budget.admit_waiting();
        Ok(accepted)
    }

    async fn hand_over(
        &self,
        id: StorageId,
        mut push: Push,
        gaps: Gaps,
    ) -> Result<PendingPush, StorageError> {
        let storage = self.registry.find(id)?;
        let writer = storage.writer.read().clone();
        let is_written = accepts_packets(storage.state()) && !storage.is_between_writers();
        let Some(writer) = writer.filter(|_| is_written) else {
            return Err(not_taken(&storage));
        };
        let (reply, outcome) = oneshot::channel();
        let replica = self.services.replica.get();
        let replication = replica.map(|replica| Replication::Wanted {
            replica: Arc::clone(replica),
            agent: push.agent.clone(),
            stream: push.stream.clone(),
        });
        if crate::sabotaged!("drop-packet") && push.packets.len() > 1 {
            push.packets.pop();
        }
        let submit = WriterMessage::Submit {
            push,
            gaps,
            request: io_trace::current_request(),
            reply,
        };
        match writer.send(submit).await {
            Ok(()) => {
                crate::fault_point!(async "ingest.submitted");
                Ok(PendingPush {
                    outcome,
                    storage,
                    is_lost: false,
                    replication,
                })
            }
            Err(_) => Err(not_taken(&storage)),
        }
    }

    /// The next position of a stream: what its producer sends next. It follows every durable
    /// packet, and is 0, 0 when there is none.
    ///
    /// # Errors
    /// When there is no such storage, agent or stream, or the storage is damaged, so that nobody
    /// knows the last packet that was acknowledged.
    pub async fn next_position(
        &self,
        id: StorageId,
        agent: &AgentId,
        stream: &StreamId,
    ) -> Result<StreamPosition, StorageError> {
        let storage = self.registry.find(id)?;
        self.services.agents.stream(agent, stream)?;
        if storage.state() != StorageState::Created {
            self.trees.load(&storage).await?;
        }
        // A position before the damage would tell the producer that the rest was never received.
        storage.check_whole()?;
        let tree = storage.tree.read();
        let next = tree.as_ref().map(|tree| tree.next_position(agent, stream));
        Ok(next.unwrap_or_default())
    }
}
