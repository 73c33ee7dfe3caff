//! The task that appends to the chain of one storage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use object_tier::TierError;
use object_tier::chain::Chain;
use storage_core::StorageError;

use super::gathering::{Gathered, Told};
use super::opening::{Opened, Refused, open};
use super::storage_chain::{Ending, Failure, StorageChain};
use super::{Chains, Outdated};

/// The first pause after a failure; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A pause after a failure.
struct Pause(Duration);

impl Pause {
    fn new() -> Self {
        Self(PAUSE_MIN)
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = self.0.saturating_mul(2).min(PAUSE_MAX);
    }
}

/// Appends what is new, until the chain is closed or belongs to another node.
pub(super) async fn run(chains: Arc<Chains>, of: Arc<StorageChain>, taken: Option<Chain>) {
    let ending = match append_until_the_end(&chains, &of, taken).await {
        Ok(()) => return of.close(),
        Err(ending) => ending,
    };
    let outdated = match &ending {
        Ending::Superseded(reason) => Some((false, reason)),
        Ending::Lacking(reason) => Some((true, reason)),
        Ending::Deleted => None,
    };
    if let Some((is_owned, reason)) = outdated {
        let (id, reason) = (of.id, reason.clone());
        of.end(ending);
        chains.note_outdated(Outdated {
            id,
            is_owned,
            reason,
        });
        return;
    }
    of.end(ending);
}

/// Appends until the chain is closed.
async fn append_until_the_end(
    chains: &Chains,
    of: &StorageChain,
    mut taken: Option<Chain>,
) -> Result<(), Ending> {
    loop {
        let chain = match taken.take() {
            Some(chain) => chain,
            None => match take(chains, of).await? {
                Some(chain) => chain,
                None => return Ok(()),
            },
        };
        match append_all(chains, of, chain).await {
            Ok(()) => return Ok(()),
            // By whom? This node itself may have sent an `own` in a life before, or in a takeover
            // that was given up, and it has arrived now. Taking the storage once more tells.
            Err(Ending::Superseded(reason)) => {
                tracing::info!(storage = %of.id, reason, "the chain of a storage has a newer owner");
            }
            Err(ending) => return Err(ending),
        }
    }
}

/// Takes the storage over, however long that takes; nothing if its chain is closed.
async fn take(chains: &Chains, of: &StorageChain) -> Result<Option<Chain>, Ending> {
    let mut pause = Pause::new();
    loop {
        match open(chains, of).await {
            Ok(Opened::Chain(chain)) => {
                chains.note(of, None);
                return Ok(Some(*chain));
            }
            Ok(Opened::Closed) => return Ok(None),
            Err(Refused::Ended(ending)) => return Err(ending),
            Err(Refused::Later(failure)) => {
                chains.note(of, Some(failure));
                pause.wait().await;
            }
        }
    }
}

/// Appends until the chain is closed; otherwise returns why it ended.
async fn append_all(chains: &Chains, of: &StorageChain, mut chain: Chain) -> Result<(), Ending> {
    let (mut told, mut pause) = (Told::default(), Pause::new());
    loop {
        of.work().await;
        let begun = Instant::now();
        let gathered = match told.gather(&chains.engine, of).await {
            Ok(gathered) => gathered,
            Err(StorageError::StorageNotFound(_)) => return Err(Ending::Deleted),
            Err(error) => {
                tracing::error!(
                    %error, storage = %of.id,
                    "packets cannot be read for the object store; they are not acknowledged"
                );
                pause.wait().await;
                continue;
            }
        };
        pause = Pause::new();
        if !gathered.pieces.is_empty() {
            storage_core::fault_point!(async "tier.chain.gathered");
            append(chains, (of, &mut chain), &gathered).await?;
        } else if of.is_closing() {
            return settled(chains, of, &mut chain, None).await;
        } else {
            // Nobody pushes: another node may have the storage, and its reads would be old here.
            if let Err(TierError::Superseded { reason, .. }) = chain.look().await {
                return Err(Ending::Superseded(reason));
            }
            continue;
        }
        if !gathered.is_full() && !of.is_closing() {
            let rest = chains.pace.interval.saturating_sub(begun.elapsed());
            tokio::time::sleep(rest).await;
        }
    }
}

async fn append(
    chains: &Chains,
    (of, chain): (&StorageChain, &mut Chain),
    gathered: &Gathered,
) -> Result<(), Ending> {
    settled(chains, of, chain, Some(gathered)).await?;
    chains.counts.add(gathered.packets, gathered.bytes);
    of.reach(gathered.reached.clone());
    storage_core::fault_point!(async "tier.chain.acknowledged");
    if let Some(next) = gathered.next_report {
        of.forget_reports(next);
    }
    Ok(())
}

/// Appends a record, or closes the chain, and sends the same again until it is known to be there.
async fn settled(
    chains: &Chains,
    of: &StorageChain,
    chain: &mut Chain,
    gathered: Option<&Gathered>,
) -> Result<(), Ending> {
    let mut placed = place(chain, gathered).await;
    let mut pause = Pause::new();
    loop {
        match placed {
            Ok(()) => {
                chains.note(of, None);
                return Ok(());
            }
            Err(TierError::Superseded { reason, .. }) => return Err(Ending::Superseded(reason)),
            Err(error) => {
                let failure = Failure {
                    reason: error.to_string(),
                    is_lasting: matches!(error, TierError::Damaged { .. }),
                };
                chains.note(of, Some(failure));
            }
        }
        pause.wait().await;
        if chains.engine.storages().get(of.id).is_err() {
            return Err(Ending::Deleted);
        }
        placed = match chain.settle().await {
            Ok(Some(_)) => Ok(()),
            // Nothing was sent.
            Ok(None) => place(chain, gathered).await,
            Err(error) => Err(error),
        };
    }
}

async fn place(chain: &mut Chain, gathered: Option<&Gathered>) -> Result<(), TierError> {
    match gathered {
        Some(gathered) => chain.append(&gathered.pieces).await.map(drop),
        None => chain.close().await.map(drop),
    }
}
