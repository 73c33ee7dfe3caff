//! What a node does for the store again and again.

use std::sync::Arc;
use std::time::Duration;

use object_tier::{Hint, TierError, changed_since, collect_unnamed, hour, sealed_since};
use storage_core::{Progress, StorageFilter};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use tokio::sync::watch;

use super::uploads::{UploadError, is_complete, now_ns, upload, wanted};
use super::{Tier, adopting, deletions, eviction, labels};
use crate::app_state::AppState;
use crate::connection::Stage;

/// One hour, in nanoseconds.
const HOUR_NS: i64 = 3_600_000_000_000;

/// What a node has seen so far.
#[derive(Debug, Default)]
struct Seen {
    /// The hour from which news are looked for; none: all.
    from: Option<String>,
    /// Uploaded storages whose remains may be collected, with the time of their seal.
    uploaded: Vec<(StorageId, i64)>,
}

/// Uploads, evicts and looks for storages of other nodes until the server stops.
pub(crate) async fn maintain(
    app: Arc<AppState>,
    tier: Arc<Tier>,
    mut stage: watch::Receiver<Stage>,
) {
    let watching = async move {
        // An error means that the sender is gone; the server is stopping then, too.
        let _ = stage.wait_for(|stage| *stage > Stage::Running).await;
    };
    tokio::pin!(watching);
    let interval = Duration::from_secs(tier.config.check_seconds);
    let mut seen = Seen::default();
    loop {
        tokio::select! {
            () = &mut watching => break,
            () = round(&app, &tier, &mut seen) => {}
        }
        tokio::select! {
            () = &mut watching => break,
            () = tier.wake.notified() => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
}

async fn round(app: &Arc<AppState>, tier: &Tier, seen: &mut Seen) {
    let done = async {
        tier.nodes.give_sign(app, tier).await?;
        deletions::complete(app, tier).await?;
        publish_labels(app, tier).await?;
        upload_all(app, tier, seen).await?;
        look_for_news(app, tier, seen).await?;
        collect(tier, seen).await
    };
    match done.await {
        Ok(()) => tier.note_success(),
        Err(error) => tier.note_failure(&error),
    }
    tier.status.lock().waiting = wanted(app, tier).len() as u64;
    eviction::run(app, tier).await;
}

async fn upload_all(app: &Arc<AppState>, tier: &Tier, seen: &mut Seen) -> Result<(), TierError> {
    for info in wanted(app, tier) {
        if !is_complete(app, info.id) {
            continue;
        }
        match upload(app, tier, info.id, &Progress::default()).await {
            Ok(()) => seen.uploaded.push((info.id, now_ns())),
            Err(UploadError::Store(error)) if error.is_passing() => return Err(error),
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
        labels::publish(app, tier, &info).await?;
    }
    Ok(())
}

/// Takes what other nodes have sealed, labelled and removed.
async fn look_for_news(app: &Arc<AppState>, tier: &Tier, seen: &mut Seen) -> Result<(), TierError> {
    // The clocks of nodes differ, and a hint may be late.
    let next = hour(now_ns().saturating_sub(2 * HOUR_NS));
    let from = seen.from.clone();
    let mut gone = Vec::new();
    for (_, id, hint) in changed_since(&tier.bucket, from.clone()).await? {
        match hint {
            Hint::Gone => gone.push(id),
            Hint::Labelled(number) => {
                let known = app.engine.tiering().info(id);
                let is_new = matches!(known, Ok(Some(known)) if known.file.label_number < number);
                if is_new {
                    labels::take(app, tier, id).await?;
                }
            }
            Hint::Sealed => {}
        }
    }
    for (_, id) in sealed_since(&tier.bucket, from).await? {
        let is_here = app.engine.storages().get(id).is_ok();
        if is_here || gone.contains(&id) {
            continue;
        }
        match adopting::adopt(app, tier, id).await {
            Ok(_) => {}
            Err(adopting::AdoptError::Store(error)) if error.is_passing() => return Err(error),
            Err(error) => tracing::warn!(
                %error, storage = %id, "a storage of the object store is not served from here"
            ),
        }
    }
    for id in gone {
        deletions::follow(app, tier, id).await;
    }
    seen.from = Some(next);
    Ok(())
}

/// Removes what interrupted uploads left.
async fn collect(tier: &Tier, seen: &mut Seen) -> Result<(), TierError> {
    let grace = Duration::from_secs(tier.config.grace_seconds);
    let grace_ns = i64::try_from(grace.as_nanos()).unwrap_or(i64::MAX);
    let now = now_ns();
    let is_due = |(_, sealed): &(StorageId, i64)| now.saturating_sub(*sealed) > grace_ns;
    let (due, later): (Vec<_>, Vec<_>) = seen.uploaded.drain(..).partition(is_due);
    seen.uploaded = later;
    for (id, _) in due {
        let Some(seal) = object_tier::Seal::get(&tier.bucket, id).await? else {
            continue;
        };
        let collected = collect_unnamed(&tier.bucket, id, &seal, grace, now).await?;
        if collected.objects > 0 {
            tracing::info!(
                storage = %id, objects = collected.objects, bytes = collected.bytes,
                "objects that no seal names were removed from the object store"
            );
        }
    }
    Ok(())
}
