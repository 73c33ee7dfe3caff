//! Removing storages and what no seal names, and verifying what is there.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use storage_format::StorageId;

use crate::chain::{RECORD_HEADER_BYTES, chain_folder};
use crate::{Bucket, Hint, Listed, Seal, TierError, clock, hints, keys};

/// Objects that are removed at once.
const REMOVALS_AT_ONCE: usize = 16;
/// How often what is left of a storage is listed: a list may be late.
const LISTS_MAX: u32 = 4;

/// The body of the mark of a removed storage.
#[derive(Serialize)]
struct Gone<'a> {
    nonce: String,
    node: &'a str,
    time: i64,
}

/// What a collection removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Removes a storage for good: first the mark, which nobody removes and after which nobody may
/// seal it, then the seal, then everything else. It can be repeated.
///
/// # Errors
/// When the store does not answer: repeat it.
pub async fn remove_storage(
    bucket: &Bucket,
    storage: StorageId,
    node: &str,
) -> Result<(), TierError> {
    let key = keys::gone(storage);
    let now = clock::now_ns();
    let mark = Gone {
        nonce: clock::nonce(),
        node,
        time: now,
    };
    let body = serde_json::to_vec(&mark);
    let body = body.map_err(|error| TierError::damaged(&key, error.to_string()))?;
    // Whoever made the mark: it is there.
    bucket.create(&key, body.into()).await?;
    fault_point!("tier.remove.marked");
    hints::note(bucket, Hint::Gone, storage, now).await;
    fault_point!("tier.remove.told");
    remove_objects(bucket, storage).await
}

/// Whether a storage was removed.
///
/// # Errors
/// When the store does not answer.
pub async fn is_gone(bucket: &Bucket, storage: StorageId) -> Result<bool, TierError> {
    Ok(bucket.head(&keys::gone(storage)).await?.is_some())
}

/// An error if the storage was removed.
pub(crate) async fn refuse_gone(bucket: &Bucket, storage: StorageId) -> Result<(), TierError> {
    if is_gone(bucket, storage).await? {
        return Err(TierError::Gone(keys::storage(storage)));
    }
    Ok(())
}

/// Removes everything of a storage but the mark.
pub(crate) async fn remove_objects(bucket: &Bucket, storage: StorageId) -> Result<(), TierError> {
    let seal_key = keys::seal(storage);
    // A list may lack what the seal names. A damaged seal is of no help, and is removed, too.
    let mut named = BTreeSet::new();
    match Seal::get(bucket, storage).await {
        Ok(Some(seal)) => {
            named.insert(seal.heads.key);
            named.extend(seal.files.into_iter().map(|file| file.key));
        }
        Ok(None) | Err(TierError::Damaged { .. }) => {}
        Err(error) => return Err(error),
    }
    // First: a reader that finds a seal finds what it names.
    bucket.delete(&seal_key).await?;
    fault_point!("tier.remove.unsealed");
    delete_all(bucket, named).await?;
    fault_point!("tier.remove.named");
    let mark = keys::gone(storage);
    for _ in 0..LISTS_MAX {
        let listed = bucket.list_all(&keys::storage(storage)).await?;
        // Without the owns, a node that was taken over would find free numbers, and acknowledge.
        let chain = format!("{}/", chain_folder(storage));
        let stays = |object: &Listed| {
            let is_own = object.length == RECORD_HEADER_BYTES as u64;
            object.key == mark || object.key.starts_with(&chain) && is_own
        };
        let listed = listed.into_iter().filter(|object| !stays(object));
        let keys: BTreeSet<_> = listed.map(|object| object.key).collect();
        if keys.is_empty() {
            return Ok(());
        }
        delete_all(bucket, keys).await?;
    }
    tracing::warn!(%storage, "objects of a removed storage appear again and again");
    Ok(())
}

async fn delete_all(bucket: &Bucket, keys: BTreeSet<String>) -> Result<(), TierError> {
    let deletes = stream::iter(keys).map(async |key| bucket.delete(&key).await);
    deletes
        .buffer_unordered(REMOVALS_AT_ONCE)
        .try_collect()
        .await
}

/// Removes heads and large files of a sealed storage that the seal does not name and that are older
/// than `grace` by the time of the store: the rest of failed uploads, and of nodes that were not
/// the first. `now`, in ns since the epoch, only saves requests.
///
/// # Errors
/// When the store does not answer, or `seal` is not the seal that it has.
pub async fn collect_unnamed(
    bucket: &Bucket,
    storage: StorageId,
    seal: &Seal,
    grace: Duration,
    now: i64,
) -> Result<Collected, TierError> {
    // By the seal of a node that was not the first, the files of the storage would be unnamed.
    let stored = Seal::get(bucket, storage).await?;
    if stored.as_ref() != Some(seal) {
        let node = stored.map_or("no node".into(), |stored| stored.node);
        return Err(TierError::Superseded {
            storage: storage.to_string(),
            reason: format!("{node} sealed it, not {}: get the seal again", seal.node),
        });
    }
    let mut named: BTreeSet<_> = seal.files.iter().map(|file| file.key.as_str()).collect();
    named.insert(&seal.heads.key);
    let files = format!("{}/", keys::files(storage));
    let mut unnamed = Vec::new();
    let mut newest = i64::MIN;
    let mut listed = bucket.list(&keys::storage(storage));
    while let Some(object) = listed.try_next().await? {
        newest = newest.max(object.modified);
        let is_data = object.key.starts_with(&files) || keys::is_heads(storage, &object.key);
        if is_data && !named.contains(object.key.as_str()) {
            unnamed.push(object);
        }
    }
    let grace = i64::try_from(grace.as_nanos()).unwrap_or(i64::MAX);
    let is_old = |object: &Listed, now: i64| now.saturating_sub(object.modified) >= grace;
    // The clock of this node may be wrong by days. Times of the store are compared with each
    // other: with its newest one here, or with that of an object that is made for this.
    let mut store_now = newest;
    if unnamed
        .iter()
        .any(|object| is_old(object, now) && !is_old(object, newest))
    {
        store_now = newest.max(time_of_store(bucket, storage).await?);
    }
    unnamed.retain(|object| is_old(object, store_now));
    let collected = Collected {
        objects: unnamed.len() as u64,
        bytes: unnamed.iter().map(|object| object.length).sum(),
    };
    delete_all(
        bucket,
        unnamed.into_iter().map(|object| object.key).collect(),
    )
    .await?;
    Ok(collected)
}

/// What the clock of the store shows, by an object that is written for this.
async fn time_of_store(bucket: &Bucket, storage: StorageId) -> Result<i64, TierError> {
    let key = keys::clock(storage, &clock::nonce());
    bucket.put(&key, Bytes::new()).await?;
    let found = bucket.head(&key).await?;
    bucket.delete(&key).await?;
    let found = found.ok_or(TierError::Gone(key))?;
    Ok(found.modified)
}

#[cfg(test)]
mod tests;
