//! Deletions of storages that are in the store. What is to be removed there is noted before the
//! storage is deleted here, so that a crash or a store that does not answer delays it only.

use std::collections::BTreeSet;
use std::sync::Arc;

use object_tier::{TierError, remove_storage};
use storage_core::{StorageError, is_held};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;

use super::outdated::replace_outdated;
use super::{Tier, labels};
use crate::app_state::AppState;

/// The document with the ids, one a line.
const DOCUMENT: &str = "object-store.deletions";

async fn read(app: &AppState) -> Result<BTreeSet<StorageId>, StorageError> {
    let bytes = app.engine.documents().read(DOCUMENT).await?;
    let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

async fn change(
    app: &AppState,
    tier: &Tier,
    change: impl FnOnce(&mut BTreeSet<StorageId>),
) -> Result<(), StorageError> {
    let _deleting = tier.deleting.lock().await;
    let mut ids = read(app).await?;
    let before = ids.clone();
    change(&mut ids);
    if ids == before {
        return Ok(());
    }
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    app.engine.documents().write(DOCUMENT, lines.into()).await
}

/// A storage that is being deleted, until this is dropped.
struct Deleting<'t>(&'t Tier, StorageId);

impl<'t> Deleting<'t> {
    fn begin(tier: &'t Tier, id: StorageId) -> Self {
        tier.being_deleted.lock().insert(id);
        Self(tier, id)
    }
}

impl Drop for Deleting<'_> {
    fn drop(&mut self) {
        self.0.being_deleted.lock().remove(&self.1);
    }
}

/// Makes sure that this node has the storage, and that nobody goes on with it.
async fn end_chain(app: &Arc<AppState>, tier: &Tier, id: StorageId) -> Result<(), StorageError> {
    let Some(chains) = tier.chains() else {
        return Ok(());
    };
    let closed = chains.close_for_deletion(id).await;
    if matches!(closed, Err(StorageError::Superseded { .. })) {
        // Whoever repeats the deletion is sent to the new writer.
        replace_outdated(app, tier).await;
    }
    closed
}

/// Deletes a storage with `delete`, which deletes it here, and in the store. Also one that is not
/// known to be there: an upload may be on its way, and must find that it is gone.
///
/// # Errors
/// Those of `delete`; nothing is removed from the store then.
pub(crate) async fn forget_everywhere(
    app: &Arc<AppState>,
    id: StorageId,
    delete: impl Future<Output = Result<(), StorageError>>,
) -> Result<(), StorageError> {
    let Some(tier) = &app.tier else {
        return delete.await;
    };
    // Another node may have held it a moment ago.
    labels::exchange(app, tier, id).await;
    let info = app.engine.storages().get(id)?;
    if info.state != StorageState::Finalized && !is_held(&info) {
        end_chain(app, tier, id).await?;
        storage_core::fault_point!(async "tier.delete.chain_ended");
    }
    let deleting = Deleting::begin(tier, id);
    let note = |ids: &mut BTreeSet<StorageId>| {
        ids.insert(id);
    };
    change(app, tier, note).await?;
    storage_core::fault_point!(async "tier.delete.noted");
    let deleted = delete.await;
    storage_core::fault_point!(async "tier.delete.here");
    if app.engine.storages().get(id).is_ok() {
        // Refused: it stays, here and there.
        let forget = |ids: &mut BTreeSet<StorageId>| {
            ids.remove(&id);
        };
        change(app, tier, forget).await?;
    }
    drop(deleting);
    if let Some(chains) = tier.chains() {
        // Its task would go on appending.
        if deleted.is_ok() {
            chains.forget(id);
            chains.known().forget(id).await;
        }
    }
    tier.wake();
    deleted
}

/// Whether a storage was deleted here and may still be in the store.
pub(super) async fn is_pending(app: &AppState, id: StorageId) -> Result<bool, StorageError> {
    Ok(read(app).await?.contains(&id))
}

/// Removes from the store what was deleted here.
pub(super) async fn complete(app: &AppState, tier: &Tier) -> Result<(), TierError> {
    let Ok(ids) = read(app).await else {
        return Ok(());
    };
    for id in ids {
        if tier.being_deleted.lock().contains(&id) {
            continue;
        }
        // A crash came before the deletion here.
        let is_here = app.engine.storages().get(id).is_ok();
        if !is_here && labels::is_held_there(tier, id).await? {
            tracing::error!(
                storage = %id,
                "a storage that was deleted here while the object store did not answer is held by \
                 another node: it stays in the store, and is served from there"
            );
        } else if !is_here {
            remove_storage(&tier.bucket, id, &tier.node).await?;
            storage_core::fault_point!(async "tier.delete.there");
            tracing::info!(storage = %id, "a deleted storage is removed from the object store");
        }
        let forget = |ids: &mut BTreeSet<StorageId>| {
            ids.remove(&id);
        };
        if let Err(error) = change(app, tier, forget).await {
            tracing::warn!(%error, storage = %id, "its removal is repeated in the next round");
        }
    }
    Ok(())
}

/// Deletes a storage that another node has deleted.
pub(super) async fn delete_here(app: &AppState, id: StorageId) -> Result<(), StorageError> {
    app.engine.storages().delete(id).await?;
    storage_core::fault_point!(async "tier.delete.followed");
    app.open_files.close(id);
    app.event_files.close(id).await;
    app.unreadable.forget(id);
    tracing::info!(storage = %id, "another node has deleted the storage; it is deleted here, too");
    Ok(())
}

/// Deletes what another node has removed from the store, and what was only there.
pub(super) async fn follow(app: &Arc<AppState>, id: StorageId) -> bool {
    let known = app.engine.tiering().info(id);
    if !matches!(known, Ok(Some(_))) {
        return false;
    }
    match delete_here(app, id).await {
        Ok(()) => true,
        // Said again in each round while the news are new.
        Err(error) => {
            tracing::debug!(
                %error, storage = %id, "a storage that another node deleted stays here"
            );
            false
        }
    }
}
