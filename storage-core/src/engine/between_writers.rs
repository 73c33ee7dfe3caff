//! Storages between two writers: a repair has ended the first one.

use std::sync::{Arc, atomic::Ordering};

use storage_format::storage_file::StorageState;

use crate::{StorageError, storage::Storage};

/// A storage whose writer a repair has ended: pushes are refused as they are during a recovery.
pub(super) struct BetweenWriters(Arc<Storage>);

impl BetweenWriters {
    fn of(storage: &Arc<Storage>) -> Self {
        storage.is_being_repaired.store(true, Ordering::SeqCst);
        Self(Arc::clone(storage))
    }
}

impl Drop for BetweenWriters {
    fn drop(&mut self) {
        let storage = &self.0;
        if !storage.is_replaced() && storage.writer.read().is_none() {
            // Nothing, if it says why already.
            storage.poison.set("its repair ended unexpectedly");
        }
        storage.is_being_repaired.store(false, Ordering::SeqCst);
    }
}

/// Keeps packets and recordings out of an open storage. One that began while it was read keeps its
/// storage.
pub(super) async fn begin(storage: &Arc<Storage>) -> Result<BetweenWriters, StorageError> {
    let _changing = storage.hold().await?;
    match storage.state() {
        StorageState::Open | StorageState::Failed => Ok(BetweenWriters::of(storage)),
        _ => Err(storage.wrong_state("a repair", "OPEN or FAILED")),
    }
}
