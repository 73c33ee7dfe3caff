//! Removing the packets of a sealed storage from its chain.

use futures_util::StreamExt;
use storage_format::StorageId;

use super::{
    keys::{chain_folder, number_of, seal_key},
    record::{Header, Location, RECORD_HEADER_BYTES, RecordKind, decode_header},
    walk::fetch_seal,
};
use crate::{Bucket, Listed, TierError};

/// Headers that are fetched at once.
const READ_AHEAD: usize = 8;

/// What a collection did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Records that were removed.
    pub removed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that stay: owns, closes, and void ones.
    pub kept: u64,
    /// Records that stay because they cannot be read.
    pub damaged: u64,
}

/// Removes the records of packets of a sealed storage. May run at any time, on several nodes, and
/// again: a request that was delayed for long can bring a record back. Void records stay, for the
/// reason for which owns do.
///
/// # Errors
/// When the storage has no seal, or the store does not answer.
pub async fn collect(bucket: &Bucket, storage: StorageId) -> Result<Collected, TierError> {
    if fetch_seal(bucket, storage).await?.is_none() {
        return Err(TierError::NotSealed(storage.to_string()));
    }
    let mut records = bucket
        .list(&chain_folder(storage))
        .map(|listed| fetch_header(bucket, storage, listed))
        .buffered(READ_AHEAD);
    let mut collected = Collected::default();
    // The largest epoch of an `own`, and the number behind the record before.
    let (mut epoch, mut next) = (0, 0);
    while let Some(record) = records.next().await {
        let Some((number, length, header)) = record? else {
            continue;
        };
        let Some(header) = header else {
            collected.damaged += 1;
            continue;
        };
        // A list that is not in order does not tell what is behind which `own`.
        let is_in_order = number >= next;
        next = next.max(number.saturating_add(1));
        if header.kind == RecordKind::Own {
            epoch = header.epoch.max(epoch);
        }
        let is_void = header.epoch < epoch;
        if header.kind != RecordKind::Packets || is_void || !is_in_order {
            collected.kept += 1;
            continue;
        }
        bucket.delete(&Location { storage, number }.key()).await?;
        collected.removed += 1;
        collected.bytes += length;
    }
    if collected.damaged > 0 {
        let seal = seal_key(storage);
        let count = collected.damaged;
        tracing::warn!(%seal, count, "damaged records of a sealed storage are left where they are");
    }
    Ok(collected)
}

type Found = (u64, u64, Option<Header>);

/// The number and the length of a listed record, and its header unless that is damaged.
async fn fetch_header(
    bucket: &Bucket,
    storage: StorageId,
    listed: Result<Listed, TierError>,
) -> Result<Option<Found>, TierError> {
    let listed = listed?;
    let Some(number) = number_of(&listed.key) else {
        return Ok(None);
    };
    let location = Location { storage, number };
    if listed.length < RECORD_HEADER_BYTES as u64 {
        return Ok(Some((number, listed.length, None)));
    }
    let range = 0..RECORD_HEADER_BYTES as u64;
    let header = match bucket.get_range(&location.key(), range).await {
        Ok(bytes) => decode_header(&bytes, location).ok(),
        // Another node collects, too.
        Err(TierError::Gone(_)) => return Ok(None),
        Err(TierError::Damaged { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(Some((number, listed.length, header)))
}
