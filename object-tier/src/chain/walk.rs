//! Reading a chain from its first record to the first number without one.

use std::{ops::ControlFlow, pin::pin};

use futures_util::{Stream, StreamExt, stream};
use storage_format::StorageId;

use super::{
    fetching::{fetch, records},
    keys::{chain_folder, number_of},
    record::{Location, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, Record, RecordKind, decode_header},
    sequence::{Meaning, Owner, Sequence},
};
use crate::{Bucket, TierError};

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
    let fetched = records(bucket, storage, (0, end)).zip(stream::iter(0..end));
    let fetched = fetched.map(move |(record, number)| {
        let gone = || TierError::Gone(Location { storage, number }.key());
        record.and_then(|record| record.ok_or_else(gone))
    });
    fetched.filter_map(move |record| {
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
        let places = (self.next, u64::MAX);
        let mut records = pin!(records(self.bucket, self.storage, places));
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
