//! Rings of storages: packets that are kept on disk until it is known which of them are wanted.

use std::path::PathBuf;

use io_trace::Cause;
use storage_format::{FormatError, StorageId, frame::Facts, paths::RING_FOLDER};

use super::Engine;
use crate::{
    StorageError,
    io::ring::{self, Kept, Ring, RingPacket},
    state::takes_packets,
};

impl Engine {
    /// Begins a ring beside the data files of a storage, in place of one that is there; at most
    /// `bytes_max` bytes of packets are kept.
    ///
    /// # Errors
    /// When there is no such storage, or the folder cannot be written.
    pub async fn begin_ring(&self, id: StorageId, bytes_max: u64) -> Result<Ring, StorageError> {
        let folder = self.ring_folder(id)?;
        self.blocking(Cause::Manage, move || Ring::create(folder, bytes_max))
            .await
    }

    /// Makes a packet durable in a ring; gives the ring back, with what was given up for it.
    ///
    /// # Errors
    /// When it cannot be written. The ring is then of no more use but to be read.
    pub async fn append_to_ring(
        &self,
        mut ring: Ring,
        payload: Vec<u8>,
        facts: Facts,
    ) -> Result<(Ring, Kept), StorageError> {
        self.blocking(Cause::Manage, move || {
            let given_up = ring.append(&payload, facts)?;
            Ok((ring, given_up))
        })
        .await
    }

    /// The segments of the ring of a storage, oldest first; none without a ring.
    ///
    /// # Errors
    /// When there is no such storage, or the folder cannot be read.
    pub async fn ring_segments(&self, id: StorageId) -> Result<Vec<PathBuf>, StorageError> {
        let folder = self.ring_folder(id)?;
        self.blocking(Cause::Manage, move || ring::segments(&folder))
            .await
    }

    /// The packets of a segment up to the first that is not whole, and what is wrong with that one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn ring_packets(
        &self,
        segment: PathBuf,
    ) -> Result<(Vec<RingPacket>, Option<FormatError>), StorageError> {
        self.blocking(Cause::Manage, move || ring::read_segment(&segment))
            .await
    }

    /// Removes the ring of a storage, if there is one.
    ///
    /// # Errors
    /// When there is no such storage, or it cannot be removed.
    pub async fn remove_ring(&self, id: StorageId) -> Result<(), StorageError> {
        let folder = self.ring_folder(id)?;
        self.blocking(Cause::Manage, move || ring::remove(&folder))
            .await
    }

    /// Storages that take packets and have a ring: a server that was killed left it.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn rings(&self) -> Result<Vec<StorageId>, StorageError> {
        let storages: Vec<_> = {
            let storages = self.inner.storages.read();
            let open = storages
                .values()
                .filter(|storage| takes_packets(storage.state()));
            open.map(|storage| (storage.id, storage.folder.join(RING_FOLDER)))
                .collect()
        };
        self.blocking(Cause::Manage, move || {
            let with_ring = storages.into_iter().filter(|(_, folder)| folder.is_dir());
            Ok(with_ring.map(|(id, _)| id).collect())
        })
        .await
    }

    fn ring_folder(&self, id: StorageId) -> Result<PathBuf, StorageError> {
        Ok(self.find(id)?.folder.join(RING_FOLDER))
    }
}
