//! Attempts to rebuild the index of a finalized storage.
//!
//! An attempt reads the whole storage. So there is one at a time, which all readers share, and one
//! that failed is not repeated by each reader that misses something: only after a while, or when
//! the files of the storage changed.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::watch;

use crate::StorageError;

/// How long the first failure is remembered; each failure doubles it.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Longest time, as a power of two of the first.
const REMEMBERED_DOUBLED_MAX: u32 = 6;
/// How often the files are looked at while a failure is remembered.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The attempts for one storage.
#[derive(Debug, Default)]
pub(crate) struct Rebuilds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Closed when the attempt has ended.
    running: Option<watch::Receiver<()>>,
    failed: Option<Failed>,
    /// Failures since the last success.
    failures: u32,
}

#[derive(Debug)]
struct Failed {
    error: StorageError,
    /// What the files were before it.
    version: u64,
    looked: Instant,
    until: Instant,
}

/// What a reader does that misses a part of the index.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// It begins an attempt, which ends when the sender is dropped.
    Begins(watch::Sender<()>),
    /// It waits for the one that runs.
    Waits(watch::Receiver<()>),
    /// The last one failed, and another would fail, too.
    Refused(StorageError),
}

impl Rebuilds {
    /// Whether to look at the files: an attempt failed, and what it read may have been restored.
    pub(crate) fn is_look_due(&self) -> bool {
        let mut state = self.0.lock();
        match &mut state.failed {
            Some(failed) if failed.looked.elapsed() >= LOOK_INTERVAL => {
                failed.looked = Instant::now();
                true
            }
            _ => false,
        }
    }

    /// What to do; `version` is that of the files, if they were looked at.
    pub(crate) fn begin(&self, version: Option<u64>) -> Attempt {
        let mut state = self.0.lock();
        if let Some(running) = &state.running
            && running.has_changed().is_ok()
        {
            return Attempt::Waits(running.clone());
        }
        if let Some(failed) = &state.failed
            && failed.until > Instant::now()
            && version.is_none_or(|version| version == failed.version)
        {
            return Attempt::Refused(repeated(&failed.error));
        }
        let (sender, receiver) = watch::channel(());
        state.running = Some(receiver);
        Attempt::Begins(sender)
    }

    /// Notes how an attempt ended, before it does. One that was interrupted says nothing.
    pub(crate) fn ended(&self, result: Result<(), StorageError>, version: u64) {
        let mut state = self.0.lock();
        let error = match result {
            Ok(()) => {
                *state = State::default();
                return;
            }
            Err(StorageError::Cancelled | StorageError::Stopping) => return,
            Err(error) => error,
        };
        let doubled = 1 << state.failures.min(REMEMBERED_DOUBLED_MAX);
        let now = Instant::now();
        state.failures = state.failures.saturating_add(1);
        state.failed = Some(Failed {
            error,
            version,
            looked: now,
            until: now
                .checked_add(REMEMBERED.saturating_mul(doubled))
                .unwrap_or(now),
        });
    }

    /// The error of the last attempt, if it failed.
    pub(crate) fn outcome(&self) -> Result<(), StorageError> {
        let state = self.0.lock();
        state
            .failed
            .as_ref()
            .map_or(Ok(()), |failed| Err(repeated(&failed.error)))
    }
}

/// The same error for another reader.
fn repeated(error: &StorageError) -> StorageError {
    let again = |source: &io::Error| match Errno::from_io_error(source) {
        Some(errno) => io::Error::from(errno),
        None => io::Error::new(source.kind(), source.to_string()),
    };
    match error {
        StorageError::Damaged { path, source } => StorageError::damaged(path)(source.clone()),
        StorageError::DiskFull { path } => StorageError::DiskFull { path: path.clone() },
        StorageError::Io {
            operation,
            path,
            source,
        }
        | StorageError::Exhausted {
            operation,
            path,
            source,
        } => StorageError::io(operation, path)(again(source)),
        other => StorageError::Io {
            operation: "rebuild the index",
            path: "of the storage".into(),
            source: io::Error::other(other.to_string()),
        },
    }
}

/// A number that changes when one of the files does; blocks the thread.
pub(crate) fn version_of(folder: &Path, names: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in names {
        let about = std::fs::metadata(folder.join(name)).ok();
        let about = about.map(|about| {
            let changed = (
                about.ctime(),
                about.ctime_nsec(),
                about.mtime(),
                about.mtime_nsec(),
            );
            (about.ino(), about.len(), changed)
        });
        (name, about).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_remembered_until_the_files_change() {
        let rebuilds = Rebuilds::default();
        let Attempt::Begins(first) = rebuilds.begin(None) else {
            panic!("the first reader begins an attempt");
        };
        assert!(matches!(rebuilds.begin(None), Attempt::Waits(_)));
        rebuilds.ended(Err(StorageError::DiskFull { path: "x".into() }), 7);
        drop(first);
        assert_eq!(rebuilds.outcome().unwrap_err().code(), "disk_full");
        assert!(!rebuilds.is_look_due());
        for version in [None, Some(7)] {
            let Attempt::Refused(error) = rebuilds.begin(version) else {
                panic!("it is not repeated");
            };
            assert_eq!(error.code(), "disk_full");
        }
        let Attempt::Begins(second) = rebuilds.begin(Some(8)) else {
            panic!("it is repeated with other files");
        };
        // A deletion or the end of the server interrupts it.
        rebuilds.ended(Err(StorageError::Cancelled), 8);
        drop(second);
        assert!(matches!(rebuilds.begin(Some(8)), Attempt::Begins(_)));
        rebuilds.ended(Ok(()), 8);
        assert!(rebuilds.outcome().is_ok());
    }
}
