//! Seals a storage while it is finalized, after all of its other files are written.

use std::sync::Arc;

use storage_format::{
    checksum::crc32c,
    paths::{FileName, FileRole},
    storage_file::FileEntry,
};

use super::Writer;
use crate::{Progress, StorageError, progress::Pace, sealing::Sealing, tree::IndexTree};

impl Writer {
    /// Writes the seal over `files` and the packets of `arranged`, or of the tree of the storage;
    /// `None` when storages are not sealed.
    ///
    /// # Errors
    /// When bytes are damaged or cannot be read, or the work is cancelled.
    pub(super) async fn write_seal(
        &mut self,
        files: &[FileEntry],
        arranged: Option<&IndexTree>,
        finalized: i64,
        progress: &Arc<Progress>,
    ) -> Result<Option<FileEntry>, StorageError> {
        let Some(config) = self.services.config.seal.clone() else {
            return Ok(None);
        };
        let sealing = match (arranged, &*self.storage.tree.read()) {
            (Some(tree), _) | (None, Some(tree)) => {
                Sealing::new(&self.storage, tree, files, finalized)
            }
            (None, None) => return Err(StorageError::Stopping),
        };
        progress.begin(sealing.bytes());
        let rate = self.services.config.arranging_bytes_per_second_max;
        let pace = Pace::new(progress, rate);
        let work = move || sealing.run(config.key.as_deref(), pace);
        let sealed = crate::traced::on_thread(io_trace::current(), work).await;
        let seal = sealed.unwrap_or(Err(StorageError::Stopping))?;
        crate::fault_point!(async "finalize.sealed");
        let id = self.storage.id;
        let (name, folder) = (FileName::Seal(id).to_string(), self.storage.folder.clone());
        let path = folder.join(&name);
        let bytes = bytes::Bytes::from(seal.encode());
        let entry = FileEntry {
            name: name.clone(),
            role: FileRole::Seal,
            length: bytes.len() as u64,
            checksum: crc32c(&bytes),
        };
        let published = self.services.io_thread.publish(folder, name, bytes).await;
        published.map_err(StorageError::io("write", &path))?;
        let key = seal
            .signature
            .map(|signature| signature.key.id().to_string());
        tracing::info!(
            storage = %id, digest = %seal.digest(), key = key.as_deref().unwrap_or("none"),
            "the storage is sealed"
        );
        Ok(Some(entry))
    }
}
