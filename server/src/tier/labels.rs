//! Name, description and labels of storages in the store: a change here is a record there, and the
//! record with the greatest number counts everywhere.

use std::sync::Arc;
use std::time::Duration;

use object_tier::{LabelRecord, TierError, change_labels, latest_labels};
use storage_core::{LEGAL_HOLD, StorageError, StorageInfo, StoragePatch};
use storage_format::StorageId;
use storage_format::checksum::{crc32c, crc32c_append};

use super::Tier;
use crate::app_state::AppState;

/// A number that changes when name, description or labels do.
pub(super) fn checksum_of(info: &StorageInfo) -> u32 {
    let mut sum = crc32c(info.name.as_bytes());
    let texts = info.labels.iter().flat_map(|(key, value)| [key, value]);
    for text in [&info.description].into_iter().chain(texts) {
        sum = crc32c_append(sum, &[0]);
        sum = crc32c_append(sum, text.as_bytes());
    }
    sum
}

/// Notes what the labels are here, if they are others than the store knows.
pub(super) async fn publish(
    app: &AppState,
    tier: &Tier,
    info: &StorageInfo,
) -> Result<(), TierError> {
    let Ok(Some(known)) = app.engine.tiering().known(info.id) else {
        return Ok(());
    };
    let checksum = checksum_of(info);
    if checksum == known.labels_checksum {
        return Ok(());
    }
    let record = LabelRecord {
        number: 0,
        name: info.name.clone(),
        description: info.description.clone(),
        labels: info.labels.clone(),
    };
    let after = known.label_number;
    let stored = change_labels(&tier.bucket, info.id, after, record, &tier.node).await?;
    note(app, info.id, stored.number, checksum).await;
    Ok(())
}

/// How long a change of labels waits for the store, before and after.
const EXCHANGE_MAX: Duration = Duration::from_secs(2);

/// Changes the labels of a storage with `change`, after those of other nodes were taken. The store
/// has the change when this returns: a hold that is acknowledged is seen by a deletion on any node.
/// If the store does not answer in time, the next round tells it.
pub(crate) async fn change_everywhere<T>(
    app: &Arc<AppState>,
    id: StorageId,
    change: impl Future<Output = Result<T, StorageError>>,
) -> Result<T, StorageError> {
    let Some(tier) = &app.tier else {
        return change.await;
    };
    let _one_at_a_time = tier.labelling.lock().await;
    exchange(app, tier, id).await;
    let changed = change.await?;
    exchange(app, tier, id).await;
    Ok(changed)
}

/// Tells the store the labels of a storage, and takes those of other nodes, if it answers.
pub(super) async fn exchange(app: &Arc<AppState>, tier: &Tier, id: StorageId) {
    let Ok(info) = app.engine.storages().get(id) else {
        return;
    };
    if tier.status().failure().is_some() {
        return;
    }
    let both = async {
        publish(app, tier, &info).await?;
        take(app, tier, id).await
    };
    match tokio::time::timeout(EXCHANGE_MAX, both).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, storage = %id, "labels are exchanged in the next round");
        }
        Err(_) => tracing::warn!(storage = %id, "labels are exchanged in the next round"),
    }
}

/// Whether a node holds a storage that is in the store.
pub(super) async fn is_held_there(tier: &Tier, id: StorageId) -> Result<bool, TierError> {
    let record = latest_labels(&tier.bucket, id, 0).await?;
    Ok(record.is_some_and(|record| record.labels.contains_key(LEGAL_HOLD)))
}

/// Takes the labels that another node has stored.
pub(super) async fn take(app: &Arc<AppState>, tier: &Tier, id: StorageId) -> Result<(), TierError> {
    let Ok(Some(known)) = app.engine.tiering().info(id) else {
        return Ok(());
    };
    let after = known.file.label_number;
    let Some(record) = latest_labels(&tier.bucket, id, after).await? else {
        return Ok(());
    };
    let number = record.number;
    let patch = StoragePatch {
        name: Some(record.name),
        description: Some(record.description),
        labels: Some(record.labels),
    };
    match app.engine.storages().update(id, patch).await {
        Ok(info) => {
            app.open_files.close(id);
            note(app, id, number, checksum_of(&info)).await;
        }
        Err(error) => tracing::warn!(
            %error, storage = %id, number,
            "labels that another node has stored cannot be taken"
        ),
    }
    Ok(())
}

async fn note(app: &AppState, id: StorageId, number: u64, checksum: u32) {
    let noted = app.engine.tiering().note_labels(id, number, checksum).await;
    if let Err(error) = noted {
        tracing::debug!(%error, storage = %id, "the next round notes the labels again");
    }
}
