//! Which rows can be among the first ones by time, so that no other row is made.

use std::collections::BinaryHeap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::run::RowKey;

/// What the threads of a query know of its first rows.
#[derive(Debug)]
pub(crate) struct FirstRows {
    rows_max: usize,
    /// No row that starts later is one of them.
    last_ts: AtomicI64,
    /// The first keys of the tasks that have ended.
    keys: Mutex<BinaryHeap<RowKey>>,
}

impl FirstRows {
    /// The first `rows_max` rows, none of which is known.
    pub(crate) fn new(rows_max: usize) -> FirstRows {
        FirstRows {
            rows_max,
            last_ts: AtomicI64::new(i64::MAX),
            keys: Mutex::default(),
        }
    }

    /// For one thread.
    pub(crate) fn of_thread(&self) -> FirstRowsOfThread<'_> {
        FirstRowsOfThread {
            all: self,
            keys: BinaryHeap::new(),
        }
    }

    fn add(&self, keys: &mut BinaryHeap<RowKey>) {
        let mut all = self
            .keys
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        for key in keys.drain() {
            insert(&mut all, self.rows_max, key);
        }
        if let Some(last) = all.peek().filter(|_| all.len() >= self.rows_max) {
            // Another thread that reads the value before makes more rows than it must.
            self.last_ts.store(last.ts, Ordering::Relaxed);
        }
    }
}

/// What a thread knows of the first rows.
#[derive(Debug)]
pub(crate) struct FirstRowsOfThread<'a> {
    all: &'a FirstRows,
    /// The first keys of the task that is read.
    keys: BinaryHeap<RowKey>,
}

impl FirstRowsOfThread<'_> {
    /// Whether a row can be one of the first.
    #[inline]
    pub(crate) fn admit(&mut self, key: RowKey) -> bool {
        key.ts <= self.all.last_ts.load(Ordering::Relaxed)
            && insert(&mut self.keys, self.all.rows_max, key)
    }

    /// The task has no more rows.
    pub(crate) fn end_task(&mut self) {
        self.all.add(&mut self.keys);
    }
}

/// Adds a key if it is one of the first `max`.
fn insert(keys: &mut BinaryHeap<RowKey>, max: usize, key: RowKey) -> bool {
    if keys.len() >= max {
        if keys.peek().is_none_or(|last| *last < key) {
            return false;
        }
        keys.pop();
    }
    keys.push(key);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn narrow(number: usize) -> u32 {
        u32::try_from(number).unwrap()
    }

    proptest! {
        #[test]
        fn the_first_rows_are_admitted_whatever_the_threads_know(
            tasks in proptest::collection::vec(
                proptest::collection::vec(-50_i64..50, 0..40), 0..12),
            rows_max in 1_usize..30,
            threads in 1_usize..4,
        ) {
            let first = FirstRows::new(rows_max);
            let mut of_threads: Vec<_> = (0..threads).map(|_| first.of_thread()).collect();
            let (mut all, mut admitted) = (Vec::new(), Vec::new());
            for (task, rows) in tasks.iter().enumerate() {
                let own = &mut of_threads[task % threads];
                for (row, ts) in rows.iter().enumerate() {
                    let key = RowKey { ts: *ts, task: narrow(task), row: narrow(row) };
                    all.push(key);
                    admitted.extend(own.admit(key).then_some(key));
                }
                own.end_task();
            }
            all.sort_unstable();
            admitted.sort_unstable();
            all.truncate(rows_max);
            prop_assert_eq!(admitted.get(..all.len()), Some(all.as_slice()));
        }
    }

    #[test]
    fn rows_after_the_first_are_not_admitted() {
        let first = FirstRows::new(2);
        let (mut one, mut other) = (first.of_thread(), first.of_thread());
        let key = |ts, task| RowKey { ts, task, row: 0 };
        for (ts, expected) in [(5, true), (7, true), (9, false), (3, true), (6, false)] {
            assert_eq!(one.admit(key(ts, 0)), expected, "{ts}");
        }
        // Only tasks that have ended bind others.
        assert!(other.admit(key(8, 1)));
        one.end_task();
        assert!(!other.admit(key(8, 1)));
        // The order of rows that start together depends on their tasks.
        assert!(other.admit(key(5, 1)));
    }
}
