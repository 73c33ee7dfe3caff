//! Storages of other nodes, served from the store.

use std::sync::Arc;

use bytes::Bytes;
use object_tier::{Heads, Seal, TierError, latest_labels};
use storage_core::{Adoption, StorageError, StoragePatch};
use storage_format::StorageId;
use tracing::{info, warn};

use super::{Tier, deletions, labels, uploads};
use crate::app_state::AppState;

/// Why a storage of the store is not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdoptError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Store(#[from] TierError),
}

/// Serves a storage from the store, if it is there; two requests. Returns whether it is here now.
///
/// # Errors
/// When the store does not answer, or what it has is no storage.
pub(super) async fn adopt(
    app: &Arc<AppState>,
    tier: &Tier,
    id: StorageId,
) -> Result<bool, AdoptError> {
    // Whoever asks for a storage that is being adopted waits, and finds it.
    let _adopting = tier.adopting.lock().await;
    if app.engine.storages().get(id).is_ok() {
        return Ok(true);
    }
    // Its removal from the store is on its way.
    if deletions::is_pending(app, id).await? {
        return Ok(false);
    }
    let Some(seal) = Seal::get(&tier.bucket, id).await? else {
        return Ok(false);
    };
    let heads = Heads::get(&tier.bucket, &seal).await?;
    let sums_at = seal.sums_at();
    let mut small = Vec::with_capacity(seal.small.len());
    for file in &seal.small {
        small.push((file.name.clone(), heads.small(file)?));
    }
    let mut sums = Vec::new();
    for file in &seal.files {
        sums.extend_from_slice(&heads.sums(file)?);
    }
    storage_core::fault_point!(async "tier.adopt.found");
    let mut file = uploads::tier_file(&seal, &tier.store, sums_at);
    file.is_evicted = true;
    let adoption = Adoption {
        tier: file,
        sums: Bytes::from(sums),
        small,
    };
    match app.engine.tiering().adopt(adoption).await {
        Ok(_) => {}
        Err(StorageError::StorageExists(_)) => return Ok(true),
        Err(error) => return Err(error.into()),
    }
    storage_core::fault_point!(async "tier.adopt.served");
    info!(storage = %id, node = seal.node, "a storage of the object store is served from here");
    if let Err(error) = take_labels(app, tier, id).await {
        warn!(%error, storage = %id, "its labels are those of its upload until the next change");
    }
    Ok(true)
}

/// The labels of a storage that was adopted a moment ago.
async fn take_labels(app: &Arc<AppState>, tier: &Tier, id: StorageId) -> Result<(), AdoptError> {
    let record = latest_labels(&tier.bucket, id, 0).await?;
    let number = record.as_ref().map_or(0, |record| record.number);
    let info = match record {
        Some(record) => {
            let patch = StoragePatch {
                name: Some(record.name),
                description: Some(record.description),
                labels: Some(record.labels),
            };
            let info = app.engine.storages().update(id, patch).await?;
            storage_core::fault_point!(async "tier.adopt.labelled");
            info
        }
        None => app.engine.storages().get(id)?,
    };
    let checksum = labels::checksum_of(&info);
    app.engine
        .tiering()
        .note_labels(id, number, checksum)
        .await?;
    Ok(())
}
