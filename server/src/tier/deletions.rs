//! Deletions of storages that are in the store. What is to be removed there is noted before the
//! storage is deleted here, so that a crash or a store that does not answer delays it only.

use std::collections::BTreeSet;
use std::sync::Arc;

use object_tier::{TierError, remove_storage};
use storage_core::StorageError;
use storage_format::StorageId;

use super::Tier;
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

/// Deletes a storage with `delete`, which deletes it here, and in the store if it is there.
///
/// # Errors
/// Those of `delete`; nothing is removed from the store then.
pub(crate) async fn forget_everywhere(
    app: &Arc<AppState>,
    id: StorageId,
    delete: impl Future<Output = Result<(), StorageError>>,
) -> Result<(), StorageError> {
    let tier = app.tier.as_ref();
    let in_store = app
        .engine
        .tiering()
        .info(id)
        .is_ok_and(|known| known.is_some());
    let Some(tier) = tier.filter(|_| in_store) else {
        return delete.await;
    };
    change(app, tier, |ids| {
        ids.insert(id);
    })
    .await?;
    let deleted = delete.await;
    if app.engine.storages().get(id).is_ok() {
        // Refused: it stays, here and there.
        change(app, tier, |ids| {
            ids.remove(&id);
        })
        .await?;
    } else {
        tier.wake();
    }
    deleted
}

/// Removes from the store what was deleted here.
pub(super) async fn complete(app: &AppState, tier: &Tier) -> Result<(), TierError> {
    let Ok(ids) = read(app).await else {
        return Ok(());
    };
    for id in ids {
        // A crash came before the deletion here.
        let is_here = app.engine.storages().get(id).is_ok();
        if !is_here {
            remove_storage(&tier.bucket, id, &tier.node).await?;
            tracing::info!(storage = %id, "a deleted storage is removed from the object store");
        }
        if let Err(error) = change(app, tier, |ids| {
            ids.remove(&id);
        })
        .await
        {
            tracing::warn!(%error, storage = %id, "its removal is repeated in the next round");
        }
    }
    Ok(())
}

/// Deletes what another node has removed from the store, and what was only there.
pub(super) async fn follow(app: &Arc<AppState>, tier: &Tier, id: StorageId) -> bool {
    let known = app.engine.tiering().info(id);
    if !matches!(known, Ok(Some(_))) {
        return false;
    }
    match app.engine.storages().delete(id).await {
        Ok(()) => {
            app.open_files.close(id);
            app.event_files.close(id).await;
            app.unreadable.forget(id);
            tracing::info!(
                storage = %id, node = tier.node,
                "another node has deleted the storage; it is deleted here, too"
            );
            true
        }
        Err(error) => {
            tracing::warn!(%error, storage = %id, "a storage that another node deleted stays here");
            false
        }
    }
}
