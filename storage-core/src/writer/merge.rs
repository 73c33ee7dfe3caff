//! Merges the index parts of a storage in the background.

use std::{pin::Pin, sync::Arc, time::Duration};

use io_trace::{Cause, Scope};
use storage_format::paths::FileName;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, Sleep, sleep_until},
};

use super::{Boxed, Services, Writer};
use crate::{
    StorageError,
    clock::random_u64,
    io_thread::Piece,
    merging::{Merge, MergedPart},
    storage::Storage,
    traced::on_thread,
    tree::IndexPart,
};

/// Pieces that wait to be written.
const PIECE_COUNT_MAX: usize = 2;
/// Delay of the next attempt after a merge failed; each failure doubles it.
const RETRY_AFTER: Duration = if cfg!(test) {
    Duration::from_millis(5)
} else {
    Duration::from_secs(10)
};
/// Longest delay, as a power of two of the first.
const RETRY_DOUBLED_MAX: u32 = 8;

/// The merged part; `None` when there was nothing to merge, or the merge was cancelled.
pub(super) type Merged = Result<Option<IndexPart>, StorageError>;

/// Waits for the merge; forever if there is none.
pub(super) async fn wait(merging: &mut Option<Boxed<Merged>>) -> Merged {
    match merging {
        Some(merged) => merged.await,
        None => std::future::pending().await,
    }
}

/// When the index parts of a storage are merged.
pub(super) struct MergeTimes {
    /// Whether the parts changed since it was decided that there is nothing to merge.
    is_open: bool,
    /// Merges that failed since the last success.
    failures: u32,
    retry: Option<Pin<Box<Sleep>>>,
    cancel: watch::Sender<bool>,
}

impl Default for MergeTimes {
    fn default() -> Self {
        Self {
            is_open: true,
            failures: 0,
            retry: None,
            cancel: watch::Sender::new(false),
        }
    }
}

impl MergeTimes {
    /// Waits until a merge that failed is tried again.
    pub(super) async fn due(&mut self) {
        match &mut self.retry {
            Some(retry) => retry.await,
            None => std::future::pending().await,
        }
        self.retry = None;
    }

    /// Notes that the parts of the storage changed.
    pub(super) fn parts_changed(&mut self) {
        self.is_open = true;
    }

    fn failed(&mut self) {
        let delay = RETRY_AFTER.saturating_mul(1 << self.failures.min(RETRY_DOUBLED_MAX));
        self.failures = self.failures.saturating_add(1);
        let at = Instant::now().checked_add(delay);
        self.retry = at.map(|at| Box::pin(sleep_until(at)));
    }
}

impl Writer {
    /// Starts a merge when there are enough index parts of similar size.
    pub(super) fn merge_when_due(&mut self) {
        let times = &mut self.merge_times;
        let is_busy = self.merging.is_some() || self.arranging.is_some();
        let can_merge = !is_busy && times.retry.is_none();
        if !times.is_open || !can_merge || self.storage.poison.is_set() {
            return;
        }
        times.is_open = false;
        if merge_of(&self.storage, &self.services).is_none() {
            return;
        }
        times.cancel = watch::Sender::new(false);
        let cancelled = times.cancel.subscribe();
        let work = merge(Arc::clone(&self.storage), self.services.clone(), cancelled);
        let scope = Scope::within(&self.services.tracer, Cause::Flush);
        self.merging = Some(Box::pin(scope.around(work)));
    }

    /// Lets the merge end soon; its outcome still comes.
    pub(super) fn cancel_merge(&self) {
        self.merge_times.cancel.send_replace(true);
    }

    pub(super) fn on_merged(&mut self, merged: Merged) {
        self.merging = None;
        self.merge_times.is_open = true;
        self.arrange_times.is_turn_of_file = true;
        self.arrange_times.parts_changed();
        match merged {
            Ok(None) => {}
            Ok(Some(part)) => {
                self.merge_times.failures = 0;
                self.replace_parts(&Arc::new(part));
            }
            Err(error) => {
                self.services.counters.index_merge_failures.add(1);
                self.merge_times.failed();
                tracing::warn!(
                    %error, storage = %self.storage.id,
                    "index parts cannot be merged; they are merged later"
                );
            }
        }
    }

    fn replace_parts(&mut self, merged: &Arc<IndexPart>) {
        let replaced = match &mut *self.storage.tree.write() {
            Some(tree) => tree.parts_merged(merged),
            None => return,
        };
        let counters = &self.services.counters;
        counters.index_merges.add(1);
        counters.index_parts_merged.add(replaced.len() as u64);
        tracing::debug!(
            storage = %self.storage.id, parts = replaced.len(), into = %merged.path.display(),
            "index parts were merged"
        );
        replaced.iter().for_each(|part| part.replace());
    }
}

fn merge_of(storage: &Storage, services: &Services) -> Option<Merge> {
    let tree = storage.tree.read();
    let count = services.config.index_merge_count;
    Merge::of(tree.as_ref()?.parts(), count)
}

/// Merges what is to be merged when it is the turn of this storage.
async fn merge(
    storage: Arc<Storage>,
    services: Services,
    mut cancelled: watch::Receiver<bool>,
) -> Merged {
    let _turn = tokio::select! {
        turn = services.merges.acquire() => turn.map_err(|_| StorageError::Stopping)?,
        _ = cancelled.wait_for(|is_cancelled| *is_cancelled) => return Ok(None),
    };
    let Some(merge) = merge_of(&storage, &services) else {
        return Ok(None);
    };
    services.space.check_room(merge.bytes())?;
    let (pieces, written) = mpsc::channel(PIECE_COUNT_MAX);
    let send = move |piece| {
        let sent = pieces.blocking_send(piece);
        sent.map_err(|_| StorageError::Stopping)
    };
    let make = move || -> Result<Option<MergedPart>, StorageError> {
        // Without its sender, the writer has ended.
        let is_cancelled = || *cancelled.borrow() || cancelled.has_changed().is_err();
        let made = merge.run(&is_cancelled, &mut |bytes| send(Piece::Bytes(bytes.into())))?;
        if made.is_some() {
            send(Piece::End)?;
        }
        Ok(made)
    };
    let name = FileName::Index(random_u64()).to_string();
    let path = storage.folder.join(&name);
    let publishing = services
        .io_thread
        .publish_pieces(storage.folder.clone(), name, written);
    let (made, published) = tokio::join!(on_thread(io_trace::current(), make), publishing);
    match (made.unwrap_or(Err(StorageError::Stopping)), published) {
        (Ok(None), _) => Ok(None),
        (
            Ok(Some(MergedPart {
                header,
                footer,
                bases,
            })),
            Ok(()),
        ) => Ok(Some(IndexPart::written(path, header, footer, bases))),
        // The writing ended first, and the cause is there.
        (Ok(Some(_)) | Err(StorageError::Stopping), Err(error)) => {
            Err(StorageError::io("write", &path)(error))
        }
        (Err(error), _) => Err(error),
    }
}
