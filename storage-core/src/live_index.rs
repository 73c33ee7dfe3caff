//! The live trees of all storages share a limit: when their sum exceeds it, the largest is written
//! as an index part, whichever storage it belongs to.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use storage_format::StorageId;
use tokio::sync::Notify;

use crate::counters::Counters;

/// How often the limit may be exceeded by what cannot be written before pushes are refused.
const EXCEEDED_TIMES_MAX: u64 = 2;

/// The live trees of all storages.
#[derive(Debug)]
pub(crate) struct LiveIndex {
    bytes_max: u64,
    /// Bytes of all trees, and those of trees that are being written or about to be.
    bytes: AtomicU64,
    leaving: AtomicU64,
    /// Trees whose last part could not be written.
    failing: AtomicU64,
    shares: Mutex<HashMap<StorageId, Arc<Share>>>,
    counters: Arc<Counters>,
}

/// The live tree of one storage.
#[derive(Debug, Default)]
struct Share {
    /// Bytes in memory, and the part of them that is leaving.
    bytes: AtomicU64,
    leaving: AtomicU64,
    is_requested: AtomicBool,
    is_failing: AtomicBool,
    requested: Notify,
}

/// The live tree of a storage as its writer reports it; dropping it removes the tree.
#[derive(Debug)]
pub(crate) struct LiveShare {
    all: Arc<LiveIndex>,
    storage: StorageId,
    share: Arc<Share>,
}

impl LiveIndex {
    pub(crate) fn new(bytes_max: u64, counters: Arc<Counters>) -> Self {
        Self {
            bytes_max,
            bytes: AtomicU64::new(0),
            leaving: AtomicU64::new(0),
            failing: AtomicU64::new(0),
            shares: Mutex::default(),
            counters,
        }
    }

    /// Adds the tree of a storage.
    pub(crate) fn join(self: &Arc<Self>, storage: StorageId) -> LiveShare {
        let share = Arc::<Share>::default();
        self.shares.lock().insert(storage, Arc::clone(&share));
        LiveShare {
            all: Arc::clone(self),
            storage,
            share,
        }
    }

    /// Requests that the largest trees are written, until what remains is within the limit.
    fn reduce(&self) {
        while self.staying() > self.bytes_max {
            let shares = self.shares.lock();
            let largest = shares
                .values()
                .filter(|share| share.leaving.load(Ordering::SeqCst) == 0)
                .max_by_key(|share| share.bytes.load(Ordering::SeqCst));
            let Some(share) = largest.filter(|share| share.bytes.load(Ordering::SeqCst) > 0) else {
                return;
            };
            share.is_requested.store(true, Ordering::SeqCst);
            let leaving = share.bytes.load(Ordering::SeqCst);
            share.leaving.store(leaving, Ordering::SeqCst);
            self.leaving.fetch_add(leaving, Ordering::SeqCst);
            share.requested.notify_one();
        }
    }

    fn staying(&self) -> u64 {
        let bytes = self.bytes.load(Ordering::SeqCst);
        bytes.saturating_sub(self.leaving.load(Ordering::SeqCst))
    }
}

impl LiveShare {
    /// Reports the size of the tree, and how much of it is being written. While it is requested and
    /// nothing is being written yet, all of it counts as leaving.
    pub(crate) fn report(&self, bytes: u64, leaving: u64) {
        let before = self.share.bytes.load(Ordering::SeqCst);
        let is_same = leaving == self.share.leaving.load(Ordering::SeqCst);
        if bytes == before && is_same {
            return;
        }
        {
            // Changes of `leaving` exclude those of `reduce`.
            let _shares = self.all.shares.lock();
            let is_requested = self.share.is_requested.load(Ordering::SeqCst);
            let leaving = if is_requested { bytes } else { leaving };
            replace(&self.all.leaving, &self.share.leaving, leaving);
            replace(&self.all.bytes, &self.share.bytes, bytes);
        }
        let sum = self.all.bytes.load(Ordering::SeqCst);
        self.all.counters.live_index_bytes.set(sum);
        self.all.reduce();
    }

    /// Waits until the tree shall be written.
    pub(crate) async fn requested(&self) {
        self.share.requested.notified().await;
    }

    /// Whether the tree shall be written.
    pub(crate) fn is_requested(&self) -> bool {
        self.share.is_requested.load(Ordering::SeqCst)
    }

    /// Notes that the request was met.
    pub(crate) fn met(&self) {
        self.share.is_requested.store(false, Ordering::SeqCst);
    }

    /// Notes whether the last part of the tree could be written.
    pub(crate) fn set_failing(&self, is_failing: bool) {
        let was_failing = self.share.is_failing.swap(is_failing, Ordering::SeqCst);
        match (was_failing, is_failing) {
            (false, true) => self.all.failing.fetch_add(1, Ordering::SeqCst),
            (true, false) => self.all.failing.fetch_sub(1, Ordering::SeqCst),
            _ => 0,
        };
    }

    /// Whether packets are refused: parts cannot be written, of whichever tree, and all trees
    /// together are twice as large as they may be.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.all.failing.load(Ordering::SeqCst) > 0 && self.is_far_exceeded()
    }

    /// Whether all trees together are twice as large as they may be.
    pub(crate) fn is_far_exceeded(&self) -> bool {
        let max = self.all.bytes_max.saturating_mul(EXCEEDED_TIMES_MAX);
        self.all.bytes.load(Ordering::SeqCst) > max
    }
}

impl Drop for LiveShare {
    fn drop(&mut self) {
        self.set_failing(false);
        let mut shares = self.all.shares.lock();
        replace(&self.all.leaving, &self.share.leaving, 0);
        replace(&self.all.bytes, &self.share.bytes, 0);
        if shares
            .get(&self.storage)
            .is_some_and(|share| Arc::ptr_eq(share, &self.share))
        {
            shares.remove(&self.storage);
        }
        drop(shares);
        let sum = self.all.bytes.load(Ordering::SeqCst);
        self.all.counters.live_index_bytes.set(sum);
    }
}

/// Replaces a summand, and corrects the sum.
fn replace(sum: &AtomicU64, summand: &AtomicU64, value: u64) {
    let before = summand.swap(value, Ordering::SeqCst);
    if value >= before {
        sum.fetch_add(value.saturating_sub(before), Ordering::SeqCst);
    } else {
        sum.fetch_sub(before.saturating_sub(value), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> StorageId {
        StorageId::from_bytes([byte; 16])
    }

    #[test]
    fn the_largest_trees_are_requested_until_the_rest_is_within_the_limit() {
        let all = Arc::new(LiveIndex::new(100, Arc::default()));
        let trees: Vec<_> = (0..4).map(|at| all.join(id(at))).collect();
        let requested = || -> Vec<_> { trees.iter().map(LiveShare::is_requested).collect() };
        for (tree, bytes) in trees.iter().zip([10, 40, 30, 20]) {
            tree.report(bytes, 0);
        }
        assert_eq!(requested(), [false; 4]);
        trees[0].report(11, 0);
        assert_eq!(requested(), [false, true, false, false]);
        // It is being written, and grows meanwhile; the others grow, too.
        trees[1].met();
        trees[1].report(45, 40);
        trees[2].report(65, 0);
        assert_eq!(requested(), [false, false, true, false]);
        trees[1].report(5, 0);
        assert_eq!(all.staying(), 5 + 11 + 20);
        trees[2].report(70, 0);
        assert_eq!(
            all.staying(),
            5 + 11 + 20,
            "what is requested counts as leaving"
        );
        assert!(!trees[0].is_exhausted());
        trees[0].report(201, 0);
        assert!(trees[3].is_far_exceeded() && !trees[3].is_exhausted());
        // One that cannot be written is enough: the others would grow in its place.
        trees[2].set_failing(true);
        trees[2].set_failing(true);
        assert!(trees[3].is_exhausted());
        trees[2].set_failing(false);
        assert!(!trees[3].is_exhausted());
        trees[1].set_failing(true);
        drop(trees);
        assert_eq!((all.staying(), all.shares.lock().len()), (0, 0));
        assert_eq!(all.failing.load(Ordering::SeqCst), 0);
        assert_eq!(all.counters.live_index_bytes.get(), 0);
    }
}
