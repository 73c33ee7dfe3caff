//! Storages that have lost what says where they are in the store, or the checksums of their
//! granules: both are made again from the seal.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use object_tier::{Heads, Seal, TierError, latest_labels};
use storage_core::{StorageError, StorageInfo};
use storage_format::StorageId;

use super::pace::{Pace, is_refused};
use super::{Tier, labels, uploads};
use crate::app_state::AppState;

/// Why nothing is made again.
#[derive(Debug, thiserror::Error)]
enum MendError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Store(#[from] TierError),
    #[error("it has no seal in the object store")]
    NoSeal,
}

/// Makes again what is lost, as soon as a reader or the start notices it.
pub(super) async fn maintain(app: &Arc<AppState>, tier: &Tier) {
    let mut pace = Pace::of(tier);
    loop {
        tier.note("mending", round(app, tier).await);
        tokio::select! {
            () = pace.next() => {}
            () = app.engine.tiering().loss() => {}
        }
    }
}

async fn round(app: &Arc<AppState>, tier: &Tier) -> Result<(), TierError> {
    for id in app.engine.tiering().lost() {
        if is_refused(tier, id) {
            continue;
        }
        match mend(app, tier, id).await {
            Ok(()) => {
                tracing::info!(storage = %id, "the place of a storage in the object store is known again");
            }
            // It was deleted meanwhile.
            Err(_) if app.engine.storages().get(id).is_err() => {}
            Err(MendError::Store(error)) if error.is_passing() => return Err(error),
            Err(error) => {
                tier.refused.lock().insert(id, Instant::now());
                tracing::error!(
                    %error, storage = %id,
                    "the place of a storage in the object store cannot be made again, and what was \
                     evicted of it is not served; it is tried again later"
                );
            }
        }
    }
    Ok(())
}

async fn mend(app: &Arc<AppState>, tier: &Tier, id: StorageId) -> Result<(), MendError> {
    let tiering = app.engine.tiering();
    let info = app.engine.storages().get(id)?;
    let known = tiering.known(id)?;
    let Some(seal) = Seal::get(&tier.bucket, id).await? else {
        tiering.give_up_lost(id);
        return if tiering.has_lost(id) {
            Err(MendError::NoSeal)
        } else {
            Ok(())
        };
    };
    let heads = Heads::get(&tier.bucket, &seal).await?;
    let mut sums = Vec::new();
    for file in &seal.files {
        sums.extend_from_slice(&heads.sums(file)?);
    }
    let mut made = uploads::tier_file(&seal, &tier.store, seal.sums_at());
    made.is_own = match &known {
        Some(known) => known.is_own,
        None => seal.node == tier.node,
    };
    if known.is_none() {
        // What was changed here and is not in the store is noted there again.
        let record = latest_labels(&tier.bucket, id, 0).await?;
        made.label_number = record.as_ref().map_or(0, |record| record.number);
        let as_noted = record.map_or_else(
            || info.clone(),
            |record| StorageInfo {
                name: record.name,
                description: record.description,
                labels: record.labels,
                ..info.clone()
            },
        );
        made.labels_checksum = labels::checksum_of(&as_noted);
    }
    tiering.restore(made, Bytes::from(sums)).await?;
    app.open_files.close(id);
    Ok(())
}
