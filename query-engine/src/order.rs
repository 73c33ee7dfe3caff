//! External merge sort of rows, in bounded memory.
//!
//! Workers deliver sorted runs of rows, which are merged when rows are written. When the runs in
//! memory exceed the budget, they are merged into one run in a temporary file. When there are many
//! runs in files, they are merged into longer ones. So the first rows are written as soon as no
//! earlier row can follow, and a result of any size takes the budget and the buffers of a fixed
//! number of files.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::ops::ControlFlow;

use crate::ReadError;
use crate::run::{Run, RunKey};
use crate::spill::{SpillWriter, SpilledRun};

/// Runs in files of one level that are merged into one of the next. Each has a buffer and an open
/// file.
const FAN_IN: usize = 16;
/// Levels of runs in files. Each row is written at most this often until the last level has
/// `FAN_IN` runs, which is 65,536 times the budget.
const LEVELS: usize = 4;

enum Source<K> {
    Memory { run: Run<K>, next: usize },
    Spilled { run: SpilledRun<K>, level: usize },
}

impl<K: RunKey> Source<K> {
    /// The next row.
    fn row(&self) -> Option<(K, &[u8])> {
        match self {
            Source::Memory { run, next } => run.row(*next),
            Source::Spilled { run, .. } => run.row(),
        }
    }

    /// Advances to the next row and returns its key.
    fn advance(&mut self) -> std::io::Result<Option<K>> {
        match self {
            Source::Memory { next, .. } => *next += 1,
            Source::Spilled { run, .. } => run.advance()?,
        }
        Ok(self.row().map(|(key, _)| key))
    }

    /// The level of a run, if it is in a file.
    fn level(&self) -> Option<usize> {
        match self {
            Source::Memory { .. } => None,
            Source::Spilled { level, .. } => Some(*level),
        }
    }
}

/// Merges runs.
pub(crate) struct Merge<K> {
    sources: Vec<Option<Source<K>>>,
    /// Unused indexes of `sources`.
    free: Vec<usize>,
    heads: BinaryHeap<Reverse<(K, usize)>>,
    memory: usize,
    budget: usize,
    /// Whether rows are drained while others arrive.
    is_drained: bool,
    fan_in: usize,
    levels: usize,
    spills: u64,
}

impl<K: RunKey> Merge<K> {
    /// A merge with about `budget` bytes of rows in memory.
    pub(crate) fn new(budget: usize) -> Self {
        Merge {
            sources: Vec::new(),
            free: Vec::new(),
            heads: BinaryHeap::new(),
            memory: 0,
            budget,
            is_drained: false,
            fan_in: FAN_IN,
            levels: LEVELS,
            spills: 0,
        }
    }

    /// The same for rows that are drained while others arrive: the earliest stay in memory.
    pub(crate) fn drained(self) -> Self {
        Merge {
            is_drained: true,
            ..self
        }
    }

    /// How often rows were spilled to a file.
    pub(crate) fn spills(&self) -> u64 {
        self.spills
    }

    /// Adds a sorted run.
    ///
    /// # Errors
    ///
    /// When rows cannot be spilled.
    pub(crate) fn push(&mut self, run: Run<K>) -> Result<(), ReadError> {
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

    fn insert(&mut self, key: K, source: Source<K>) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sources.push(None);
            self.sources.len() - 1
        });
        self.sources[slot] = Some(source);
        self.heads.push(Reverse((key, slot)));
    }

    /// Writes the rows whose keys are due in order, until `write_row` breaks.
    ///
    /// # Errors
    ///
    /// The first error of `write_row`, or when spilled rows cannot be read.
    pub(crate) fn drain(
        &mut self,
        is_due: impl Fn(&K) -> bool,
        mut write_row: impl FnMut(&[u8]) -> Result<ControlFlow<()>, ReadError>,
    ) -> Result<ControlFlow<()>, ReadError> {
        while self
            .heads
            .peek()
            .is_some_and(|Reverse((key, _))| is_due(key))
            && let Some(Reverse((_, slot))) = self.heads.pop()
        {
            let source = self.sources[slot]
                .as_mut()
                .expect("a head belongs to a source");
            if let Some((_, bytes)) = source.row()
                && write_row(bytes)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            let following = source.advance().map_err(ReadError::Spill)?;
            match following {
                Some(key) => self.heads.push(Reverse((key, slot))),
                None => self.release(slot),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn release(&mut self, slot: usize) {
        self.free.push(slot);
        if let Some(Source::Memory { run, .. }) = self.sources[slot].take() {
            self.memory -= run.size();
        }
    }

    /// Merges runs in memory into one in a file, and runs in files if there are many.
    fn spill(&mut self) -> std::io::Result<()> {
        let spilled = self.spilled();
        self.merge_to_file(&spilled, 0)?;
        self.spills += 1;
        for level in 0..self.levels {
            let slots = self.slots(Some(level));
            if slots.len() < self.fan_in {
                break;
            }
            self.merge_to_file(&slots, (level + 1).min(self.levels - 1))?;
        }
        Ok(())
    }

    /// The slots of the runs of a level, or of those in memory for `None`.
    fn slots(&self, level: Option<usize>) -> HashSet<usize> {
        let sources = self.sources.iter().enumerate();
        let of_level = sources.filter(|(_, source)| {
            source
                .as_ref()
                .is_some_and(|source| source.level() == level)
        });
        of_level.map(|(slot, _)| slot).collect()
    }

    /// The runs in memory that are spilled: all, or those that are needed last, so that a quarter
    /// of the budget is free.
    fn spilled(&self) -> HashSet<usize> {
        let mut slots = self.slots(None);
        if !self.is_drained {
            return slots;
        }
        let mut heads: Vec<&(K, usize)> = self.heads.iter().map(|Reverse(head)| head).collect();
        heads.sort_unstable();
        let mut kept = 0;
        for (_, slot) in heads {
            let Some(Source::Memory { run, .. }) = &self.sources[*slot] else {
                continue;
            };
            kept += run.size();
            if kept > self.budget / 4 * 3 {
                break;
            }
            slots.remove(slot);
        }
        slots
    }

    /// Merges runs into one in a file of level `to`.
    fn merge_to_file(&mut self, slots: &HashSet<usize>, to: usize) -> std::io::Result<()> {
        let (mut heads, others): (BinaryHeap<_>, BinaryHeap<_>) = std::mem::take(&mut self.heads)
            .into_iter()
            .partition(|head| slots.contains(&head.0.1));
        self.heads = others;
        let mut writer = SpillWriter::new()?;
        while let Some(Reverse((_, slot))) = heads.pop() {
            let Some(source) = &mut self.sources[slot] else {
                continue;
            };
            if let Some((key, bytes)) = source.row() {
                writer.row(&key, bytes)?;
            }
            match source.advance()? {
                Some(key) => heads.push(Reverse((key, slot))),
                None => self.release(slot),
            }
        }
        let run = writer.finish()?;
        if let Some((key, _)) = run.row() {
            self.insert(key, Source::Spilled { run, level: to });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::run::RowKey;

    proptest! {
        #[test]
        fn rows_are_ordered_whatever_the_order_of_delivery(
            runs in proptest::collection::vec(
                proptest::collection::vec((-50_i64..50, "[a-z]{0,9}"), 0..40), 0..12),
            budget in 0_usize..4_000,
            watermarks in proptest::collection::vec(-60_i64..60, 0..3),
            (fan_in, levels, is_drained) in (2_usize..4, 1_usize..3, any::<bool>()),
        ) {
            let mut merge = Merge { fan_in, levels, is_drained, ..Merge::new(budget) };
            let mut expected = Vec::new();
            for (task, rows) in runs.iter().enumerate() {
                let mut run = Run::default();
                for (row, (ts, text)) in rows.iter().enumerate() {
                    let narrow = |number| u32::try_from(number).unwrap();
                    let key = RowKey { ts: *ts, task: narrow(task), row: narrow(row) };
                    run.push(key, |out| out.extend_from_slice(text.as_bytes()));
                    expected.push((key, text.clone()));
                }
                run.sort(usize::MAX);
                merge.push(run).unwrap();
                let open = merge.sources.iter().flatten();
                let files = open.filter(|source| source.level().is_some()).count();
                prop_assert!(files <= (fan_in - 1) * levels, "{files} files");
            }
            expected.sort();
            let mut got = Vec::new();
            let mut take = |row: &[u8]| {
                got.push(String::from_utf8(row.to_vec()).unwrap());
                Ok(ControlFlow::Continue(()))
            };
            for watermark in watermarks {
                let flow = merge.drain(|key| key.ts < watermark, &mut take).unwrap();
                prop_assert!(flow.is_continue());
            }
            let flow = merge.drain(|_| true, &mut take).unwrap();
            prop_assert!(flow.is_continue());
            let expected: Vec<String> = expected.into_iter().map(|(_, text)| text).collect();
            prop_assert_eq!(got, expected);
            prop_assert_eq!(merge.memory, 0);
        }
    }
}
