//! Copies of storages that another node has instead.

use storage_core::StorageError;

use super::Tier;
use super::chains::Outdated;
use crate::app_state::AppState;

/// Sets copies aside that are of no use any more; those of which this node still owns the chain are
/// made again in the next round.
pub(super) async fn replace_outdated(app: &AppState, tier: &Tier) {
    let Some(chains) = tier.chains() else {
        return;
    };
    // Who waits for it finds them replaced.
    let _replacing = tier.replacing.lock().await;
    for Outdated {
        id,
        is_owned,
        reason,
    } in chains.take_outdated()
    {
        // It was made again since.
        if !chains.is_outdated(id) {
            continue;
        }
        match app.engine.storages().set_aside(id).await {
            Ok(place) => tracing::warn!(
                storage = %id, reason, place = %place.display(),
                "the copy of the storage here is outdated and was set aside"
            ),
            Err(StorageError::StorageNotFound(_)) => {}
            Err(error) => {
                tracing::error!(
                    %error, storage = %id, reason,
                    "an outdated copy of a storage cannot be set aside; the next start tries again"
                );
                continue;
            }
        }
        chains.forget(id);
        app.open_files.close(id);
        app.event_files.close(id).await;
        app.unreadable.forget(id);
        if is_owned {
            tier.lost.lock().push(id);
            tier.wake();
        } else {
            chains.known().forget(id).await;
        }
    }
}
