//! Name, description and labels of storages in the store: a change here is a record there, and the
//! record with the greatest number counts everywhere.

use std::sync::Arc;

use object_tier::{LabelRecord, TierError, change_labels, latest_labels};
use storage_core::{StorageInfo, StoragePatch};
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
