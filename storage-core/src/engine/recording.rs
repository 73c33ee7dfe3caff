//! What recordings need of the engine: the state of the storage they fill, and a place for what
//! they are.

use bytes::Bytes;
use io_trace::Cause;
use storage_format::{
    StorageId,
    limits::ENVELOPE_BODY_BYTES_MAX,
    storage_file::{StorageFile, StorageState},
};

use super::{Engine, StorageInfo};
use crate::{StorageError, clock, read::read_small, writer::Services};

/// The file in the data folder that says which recordings there are.
const RECORDINGS_FILE: &str = "recordings.json";

impl Engine {
    /// Now, in ns since the epoch, as arrivals are measured.
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        clock::now_ns()
    }

    /// Moves a storage from OPEN to RECORDING; opens it when it is not open yet.
    ///
    /// # Errors
    /// When there is no such storage, or it is being recorded into, finalized or failed.
    pub async fn begin_recording(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        let storage = self.find(id)?;
        if storage.state() == StorageState::Created {
            self.open_storage(id).await?;
        }
        let change = |file: &mut StorageFile| match file.state {
            StorageState::Open => {
                file.state = StorageState::Recording;
                Ok(())
            }
            _ => Err(storage.wrong_state("a recording", "CREATED or OPEN")),
        };
        let Services {
            io_thread, catalog, ..
        } = self.services();
        storage.change(io_thread, catalog, change).await?;
        Ok(storage.info())
    }

    /// Moves a storage from RECORDING back to OPEN; nothing to do in any other state.
    ///
    /// # Errors
    /// When there is no such storage, or its storage file cannot be written.
    pub async fn end_recording(&self, id: StorageId) -> Result<StorageInfo, StorageError> {
        let storage = self.find(id)?;
        if storage.state() == StorageState::Recording {
            let change = |file: &mut StorageFile| {
                if file.state == StorageState::Recording {
                    file.state = StorageState::Open;
                }
                Ok(())
            };
            let Services {
                io_thread, catalog, ..
            } = self.services();
            storage.change(io_thread, catalog, change).await?;
        }
        Ok(storage.info())
    }

    /// What was kept with [`Self::keep_recordings`]; nothing when there is no such file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn kept_recordings(&self) -> Result<Option<Vec<u8>>, StorageError> {
        let path = self.services().config.data_dir.join(RECORDINGS_FILE);
        self.blocking(Cause::Manage, move || {
            match read_small(&path, u64::from(ENVELOPE_BODY_BYTES_MAX)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(StorageError::io("read", path)(error)),
            }
        })
        .await
    }

    /// Keeps what the recordings are, durably, instead of what was kept before.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn keep_recordings(&self, text: Bytes) -> Result<(), StorageError> {
        let folder = self.services().config.data_dir.clone();
        let path = folder.join(RECORDINGS_FILE);
        let io_thread = &self.services().io_thread;
        let published = io_thread.publish(folder, RECORDINGS_FILE.to_owned(), text);
        published.await.map_err(StorageError::io("write", path))
    }
}
