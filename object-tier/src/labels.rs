//! Names, descriptions and labels of sealed storages: numbered records, of which the last counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use storage_format::StorageId;

use crate::{Bucket, Creation, Hint, TierError, clock, hints, keys, removal};

/// Longest record, in bytes: more than the labels of a storage can have.
const RECORD_BYTES_MAX: u64 = 32 << 20;
/// Numbers that are tried before a change gives up: so many others changed the labels meanwhile.
const TRIES: u32 = 1000;
/// Taken numbers after which a list shows how far others are.
const STEPS: u32 = 4;

/// The name, description and labels of a storage since a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRecord {
    /// Its number: the highest one counts.
    pub number: u64,
    /// The name of the storage.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// The object.
#[derive(Serialize, Deserialize)]
struct Body {
    /// Makes the body unique.
    nonce: String,
    node: String,
    time: i64,
    name: String,
    description: String,
    labels: BTreeMap<String, String>,
}

impl Body {
    fn decode(key: &str, number: u64, body: &[u8]) -> Result<LabelRecord, TierError> {
        let body: Self = serde_json::from_slice(body)
            .map_err(|error| TierError::damaged(key, error.to_string()))?;
        Ok(LabelRecord {
            number,
            name: body.name,
            description: body.description,
            labels: body.labels,
        })
    }
}

/// Stores a record under the first free number behind `after`, the highest one that is known here,
/// 0 for none. Of two changes at once both are stored, and the one with the higher number counts.
/// Returns the record with its number.
///
/// # Errors
/// When the storage was removed, or it is not known whether the record was stored.
pub async fn change_labels(
    bucket: &Bucket,
    storage: StorageId,
    after: u64,
    record: LabelRecord,
    node: &str,
) -> Result<LabelRecord, TierError> {
    removal::refuse_gone(bucket, storage).await?;
    let now = clock::now_ns();
    let body = Body {
        nonce: clock::nonce(),
        node: node.to_owned(),
        time: now,
        name: record.name.clone(),
        description: record.description.clone(),
        labels: record.labels.clone(),
    };
    let mut number = after.saturating_add(1);
    let encoded = encode(&keys::label(storage, number), &body)?;
    for attempt in 1..=TRIES {
        let key = keys::label(storage, number);
        if bucket.create(&key, encoded.clone()).await? == Creation::Made {
            hints::note(bucket, Hint::Labelled(number), storage, now).await;
            return Ok(LabelRecord { number, ..record });
        }
        if attempt.is_multiple_of(STEPS) {
            number = number.max(listed(bucket, storage).await?);
        }
        number = number.saturating_add(1);
    }
    Err(TierError::Store {
        doing: "create",
        key: keys::label(storage, number),
        reason: format!("others took {TRIES} numbers before: repeat the change"),
        is_passing: true,
    })
}

fn encode(key: &str, body: &Body) -> Result<bytes::Bytes, TierError> {
    let refused = |reason: String| TierError::Store {
        doing: "create",
        key: key.to_owned(),
        reason,
        is_passing: false,
    };
    let encoded = serde_json::to_vec(body).map_err(|error| refused(error.to_string()))?;
    if encoded.len() as u64 > RECORD_BYTES_MAX {
        let length = encoded.len();
        let reason = format!("{length} bytes of labels, {RECORD_BYTES_MAX} are allowed");
        return Err(refused(reason));
    }
    Ok(encoded.into())
}

/// The record with the highest number, if there is one behind `after`, the highest one that is
/// known here, 0 for none. One request if there is none.
///
/// # Errors
/// When the store does not answer, or the record is damaged.
pub async fn latest_labels(
    bucket: &Bucket,
    storage: StorageId,
    after: u64,
) -> Result<Option<LabelRecord>, TierError> {
    let next = after.saturating_add(1);
    let Some(mut latest) = get(bucket, storage, next).await? else {
        return Ok(None);
    };
    let last = listed(bucket, storage).await?;
    if last > next
        && let Some(record) = get(bucket, storage, last).await?
    {
        latest = record;
    }
    // A list may lack what was written a moment ago.
    while let Some(record) = get(bucket, storage, latest.number.saturating_add(1)).await? {
        latest = record;
    }
    Ok(Some(latest))
}

async fn get(
    bucket: &Bucket,
    storage: StorageId,
    number: u64,
) -> Result<Option<LabelRecord>, TierError> {
    let key = keys::label(storage, number);
    let found = bucket.get_at_most(&key, RECORD_BYTES_MAX).await?;
    found
        .map(|body| Body::decode(&key, number, &body))
        .transpose()
}

/// The highest number in the list, 0 if it is empty: a hint.
async fn listed(bucket: &Bucket, storage: StorageId) -> Result<u64, TierError> {
    let listed = bucket.list_all(&keys::labels(storage)).await?;
    let numbers = listed.iter().filter_map(|object| {
        let (_, number) = object.key.rsplit_once('/')?;
        number.parse().ok()
    });
    Ok(numbers.max().unwrap_or(0))
}

#[cfg(test)]
mod tests;
