//! Hints: empty objects whose keys say what happened in which hour, so that other nodes find it by
//! one list in place of a list of all storages. The truth is below `s/`; [`repair_hints`] makes
//! hints again that were lost.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::TryStreamExt;
use jiff::Timestamp;
use storage_format::StorageId;

use crate::{Bucket, TierError, clock, keys};

/// What happened to a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hint {
    /// It was sealed.
    Sealed,
    /// Its labels with this number were stored.
    Labelled(u64),
    /// It was removed.
    Gone,
}

/// Notes what happened to a storage, now in ns since the epoch. A failure is only logged: the
/// storage itself is as it must be.
pub async fn note(bucket: &Bucket, hint: Hint, storage: StorageId, now: i64) {
    let key = key(hint, storage, now);
    if let Err(error) = bucket.put(&key, Bytes::new()).await {
        let what = "a hint is missing in the object store: repair the hints to have others see it";
        tracing::warn!(%error, %storage, "{what}");
    }
}

/// The storages that were sealed in this hour (`20260131T09`) or later, or ever, with the hour of
/// each. A storage may be among them twice.
///
/// # Errors
/// When the store does not answer.
pub async fn sealed_since(
    bucket: &Bucket,
    hour_from: Option<String>,
) -> Result<Vec<(String, StorageId)>, TierError> {
    let found = since(bucket, keys::SEALED, hour_from).await?;
    let parsed = found.into_iter().filter_map(|(hour, name)| {
        let storage = name.parse().ok()?;
        Some((hour, storage))
    });
    Ok(parsed.collect())
}

/// The storages whose labels changed, or that were removed, in this hour or later, or ever, with
/// the hour and what happened; in no order within an hour.
///
/// # Errors
/// When the store does not answer.
pub async fn changed_since(
    bucket: &Bucket,
    hour_from: Option<String>,
) -> Result<Vec<(String, StorageId, Hint)>, TierError> {
    let found = since(bucket, keys::CHANGED, hour_from).await?;
    let parsed = found.into_iter().filter_map(|(hour, name)| {
        let (storage, what) = name.split_once('.')?;
        let hint = match what {
            "gone" => Hint::Gone,
            number => Hint::Labelled(number.parse().ok()?),
        };
        Some((hour, storage.parse().ok()?, hint))
    });
    Ok(parsed.collect())
}

/// Makes the hints again of sealed storages that have none; returns how many. They are of this
/// hour, so that those who look for news see them. Lists all objects below `s/`: use it rarely.
///
/// # Errors
/// When the store does not answer.
pub async fn repair_hints(bucket: &Bucket) -> Result<u64, TierError> {
    let hinted = sealed_since(bucket, None).await?;
    let hinted: BTreeSet<_> = hinted.into_iter().map(|(_, storage)| storage).collect();
    let (mut sealed, mut gone) = (BTreeSet::new(), BTreeSet::new());
    let mut listed = bucket.list(keys::STORAGES);
    while let Some(object) = listed.try_next().await? {
        let mut parts = object.key.split('/').skip(1);
        let storage = parts.next().and_then(|id| id.parse::<StorageId>().ok());
        let Some(storage) = storage else { continue };
        match (parts.next(), parts.next()) {
            (Some("seal"), None) => sealed.insert(storage),
            (Some("gone"), None) => gone.insert(storage),
            _ => continue,
        };
    }
    let mut count = 0;
    for storage in sealed.difference(&gone) {
        if !hinted.contains(storage) {
            let key = key(Hint::Sealed, *storage, clock::now_ns());
            bucket.put(&key, Bytes::new()).await?;
            count += 1;
        }
    }
    Ok(count)
}

fn key(hint: Hint, storage: StorageId, now: i64) -> String {
    let hour = hour(now);
    match hint {
        Hint::Sealed => format!("{}/{hour}/{storage}", keys::SEALED),
        Hint::Labelled(number) => format!("{}/{hour}/{storage}.{number}", keys::CHANGED),
        Hint::Gone => format!("{}/{hour}/{storage}.gone", keys::CHANGED),
    }
}

/// The hour of a time in ns since the epoch, as keys have it: `20260131T09`, in UTC.
#[must_use]
pub fn hour(time: i64) -> String {
    // Every such number is a time: the years 1677 to 2262.
    let time = Timestamp::from_nanosecond(i128::from(time)).unwrap_or_default();
    time.strftime("%Y%m%dT%H").to_string()
}

/// Hour and name of the hints below a folder.
async fn since(
    bucket: &Bucket,
    folder: &str,
    hour_from: Option<String>,
) -> Result<Vec<(String, String)>, TierError> {
    // The hour itself is a folder: every key in it is behind its name.
    let after = hour_from.map(|hour| format!("{folder}/{hour}"));
    let listed = bucket.list_after(folder, after.as_deref());
    let found = listed.try_filter_map(|object| {
        let mut parts = object.key.split('/').skip(1).map(str::to_owned);
        let found = match (parts.next(), parts.next(), parts.next()) {
            (Some(hour), Some(name), None) => Some((hour, name)),
            _ => None,
        };
        std::future::ready(Ok(found))
    });
    let mut found: Vec<_> = found.try_collect().await?;
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
