//! The share of accesses that begin where the previous one to the same file ended.
//!
//! Direct I/O writes complete blocks, so an append rewrites the block that the previous one left
//! incomplete. A write is therefore also sequential if it begins in the last block of the previous
//! write and ends after it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Direction, IoAccess};

/// Size of the block that an append may rewrite.
const BLOCK_BYTES: u64 = 4096;

/// The ends of the latest read and write of each file.
#[derive(Debug, Default)]
pub(super) struct Sequential {
    ends: Vec<[Option<u64>; 2]>,
    rows: BTreeMap<(Direction, u32), Counts>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    accesses: u64,
    sequential: u64,
    bytes: u64,
    sequential_bytes: u64,
}

impl Sequential {
    pub(super) fn add(&mut self, access: &IoAccess<'_>, file: u32, class: u32) {
        let (Some(offset), Some(len)) = (access.offset, access.len) else {
            return;
        };
        let side = match access.direction {
            Direction::Read => 0,
            Direction::Write => 1,
            Direction::Sync | Direction::Other => return,
        };
        let index = file as usize;
        if index >= self.ends.len() {
            self.ends.resize(index + 1, [None; 2]);
        }
        let end = offset.checked_add(len);
        let continues = match (self.ends[index][side], access.direction) {
            (Some(last), Direction::Write) => {
                last.checked_sub(offset)
                    .is_some_and(|again| again <= BLOCK_BYTES)
                    && end > Some(last)
            }
            (last, _) => last == Some(offset),
        };
        self.ends[index][side] = end;
        let counts = self.rows.entry((access.direction, class)).or_default();
        counts.accesses += 1;
        counts.bytes = counts.bytes.saturating_add(len);
        if continues {
            counts.sequential += 1;
            counts.sequential_bytes = counts.sequential_bytes.saturating_add(len);
        }
    }

    pub(super) fn rows(&self, class: impl Fn(u32) -> String) -> Vec<SequentialRow> {
        let row = |(&(direction, number), counts): (&(Direction, u32), &Counts)| SequentialRow {
            direction,
            class: class(number),
            accesses: counts.accesses,
            sequential: counts.sequential,
            bytes: counts.bytes,
            sequential_bytes: counts.sequential_bytes,
        };
        self.rows.iter().map(row).collect()
    }
}

/// Sequential accesses by direction and file class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SequentialRow {
    /// Reads or writes.
    pub direction: Direction,
    /// The file class.
    pub class: String,
    /// Number of accesses with an offset and a length.
    pub accesses: u64,
    /// Number of sequential accesses.
    pub sequential: u64,
    /// Bytes of all accesses.
    pub bytes: u64,
    /// Bytes of sequential accesses.
    pub sequential_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `accesses` (offset, length) to one file are sequential.
    fn sequential(direction: Direction, accesses: &[(u64, u64)]) -> u64 {
        let mut found = Sequential::default();
        for &(offset, len) in accesses {
            let access = IoAccess {
                start_ns: 0,
                latency_ns: 0,
                operation: b"",
                direction,
                file: b"file",
                class: "data",
                cause: b"",
                offset: Some(offset),
                len: Some(len),
                failed: false,
                request: None,
            };
            found.add(&access, 0, 0);
        }
        found.rows(|_| String::new())[0].sequential
    }

    #[test]
    fn an_access_at_the_end_of_the_previous_one_is_sequential() {
        for direction in [Direction::Read, Direction::Write] {
            assert_eq!(sequential(direction, &[(0, 100), (100, 50), (150, 1)]), 2);
            assert_eq!(sequential(direction, &[(0, 100), (101, 50), (0, 100)]), 0);
        }
    }

    #[test]
    fn an_append_may_rewrite_the_last_block() {
        let appends = [(0, 12_288), (8_192, 8_192), (12_288, 4_096 + 1)];
        assert_eq!(sequential(Direction::Write, &appends), 2);
        assert_eq!(sequential(Direction::Read, &appends), 0);
        let again = [(0, 12_288), (8_192, 4_096), (4_096, 65_536)];
        assert_eq!(
            sequential(Direction::Write, &again),
            0,
            "nothing new, and from far before"
        );
    }
}
