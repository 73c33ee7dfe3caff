//! Progress and cancellation of jobs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::StorageError;

/// Progress of a job, shared by the job and its observers, and the flag that cancels it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes done so far.
    pub bytes_done: AtomicU64,
    /// Bytes to do; 0 while unknown.
    pub bytes_total: AtomicU64,
    /// Set to stop the job at its next step.
    pub is_cancelled: AtomicBool,
}

impl Progress {
    /// Cancels the job at its next step.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Refuses to continue once the job is cancelled.
    ///
    /// # Errors
    /// [`StorageError::Cancelled`] once the job is cancelled.
    pub fn check(&self) -> Result<(), StorageError> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            Err(StorageError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Adds bytes that are done.
    pub fn add(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Begins a job of this many bytes.
    pub fn begin(&self, total: u64) {
        self.bytes_done.store(0, Ordering::Relaxed);
        self.bytes_total.store(total, Ordering::Relaxed);
    }
}
