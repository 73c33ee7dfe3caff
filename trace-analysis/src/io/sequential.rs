//! Which share of the accesses goes on where the last one on the same file ended.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Direction, IoAccess};

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
        let goes_on = self.ends[index][side] == Some(offset);
        self.ends[index][side] = offset.checked_add(len);
        let counts = self.rows.entry((access.direction, class)).or_default();
        counts.accesses += 1;
        counts.bytes = counts.bytes.saturating_add(len);
        if goes_on {
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
    /// Those that begin where the last one on the file ended.
    pub sequential: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Bytes of the sequential ones.
    pub sequential_bytes: u64,
}
