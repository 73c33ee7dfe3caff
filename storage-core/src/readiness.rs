//! Whether a storage is recovered, so that it can be served.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::watch;

use crate::Progress;

/// How far the recovery of one or more storages is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryStatus {
    /// Storages that are not recovered yet.
    pub storages: u64,
    /// Bytes of data files that were scanned.
    pub bytes_scanned: u64,
    /// Bytes of data files to scan; an estimate until their index parts were read.
    pub bytes_total: u64,
}

impl RecoveryStatus {
    /// Adds a storage.
    pub(crate) fn add(&mut self, progress: &Progress) {
        let total = progress.bytes_total.load(Ordering::Relaxed);
        // Bytes that are read twice count once.
        let scanned = progress.bytes_done.load(Ordering::Relaxed).min(total);
        self.bytes_scanned = self.bytes_scanned.saturating_add(scanned);
        self.bytes_total = self.bytes_total.saturating_add(total);
    }
}

/// Whether a storage is recovered.
#[derive(Debug)]
pub(crate) struct Readiness {
    is_ready: AtomicBool,
    has_ended: watch::Sender<bool>,
    /// Held while the result of the recovery is taken, so that a deletion comes before or after.
    pub(crate) adopting: tokio::sync::Mutex<()>,
    pub(crate) progress: Arc<Progress>,
}

impl Default for Readiness {
    /// A storage that needs no recovery.
    fn default() -> Self {
        Self {
            is_ready: AtomicBool::new(true),
            has_ended: watch::Sender::new(true),
            adopting: tokio::sync::Mutex::default(),
            progress: Arc::default(),
        }
    }
}

impl Readiness {
    /// A storage that is recovered; `bytes` is an estimate of what will be scanned.
    pub(crate) fn recovering(bytes: u64) -> Self {
        let progress = Progress::default();
        progress.begin(bytes);
        Self {
            is_ready: AtomicBool::new(false),
            has_ended: watch::Sender::new(false),
            adopting: tokio::sync::Mutex::default(),
            progress: Arc::new(progress),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// How far the recovery is; `None` when the storage is ready.
    pub(crate) fn recovery(&self) -> Option<RecoveryStatus> {
        if self.is_ready() {
            return None;
        }
        let mut status = RecoveryStatus {
            storages: 1,
            ..RecoveryStatus::default()
        };
        status.add(&self.progress);
        Some(status)
    }

    /// The storage can be served from now on.
    pub(crate) fn set_ready(&self) {
        let total = self.progress.bytes_total.load(Ordering::Relaxed);
        self.progress.bytes_done.store(total, Ordering::Relaxed);
        self.is_ready.store(true, Ordering::Release);
        self.has_ended.send_replace(true);
    }

    /// Waits until the storage is ready.
    pub(crate) async fn ended(&self) {
        // The sender is not dropped while `self` is borrowed.
        let _ = self.has_ended.subscribe().wait_for(|ended| *ended).await;
    }
}
