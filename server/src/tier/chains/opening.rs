//! Whether this node may append to the chain of a storage whose packets are on its disk.

use std::collections::HashMap;

use object_tier::chain::{Chain, Record, Takeover, Walker, last_owner};
use object_tier::{TierError, is_gone};
use storage_core::StorageError;
use storage_format::chain_payload::ChainSection;
use storage_format::storage_file::StorageState;
use storage_format::{LeafId, StorageId, StreamPosition};

use super::record::sections;
use super::storage_chain::{Ending, Failure, StorageChain};
use super::{Chains, StreamKey};

/// What a node finds that may append, or may not any more.
pub(super) enum Opened {
    /// It appends to this.
    Chain(Box<Chain>),
    /// It has closed the chain before.
    Closed,
}

/// Why a node may not append.
pub(super) enum Refused {
    /// For good.
    Ended(Ending),
    /// It is tried again.
    Later(Failure),
}

impl From<TierError> for Refused {
    fn from(error: TierError) -> Self {
        let is_lasting = matches!(error, TierError::Damaged { .. });
        let reason = error.to_string();
        Self::Later(Failure { reason, is_lasting })
    }
}

impl From<StorageError> for Refused {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::StorageNotFound(_) => Self::Ended(Ending::Deleted),
            error => Self::Later(Failure {
                reason: error.to_string(),
                is_lasting: false,
            }),
        }
    }
}

fn superseded(reason: impl Into<String>) -> Refused {
    Refused::Ended(Ending::Superseded(reason.into()))
}

/// The last packet of each stream in a chain.
type Ends = HashMap<StreamKey, StreamPosition>;

/// A walk along the chain of a storage whose packets are here: where its streams end.
struct Walk {
    id: StorageId,
    ends: Ends,
}

impl Walker for Walk {
    fn packets(&mut self, record: Record) -> Result<(), TierError> {
        let mut stream = None;
        for section in sections(self.id, &record) {
            match section? {
                ChainSection::Stream(agent, id) => stream = Some((agent, id)),
                ChainSection::Packet(packet) => {
                    if let Some(stream) = &stream {
                        let end = self.ends.entry(stream.clone()).or_insert(packet.position);
                        *end = packet.position.max(*end);
                    }
                }
                ChainSection::Storage(_) | ChainSection::Agent(_) | ChainSection::Provenance(_) => {
                }
            }
        }
        Ok(())
    }

    fn has_packets(&self) -> bool {
        true
    }
}

/// Takes the chain of a storage that is here, unless another node has it.
pub(super) async fn open(chains: &Chains, of: &StorageChain) -> Result<Opened, Refused> {
    let (id, bucket) = (of.id, &chains.bucket);
    chains.engine.storages().recovered(id).await?;
    if is_gone(bucket, id).await? {
        return Err(superseded("another node has deleted it"));
    }
    if let Some(owner) = last_owner(bucket, id).await?
        && !chains.claimant.made(&owner)
    {
        let (node, epoch) = (owner.node, owner.epoch);
        return Err(superseded(format!(
            "node {node} took it over, epoch {epoch}"
        )));
    }
    chains.known.chained(id).await?;
    storage_core::fault_point!(async "tier.chain.known");
    let mut walk = Walk {
        id,
        ends: Ends::new(),
    };
    let taken = Chain::resume(bucket, id, &chains.claimant, &mut walk).await;
    let chain = match taken {
        Ok(Takeover::Owned(chain)) => Some(chain),
        Ok(Takeover::Closed { owner }) if chains.claimant.made(&owner) => None,
        Ok(Takeover::Closed { owner }) => {
            return Err(superseded(format!("node {} has closed it", owner.node)));
        }
        Ok(Takeover::Sealed(_)) => return Err(superseded("it is sealed in the object store")),
        Err(TierError::Superseded { reason, .. }) => return Err(superseded(reason)),
        Err(error) => return Err(error.into()),
    };
    let reached = numbers(chains, id, walk.ends).await?;
    let grown = leaves(chains, id).await?;
    if chain.is_none() {
        let state = chains.engine.storages().get(id)?.state;
        if state != StorageState::Finalizing {
            tracing::warn!(storage = %id, "the chain of the storage is closed: finalize it");
        }
    }
    storage_core::fault_point!(async "tier.chain.opening");
    of.open(reached, grown);
    Ok(match chain {
        Some(chain) => Opened::Chain(Box::new(chain)),
        None => Opened::Closed,
    })
}

/// The numbers here of the last packets in the chain. The disk was written first, so it has them
/// all, unless it has lost something.
async fn numbers(
    chains: &Chains,
    id: StorageId,
    ends: Ends,
) -> Result<HashMap<StreamKey, u64>, Refused> {
    let mut numbers = HashMap::with_capacity(ends.len());
    for (stream, position) in ends {
        let reading = chains.engine.reading();
        match reading.packet_at(id, stream.clone(), position).await? {
            Some(packet) => drop(numbers.insert(stream, packet.entry.number)),
            None => {
                let (agent, stream) = stream;
                return Err(Refused::Ended(Ending::Lacking(format!(
                    "packet {} of epoch {} of stream {agent}/{stream} was acknowledged, and is in \
                     the object store and not on the disk here; the storage is made again from there",
                    position.sequence, position.epoch
                ))));
            }
        }
    }
    Ok(numbers)
}

/// All leaves that have packets.
async fn leaves(chains: &Chains, id: StorageId) -> Result<Vec<(StreamKey, LeafId)>, Refused> {
    let (_, keys) = chains.engine.reading().leaf_keys(id).await?;
    let leaves = keys.into_iter().map(|key| {
        let path = key.path;
        ((path.agent, path.stream), key.leaf)
    });
    Ok(leaves.collect())
}
