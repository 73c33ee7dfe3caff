//! How far long work is, and whether it is to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::StorageError;

/// How far long work is, and whether it is to stop. Shared by who does it and who watches.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes done so far.
    pub bytes_done: AtomicU64,
    /// Bytes to be done; 0 while that is not known.
    pub bytes_total: AtomicU64,
    /// Set it to stop the work at its next step.
    pub is_cancelled: AtomicBool,
}

impl Progress {
    /// Stops the work at its next step.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// An error once the work is to stop.
    ///
    /// # Errors
    /// [`StorageError::Cancelled`] then.
    pub fn check(&self) -> Result<(), StorageError> {
        match self.is_cancelled.load(Ordering::Relaxed) {
            true => Err(StorageError::Cancelled),
            false => Ok(()),
        }
    }

    /// So many bytes more are done.
    pub fn add(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Begins work on so many bytes.
    pub fn begin(&self, total: u64) {
        self.bytes_done.store(0, Ordering::Relaxed);
        self.bytes_total.store(total, Ordering::Relaxed);
    }
}
