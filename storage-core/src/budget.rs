//! Bytes that may be under way at once.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{StorageError, counters::Counters};

/// A bound in bytes from which permits are taken, never waited for.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    used: Arc<AtomicU64>,
    max: u64,
    counters: Arc<Counters>,
}

/// A part of a [`ByteBudget`], given back when dropped.
#[derive(Debug)]
pub struct BytePermit {
    budget: ByteBudget,
    bytes: u64,
}

impl ByteBudget {
    pub(crate) fn new(max: u64, counters: Arc<Counters>) -> Self {
        Self {
            used: Arc::default(),
            max,
            counters,
        }
    }

    /// A permit of no bytes, for what is counted elsewhere.
    #[must_use]
    pub fn nothing(&self) -> BytePermit {
        BytePermit {
            budget: self.clone(),
            bytes: 0,
        }
    }

    /// Takes `bytes` of the budget. What is larger than the whole budget is let in alone.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when they are not there now.
    pub fn try_acquire(&self, bytes: u64) -> Result<BytePermit, StorageError> {
        let take = |used: u64| {
            let after = used.checked_add(bytes)?;
            (after <= self.max || used == 0).then_some(after)
        };
        match self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            Ok(used) => {
                self.counters.in_flight_bytes.set(used + bytes);
                Ok(BytePermit {
                    budget: self.clone(),
                    bytes,
                })
            }
            Err(_) => {
                self.counters.refused_busy.add(1);
                Err(StorageError::Busy { max: self.max })
            }
        }
    }
}

impl BytePermit {
    /// Splits `bytes` off into a permit of its own; all that is left when there are fewer.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> BytePermit {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        BytePermit {
            budget: self.budget.clone(),
            bytes,
        }
    }

    /// Size of the permit in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for BytePermit {
    fn drop(&mut self) {
        let used = self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget
            .counters
            .in_flight_bytes
            .set(used.saturating_sub(self.bytes));
    }
}
