//! Flushes the live part of the tree to an index part.

use std::{sync::Arc, time::Duration};

use io_trace::{Cause, Scope};
use storage_format::paths::FileName;
use tokio::time::Instant;

use super::{Boxed, Writer};
use crate::{
    StorageError,
    clock::{now_ns, random_u64},
    tree::{IndexPart, Sealed},
};

/// Delay of the next attempt after an index part could not be written.
const RETRY_AFTER: Duration = Duration::from_secs(2);

pub(super) type Flushed = Result<IndexPart, StorageError>;

/// Waits for the index part that is being written; forever if there is none.
pub(super) async fn wait(flushing: &mut Option<Boxed<Flushed>>) -> Flushed {
    match flushing {
        Some(flushed) => flushed.await,
        None => std::future::pending().await,
    }
}

impl Writer {
    /// Starts to write an index part when the live tree is too large or too many bytes are
    /// uncovered.
    pub(super) fn flush_when_due(&mut self) {
        let config = &self.services.config;
        let is_early = self.flush_not_before.is_some_and(|at| Instant::now() < at);
        let is_complete = self.is_at_batch_end;
        if self.flushing.is_some() || is_early || !is_complete || self.storage.poison.is_set() {
            return;
        }
        let sealed = {
            let mut tree = self.storage.tree.write();
            let Some(tree) = &mut *tree else { return };
            let is_due = tree.live_records() >= config.tree_packet_count_max
                || tree.uncovered_bytes() >= config.uncovered_bytes_max;
            is_due.then(|| tree.seal(now_ns())).flatten()
        };
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
            let name = FileName::Index(random_u64()).to_string();
            let path = folder.join(&name);
            let published = io_thread.publish(folder, name, bytes.into()).await;
            published.map_err(StorageError::io("write", &path))?;
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
                self.flush_not_before = None;
                Ok(())
            }
            Err(error) => {
                tree.part_refused();
                self.flush_not_before = Instant::now().checked_add(RETRY_AFTER);
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

    /// Saves the tree before the server stops, so that the next start does not scan data files.
    pub(super) async fn save_tree(&mut self) {
        if self.storage.poison.is_set() {
            return;
        }
        if let Err(error) = self.flush_now().await {
            tracing::warn!(
                %error, storage = %self.storage.id,
                "the index cannot be saved; the next start scans the data files"
            );
        }
    }
}
