//! The slowest events of a chunk, complete.
//!
//! A query for slow events matches a few events in nearly every chunk, so no limit rules a chunk
//! out, and each would be inflated for one line. The index therefore contains the records of the
//! slowest few: if all other events are too fast to match, only these records are read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::wire::{Damage, Reader, put_signed, put_text, put_varint};

/// Records per chunk.
pub(crate) const RECORDS_MAX: usize = 16;
/// Largest record in bytes; longer ones are not stored.
const RECORD_BYTES_MAX: usize = 4 << 10;

/// The slowest events of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slowest {
    /// The longest duration of the events that are not stored, in nanoseconds; `None` if all events
    /// with a duration are stored.
    pub floor: Option<i64>,
    /// The records of the stored events, in the order of the chunk.
    pub records: Vec<SlowRecord>,
}

/// An event as its bytes in the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRecord {
    /// Its offset in the decoded content of the file.
    pub raw_offset: u64,
    /// Its bytes.
    pub bytes: Box<[u8]>,
}

/// Finds the slowest events of a chunk.
#[derive(Debug, Default)]
pub(crate) struct SlowestBuilder {
    floor: Option<i64>,
    /// Durations of the stored records, the shortest first, with their indexes.
    heap: BinaryHeap<Reverse<(i64, usize)>>,
    records: Vec<SlowRecord>,
}

impl SlowestBuilder {
    /// Adds an event without a record.
    #[inline]
    pub(crate) fn pass(&mut self, length: i64) {
        self.floor = self.floor.max(Some(length));
    }

    /// Adds an event with its record.
    #[inline]
    pub(crate) fn add(&mut self, length: i64, raw_offset: u64, bytes: &[u8]) {
        // Most events are shorter than all stored ones, so this is the common return.
        if self.floor.is_some_and(|floor| length <= floor) && self.records.len() == RECORDS_MAX {
            return;
        }
        self.insert(length, raw_offset, bytes);
    }

    #[cold]
    fn insert(&mut self, length: i64, raw_offset: u64, bytes: &[u8]) {
        if bytes.len() > RECORD_BYTES_MAX {
            return self.pass(length);
        }
        let record = SlowRecord {
            raw_offset,
            bytes: bytes.into(),
        };
        if self.records.len() < RECORDS_MAX {
            self.heap.push(Reverse((length, self.records.len())));
            return self.records.push(record);
        }
        let Some(Reverse((shortest, index))) = self.heap.peek().copied() else {
            return self.pass(length);
        };
        if length <= shortest {
            return self.pass(length);
        }
        self.pass(shortest);
        self.heap.pop();
        self.heap.push(Reverse((length, index)));
        self.records[index] = record;
    }

    /// The slowest events since the last call.
    pub(crate) fn finish(&mut self) -> Slowest {
        self.heap.clear();
        let mut records = std::mem::take(&mut self.records);
        records.sort_by_key(|record| record.raw_offset);
        Slowest {
            floor: self.floor.take(),
            records,
        }
    }
}

/// Body of a block: for each chunk the floor (0, or 1 and signed), and the list of its records
/// (offset - previous offset, text).
pub(crate) fn encode(chunks: &[Slowest]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in chunks {
        out.push(u8::from(chunk.floor.is_some()));
        if let Some(floor) = chunk.floor {
            put_signed(&mut out, floor);
        }
        put_varint(&mut out, chunk.records.len() as u64);
        let mut before = 0;
        for record in &chunk.records {
            assert!(
                before <= record.raw_offset,
                "records are in the order of the text"
            );
            put_varint(&mut out, record.raw_offset - before);
            put_text(&mut out, &record.bytes);
            before = record.raw_offset;
        }
    }
    out
}

pub(crate) fn decode(body: &[u8], chunks: usize) -> Result<Vec<Slowest>, Damage> {
    let mut reader = Reader::new(body);
    let mut all = Vec::with_capacity(chunks);
    for _ in 0..chunks {
        let mut slowest = Slowest::default();
        if reader.byte()? != 0 {
            slowest.floor = Some(reader.signed()?);
        }
        let mut offset = 0_u64;
        for _ in 0..reader.length(2)? {
            let step = reader.varint()?;
            offset = offset
                .checked_add(step)
                .ok_or(Damage("offset out of range"))?;
            slowest.records.push(SlowRecord {
                raw_offset: offset,
                bytes: reader.text()?.into(),
            });
        }
        all.push(slowest);
    }
    reader.end()?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_that_are_not_stored_are_not_above_the_floor(
            lengths in proptest::collection::vec((0_i64..60, 0_usize..3), 0..80),
        ) {
            let mut builder = SlowestBuilder::default();
            for (offset, (length, size)) in (0..).zip(&lengths) {
                match size {
                    0 => builder.pass(*length),
                    1 => builder.add(*length, offset, &vec![0; RECORD_BYTES_MAX + 1]),
                    _ => builder.add(*length, offset, &length.to_le_bytes()),
                }
            }
            let slowest = builder.finish();
            prop_assert!(slowest.records.len() <= RECORDS_MAX);
            prop_assert!(slowest.records.is_sorted_by_key(|record| record.raw_offset));
            let is_recorded = |offset: u64| slowest.records.iter().any(|r| r.raw_offset == offset);
            let rest = (0..).zip(&lengths).filter(|(offset, _)| !is_recorded(*offset));
            prop_assert_eq!(slowest.floor, rest.map(|(_, (length, _))| *length).max());
            for record in &slowest.records {
                let (length, _) = lengths[record.raw_offset as usize];
                prop_assert_eq!(&*record.bytes, &length.to_le_bytes());
            }
            let again = builder.finish();
            prop_assert_eq!(again, Slowest::default());
            let body = encode(&[slowest.clone(), Slowest::default()]);
            prop_assert_eq!(decode(&body, 2), Ok(vec![slowest, Slowest::default()]));
        }
    }
}
