//! Names, descriptions and labels of sealed storages: numbered records, of which the last counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use storage_format::StorageId;
use storage_format::paths::FileName;
use storage_format::storage_file::StorageFile;

use crate::{Bucket, Creation, Heads, Hint, Seal, TierError, clock, hints, keys, removal};

/// Longest record, in bytes: more than the labels of a storage can have.
const RECORD_BYTES_MAX: u64 = 32 << 20;
/// Numbers that are tried before a change gives up: so many others changed the labels meanwhile.
const TRIES: u32 = 1000;

/// The name, description and labels of a storage since a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

impl LabelRecord {
    /// What was changed since `base`, over what others made of it.
    fn rebased(mut self, base: &Self, theirs: &Self) -> Self {
        if self.name == base.name {
            self.name.clone_from(&theirs.name);
        }
        if self.description == base.description {
            self.description.clone_from(&theirs.description);
        }
        let keys = base.labels.keys().chain(theirs.labels.keys());
        for key in keys {
            if self.labels.get(key) != base.labels.get(key) {
                continue;
            }
            match theirs.labels.get(key) {
                Some(value) => self.labels.insert(key.clone(), value.clone()),
                None => self.labels.remove(key),
            };
        }
        self
    }

    /// Whether both say the same, whatever their numbers.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let LabelRecord {
            number: _,
            name,
            description,
            labels,
        } = self;
        (name, description, labels) == (&other.name, &other.description, &other.labels)
    }
}

impl Body {
    fn new(record: &LabelRecord, node: &str, time: i64) -> Self {
        Self {
            nonce: clock::nonce(),
            node: node.to_owned(),
            time,
            name: record.name.clone(),
            description: record.description.clone(),
            labels: record.labels.clone(),
        }
    }

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

/// Stores what a change made of the labels with number `after`, the highest one that is known here,
/// 0 for none: as the next record, or, if others stored some meanwhile, with what they changed.
/// Where both changed the same label, this change counts. Returns the record with its number.
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
    let mut record = LabelRecord {
        number: after.saturating_add(1),
        ..record
    };
    let mut base = None;
    for _ in 0..TRIES {
        let key = keys::label(storage, record.number);
        let now = clock::now_ns();
        let body = encode(&key, &Body::new(&record, node, now))?;
        if bucket.create(&key, body).await? == Creation::Made {
            fault_point!("tier.labels.stored");
            hints::note(bucket, Hint::Labelled(record.number), storage, now).await;
            return Ok(record);
        }
        let before = record.number.saturating_sub(1);
        let Some(theirs) = latest_labels(bucket, storage, before).await? else {
            continue;
        };
        let began_with = match base {
            Some(base) => base,
            None => match known(bucket, storage, after).await {
                Err(error) if !error.is_passing() => None,
                found => found?,
            },
        };
        base = Some(began_with.map(|base| {
            record = std::mem::take(&mut record).rebased(&base, &theirs);
            theirs.clone()
        }));
        if record.is_same(&theirs) {
            return Ok(theirs);
        }
        record.number = theirs.number.saturating_add(1);
    }
    Err(TierError::Store {
        doing: "create",
        key: keys::label(storage, record.number),
        reason: format!("others took {TRIES} numbers before: repeat the change"),
        is_passing: true,
    })
}

/// The labels that a change began with; `None` if that is not known any more.
async fn known(
    bucket: &Bucket,
    storage: StorageId,
    number: u64,
) -> Result<Option<LabelRecord>, TierError> {
    if number > 0 {
        return get(bucket, storage, number).await;
    }
    let Some(seal) = Seal::get(bucket, storage).await? else {
        return Ok(None);
    };
    let name = FileName::Storage(storage).to_string();
    let Some(small) = seal.small_file(&name) else {
        return Ok(None);
    };
    let bytes = Heads::get(bucket, &seal).await?.small(small)?;
    let file = StorageFile::decode(&bytes)
        .map_err(|error| TierError::damaged(&seal.heads.key, error.to_string()))?;
    Ok(Some(LabelRecord {
        number,
        name: file.name,
        description: file.description,
        labels: file.labels,
    }))
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
