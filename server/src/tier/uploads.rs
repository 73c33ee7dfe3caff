//! Uploads of finalized storages.

use std::sync::Arc;

use object_tier::{LocalFile, Seal, TierError, Upload, Uploaded, chain};
use storage_core::{LabelFilter, Progress, StorageError, StorageFilter, StorageInfo, TierPart};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use storage_format::tier_file::{TierFile, TieredFile};

use super::{Tier, deletions, labels};
use crate::app_state::AppState;
use crate::chunk_indexes::IndexState;
use crate::clock;

/// Why a storage was not uploaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Store(#[from] TierError),
    /// Another node sealed other bytes under the same id.
    #[error(
        "storage {0} is in the object store already, uploaded by node `{1}` with other files; what \
         is here is kept and not uploaded"
    )]
    Superseded(StorageId, String),
    /// Another node writes the storage.
    #[error(
        "storage {0} is written by node `{1}`, which took it over; what is here is kept and not \
         uploaded"
    )]
    NotOwner(StorageId, String),
}

/// The finalized storages that have to be uploaded, oldest first.
pub(super) fn wanted(app: &AppState, tier: &Tier) -> Vec<StorageInfo> {
    let label = tier.config.upload_label.as_str();
    let filter = StorageFilter {
        state: Some(StorageState::Finalized),
        labels: match label {
            "" => Vec::new(),
            label => vec![LabelFilter::parse(label)],
        },
        ..StorageFilter::default()
    };
    let mut storages = app.engine.storages().list(&filter);
    let is_only_here = |info: &StorageInfo| {
        let known = app.engine.tiering().known(info.id);
        let is_unknown = matches!(known, Ok(None)) && !app.engine.tiering().has_lost(info.id);
        is_unknown && !tier.superseded.lock().contains(&info.id)
    };
    storages.retain(is_only_here);
    storages
}

/// Whether what belongs to the storage is complete; a failed index is not waited for.
pub(super) fn is_complete(app: &AppState, id: StorageId) -> bool {
    app.indexes.state_of(id) != IndexState::InProgress
}

/// Uploads a storage that is only here, and notes that it is in the store.
///
/// # Errors
/// When it cannot be read, the store does not answer, or another storage with its id is there.
pub(crate) async fn upload(
    app: &Arc<AppState>,
    tier: &Tier,
    id: StorageId,
    progress: &Progress,
) -> Result<(), UploadError> {
    let _uploading = tier.uploading.lock().await;
    let info = app.engine.storages().get(id)?;
    if app.engine.tiering().info(id)?.is_some() {
        return Ok(());
    }
    // Behind the close of a chain any node that made the storage from it may seal it.
    if let Some(standing) = chain::standing(&tier.bucket, id).await?
        && !standing.is_closed
        && standing.owner.node != *tier.nodes.name()
    {
        tier.superseded.lock().insert(id);
        return Err(UploadError::NotOwner(id, standing.owner.node.to_string()));
    }
    if app.engine.tiering().has_lost(id) {
        let problem = format!("where {id} is in the object store is being found out: try again");
        let what = "storage";
        return Err(StorageError::Invalid { what, problem }.into());
    }
    let parts = app.engine.tiering().parts(id).await?;
    progress.begin(parts.large.iter().map(|part| part.length).sum());
    let journal = parts.journal.clone();
    let upload = Upload {
        storage: id,
        node: tier.node.clone(),
        now: clock::now_ns(),
        storage_file: parts.storage_file,
        small: parts.small.into_iter().map(local).collect(),
        large: parts.large.into_iter().map(local).collect(),
        journal: parts.journal,
    };
    let uploaded = object_tier::upload(&tier.bucket, upload, |bytes| progress.add(bytes)).await?;
    let (seal, sums, sums_at) = match uploaded {
        Uploaded::Sealed {
            seal,
            sums,
            sums_at,
        } => (seal, sums, sums_at),
        Uploaded::SealedByOther(seal) => {
            tier.superseded.lock().insert(id);
            // It says that a seal was on its way from here.
            let _ = tokio::fs::remove_file(journal).await;
            return Err(UploadError::Superseded(id, seal.node));
        }
        // This node was killed before it noted its seal, and another one deleted the storage.
        Uploaded::Removed => {
            deletions::delete_here(app, id).await?;
            return Err(StorageError::StorageNotFound(id).into());
        }
    };
    let mut file = tier_file(&seal, &tier.store, sums_at);
    file.is_own = true;
    file.labels_checksum = labels::checksum_of(&info);
    app.engine.tiering().uploaded(file, sums).await?;
    storage_core::fault_point!(async "tier.upload.noted");
    if storage_core::sabotaged!("evict-first") {
        app.engine.tiering().evict(id).await?;
    }
    // A journal that stays is read by the next upload, and there is none.
    let _ = tokio::fs::remove_file(journal).await;
    storage_core::fault_point!(async "tier.upload.journal_removed");
    tracing::info!(storage = %id, name = info.name, "the storage is in the object store");
    forget_packets(tier, id).await;
    storage_core::fault_point!(async "tier.upload.ended");
    Ok(())
}

fn local(part: TierPart) -> LocalFile {
    LocalFile {
        name: part.name,
        path: part.path,
        length: part.length,
        checksum: part.checksum,
    }
}

/// Removes packets from the chains of sealed storages that a crash, or a store that did not answer,
/// left there.
pub(super) async fn forget_left_packets(app: &AppState, tier: &Tier) {
    let Some(chains) = tier.chains() else {
        return;
    };
    for id in chains.known().finalized().await {
        if matches!(app.engine.tiering().known(id), Ok(Some(_))) {
            forget_packets(tier, id).await;
        }
    }
}

/// Removes the packets of a sealed storage from its chain, if it has one. That it has one is
/// forgotten last: until then the next round repeats this.
async fn forget_packets(tier: &Tier, id: StorageId) {
    if let Some(chains) = tier.chains() {
        chains.forget(id);
    }
    let collected = chain::collect(&tier.bucket, id).await;
    storage_core::fault_point!(async "tier.upload.chain_collected");
    let is_later = matches!(&collected, Err(error) if error.is_passing());
    if let Some(chains) = tier.chains().filter(|_| !is_later) {
        chains.known().forget(id).await;
    }
    match collected {
        Ok(collected) if collected.removed > 0 => tracing::info!(
            storage = %id, records = collected.removed, bytes = collected.bytes,
            "the packets of a sealed storage are removed from its chain"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(
            %error, storage = %id, "the chain of a sealed storage keeps its packets for now"
        ),
    }
}

/// What a node knows of a seal. The checksums of granules begin at `sums_at` of the heads.
pub(super) fn tier_file(seal: &Seal, store: &str, sums_at: u64) -> TierFile {
    let files = seal.files.iter().map(|file| TieredFile {
        name: file.name.clone(),
        key: file.key.clone(),
        length: file.length,
        checksum: file.checksum,
        sums_at: file.sums_at.saturating_sub(sums_at),
        sums_checksum: file.sums_checksum,
    });
    TierFile {
        storage: seal.storage,
        store: store.to_owned(),
        seal: seal.nonce.clone(),
        sealed: seal.sealed,
        is_own: false,
        is_evicted: false,
        label_number: 0,
        labels_checksum: 0,
        files: files.collect(),
    }
}
