//! Removing the packets of a sealed storage from its chain.

use futures_util::StreamExt;
use storage_format::StorageId;

use super::{
    fetching::fetch_seal,
    keys::{chain_folder, number_of, seal_key},
    record::{Header, Location, RECORD_HEADER_BYTES, RecordKind, decode_header},
};
use crate::{Bucket, Listed, TierError};

/// Headers that are fetched, and records that are removed, at once.
const AT_ONCE: usize = 8;

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
    let mut order = Order::default();
    let mut records = bucket
        .list(&chain_folder(storage))
        .map(|listed| find(bucket, storage, listed))
        .buffered(AT_ONCE)
        .map(|found| Ok(found?.map(|found| order.judge(&found))))
        .map(|verdict| carry_out(bucket, storage, verdict))
        .buffered(AT_ONCE);
    let mut collected = Collected::default();
    while let Some(verdict) = records.next().await {
        match verdict? {
            None => {}
            Some(Verdict::Remove { length, .. }) => {
                collected.removed += 1;
                collected.bytes += length;
            }
            Some(Verdict::Keep) => collected.kept += 1,
            Some(Verdict::Damaged) => collected.damaged += 1,
        }
    }
    if collected.damaged > 0 {
        let seal = seal_key(storage);
        let count = collected.damaged;
        tracing::warn!(%seal, count, "damaged records of a sealed storage are left where they are");
    }
    Ok(collected)
}

/// A record in the list.
#[derive(Debug)]
struct Found {
    number: u64,
    length: u64,
    /// Absent if it is damaged.
    header: Option<Header>,
}

#[derive(Debug, Clone, Copy)]
enum Verdict {
    Remove { number: u64, length: u64 },
    Keep,
    Damaged,
}

/// What came before a record in the list.
#[derive(Debug, Default)]
struct Order {
    /// The largest epoch of an `own`.
    epoch: u64,
    /// The number behind the largest.
    next: u64,
}

impl Order {
    fn judge(&mut self, found: &Found) -> Verdict {
        let (number, length) = (found.number, found.length);
        let Some(header) = &found.header else {
            return Verdict::Damaged;
        };
        // A list that is not in order does not tell what is behind which `own`.
        let is_in_order = number >= self.next;
        self.next = self.next.max(number.saturating_add(1));
        if header.kind == RecordKind::Own {
            self.epoch = self.epoch.max(header.epoch);
        }
        let is_void = header.epoch < self.epoch;
        let is_removed = header.kind == RecordKind::Packets && !is_void && is_in_order;
        if is_removed {
            Verdict::Remove { number, length }
        } else {
            Verdict::Keep
        }
    }
}

/// The number and the length of a listed record, and its header unless that is damaged.
async fn find(
    bucket: &Bucket,
    storage: StorageId,
    listed: Result<Listed, TierError>,
) -> Result<Option<Found>, TierError> {
    let listed = listed?;
    let Some(number) = number_of(&listed.key) else {
        return Ok(None);
    };
    let location = Location { storage, number };
    let found = |header| {
        let length = listed.length;
        Ok(Some(Found {
            number,
            length,
            header,
        }))
    };
    if listed.length < RECORD_HEADER_BYTES as u64 {
        return found(None);
    }
    let range = 0..RECORD_HEADER_BYTES as u64;
    match bucket.get_range(&location.key(), range).await {
        Ok(bytes) => found(decode_header(&bytes, location).ok()),
        // Another node collects, too.
        Err(TierError::Gone(_)) => Ok(None),
        Err(TierError::Damaged { .. }) => found(None),
        Err(error) => Err(error),
    }
}

async fn carry_out(
    bucket: &Bucket,
    storage: StorageId,
    verdict: Result<Option<Verdict>, TierError>,
) -> Result<Option<Verdict>, TierError> {
    let verdict = verdict?;
    if let Some(Verdict::Remove { number, .. }) = verdict {
        bucket.delete(&Location { storage, number }.key()).await?;
        fault_point!("tier.chain.removed");
    }
    Ok(verdict)
}
