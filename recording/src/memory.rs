//! The memory of all chains together: what waits in them, and what they wrote that is not durable.
//!
//! A chain takes what it needs, and gives back when all chains together have too much and it has
//! more than its fair part. So a chain that is alone may use everything, and many chains stay
//! within the limit without waiting for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the memory of chains.
#[derive(Debug)]
pub struct ChainMemory {
    bytes_max: usize,
    used: AtomicUsize,
    shares: AtomicUsize,
}

/// What one chain, or the writer of its packets, has in memory.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    memory: Arc<ChainMemory>,
    bytes: usize,
}

impl ChainMemory {
    /// Memory of this many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            used: AtomicUsize::new(0),
            shares: AtomicUsize::new(0),
        })
    }

    pub(crate) fn share(self: &Arc<Self>) -> MemoryShare {
        self.shares.fetch_add(1, Ordering::Relaxed);
        MemoryShare {
            memory: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Bytes that all chains have together.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl MemoryShare {
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            let grown = bytes - self.bytes;
            self.memory.used.fetch_add(grown, Ordering::Relaxed);
        } else {
            let freed = self.bytes - bytes;
            self.memory.used.fetch_sub(freed, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_add(bytes));
    }

    pub(crate) fn remove(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_sub(bytes));
    }

    /// Whether this share must become smaller.
    pub(crate) fn is_over(&self) -> bool {
        let shares = self.memory.shares.load(Ordering::Relaxed).max(1);
        self.memory.used() > self.memory.bytes_max && self.bytes > self.memory.bytes_max / shares
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.set(0);
        self.memory.shares.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_share_above_its_part_is_over() {
        let memory = ChainMemory::new(100);
        let mut one = memory.share();
        one.add(90);
        assert!(!one.is_over(), "it is alone");
        let mut two = memory.share();
        two.add(20);
        assert!(one.is_over() && !two.is_over());
        one.remove(40);
        assert!(!one.is_over());
        two.set(60);
        assert!(!one.is_over() && two.is_over());
        drop(one);
        assert_eq!((memory.used(), two.is_over()), (60, false));
        drop(two);
        assert_eq!(memory.used(), 0);
    }
}
