//! Scans of data files, on a bounded number of threads over all storages.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::{Condvar, Mutex};

use crate::Progress;

/// Files of one storage that are scanned at the same time, at most.
const SCAN_THREAD_COUNT_MAX: usize = 8;

/// How many files may be scanned at the same time, over all storages that share this.
#[derive(Debug)]
pub(crate) struct ScanThreads {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A file that is being scanned.
struct Turn<'a>(&'a ScanThreads);

impl ScanThreads {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count.max(1)),
            freed: Condvar::new(),
        }
    }

    /// Waits until fewer files are being scanned than may be.
    fn turn(&self) -> Turn<'_> {
        let mut free = self.free.lock();
        self.freed.wait_while(&mut free, |free| *free == 0);
        *free = free.saturating_sub(1);
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut free = self.0.free.lock();
        *free = free.saturating_add(1);
        drop(free);
        self.0.freed.notify_one();
    }
}

/// The scans of one storage.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    /// Bytes that are scanned and to be scanned; cancels the scans.
    pub(crate) progress: Arc<Progress>,
    pub(crate) threads: Arc<ScanThreads>,
    /// Whether the damaged payload of a packet ends the scan of its file.
    pub(crate) is_strict: bool,
}

impl Scan {
    /// Scans that share their threads with no other storage, and that nobody observes.
    pub(crate) fn alone() -> Self {
        Self {
            progress: Arc::default(),
            threads: Arc::new(ScanThreads::new(SCAN_THREAD_COUNT_MAX)),
            is_strict: true,
        }
    }

    /// Adds bytes to be scanned.
    pub(super) fn expect(&self, bytes: u64) {
        self.progress
            .bytes_total
            .fetch_add(bytes, Ordering::Relaxed);
    }

    /// Scans data files in parallel, and returns what was found in their order. A single thread
    /// leaves the disk idle while it computes checksums.
    pub(super) fn all<J: Sync, F: Send>(&self, jobs: &[J], run: impl Fn(&J) -> F + Sync) -> Vec<F> {
        let threads = SCAN_THREAD_COUNT_MAX.min(jobs.len());
        let next = AtomicUsize::new(0);
        let traced = io_trace::current();
        let scan = || {
            let _inside = traced.clone().map(io_trace::Scope::enter);
            let mut done = Vec::new();
            loop {
                let _turn = self.threads.turn();
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(at) else { break };
                done.push((at, run(job)));
            }
            done
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(scan)).collect();
            let done = running.into_iter().flat_map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            let mut done: Vec<_> = done.collect();
            done.sort_by_key(|(at, _)| *at);
            done.into_iter().map(|(_, found)| found).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_storages_share_the_threads() {
        let threads = Arc::new(ScanThreads::new(2));
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let scan = || Scan {
            is_strict: true,
            progress: Arc::default(),
            threads: Arc::clone(&threads),
        };
        let job = |&at: &usize| {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            std::thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            at
        };
        let jobs: Vec<usize> = (0..100).collect();
        std::thread::scope(|scope| {
            let storages: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| scan().all(&jobs, job)))
                .collect();
            for storage in storages {
                assert_eq!(storage.join().unwrap(), jobs, "results keep their order");
            }
        });
        assert!(most.into_inner() <= 2, "more files at once than threads");
    }
}
