//! What a node does for the store again and again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use object_tier::{
    GONE_AFTER, HEARTBEAT_INTERVAL, Hint, TierError, changed_since, hour, sealed_since,
};
use storage_core::{Progress, StorageFilter};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use tokio::sync::watch;

use super::collecting::Collection;
use super::outdated::replace_outdated;
use super::pace::{Pace, is_refused};
use super::uploads::{UploadError, forget_left_packets, is_complete, upload, wanted};
use super::{Tier, adopting, deletions, eviction, labels, mending, table, takeover};
use crate::app_state::AppState;
use crate::clock;
use crate::connection::Stage;

/// One hour, in nanoseconds.
const HOUR_NS: i64 = 3_600_000_000_000;

/// Uploads, evicts and looks for storages of other nodes until the server stops. A long upload
/// holds up nothing else: others would take the node for gone.
pub(crate) async fn maintain(
    app: Arc<AppState>,
    tier: Arc<Tier>,
    mut stage: watch::Receiver<Stage>,
) {
    let watching = async move {
        // An error means that the sender is gone; the server is stopping then, too.
        let _ = stage.wait_for(|stage| *stage > Stage::Running).await;
    };
    tokio::select! {
        () = watching => {}
        () = signs(&app, &tier) => {}
        () = news(&app, &tier) => {}
        () = uploads(&app, &tier) => {}
        () = mending::maintain(&app, &tier) => {}
        () = table::maintain(&app, &tier) => {}
    }
}

/// Tells the other nodes that this one lives, and what it writes.
async fn signs(app: &AppState, tier: &Tier) {
    let mut pace = Pace::of(tier);
    // A node is gone without a sign for 30 s.
    pace.interval = pace.interval.min(HEARTBEAT_INTERVAL);
    let mut last = Instant::now();
    loop {
        let free = app.engine.counters().disk_free_bytes.get();
        let place = (&tier.bucket, tier.url.as_str());
        let (written, is_chained) = (written(app), tier.chains().is_some());
        if let Some(chains) = tier.chains() {
            // What was lost, or written elsewhere, while the server was down is found now.
            written.iter().for_each(|&id| chains.begin(id));
            chains.give_up_failed().await;
        }
        let given = tier
            .nodes
            .give_sign(place, (written, is_chained), free)
            .await;
        if given.is_ok() {
            // Others took this node for gone, and may have its storages.
            if last.elapsed() >= GONE_AFTER
                && let Some(chains) = tier.chains()
            {
                chains.doubt_all();
            }
            last = Instant::now();
        }
        tier.note("sign of life", given);
        pace.next().await;
    }
}

/// Follows the other nodes, and tells them of deletions and labels.
async fn news(app: &Arc<AppState>, tier: &Tier) {
    let (mut pace, mut from) = (Pace::of(tier), None);
    loop {
        let done = async {
            replace_outdated(app, tier).await;
            let lost = std::mem::take(&mut *tier.lost.lock());
            lost.into_iter().for_each(|id| takeover::begin(app, id));
            deletions::complete(app, tier).await?;
            publish_labels(app, tier).await?;
            look_for_news(app, tier, &mut from).await
        };
        tier.note("news", done.await);
        let superseded = app.engine.storages().set_aside_copies().await;
        tier.status.lock().superseded = superseded;
        pace.next().await;
    }
}

/// Uploads, and gives space back.
async fn uploads(app: &Arc<AppState>, tier: &Tier) {
    let (mut pace, mut collection) = (Pace::of(tier), Collection::default());
    loop {
        forget_left_packets(app, tier).await;
        let done = async {
            upload_all(app, tier, &mut collection).await?;
            collection.round(app, tier).await
        };
        tier.note("upload", done.await);
        tier.status.lock().waiting = wanted(app, tier).len() as u64;
        eviction::run(app, tier).await;
        pace.next().await;
    }
}

async fn upload_all(
    app: &Arc<AppState>,
    tier: &Tier,
    collection: &mut Collection,
) -> Result<(), TierError> {
    for info in wanted(app, tier) {
        if !is_complete(app, info.id) {
            continue;
        }
        match upload(app, tier, info.id, &Progress::default()).await {
            Ok(()) => {
                if let Ok(Some(known)) = app.engine.tiering().known(info.id) {
                    collection.add((known.sealed, info.id));
                }
            }
            Err(UploadError::Store(error)) if error.is_passing() => return Err(error),
            // It was deleted meanwhile.
            Err(_) if app.engine.storages().get(info.id).is_err() => {}
            Err(error) => tracing::error!(
                %error, storage = %info.id,
                "a finalized storage cannot be uploaded; verify it, or look for it in the store"
            ),
        }
    }
    Ok(())
}

/// Notes changed labels of all storages that are in the store.
async fn publish_labels(app: &Arc<AppState>, tier: &Tier) -> Result<(), TierError> {
    let filter = StorageFilter {
        state: Some(StorageState::Finalized),
        ..StorageFilter::default()
    };
    for info in app.engine.storages().list(&filter) {
        labels::publish(app, tier, info.id).await?;
    }
    Ok(())
}

/// Takes what other nodes have sealed, labelled and removed.
async fn look_for_news(
    app: &Arc<AppState>,
    tier: &Tier,
    seen_from: &mut Option<String>,
) -> Result<(), TierError> {
    // The clocks of nodes differ, and a hint may be late.
    let next = hour(clock::now_ns().saturating_sub(2 * HOUR_NS));
    let from = seen_from.clone();
    let mut gone = Vec::new();
    for (_, id, hint) in changed_since(&tier.bucket, from.clone()).await? {
        match hint {
            Hint::Gone => gone.push(id),
            Hint::Labelled(number) => {
                let known = app.engine.tiering().known(id);
                let is_new = matches!(known, Ok(Some(known)) if known.label_number < number);
                if is_new {
                    labels::take(app, tier, id).await?;
                }
            }
            Hint::Sealed => {}
        }
    }
    for (_, id) in sealed_since(&tier.bucket, from).await? {
        let is_here = app.engine.storages().get(id).is_ok();
        if is_here || gone.contains(&id) || is_refused(tier, id) {
            continue;
        }
        match adopting::adopt(app, tier, id).await {
            Ok(_) => {}
            Err(adopting::AdoptError::Store(error)) if error.is_passing() => return Err(error),
            Err(error) => {
                tier.refused.lock().insert(id, Instant::now());
                tracing::warn!(
                    %error, storage = %id,
                    "a storage of the object store is not served from here; it is tried again \
                     later"
                );
            }
        }
    }
    for id in gone {
        deletions::follow(app, id).await;
    }
    *seen_from = Some(next);
    Ok(())
}

/// The storages that are written here.
fn written(app: &AppState) -> HashSet<StorageId> {
    let all = app
        .engine
        .storages()
        .list(&storage_core::StorageFilter::default());
    let written = all.into_iter().filter(|info| {
        matches!(
            info.state,
            StorageState::Created
                | StorageState::Open
                | StorageState::Recording
                | StorageState::Finalizing
        )
    });
    written.map(|info| info.id).collect()
}
