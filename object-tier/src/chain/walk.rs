//! Reading a chain from its first record to the first number without one.

use std::{ops::ControlFlow, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use storage_format::StorageId;

use super::{
    keys::{chain_folder, number_of, seal_key},
    record::{
        Location, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, Record, RecordKind, decode, decode_header,
    },
    sequence::{Meaning, Owner, Sequence},
};
use crate::{Bucket, TierError};

/// Records that are fetched ahead: a few times 8 MiB of memory, or the largest packets.
const READ_AHEAD: usize = 4;
/// How often a record is asked for.
const TRIES: u32 = 6;
/// The longest seal that is accepted.
const SEAL_BYTES_MAX: u64 = 1 << 30;

/// Where a chain ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEnd {
    /// The first number without a record; behind a close, that of the close plus one.
    pub next: u64,
    /// Who owns the storage, or owned it last.
    pub owner: Option<Owner>,
    /// Whether the chain is closed.
    pub is_closed: bool,
}

/// Reads the records of packets that count, in order, without taking the storage over. More may be
/// appended at any time, unless the chain is closed. A chain whose storage is sealed may have been
/// collected, and then ends early, or is `Damaged`: look for the seal first, and again afterwards.
///
/// # Errors
/// When the store does not answer, a record is damaged, or `on_packets` fails.
pub async fn valid_records(
    bucket: &Bucket,
    storage: StorageId,
    on_packets: &mut (impl FnMut(Record) -> Result<(), TierError> + Send),
) -> Result<ChainEnd, TierError> {
    let mut walk = Walk::new(bucket, storage);
    walk.run(on_packets).await?;
    Ok(ChainEnd {
        next: walk.next,
        owner: walk.sequence.owner,
        is_closed: walk.sequence.is_closed,
    })
}

/// The records of packets that count among those with a number below `end`, in order, without
/// looking any further. All of them must be there: the chain was walked before, and is not sealed.
pub fn packets_before(
    bucket: &Bucket,
    storage: StorageId,
    end: u64,
) -> impl Stream<Item = Result<Record, TierError>> + Send {
    let mut sequence = Sequence::default();
    let bucket = bucket.clone();
    let fetched = stream::iter(0..end).map(move |number| {
        let bucket = bucket.clone();
        async move {
            let location = Location { storage, number };
            let found = fetch_record(&bucket, location).await?;
            found.ok_or_else(|| TierError::Gone(location.key()))
        }
    });
    fetched.buffered(READ_AHEAD).filter_map(move |record| {
        let counting = record.and_then(|record| match sequence.push(&record) {
            Meaning::Counts if record.kind == RecordKind::Packets => Ok(Some(record)),
            Meaning::Counts | Meaning::Void => Ok(None),
            Meaning::Impossible(problem) => {
                let number = record.number;
                Err(TierError::damaged(
                    &Location { storage, number }.key(),
                    problem,
                ))
            }
        });
        std::future::ready(counting.transpose())
    })
}

/// Who owned the storage a moment ago, by few requests. A hint: the list may be late, and another
/// node may take the storage over at any time.
///
/// # Errors
/// When the store does not answer, or the record of the owner is damaged.
pub async fn last_owner(bucket: &Bucket, storage: StorageId) -> Result<Option<Owner>, TierError> {
    let standing = standing(bucket, storage).await?;
    Ok(standing.map(|standing| standing.owner))
}

/// Who owns a storage, and whether its chain is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The last owner.
    pub owner: Owner,
    /// Whether it has closed the chain: any node may seal the storage.
    pub is_closed: bool,
}

/// As [`last_owner`], and whether the chain is closed.
///
/// # Errors
/// As [`last_owner`].
pub async fn standing(bucket: &Bucket, storage: StorageId) -> Result<Option<Standing>, TierError> {
    let mut listed = bucket.list(&chain_folder(storage));
    let mut newest = None;
    while let Some(object) = listed.next().await {
        let object = object?;
        // Only records without packets are that short. A close names the owner as well.
        if object.length == RECORD_HEADER_BYTES as u64 {
            newest = newest.max(number_of(&object.key));
        }
    }
    let Some(number) = newest else {
        return Ok(None);
    };
    let location = Location { storage, number };
    let Some(bytes) = fetch(bucket, &location.key(), RECORD_BYTES_MAX).await? else {
        return Ok(None);
    };
    let header = decode_header(&bytes, location)?;
    Ok(Some(Standing {
        owner: Owner {
            epoch: header.epoch,
            node: header.node,
            nonce: header.nonce,
            number,
        },
        is_closed: header.kind == RecordKind::Close,
    }))
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

/// A way along a chain.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    bucket: &'a Bucket,
    storage: StorageId,
    /// The next number to look at.
    pub(super) next: u64,
    pub(super) sequence: Sequence,
}

impl<'a> Walk<'a> {
    pub(super) fn new(bucket: &'a Bucket, storage: StorageId) -> Self {
        Self {
            bucket,
            storage,
            next: 0,
            sequence: Sequence::default(),
        }
    }

    /// Goes on to the first number without a record, or to a close.
    pub(super) async fn run(
        &mut self,
        on_packets: &mut (impl FnMut(Record) -> Result<(), TierError> + Send),
    ) -> Result<(), TierError> {
        let (bucket, storage) = (self.bucket, self.storage);
        let mut records = stream::iter(self.next..)
            .map(|number| fetch_record(bucket, Location { storage, number }))
            .buffered(READ_AHEAD);
        while let Some(record) = records.next().await {
            let Some(record) = record? else {
                break;
            };
            if self.step(record, on_packets)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Takes the record with the next number. Breaks at a close.
    pub(super) fn step(
        &mut self,
        record: Record,
        on_packets: &mut (impl FnMut(Record) -> Result<(), TierError> + Send),
    ) -> Result<ControlFlow<()>, TierError> {
        let (storage, number) = (self.storage, record.number);
        let meaning = self.sequence.push(&record);
        self.next = number.saturating_add(1);
        match meaning {
            Meaning::Counts if record.kind == RecordKind::Packets => on_packets(record)?,
            Meaning::Counts | Meaning::Void => {}
            Meaning::Impossible(problem) => {
                let key = Location { storage, number }.key();
                return Err(TierError::damaged(&key, problem));
            }
        }
        Ok(if self.sequence.is_closed {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    }
}
