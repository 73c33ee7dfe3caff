//! Rings of storages: recent packets on disk, until it is decided which of them are stored.

use std::{path::PathBuf, sync::Arc};

use io_trace::Cause;
use storage_format::{FormatError, StorageId, frame::Facts, paths::RING_FOLDER};

use super::{blocking::Blocking, registry::Registry};
use crate::{
    StorageError,
    io::ring::{self, Ring, RingPacket, RingTotals},
    state::accepts_packets,
};

/// The ring of a storage that a killed server left.
#[derive(Debug)]
pub struct LeftRing {
    /// The storage.
    pub storage: StorageId,
    _turn: tokio::sync::OwnedMutexGuard<()>,
}

/// The rings of storages.
#[derive(Debug, Clone)]
pub struct Rings {
    registry: Arc<Registry>,
    blocking: Blocking,
}

impl Rings {
    pub(super) fn new(registry: &Arc<Registry>, blocking: &Blocking) -> Self {
        Self {
            registry: Arc::clone(registry),
            blocking: blocking.clone(),
        }
    }

    /// Begins a ring in the folder of a storage, and replaces an existing one; at most
    /// `bytes_max` bytes of packets are retained.
    ///
    /// # Errors
    /// When there is no such storage, or the folder cannot be written.
    pub async fn begin(&self, id: StorageId, bytes_max: u64) -> Result<Ring, StorageError> {
        let folder = self.ring_folder(id)?;
        self.blocking
            .run(Cause::Manage, move || Ring::create(folder, bytes_max))
            .await
    }

    /// Makes a packet durable in a ring; returns the ring and what was removed for the packet.
    ///
    /// # Errors
    /// When it cannot be written. The ring can then only be read.
    pub async fn append(
        &self,
        mut ring: Ring,
        payload: Vec<u8>,
        facts: Facts,
    ) -> Result<(Ring, RingTotals), StorageError> {
        self.blocking
            .run(Cause::Manage, move || {
                let removed = ring.append(&payload, facts)?;
                Ok((ring, removed))
            })
            .await
    }

    /// The segments of the ring of a storage, oldest first; none without a ring.
    ///
    /// # Errors
    /// When there is no such storage, or the folder cannot be read.
    pub async fn segments(&self, id: StorageId) -> Result<Vec<PathBuf>, StorageError> {
        let folder = self.ring_folder(id)?;
        self.blocking
            .run(Cause::Manage, move || ring::segments(&folder))
            .await
    }

    /// The packets of a segment up to the first damaged one, and the error of that one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn packets(
        &self,
        segment: PathBuf,
    ) -> Result<(Vec<RingPacket>, Option<FormatError>), StorageError> {
        self.blocking
            .run(Cause::Manage, move || ring::read_segment(&segment))
            .await
    }

    /// Removes the ring of a storage, if there is one.
    ///
    /// # Errors
    /// When there is no such storage, or it cannot be removed.
    pub async fn remove(&self, id: StorageId) -> Result<(), StorageError> {
        let folder = self.ring_folder(id)?;
        self.blocking
            .run(Cause::Manage, move || ring::remove(&folder))
            .await
    }

    /// The rings of storages that accept packets, which a killed server left. The storages may
    /// still be recovering. None is finalized before its ring is dropped.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn all(&self) -> Result<Vec<LeftRing>, StorageError> {
        let mut storages = self.registry.all();
        storages.retain(|storage| accepts_packets(storage.state()));
        self.blocking
            .run(Cause::Manage, move || {
                storages.retain(|storage| storage.folder.join(RING_FOLDER).is_dir());
                let left = storages.into_iter().filter_map(|storage| {
                    let turn = Arc::clone(&storage.finalizing).try_lock_owned().ok()?;
                    let (storage, _turn) = (storage.id, turn);
                    Some(LeftRing { storage, _turn })
                });
                Ok(left.collect())
            })
            .await
    }

    fn ring_folder(&self, id: StorageId) -> Result<PathBuf, StorageError> {
        Ok(self.registry.find(id)?.folder.join(RING_FOLDER))
    }
}
