//! Which share of the accesses goes on where the last one on the same file ended.
//!
//! Direct writes are whole blocks, so an append writes the block again that the one before it left
//! incomplete: a write that begins in the last block of the one before, and ends behind it, goes
//! on.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Direction, IoAccess};

/// Bytes of a block that an append may write again.
const BLOCK_BYTES: u64 = 4096;

/// Where the latest read and write of each file ended.
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

/// Sequential accesses of one direction on one class of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SequentialRow {
    /// Reads or writes.
    pub direction: Direction,
    /// The class of the files.
    pub class: String,
    /// All accesses with a place and a length.
    pub accesses: u64,
    /// Those that go on where the last one on the file ended.
    pub sequential: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Bytes of the sequential ones.
    pub sequential_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `accesses` (offset, length) of one file go on where the one before ended.
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
    fn what_begins_at_the_end_of_the_last_goes_on() {
        for direction in [Direction::Read, Direction::Write] {
            assert_eq!(sequential(direction, &[(0, 100), (100, 50), (150, 1)]), 2);
            assert_eq!(sequential(direction, &[(0, 100), (101, 50), (0, 100)]), 0);
        }
    }

    #[test]
    fn an_append_may_write_the_last_block_again() {
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
