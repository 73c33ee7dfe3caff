//! Fetching the records of a chain ahead: many short ones at once, and few long ones.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use futures_util::{
    FutureExt, Stream, StreamExt, TryStreamExt,
    future::BoxFuture,
    stream::{self, FuturesOrdered},
};
use storage_format::StorageId;

use super::{
    keys::{chain_folder, number_of, record_key, seal_key},
    record::{Location, RECORD_BYTES_MAX, Record, decode},
};
use crate::{Bucket, TierError};

/// How often a record is asked for.
const TRIES: u32 = 6;
/// The longest seal that is accepted.
const SEAL_BYTES_MAX: u64 = 1 << 30;
/// Bytes that are fetched at once, or one record.
const AHEAD_BYTES: u64 = 32 << 20;
/// Records that are fetched at once.
const AHEAD_MAX: usize = 64;
/// What a record counts for that the list does not show, and at least.
const LENGTH_UNKNOWN: u64 = 8 << 20;
const LENGTH_MIN: u64 = 64 << 10;

/// The lengths of records, as far as the list shows them: it may be late.
#[derive(Debug, Default)]
struct Lengths(HashMap<u64, u64>);

impl Lengths {
    async fn of(bucket: &Bucket, storage: StorageId, first: u64) -> Self {
        let before = first.checked_sub(1).map(|last| record_key(storage, last));
        let listed = bucket.list_after(&chain_folder(storage), before.as_deref());
        let known = listed.try_filter_map(async |object| {
            Ok(number_of(&object.key).map(|number| (number, object.length)))
        });
        // Without them, records are fetched all the same.
        Self(known.try_collect().await.unwrap_or_default())
    }

    fn of_record(&self, number: u64) -> u64 {
        let known = self.0.get(&number).copied().unwrap_or(LENGTH_UNKNOWN);
        known.max(LENGTH_MIN)
    }
}

type Fetching = BoxFuture<'static, (u64, Result<Option<Record>, TierError>)>;

/// The records from one number on, in order, each as far as it is there.
struct Ahead {
    bucket: Bucket,
    storage: StorageId,
    lengths: Lengths,
    next: u64,
    end: u64,
    bytes: u64,
    fetching: FuturesOrdered<Fetching>,
}

impl Ahead {
    /// Begins to fetch what there is room for.
    fn fill(&mut self) {
        while self.next < self.end && self.fetching.len() < AHEAD_MAX {
            let length = self.lengths.of_record(self.next);
            let bytes = self.bytes.saturating_add(length);
            if bytes > AHEAD_BYTES && !self.fetching.is_empty() {
                return;
            }
            self.bytes = bytes;
            let (bucket, storage, number) = (self.bucket.clone(), self.storage, self.next);
            self.next = self.next.saturating_add(1);
            let fetched = async move {
                let found = fetch_record(&bucket, Location { storage, number }).await;
                (length, found)
            };
            self.fetching.push_back(fetched.boxed());
        }
    }
}

/// The records of a chain with numbers from `first` up to `end`; behind the last one there is
/// `None` for each number.
pub(super) fn records(
    bucket: &Bucket,
    storage: StorageId,
    (first, end): (u64, u64),
) -> impl Stream<Item = Result<Option<Record>, TierError>> + Send + use<> {
    let bucket = bucket.clone();
    let begun = async move {
        let lengths = Lengths::of(&bucket, storage, first).await;
        Ahead {
            bucket,
            storage,
            lengths,
            next: first,
            end,
            bytes: 0,
            fetching: FuturesOrdered::new(),
        }
    };
    begun.into_stream().flat_map(|ahead| {
        stream::unfold(ahead, |mut ahead| async move {
            ahead.fill();
            let (length, found) = ahead.fetching.next().await?;
            ahead.bytes = ahead.bytes.saturating_sub(length);
            Some((found, ahead))
        })
    })
}

/// The seal of a storage, if there is one.
pub(super) async fn fetch_seal(
    bucket: &Bucket,
    storage: StorageId,
) -> Result<Option<Bytes>, TierError> {
    fetch(bucket, &seal_key(storage), SEAL_BYTES_MAX).await
}

/// An object, however often the store has to be asked.
pub(super) async fn fetch(
    bucket: &Bucket,
    key: &str,
    length_max: u64,
) -> Result<Option<Bytes>, TierError> {
    let mut attempt = 0;
    loop {
        match bucket.get_at_most(key, length_max).await {
            Err(error) if error.is_passing() && attempt + 1 < TRIES => {
                tokio::time::sleep(Duration::from_millis(20 << attempt)).await;
                attempt += 1;
            }
            found => return found,
        }
    }
}

async fn fetch_record(bucket: &Bucket, location: Location) -> Result<Option<Record>, TierError> {
    let bytes = fetch(bucket, &location.key(), RECORD_BYTES_MAX).await?;
    bytes.map(|bytes| decode(&bytes, location)).transpose()
}
