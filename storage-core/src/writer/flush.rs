//! Flushes the live part of the tree to an index part.

use std::{pin::Pin, sync::Arc, time::Duration};

use io_trace::{Cause, Scope};
use storage_format::paths::FileName;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Boxed, Writer};
use crate::{
    StorageError,
    clock::{now_ns, random_u64},
    live_index::LiveShare,
    tree::{IndexPart, Sealed},
};

/// Delay of the next attempt after an index part could not be written.
const RETRY_AFTER: Duration = if cfg!(test) {
    Duration::from_millis(20)
} else {
    Duration::from_secs(2)
};
/// Index parts of a storage after which its packets become older before they are written.
const PARTS_OF_SAME_AGE: usize = 4;

pub(super) type Flushed = Result<IndexPart, StorageError>;

/// Waits for the index part that is being written; forever if there is none.
pub(super) async fn wait(flushing: &mut Option<Boxed<Flushed>>) -> Flushed {
    match flushing {
        Some(flushed) => flushed.await,
        None => std::future::pending().await,
    }
}

/// When the live tree of a storage is written.
pub(super) struct FlushTimes {
    share: LiveShare,
    /// The time from which the live tree has packets.
    live_since: Option<Instant>,
    /// The next attempt after an index part could not be written.
    not_before: Option<Instant>,
    /// Bytes of the part that is being written.
    sealed_bytes: u64,
    /// Whether the live tree, or all of them together, are full while a part is being written: no
    /// packets are accepted.
    pub(super) is_behind: bool,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl FlushTimes {
    pub(super) fn new(share: LiveShare) -> Self {
        Self {
            share,
            live_since: None,
            not_before: None,
            sealed_bytes: 0,
            is_behind: false,
            alarm: None,
        }
    }

    /// Waits until the tree is old enough, or its memory is needed.
    pub(super) async fn due(&mut self) {
        let requested = self.share.requested();
        match &mut self.alarm {
            Some(alarm) => tokio::select! {
                () = alarm => self.alarm = None,
                () = requested => {}
            },
            None => requested.await,
        }
    }

    /// Whether packets are refused: parts cannot be written, and the memory for live trees is used
    /// up.
    pub(super) fn is_exhausted(&self) -> bool {
        self.share.is_exhausted()
    }

    /// Notes the size of the live tree.
    fn report(&mut self, live_bytes: u64) {
        if live_bytes == 0 {
            self.live_since = None;
        } else if self.live_since.is_none() {
            self.live_since = Some(Instant::now());
        }
        let sealed = self.sealed_bytes;
        self.share.report(live_bytes.saturating_add(sealed), sealed);
    }

    /// When the tree is to be written: at once if it is too large. Each few parts of a storage
    /// let its packets wait longer, so that packets that trickle in do not become one part each.
    fn due_at(&self, is_large: bool, age_max: Duration, parts: usize) -> Option<Instant> {
        let patience = u32::try_from(parts / PARTS_OF_SAME_AGE).unwrap_or(u32::MAX);
        let age_max = age_max.saturating_mul(patience.saturating_add(1));
        let old_at = self.live_since.filter(|_| !age_max.is_zero());
        let due_at = if is_large {
            Some(self.live_since.unwrap_or_else(Instant::now))
        } else {
            old_at.and_then(|since| since.checked_add(age_max))
        };
        due_at.map(|at| self.not_before.map_or(at, |earliest| at.max(earliest)))
    }

    fn set_alarm(&mut self, at: Option<Instant>) {
        if at != self.alarm.as_ref().map(|alarm| alarm.deadline()) {
            self.alarm = at.map(|at| Box::pin(sleep_until(at)));
        }
    }

    /// Notes that the live tree is being written.
    fn sealed(&mut self, sealed_bytes: u64, live_bytes: u64) {
        self.sealed_bytes = sealed_bytes;
        self.live_since = None;
        self.share.met();
        self.report(live_bytes);
    }

    /// Notes that the part was written.
    fn written(&mut self, live_bytes: u64) {
        self.sealed_bytes = 0;
        self.not_before = None;
        self.share.set_failing(false);
        self.report(live_bytes);
    }

    /// Notes that the part could not be written: its packets are live again.
    fn refused(&mut self, live_bytes: u64) {
        self.sealed_bytes = 0;
        self.not_before = Instant::now().checked_add(RETRY_AFTER);
        self.share.set_failing(true);
        self.report(live_bytes);
    }
}

impl Writer {
    /// Starts to write an index part when the live tree is too large or too old, when too many
    /// bytes are uncovered, or when memory is needed for other storages.
    pub(super) fn flush_when_due(&mut self) {
        let config = &self.services.config;
        let mut tree = self.storage.tree.write();
        let Some(tree) = &mut *tree else { return };
        let times = &mut self.flush_times;
        let live = tree.live_bytes();
        times.report(live);
        let is_full = tree.live_records() >= config.tree_packet_count_max;
        let is_crowded = is_full || times.share.is_far_exceeded();
        times.is_behind = is_crowded && self.flushing.is_some();
        let is_large = is_full
            || tree.uncovered_bytes() >= config.uncovered_bytes_max
            || times.share.is_requested();
        let due_at = times.due_at(is_large, config.live_index_age_max, tree.parts().len());
        let is_due = due_at.is_some_and(|at| at <= Instant::now());
        let can_flush = self.flushing.is_none() && !self.storage.poison.is_set();
        times.set_alarm(due_at.filter(|_| !is_due && can_flush));
        if !is_due || !can_flush || !self.is_at_batch_end {
            return;
        }
        let sealed = tree.seal(now_ns());
        times.sealed(sealed.as_ref().map_or(0, |_| live), tree.live_bytes());
        self.flushing = sealed.map(|sealed| self.write_part(sealed));
    }

    fn write_part(&self, sealed: Sealed) -> Boxed<Flushed> {
        let io_thread = self.services.io_thread.clone();
        let folder = self.storage.folder.clone();
        let scope = Scope::within(&self.services.tracer, Cause::Flush);
        Box::pin(scope.around(async move {
            let header = sealed.header();
            let encoded = tokio::task::spawn_blocking(move || sealed.encode()).await;
            let (bytes, footer, bases) = encoded.map_err(|_| StorageError::Stopping)?;
            crate::fault_point!(async "flush.sealed");
            let name = FileName::Index(random_u64()).to_string();
            let path = folder.join(&name);
            let published = io_thread.publish(folder, name, bytes.into()).await;
            published.map_err(StorageError::io("write", &path))?;
            crate::fault_point!(async "flush.durable");
            Ok(IndexPart::written(path, header, footer, bases))
        }))
    }

    pub(super) async fn on_flushed(&mut self, flushed: Flushed) {
        self.flushing = None;
        match self.part_done(flushed) {
            Ok(()) | Err(StorageError::Stopping) => {}
            // No acknowledgement waits for an index part, so there is time.
            Err(error @ (StorageError::DiskFull { .. } | StorageError::Exhausted { .. })) => {
                tracing::warn!(
                    %error, storage = %self.storage.id,
                    "an index part cannot be written; it is written later"
                );
            }
            Err(error) => self.fail_storage(&error.to_string()).await,
        }
    }

    fn part_done(&mut self, flushed: Flushed) -> Result<(), StorageError> {
        let mut tree = self.storage.tree.write();
        let Some(tree) = &mut *tree else {
            return Ok(());
        };
        match flushed {
            Ok(part) => {
                tree.part_written(&Arc::new(part));
                self.services.counters.index_parts.add(1);
                self.merge_times.parts_changed();
                self.arrange_times.parts_changed();
                self.flush_times.written(tree.live_bytes());
                Ok(())
            }
            Err(error) => {
                tree.part_refused();
                self.flush_times.refused(tree.live_bytes());
                Err(error)
            }
        }
    }

    /// Flushes the live tree, and waits for it.
    pub(super) async fn flush_now(&mut self) -> Result<(), StorageError> {
        let sealed = match &mut *self.storage.tree.write() {
            Some(tree) => tree.seal(now_ns()),
            None => None,
        };
        let Some(sealed) = sealed else { return Ok(()) };
        let flushed = self.write_part(sealed).await;
        self.part_done(flushed)
    }

    /// Saves the tree before the writer ends, so that the next one needs not scan the data files.
    pub(super) async fn save_tree(&mut self) -> Result<(), StorageError> {
        if self.storage.poison.is_set() {
            return Ok(());
        }
        self.flush_now().await
    }
}
