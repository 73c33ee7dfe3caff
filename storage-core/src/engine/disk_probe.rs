//! Whether the disk still works, found out by writing to it now and then.
//!
//! A storage that fails says so, but only when somebody writes to it. A disk that is dead, or does
//! not answer, is found here, by a thread that no request waits for.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{counters::Counters, errno::is_transient, io::probe, writer::Services};

/// The file that is written, in the data folder.
const PROBE_FILE: &str = "disk-probe";
/// A write that takes longer than this is a failure, even if it succeeds later.
const STALL: Duration = Duration::from_secs(30);

/// The outcome of the last probe, and the one that runs.
#[derive(Debug)]
pub(super) struct DiskProbe {
    path: PathBuf,
    state: Mutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Instant>,
    failure: Option<String>,
    round: u64,
}

impl DiskProbe {
    pub(super) fn of(services: &Services) -> Self {
        Self::new(
            services.config.data_dir.clone(),
            Arc::clone(&services.counters),
        )
    }

    fn new(data_dir: PathBuf, counters: Arc<Counters>) -> Self {
        Self {
            path: data_dir.join(PROBE_FILE),
            state: Mutex::default(),
            counters,
        }
    }

    /// Why the disk does not work, if it does not.
    pub(super) fn failure(&self) -> Option<String> {
        let state = self.state.lock();
        let stalled = state.running.map(|since| since.elapsed());
        let stalled = stalled.filter(|since| *since >= STALL).map(|since| {
            let seconds = since.as_secs();
            format!("a write of one block has not completed for {seconds} s")
        });
        let failure = stalled.or_else(|| state.failure.clone());
        self.counters.disk_failed.set(u64::from(failure.is_some()));
        failure
    }

    /// Probes the disk again and again; the next time when the time before has ended.
    pub(super) async fn run(self: Arc<Self>, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            let this = Arc::clone(&self);
            if tokio::task::spawn_blocking(move || this.once())
                .await
                .is_err()
            {
                return;
            }
        }
    }

    fn once(&self) {
        let began = Instant::now();
        let round = {
            let mut state = self.state.lock();
            state.running = Some(began);
            state.round = state.round.wrapping_add(1);
            state.round
        };
        self.ended(began, probe(&self.path, round));
    }

    fn ended(&self, began: Instant, outcome: io::Result<()>) {
        let outcome = match outcome {
            // A full disk is noticed by its free space.
            Err(error) if is_full(&error) => Ok(()),
            // That the process has no descriptors or memory left says nothing about the disk.
            Err(error) if is_transient(&error) => {
                self.state.lock().running = None;
                return;
            }
            outcome => outcome,
        };
        let took = began.elapsed();
        self.counters.disk_probe_seconds.observe(took);
        let mut state = self.state.lock();
        state.running = None;
        let before = state.failure.take();
        state.failure = match outcome {
            // Without the path: callers without a token read this, too.
            Err(error) => Some(error.to_string()),
            Ok(()) if took >= STALL => {
                Some(format!("a write of one block took {} s", took.as_secs()))
            }
            Ok(()) => None,
        };
        match (&before, &state.failure) {
            (None, Some(reason)) => tracing::error!(
                path = %self.path.display(),
                reason,
                "the disk of the data folder fails"
            ),
            (Some(_), None) => tracing::warn!("the disk of the data folder works again"),
            _ => {}
        }
        drop(state);
        let _gauge_is_set = self.failure();
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe_of(folder: &std::path::Path) -> DiskProbe {
        DiskProbe::new(folder.to_owned(), Arc::default())
    }

    #[test]
    fn a_disk_that_fails_is_noticed_and_one_that_works_again_too() {
        let folder = tempfile::tempdir().unwrap();
        let probe = probe_of(folder.path());
        probe.once();
        assert_eq!(probe.failure(), None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        // Cannot be written or removed as a file.
        let in_the_way = folder.path().join(PROBE_FILE);
        std::fs::create_dir(&in_the_way).unwrap();
        probe.once();
        let failure = probe.failure().unwrap();
        assert!(!failure.contains(PROBE_FILE), "anybody reads it: {failure}");
        assert_eq!(probe.counters.disk_failed.get(), 1);
        std::fs::remove_dir(&in_the_way).unwrap();
        // What a crash left is replaced.
        std::fs::write(&in_the_way, b"old").unwrap();
        probe.once();
        assert_eq!(probe.failure(), None);
        assert_eq!(probe.counters.disk_failed.get(), 0);
    }

    #[test]
    fn a_want_of_descriptors_says_nothing_about_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let probe = probe_of(folder.path());
        let in_the_way = folder.path().join(PROBE_FILE);
        for is_failing in [false, true] {
            if is_failing {
                std::fs::create_dir(&in_the_way).unwrap();
                probe.once();
            }
            for errno in [rustix::io::Errno::MFILE, rustix::io::Errno::NOMEM] {
                probe.ended(Instant::now(), Err(errno.into()));
                assert_eq!(probe.failure().is_some(), is_failing, "{errno}");
            }
        }
        assert!(probe.state.lock().running.is_none());
    }

    #[test]
    fn a_write_that_does_not_complete_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let probe = probe_of(folder.path());
        let since = Instant::now().checked_sub(STALL + Duration::from_secs(5));
        probe.state.lock().running = since;
        let failure = probe.failure().unwrap();
        assert!(failure.contains("has not completed for 35 s"), "{failure}");
    }
}
