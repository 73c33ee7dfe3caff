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

/// Notes what the labels are here, if they are others than the store knows, and takes what other
/// nodes changed meanwhile.
pub(super) async fn publish(app: &AppState, tier: &Tier, id: StorageId) -> Result<(), TierError> {
    let _one_at_a_time = tier.labelling.lock().await;
    publish_alone(app, tier, id).await
}

async fn publish_alone(app: &AppState, tier: &Tier, id: StorageId) -> Result<(), TierError> {
    let (Ok(info), Ok(Some(known))) = (
        app.engine.storages().get(id),
        app.engine.tiering().known(id),
    ) else {
        return Ok(());
    };
    let checksum = checksum_of(&info);
    if checksum == known.labels_checksum {
        return Ok(());
    }
    let record = LabelRecord {
        number: 0,
        name: info.name,
        description: info.description,
        labels: info.labels,
    };
    let after = known.label_number;
    let stored = change_labels(&tier.bucket, id, after, record.clone(), &tier.node).await?;
    storage_core::fault_point!(async "tier.labels.told");
    if stored.is_same(&record) {
        note(app, id, stored.number, checksum).await;
    } else {
        keep(app, id, stored).await;
    }
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
    exchange_alone(app, tier, id).await;
    let changed = change.await?;
    storage_core::fault_point!(async "tier.labels.changed");
    exchange_alone(app, tier, id).await;
    Ok(changed)
}

/// Tells the store the labels of a storage, and takes those of other nodes, if it answers.
pub(super) async fn exchange(app: &AppState, tier: &Tier, id: StorageId) {
    let _one_at_a_time = tier.labelling.lock().await;
    exchange_alone(app, tier, id).await;
}

async fn exchange_alone(app: &AppState, tier: &Tier, id: StorageId) {
    if tier.status().failure().is_some() {
        return;
    }
    let both = async {
        publish_alone(app, tier, id).await?;
        take_alone(app, tier, id).await
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
pub(super) async fn take(app: &AppState, tier: &Tier, id: StorageId) -> Result<(), TierError> {
    let _one_at_a_time = tier.labelling.lock().await;
    // What was changed here and is not told yet would be lost.
    publish_alone(app, tier, id).await?;
    take_alone(app, tier, id).await
}

async fn take_alone(app: &AppState, tier: &Tier, id: StorageId) -> Result<(), TierError> {
    let Ok(Some(known)) = app.engine.tiering().info(id) else {
        return Ok(());
    };
    let after = known.file.label_number;
    if let Some(record) = latest_labels(&tier.bucket, id, after).await? {
        keep(app, id, record).await;
    }
    Ok(())
}

/// Makes the labels of a storage those of a record in the store.
async fn keep(app: &AppState, id: StorageId, record: LabelRecord) {
    let number = record.number;
    let patch = StoragePatch {
        name: Some(record.name),
        description: Some(record.description),
        labels: Some(record.labels),
    };
    match app.engine.storages().update(id, patch).await {
        Ok(info) => {
            storage_core::fault_point!(async "tier.labels.taken");
            app.open_files.close(id);
            note(app, id, number, checksum_of(&info)).await;
        }
        Err(error) => tracing::warn!(
            %error, storage = %id, number,
            "labels that the store has cannot be taken"
        ),
    }
}

async fn note(app: &AppState, id: StorageId, number: u64, checksum: u32) {
    let noted = app.engine.tiering().note_labels(id, number, checksum).await;
    if let Err(error) = noted {
        tracing::debug!(%error, storage = %id, "the next round notes the labels again");
    }
}
