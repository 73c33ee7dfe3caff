//! Taking over an open storage that another node has written, or that this one has lost.

use std::sync::Arc;

use object_tier::chain::{Chain, Takeover, last_owner, standing};
use object_tier::{LocalOwner, TierError, is_gone};
use storage_core::{Progress, StorageError};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;

use super::Tier;
use super::adopting;
use super::chains::rebuild;
use super::outdated::replace_outdated;
use super::survey::Survey;
use super::takeover_error::TakeoverError;
use crate::app_state::AppState;

/// How often a takeover is tried while others take the storage as well.
const TRIES_MAX: u32 = 8;

/// Where a storage is after a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenOver {
    /// It was here before.
    Here,
    /// It is sealed, and served from the store.
    Sealed,
    /// This node writes it, and has these packets of its chain.
    Written(u64),
    /// Its chain was closed: it is finalized here.
    Finalized(u64),
}

/// A storage that is taken over here, until this is dropped.
struct Taking<'t>(&'t Tier, StorageId);

impl<'t> Taking<'t> {
    fn begin(tier: &'t Tier, id: StorageId) -> Result<Self, TakeoverError> {
        if tier.taking.lock().insert(id) {
            Ok(Self(tier, id))
        } else {
            Err(TakeoverError::Underway)
        }
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.taking.lock().remove(&self.1);
    }
}

/// Takes a storage over by its chain. `is_forced` takes it also from a node that gives signs of
/// life, and one whose packets nobody has but its node, without these packets.
///
/// # Errors
/// When there is no such storage, its node lives, or the store does not answer.
pub(crate) async fn take_over(
    app: &Arc<AppState>,
    tier: &Tier,
    id: StorageId,
    is_forced: bool,
    progress: &Progress,
) -> Result<TakenOver, TakeoverError> {
    forget_outdated(app, tier, id).await?;
    let is_here = || app.engine.storages().get(id).is_ok();
    if is_here() {
        return Ok(TakenOver::Here);
    }
    if adopting::adopt(app, tier, id).await? {
        return Ok(TakenOver::Sealed);
    }
    let chains = tier.chains().ok_or(TakeoverError::Off)?;
    let _taking = Taking::begin(tier, id)?;
    if is_here() {
        return Ok(TakenOver::Here);
    }
    // A task of a copy that was here before must not take the storage as well.
    chains.forget(id);
    let is_own = check_owner(tier, id, is_forced).await?;
    storage_core::fault_point!(async "tier.takeover.begun");
    let (taken, end, bytes) = claim(app, tier, id, (is_own, is_forced)).await?;
    let chain = match taken {
        Takeover::Owned(chain) => Some(chain),
        Takeover::Closed { .. } => None,
        Takeover::Sealed(_) => {
            adopting::adopt(app, tier, id).await?;
            return Ok(TakenOver::Sealed);
        }
    };
    storage_core::fault_point!(async "tier.takeover.fenced");
    // It may have been deleted while the chain was read.
    if is_gone(&tier.bucket, id).await? {
        return Err(StorageError::StorageNotFound(id).into());
    }
    progress.begin(bytes);
    let is_closed = chain.is_none();
    let packets = rebuild(chains, id, (chain, end), progress).await?;
    tracing::info!(storage = %id, packets, is_closed, "a storage was taken over from its chain");
    if is_closed {
        storage_core::fault_point!(async "tier.takeover.closed");
        app.engine.storages().finalize(id).await?;
        storage_core::fault_point!(async "tier.takeover.finalized");
        return Ok(TakenOver::Finalized(packets));
    }
    Ok(TakenOver::Written(packets))
}

/// Takes the chain over; returns it, the number behind its last packets, and their bytes.
async fn claim(
    app: &AppState,
    tier: &Tier,
    id: StorageId,
    (mut is_own, is_forced): (bool, bool),
) -> Result<(Takeover, u64, u64), TakeoverError> {
    let chains = tier.chains().ok_or(TakeoverError::Off)?;
    let (bucket, claimant) = (&tier.bucket, chains.claimant());
    let mut tries = 0;
    loop {
        tries += 1;
        let mut survey = Survey::new(&app.engine, id);
        let taken = if is_own {
            Chain::resume(bucket, id, claimant, &mut survey).await
        } else {
            Chain::take_over(bucket, id, claimant, &mut survey).await
        };
        match taken {
            Ok(taken) => return Ok((taken, survey.end, survey.bytes)),
            // What this node sent before, and gave up, may have arrived now.
            Err(TierError::Superseded { reason, .. }) => {
                let owner = last_owner(bucket, id).await?;
                is_own = owner.is_some_and(|owner| claimant.made(&owner));
                // The node before may have come back at this moment: force takes it all the same.
                if !is_own && !is_forced || tries == TRIES_MAX {
                    return Err(TakeoverError::Superseded(reason));
                }
            }
            Err(error) => {
                return Err(survey.refused.unwrap_or_else(|| error.into()));
            }
        }
    }
}

/// Sets a copy aside that is here and that another node has instead, whether that was noticed yet
/// or not.
pub(super) async fn forget_outdated(
    app: &Arc<AppState>,
    tier: &Tier,
    id: StorageId,
) -> Result<(), TakeoverError> {
    let Some(chains) = tier.chains() else {
        return Ok(());
    };
    let is_written = app.engine.storages().get(id);
    let is_written = is_written.is_ok_and(|info| info.state != StorageState::Finalized);
    if !is_written || chains.is_rebuilding(id) {
        return Ok(());
    }
    let owner = last_owner(&tier.bucket, id).await?;
    if owner.is_some_and(|owner| !chains.claimant().made(&owner)) {
        chains.begin(id);
        chains.doubt(id);
        chains.is_open(id).await;
    }
    replace_outdated(app, tier).await;
    Ok(())
}

/// Refuses to take a storage from a node that lives, or without its packets. Returns whether this
/// node owns it already.
async fn check_owner(tier: &Tier, id: StorageId, is_forced: bool) -> Result<bool, TakeoverError> {
    if is_gone(&tier.bucket, id).await? {
        return Err(StorageError::StorageNotFound(id).into());
    }
    let chains = tier.chains().ok_or(TakeoverError::Off)?;
    let Some(standing) = standing(&tier.bucket, id).await? else {
        let Some(owner) = LocalOwner::of(&tier.bucket, id).await? else {
            return Err(StorageError::StorageNotFound(id).into());
        };
        let node = owner.node.to_string();
        // It would go on acknowledging: nothing keeps it from that.
        if owner.node != *tier.nodes.name() && tier.nodes.is_live(&owner.node) {
            return Err(TakeoverError::UnchainedWriterLives(node));
        }
        return if is_forced {
            Ok(false)
        } else {
            Err(TakeoverError::NotChained(node))
        };
    };
    let owner = standing.owner;
    if chains.claimant().made(&owner) {
        return Ok(true);
    }
    let is_live = if owner.node == *tier.nodes.name() {
        // Another data folder of this name.
        tier.nodes.is_ambiguous()
    } else {
        tier.nodes.is_live(&owner.node)
    };
    // Behind the close nobody appends.
    if is_live && !is_forced && !standing.is_closed {
        return Err(TakeoverError::WriterLives(owner.node.to_string()));
    }
    Ok(false)
}

/// Takes a storage over in the background; whoever asks for it meanwhile is told to wait.
pub(super) fn begin(app: &Arc<AppState>, id: StorageId) {
    let Some(tier) = app.tier.clone() else {
        return;
    };
    if tier.taking.lock().contains(&id) {
        return;
    }
    let app = Arc::clone(app);
    tokio::spawn(async move {
        let taken = take_over(&app, &tier, id, false, &Progress::default()).await;
        if let Err(error) = taken
            && !matches!(error, TakeoverError::Underway)
        {
            tracing::warn!(%error, storage = %id, "the storage is not taken over; it is tried again");
        }
    });
}
