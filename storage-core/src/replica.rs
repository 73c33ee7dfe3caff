//! A second place in which packets are before they are acknowledged.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use storage_format::{AgentId, LeafId, StorageId, StreamId, data_file::LeafPath};

use crate::StorageError;

/// The answer of a replica, later.
pub struct Replicated(Pin<Box<dyn Future<Output = Result<(), StorageError>> + Send>>);

impl Replicated {
    /// An answer that `future` gives.
    pub fn by(future: impl Future<Output = Result<(), StorageError>> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }
}

impl Future for Replicated {
    type Output = Result<(), StorageError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replicated")
    }
}

/// A second place for the packets of all storages that are written.
///
/// Packets get there from the disk, in the order of their streams, at the pace of the replica: it
/// is told which leaves have grown, and reads them with
/// [`Reading::stream_packets`](crate::Reading::stream_packets). So it lacks nothing that a client
/// that hung up has left, and takes no memory for packets that wait.
pub trait Replica: fmt::Debug + Send + Sync {
    /// Notes that packets of a leaf are durable on the disk. It must not wait.
    fn written(&self, storage: StorageId, leaf: LeafId, path: &LeafPath);

    /// Waits until the packets of a stream are there, up to the one with this number.
    fn wait(
        &self,
        storage: StorageId,
        agent: &AgentId,
        stream: &StreamId,
        number: u64,
    ) -> Replicated;

    /// Waits until all packets of a storage are there, and accepts none afterwards. It may be
    /// repeated. The storage is being finalized.
    fn close(&self, storage: StorageId) -> Replicated;
}

/// The replica, once there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplicaSlot(Arc<OnceLock<Arc<dyn Replica>>>);

impl ReplicaSlot {
    pub(crate) fn get(&self) -> Option<&Arc<dyn Replica>> {
        self.0.get()
    }

    /// The first stays.
    pub(crate) fn set(&self, replica: Arc<dyn Replica>) {
        let _ = self.0.set(replica);
    }
}
