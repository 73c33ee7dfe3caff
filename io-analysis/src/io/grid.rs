//! Heat maps of offset by time.

use serde::Serialize;

use super::steps::{Merge, Steps};
use super::{Direction, IoAccess};
use crate::numbers::to_usize;

/// Number of cells by offset, and the maximum by time.
const ROWS: usize = 64;
const COLUMNS_MAX: usize = 256;

/// The initial height of a cell is 64 KiB. It doubles as the greatest offset grows.
const ROW_SHIFT: u32 = 16;

/// The bytes transferred in one time step, by offset. The height of the cells doubles independently
/// for each column.
#[derive(Debug, Default)]
struct Column {
    shift: u32,
    read: Vec<u64>,
    written: Vec<u64>,
}

impl Column {
    fn add(&mut self, offset: u64, len: u64, direction: Direction) {
        while offset >> self.height_shift() >= ROWS as u64 {
            self.halve();
        }
        let row = to_usize(offset >> self.height_shift());
        let cells = match direction {
            Direction::Read => &mut self.read,
            _ => &mut self.written,
        };
        if cells.len() <= row {
            cells.resize(row + 1, 0);
        }
        cells[row] = cells[row].saturating_add(len);
    }

    fn height_shift(&self) -> u32 {
        ROW_SHIFT + self.shift
    }

    fn halve(&mut self) {
        self.shift += 1;
        for cells in [&mut self.read, &mut self.written] {
            let pair = |pair: &[u64]| pair.iter().fold(0, |sum: u64, &n| sum.saturating_add(n));
            *cells = cells.chunks(2).map(pair).collect();
        }
    }

    /// The cells at a greater height.
    fn at_shift(&self, shift: u32) -> (Vec<u64>, Vec<u64>) {
        let mut column = Self {
            shift: self.shift,
            read: self.read.clone(),
            written: self.written.clone(),
        };
        while column.shift < shift {
            column.halve();
        }
        (column.read, column.written)
    }
}

impl Merge for Column {
    fn merge(&mut self, other: &Self) {
        while self.shift < other.shift {
            self.halve();
        }
        let (read, written) = other.at_shift(self.shift);
        for (own, other) in [(&mut self.read, read), (&mut self.written, written)] {
            own.resize(own.len().max(other.len()), 0);
            for (own, other) in own.iter_mut().zip(other) {
                *own = own.saturating_add(other);
            }
        }
    }
}

/// Bytes transferred by time and offset, for all files of a class together.
#[derive(Debug)]
pub(super) struct Grid {
    columns: Steps<Column>,
}

impl Grid {
    pub(super) fn new() -> Self {
        // The initial width of a column is 2^20 ns, about a millisecond.
        Self {
            columns: Steps::new(20, COLUMNS_MAX),
        }
    }

    pub(super) fn add(&mut self, access: &IoAccess<'_>) {
        if let (Some(offset), Some(len)) = (access.offset, access.len)
            && matches!(access.direction, Direction::Read | Direction::Write)
        {
            self.columns
                .at(access.start_ns)
                .add(offset, len, access.direction);
        }
    }

    pub(super) fn heat_map(&self, class: &str) -> HeatMap {
        let shift = self
            .columns
            .iter()
            .map(|(_, column)| column.shift)
            .max()
            .unwrap_or(0);
        let mut map = HeatMap {
            class: class.to_owned(),
            start_ns: self.columns.iter().next().map_or(0, |(start, _)| start),
            step_ns: self.columns.width_ns(),
            row_bytes: 1 << (ROW_SHIFT + shift).min(63),
            read: Vec::new(),
            written: Vec::new(),
        };
        for (_, column) in self.columns.iter() {
            let (read, written) = column.at_shift(shift);
            map.read.push(read);
            map.written.push(written);
        }
        map
    }
}

/// Bytes transferred by time (outer) and offset (inner, from 0).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeatMap {
    /// File class.
    pub class: String,
    /// Start of the first step, ns since the epoch.
    pub start_ns: i64,
    /// Width of a step, ns.
    pub step_ns: u64,
    /// Height of a row, bytes.
    pub row_bytes: u64,
    /// Bytes read.
    pub read: Vec<Vec<u64>>,
    /// Bytes written.
    pub written: Vec<Vec<u64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_in_both_directions() {
        let mut grid = Grid::new();
        let access = |start_ns, offset, direction| IoAccess {
            start_ns,
            latency_ns: 1,
            operation: b"Read",
            direction,
            file: b"1.sst",
            class: "sst",
            cause: b"",
            offset: Some(offset),
            len: Some(10),
            failed: false,
            request: None,
        };
        for second in 0..1000 {
            grid.add(&access(
                second * 1_000_000_000,
                second as u64 * 1_000_000,
                Direction::Read,
            ));
        }
        grid.add(&access(-5, u64::MAX, Direction::Write));
        let map = grid.heat_map("sst");
        assert!(map.read.len() <= COLUMNS_MAX && map.row_bytes >= 1 << 58);
        let sum = |cells: &[Vec<u64>]| cells.iter().flatten().sum::<u64>();
        assert_eq!((sum(&map.read), sum(&map.written)), (10_000, 10));
    }
}
