//! Progress and cancellation of jobs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

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

    /// Adds bytes to do.
    pub fn expect(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Begins a job of this many bytes.
    pub fn begin(&self, total: u64) {
        self.bytes_done.store(0, Ordering::Relaxed);
        self.bytes_total.store(total, Ordering::Relaxed);
    }
}

/// Cancels the work on a thread when the task that waits for it ends.
#[derive(Debug, Default)]
pub(crate) struct CancelledOnDrop(pub(crate) Arc<Progress>);

impl Drop for CancelledOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Longest sleep of a [`Pace`], after which it looks whether the work is cancelled.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Counts the progress of work on a thread, limits its rate, and ends it once it is cancelled.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    progress: Arc<Progress>,
    /// 0: no limit.
    bytes_per_second_max: u64,
    begun: Instant,
    bytes: u64,
}

impl Pace {
    pub(crate) fn new(progress: &Arc<Progress>, bytes_per_second_max: u64) -> Self {
        Self {
            progress: Arc::clone(progress),
            bytes_per_second_max,
            begun: Instant::now(),
            bytes: 0,
        }
    }

    /// Counts bytes that are done, and sleeps while they are more than the rate allows.
    ///
    /// # Errors
    /// [`StorageError::Cancelled`] once the work is cancelled.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), StorageError> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.progress.add(bytes);
        loop {
            self.progress.check()?;
            let ahead = self.due().saturating_sub(self.begun.elapsed());
            if ahead.is_zero() {
                return Ok(());
            }
            std::thread::sleep(ahead.min(SLEEP_MAX));
        }
    }

    /// How long the bytes so far take at the highest rate.
    fn due(&self) -> Duration {
        let nanos = u128::from(self.bytes).saturating_mul(1_000_000_000);
        let nanos = nanos.checked_div(u128::from(self.bytes_per_second_max));
        Duration::from_nanos(u64::try_from(nanos.unwrap_or(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_follows_its_rate() {
        let progress = Arc::<Progress>::default();
        for (rate, bytes, due) in [
            (0, 1 << 40, Duration::ZERO),
            (1 << 20, 1 << 20, Duration::from_secs(1)),
            (1_000, 1, Duration::from_millis(1)),
            (1, u64::MAX, Duration::from_nanos(u64::MAX)),
        ] {
            let mut pace = Pace::new(&progress, rate);
            pace.bytes = bytes;
            assert_eq!(pace.due(), due, "{bytes} bytes at {rate}");
        }
        progress.cancel();
        // However far ahead it is, it ends at once.
        let ended = Pace::new(&progress, 1).take(1 << 40);
        assert_eq!(ended.unwrap_err().code(), "job_cancelled");
    }
}
