//! Chunk indexes next to data files: extended while a storage is written, completed after it is
//! finalized.
//!
//! An index is derived. It is built here from durable bytes, published atomically, and rebuilt when
//! it is missing or does not match its data file. Nothing is lost when the server stops in between;
//! the next start continues. While a storage is written, a leaf has an index once it is long; of a
//! finalized storage, the indexes of all leaves that begin in a data file are in one bundle.

mod counting;
mod counts;
mod finalized;
mod growing;
mod maker;
mod state;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_trace::{Cause, Scope};
use storage_core::{StorageError, StorageFilter};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use tokio::sync::watch;

use crate::connection::Stage;
use maker::{Ending, IndexError};

pub(crate) use counts::EventCount;
pub(crate) use maker::IndexMaker;
pub(crate) use state::{ChunkIndexes, IndexState};

/// Interval between scans for storages without complete indexes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Maintains the indexes of all storages until the server stops.
pub(crate) async fn maintain(maker: IndexMaker, mut stage: watch::Receiver<Stage>) {
    let ending = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&ending);
    let watching = async move {
        // An error means that the sender is gone; the server is stopping then, too.
        let _ = stage.wait_for(|stage| *stage > Stage::Running).await;
        stopping.store(true, Ordering::Relaxed);
    };
    tokio::pin!(watching);
    loop {
        tokio::select! {
            () = &mut watching => return,
            () = check_all(&maker, &ending) => {}
        }
        let pause = tokio::time::sleep(CHECK_INTERVAL);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut watching => return,
                () = maker.indexes.wake.notified() => break,
                () = &mut pause => break,
                () = maker.indexes.count_wake.notified() => count_wanted(&maker, &ending).await,
            }
        }
    }
}

/// Counts the packets of the storages for which somebody waits.
async fn count_wanted(maker: &IndexMaker, ending: &Ending) {
    loop {
        let Some(next) = maker.indexes.known.lock().uncounted.pop_first() else {
            return;
        };
        if let Err(error) = growing::count(maker, next, ending).await {
            tracing::debug!(storage = %next, %error, "cannot count the events of a storage");
        }
        maker.indexes.counted.notify_waiters();
    }
}

async fn check_all(maker: &IndexMaker, ending: &Ending) {
    let all = maker.engine.storages().list(&StorageFilter::default());
    let present: HashSet<StorageId> = all.iter().map(|storage| storage.id).collect();
    // Only this task settles storages, so that none was added since the list was made.
    maker.indexes.known.lock().keep(&present);
    for storage in all {
        count_wanted(maker, ending).await;
        // Somebody may wait for those that were just finalized.
        loop {
            let Some(next) = maker.indexes.known.lock().wanted.pop_first() else {
                break;
            };
            if check_storage(maker, next, ending).await.is_break() {
                return;
            }
        }
        if check_storage(maker, storage.id, ending).await.is_break() {
            return;
        }
    }
}

/// Brings the indexes of a storage up to date; breaks when the server stops.
async fn check_storage(maker: &IndexMaker, id: StorageId, ending: &Ending) -> ControlFlow<()> {
    let known = &maker.indexes.known;
    let is_final = match maker.engine.storages().get(id).map(|storage| storage.state) {
        Ok(StorageState::Finalized) => true,
        Ok(StorageState::Open | StorageState::Recording) => false,
        Ok(_) => return ControlFlow::Continue(()),
        Err(_) => {
            known.lock().forget(id);
            return ControlFlow::Continue(());
        }
    };
    let (is_complete, is_unbundled) = {
        let mut known = known.lock();
        (known.is_complete(id), known.unbundled.remove(&id))
    };
    // One that came from the object store has the indexes that were uploaded with it.
    let tier = maker.engine.tiering().info(id).ok().flatten();
    if is_final && tier.is_some_and(|tier| !tier.file.is_own) {
        let mut known = known.lock();
        known.wanted.remove(&id);
        known.completed(id);
        return ControlFlow::Continue(());
    }
    if is_final && is_complete && !is_unbundled {
        return ControlFlow::Continue(());
    }
    let tracer = maker.engine.tracer();
    let work = async {
        if is_final {
            finalized::complete(maker, id, ending).await
        } else {
            growing::extend(maker, id, ending).await?;
            growing::count(maker, id, ending).await
        }
    };
    let completed = if tracer.is_on() {
        Scope::within(tracer, Cause::Index).around(work).await
    } else {
        work.await
    };
    match completed {
        Ok(()) if is_final => known.lock().completed(id),
        Ok(()) => {}
        Err(IndexError::Stopping) => return ControlFlow::Break(()),
        Err(IndexError::Storage(StorageError::Recovering { .. })) => {}
        Err(_) if is_deleted(maker, id) => known.lock().forget(id),
        Err(error) => {
            tracing::warn!(
                storage = %id,
                %error,
                "cannot complete the chunk indexes of a storage; queries read the data \
                 instead; the server will retry"
            );
            maker.metrics.queries.index_failures.inc();
            if is_final {
                known.lock().settled.insert(id, IndexState::Failed);
            }
        }
    }
    ControlFlow::Continue(())
}

/// Whether a storage was deleted in the meantime.
fn is_deleted(maker: &IndexMaker, id: StorageId) -> bool {
    let found = maker.engine.storages().get(id);
    matches!(found, Err(StorageError::StorageNotFound(_)))
}
