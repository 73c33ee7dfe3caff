//! Rows in the order of time, from parts that come in any order, in bounded memory.
//!
//! Workers deliver sorted runs of rows. Runs are merged as they are needed; when those that wait
//! take more than the budget they are merged into one run in a temporary file, from which the merge
//! goes on reading. So the first rows leave as soon as nothing earlier can come, and a result of
//! any size takes no more memory than the budget and a buffer a spilled run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};

use crate::ReadError;

/// Where a row stands among all rows. Rows without a time come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    /// Start in nanoseconds; `i64::MIN` where there is none.
    pub ts: i64,
    /// Number of the task that read it, in the order of sources and their bytes.
    pub task: u32,
    /// Its number among the rows of the task.
    pub row: u32,
}

/// Rows of one task, sorted on delivery.
#[derive(Debug, Default)]
pub(crate) struct Run {
    rows: Vec<(RowKey, u32, u32)>,
    bytes: Vec<u8>,
}

/// A run is delivered at about this size, well below where offsets would not fit.
pub(crate) const RUN_BYTES: usize = 256 << 10;

impl Run {
    /// Appends a row whose bytes `write` appends.
    pub(crate) fn push(&mut self, key: RowKey, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let narrow = |value: usize| u32::try_from(value).expect("a run is cut far below 4 GiB");
        self.rows
            .push((key, narrow(start), narrow(self.bytes.len() - start)));
    }

    /// Bytes of memory that the run takes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<(RowKey, u32, u32)>()
    }

    /// Whether it has no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Puts the rows in order.
    pub(crate) fn sort(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.0);
    }

    fn row(&self, index: usize) -> Option<(RowKey, &[u8])> {
        let (key, start, len) = *self.rows.get(index)?;
        let (start, len) = (start as usize, len as usize);
        Some((key, &self.bytes[start..start + len]))
    }
}

/// A run in a file: records of key and length, then the bytes.
struct SpilledRun {
    reader: BufReader<File>,
    left: u64,
    key: RowKey,
    bytes: Vec<u8>,
}

const RECORD_BYTES: usize = 8 + 4 + 4 + 4;

impl SpilledRun {
    /// Reads the next row; false at the end.
    fn next(&mut self) -> std::io::Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let mut record = [0; RECORD_BYTES];
        self.reader.read_exact(&mut record)?;
        let word = |at: usize| {
            u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
        };
        let ts = u64::from(word(0)) | u64::from(word(4)) << 32;
        self.key = RowKey {
            ts: ts.cast_signed(),
            task: word(8),
            row: word(12),
        };
        self.bytes.resize(word(16) as usize, 0);
        self.reader.read_exact(&mut self.bytes)?;
        Ok(true)
    }
}

enum Source {
    Memory { run: Run, next: usize },
    Spilled(SpilledRun),
}

/// Merges runs.
pub(crate) struct Merge {
    sources: Vec<Option<Source>>,
    heads: BinaryHeap<Reverse<(RowKey, usize)>>,
    memory: usize,
    budget: usize,
    spills: u64,
}

impl Merge {
    /// A merge that keeps at most about `budget` bytes of rows in memory.
    pub(crate) fn new(budget: usize) -> Merge {
        Merge {
            sources: Vec::new(),
            heads: BinaryHeap::new(),
            memory: 0,
            budget,
            spills: 0,
        }
    }

    /// How often rows were put aside in a file.
    pub(crate) fn spills(&self) -> u64 {
        self.spills
    }

    /// Takes in a sorted run.
    ///
    /// # Errors
    ///
    /// When rows cannot be put aside.
    pub(crate) fn push(&mut self, run: Run) -> Result<(), ReadError> {
        let Some((key, _)) = run.row(0) else {
            return Ok(());
        };
        self.memory += run.size();
        self.insert(key, Source::Memory { run, next: 0 });
        if self.memory > self.budget {
            self.spill().map_err(ReadError::Spill)?;
        }
        Ok(())
    }

    fn insert(&mut self, key: RowKey, source: Source) {
        let slot = match self.sources.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.sources.push(None);
                self.sources.len() - 1
            }
        };
        self.sources[slot] = Some(source);
        self.heads.push(Reverse((key, slot)));
    }

    /// Gives all rows that start before `watermark`, all rows for `None`, in order.
    ///
    /// # Errors
    ///
    /// The first that `give` has, or when rows that were put aside cannot be read.
    pub(crate) fn drain(
        &mut self,
        watermark: Option<i64>,
        mut give: impl FnMut(&[u8]) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        while let Some(Reverse((key, slot))) = self.heads.peek().copied() {
            if watermark.is_some_and(|watermark| key.ts >= watermark) {
                break;
            }
            self.heads.pop();
            let source = self.sources[slot]
                .as_mut()
                .expect("a head belongs to a source");
            let following = match source {
                Source::Memory { run, next } => {
                    if let Some((_, bytes)) = run.row(*next) {
                        give(bytes)?;
                    }
                    *next += 1;
                    run.row(*next).map(|(key, _)| key)
                }
                Source::Spilled(run) => {
                    give(&run.bytes)?;
                    run.next().map_err(ReadError::Spill)?.then_some(run.key)
                }
            };
            match following {
                Some(key) => self.heads.push(Reverse((key, slot))),
                None => self.release(slot),
            }
        }
        Ok(())
    }

    fn release(&mut self, slot: usize) {
        if let Some(Source::Memory { run, .. }) = self.sources[slot].take() {
            self.memory -= run.size();
        }
    }

    /// Merges the runs that are in memory into one in a file.
    fn spill(&mut self) -> std::io::Result<()> {
        let is_memory = |source: &Option<Source>| matches!(source, Some(Source::Memory { .. }));
        let (mut heads, kept): (BinaryHeap<_>, BinaryHeap<_>) = std::mem::take(&mut self.heads)
            .into_iter()
            .partition(|head| is_memory(&self.sources[head.0.1]));
        self.heads = kept;
        let mut writer = BufWriter::with_capacity(1 << 20, tempfile::tempfile()?);
        let mut rows = 0;
        while let Some(Reverse((_, slot))) = heads.pop() {
            let Some(Source::Memory { run, next }) = &mut self.sources[slot] else {
                continue;
            };
            if let Some((key, bytes)) = run.row(*next) {
                let len = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
                writer.write_all(&key.ts.to_le_bytes())?;
                writer.write_all(&key.task.to_le_bytes())?;
                writer.write_all(&key.row.to_le_bytes())?;
                writer.write_all(&len.to_le_bytes())?;
                writer.write_all(bytes)?;
                rows += 1;
            }
            *next += 1;
            match run.row(*next) {
                Some((key, _)) => heads.push(Reverse((key, slot))),
                None => self.release(slot),
            }
        }
        let mut file = writer.into_inner()?;
        file.rewind()?;
        let reader = BufReader::with_capacity(256 << 10, file);
        let key = RowKey {
            ts: 0,
            task: 0,
            row: 0,
        };
        let mut run = SpilledRun {
            reader,
            left: rows,
            key,
            bytes: Vec::new(),
        };
        if run.next()? {
            self.insert(run.key, Source::Spilled(run));
        }
        self.spills += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_come_in_order_however_they_were_delivered(
            runs in proptest::collection::vec(
                proptest::collection::vec((-50_i64..50, "[a-z]{0,9}"), 0..40), 0..12),
            budget in 0_usize..4_000,
            watermarks in proptest::collection::vec(-60_i64..60, 0..3),
        ) {
            let mut merge = Merge::new(budget);
            let mut expected = Vec::new();
            for (task, rows) in runs.iter().enumerate() {
                let mut run = Run::default();
                for (row, (ts, text)) in rows.iter().enumerate() {
                    let key = RowKey { ts: *ts, task: task as u32, row: row as u32 };
                    run.push(key, |out| out.extend_from_slice(text.as_bytes()));
                    expected.push((key, text.clone()));
                }
                run.sort();
                merge.push(run).unwrap();
            }
            expected.sort();
            let mut got = Vec::new();
            let mut take = |row: &[u8]| {
                got.push(String::from_utf8(row.to_vec()).unwrap());
                Ok(())
            };
            for watermark in watermarks {
                merge.drain(Some(watermark), &mut take).unwrap();
            }
            merge.drain(None, &mut take).unwrap();
            let expected: Vec<String> = expected.into_iter().map(|(_, text)| text).collect();
            prop_assert_eq!(got, expected);
            prop_assert_eq!(merge.memory, 0);
        }
    }
}
