//! Free space of the data folder: ingest stops when it is low, and resumes when there is enough.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rustix::fs::statvfs;

use crate::{StorageError, config::DiskLow, counters::Counters};

/// Ingest stops when fewer files can be created, or this part of all that the file system can have,
/// whichever is less. It resumes at twice as many.
const FREE_FILES_MIN: u64 = 1024;
const FREE_FILES_DIVISOR: u64 = 20;

/// Watches the free space of one file system.
#[derive(Debug)]
pub(crate) struct Space {
    folder: PathBuf,
    limits: DiskLow,
    is_low: AtomicBool,
    free_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    /// With less free space than this, ingest that has stopped does not resume; 0 for no limit.
    resume_bytes: AtomicU64,
    /// Whether there is space, but no more files can be created.
    is_short_of_files: AtomicBool,
    free_files: AtomicU64,
    counters: Arc<Counters>,
}

impl Space {
    pub(crate) fn new(folder: &Path, limits: DiskLow, counters: Arc<Counters>) -> Self {
        let space = Self {
            folder: folder.to_owned(),
            limits,
            is_low: AtomicBool::new(false),
            free_bytes: AtomicU64::new(u64::MAX),
            limit_bytes: AtomicU64::new(0),
            resume_bytes: AtomicU64::new(0),
            is_short_of_files: AtomicBool::new(false),
            free_files: AtomicU64::new(u64::MAX),
            counters,
        };
        space.look();
        space
    }

    /// Checks the file system once; blocks for one system call.
    pub(crate) fn look(&self) {
        let Ok(found) = statvfs(&self.folder) else {
            return;
        };
        let unit = found.f_frsize;
        self.decide_files(found.f_favail, found.f_files);
        self.decide(
            found.f_bavail.saturating_mul(unit),
            found.f_blocks.saturating_mul(unit),
        );
    }

    /// A file system without a limit of files says that it has none.
    fn decide_files(&self, free: u64, total: u64) {
        let limits = &self.limits;
        let is_off = limits.stop_free_bytes == 0 && limits.stop_free_ratio <= 0.0;
        let stop = FREE_FILES_MIN.min(total / FREE_FILES_DIVISOR);
        let was_short = self.is_short_of_files.load(Ordering::Relaxed);
        let limit = if was_short {
            stop.saturating_mul(2)
        } else {
            stop
        };
        let is_short = total > 0 && free < limit && !is_off;
        self.is_short_of_files.store(is_short, Ordering::Relaxed);
        self.free_files.store(free, Ordering::Relaxed);
        match (was_short, is_short) {
            (false, true) => tracing::warn!(
                free,
                stop,
                "hardly any file can be created on the disk (inodes); ingest stops until some are \
                 deleted"
            ),
            (true, false) => {
                tracing::info!(
                    free,
                    "files can be created on the disk again; ingest resumes"
                )
            }
            _ => {}
        }
    }

    fn decide(&self, free: u64, total: u64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a file system is a rough positive number, and the cast saturates"
        )]
        let share = |ratio: f64| (total as f64 * ratio) as u64;
        let limits = &self.limits;
        let stop = limits.stop_free_bytes.max(share(limits.stop_free_ratio));
        let resume = limits
            .stop_free_bytes
            .saturating_mul(2)
            .max(share(limits.resume_free_ratio))
            .max(stop);
        let was_low = self.is_low.load(Ordering::Relaxed);
        let is_low = if was_low { free <= resume } else { free < stop };
        self.is_low.store(is_low, Ordering::Relaxed);
        self.free_bytes.store(free, Ordering::Relaxed);
        self.limit_bytes
            .store(if is_low { resume } else { stop }, Ordering::Relaxed);
        // Without a limit ingest never stops, so it never waits to resume.
        let resume = if stop > 0 { resume } else { 0 };
        self.resume_bytes.store(resume, Ordering::Relaxed);
        self.counters.disk_free_bytes.set(free);
        self.counters.disk_total_bytes.set(total);
        let is_short = self.is_short_of_files.load(Ordering::Relaxed);
        self.counters.disk_low.set(u64::from(is_low || is_short));
        match (was_low, is_low) {
            (false, true) => tracing::warn!(
                free,
                stop,
                "the disk is low; ingest stops until space is freed"
            ),
            (true, false) => {
                tracing::info!(free, resume, "there is enough free space; ingest resumes")
            }
            _ => {}
        }
    }

    /// Refuses while the disk is low.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        if !self.is_low() {
            return Ok(());
        }
        self.counters.refused_disk_low.add(1);
        if !self.is_low.load(Ordering::Relaxed) {
            return Err(StorageError::FilesLow {
                free_files: self.free_files.load(Ordering::Relaxed),
            });
        }
        Err(StorageError::DiskLow {
            free_bytes: self.free_bytes.load(Ordering::Relaxed),
            limit_bytes: self.limit_bytes.load(Ordering::Relaxed),
        })
    }

    /// Refuses to write bytes that can be made again where ingest would not resume with less free
    /// space: such work must not stop it. Blocks for one system call.
    pub(crate) fn check_spare(&self, bytes: u64) -> Result<(), StorageError> {
        self.look();
        self.check()?;
        let free_bytes = self.free_bytes.load(Ordering::Relaxed);
        let resume = self.resume_bytes.load(Ordering::Relaxed);
        let limit_bytes = resume.saturating_add(bytes);
        if resume == 0 || free_bytes >= limit_bytes {
            return Ok(());
        }
        Err(StorageError::DiskLow {
            free_bytes,
            limit_bytes,
        })
    }

    /// Refuses work that would bring free space below the limit.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), StorageError> {
        self.check()?;
        let free_bytes = self.free_bytes.load(Ordering::Relaxed);
        let limit_bytes = self
            .limit_bytes
            .load(Ordering::Relaxed)
            .saturating_add(bytes);
        if free_bytes >= limit_bytes {
            return Ok(());
        }
        self.counters.refused_disk_low.add(1);
        Err(StorageError::DiskLow {
            free_bytes,
            limit_bytes,
        })
    }

    pub(crate) fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed) || self.is_short_of_files.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ingest_stops_and_resumes_with_hysteresis() {
        let limits = DiskLow {
            stop_free_bytes: 10,
            stop_free_ratio: 0.05,
            resume_free_ratio: 0.08,
            check_interval: Duration::from_secs(1),
        };
        let space = Space::new(Path::new("/nonexistent"), limits, Arc::default());
        for (free, is_low) in [
            (1000, false),
            (50, false),
            (49, true),
            (60, true),
            (80, true),
            (81, false),
            (50, false),
        ] {
            space.decide(free, 1000);
            assert_eq!(space.is_low(), is_low, "{free} free of 1000");
            assert_eq!(space.check().is_err(), is_low);
        }
    }

    #[test]
    fn ingest_stops_when_no_file_can_be_created() {
        let limits = DiskLow {
            stop_free_bytes: 10,
            stop_free_ratio: 0.05,
            resume_free_ratio: 0.08,
            check_interval: Duration::from_secs(1),
        };
        let off = DiskLow {
            stop_free_bytes: 0,
            stop_free_ratio: 0.0,
            ..limits
        };
        let space = Space::new(Path::new("/nonexistent"), limits, Arc::default());
        for (free, total, is_low) in [
            (2_000, 1_000_000, false),
            (1_023, 1_000_000, true),
            (2_000, 1_000_000, true),
            (2_048, 1_000_000, false),
            (60, 1_000, false),
            (49, 1_000, true),
            // No limit is known.
            (0, 0, false),
        ] {
            space.decide_files(free, total);
            space.decide(1000, 1000);
            assert_eq!(space.is_low(), is_low, "{free} of {total}");
            let code = space.check().err().map(|error| error.code());
            assert_eq!(code, is_low.then_some("disk_low"));
            assert_eq!(space.counters.disk_low.get(), u64::from(is_low));
        }
        let space = Space::new(Path::new("/nonexistent"), off, Arc::default());
        space.decide_files(0, 1_000);
        assert!(!space.is_low());
    }
}
