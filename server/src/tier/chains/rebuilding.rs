//! Makes a storage again from its chain, on a node that does not have its packets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use object_tier::TierError;
use object_tier::chain::{Chain, Record, packets_before};
use storage_core::{
    AgentSpec, Engine, NewPacket, NewStorage, Progress, Push, StorageError, UnknownLabels, expand,
    packet_charge,
};
use storage_format::StorageId;
use storage_format::agent_file::AgentFile;
use storage_format::chain_payload::{ChainSection, ChainedPacket, ChainedProvenance};
use storage_format::storage_file::StorageFile;
use thiserror::Error;

use crate::provenance::{ChainedProvenanceError, ProvenanceError, Provenances, ReportedProvenance};

use super::record::sections;
use super::{Chains, StreamKey};

/// How long packets wait for memory, once.
const ROOM_WAIT: Duration = Duration::from_secs(60);
/// Packets that are pushed at once.
const GROUP_BYTES: u64 = 1 << 20;

/// Why a storage cannot be made again. Nothing of it is left here.
#[derive(Debug, Error)]
pub(crate) enum RebuildError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Store(#[from] TierError),
}

/// Keeps requests away from a storage that is not complete.
struct Rebuilding<'a>(&'a Chains, StorageId);

impl<'a> Rebuilding<'a> {
    fn begin(chains: &'a Chains, id: StorageId) -> Self {
        chains.rebuilding.lock().insert(id);
        Self(chains, id)
    }
}

impl Drop for Rebuilding<'_> {
    fn drop(&mut self) {
        self.0.rebuilding.lock().remove(&self.1);
    }
}

/// Makes a storage from the records below `end`, and goes on with its `chain`; without one the
/// chain is closed, and the storage has to be finalized.
///
/// # Errors
/// When the store does not answer, a record is damaged, or the packets cannot be written. The chain
/// still belongs to this node then, and it can be tried again.
pub(crate) async fn rebuild(
    chains: &Arc<Chains>,
    id: StorageId,
    (chain, end): (Option<Chain>, u64),
    progress: &Progress,
) -> Result<u64, RebuildError> {
    let rebuilding = Rebuilding::begin(chains, id);
    chains.known.rebuilding(id).await?;
    storage_core::fault_point!(async "tier.rebuild.noted");
    let mut building = Building {
        engine: &chains.engine,
        provenances: &chains.provenances,
        id,
        is_made: false,
        group: Vec::new(),
        group_bytes: 0,
        stream: None,
        reached: HashMap::new(),
        packets: 0,
    };
    let built = building.run(chains, end, progress).await;
    let Building {
        reached,
        packets,
        is_made,
        ..
    } = building;
    if let Err(error) = built {
        // What is incomplete would be taken for the whole; the chain has it.
        if is_made {
            remove_incomplete(&chains.engine, id).await;
        }
        return Err(error);
    }
    storage_core::fault_point!(async "tier.rebuild.built");
    // A crash before this makes it again.
    chains.known.chained(id).await?;
    storage_core::fault_point!(async "tier.rebuild.complete");
    // In this order: a push that is let in finds the chain.
    chains.continue_with(id, chain, reached);
    drop(rebuilding);
    Ok(packets)
}

async fn remove_incomplete(engine: &Engine, id: StorageId) {
    let storages = engine.storages();
    let removed = match storages.delete_with(id, UnknownLabels::Accepted).await {
        // Its labels hold it.
        Err(_) => storages.set_aside(id).await.map(drop),
        removed => removed,
    };
    if let Err(error) = removed {
        tracing::error!(%error, storage = %id, "an incomplete storage stays; delete it");
    }
}

/// A storage that is being made.
struct Building<'a> {
    engine: &'a Engine,
    provenances: &'a Provenances,
    id: StorageId,
    is_made: bool,
    group: Vec<NewPacket>,
    group_bytes: u64,
    /// The stream of the group.
    stream: Option<StreamKey>,
    reached: HashMap<StreamKey, u64>,
    packets: u64,
}

impl Building<'_> {
    async fn run(
        &mut self,
        chains: &Chains,
        end: u64,
        progress: &Progress,
    ) -> Result<(), RebuildError> {
        let mut records = Box::pin(packets_before(&chains.bucket, self.id, end));
        while let Some(record) = records.next().await {
            progress.check()?;
            let record = record?;
            self.take(&record).await?;
            storage_core::fault_point!(async "tier.rebuild.record");
            progress.add(record.payload.len() as u64);
        }
        // Nothing was acknowledged.
        self.make(None).await
    }

    async fn take(&mut self, record: &Record) -> Result<(), RebuildError> {
        for section in sections(self.id, record) {
            match section? {
                ChainSection::Storage(file) => self.make(Some(*file)).await?,
                ChainSection::Agent(file) => declare(self.engine, *file).await?,
                ChainSection::Stream(agent, stream) => {
                    self.push().await?;
                    self.stream = Some((agent, stream));
                }
                ChainSection::Packet(packet) => self.add(record.number, packet).await?,
                ChainSection::Provenance(provenance) => {
                    self.push().await?;
                    self.note_provenance(&provenance).await?;
                }
            }
        }
        self.push().await
    }

    /// Makes the storage, or changes its description.
    async fn make(&mut self, file: Option<StorageFile>) -> Result<(), RebuildError> {
        let storages = self.engine.storages();
        if self.is_made {
            let Some(file) = file else { return Ok(()) };
            let patch = storage_core::StoragePatch {
                name: Some(file.name),
                description: Some(file.description),
                labels: Some(file.labels),
            };
            storages.update(self.id, patch).await?;
            return Ok(());
        }
        let new = match file {
            Some(file) => NewStorage {
                name: file.name,
                description: file.description,
                labels: file.labels,
                created: Some(file.created),
                ..NewStorage::default()
            },
            None => NewStorage {
                name: format!("taken over {}", self.id),
                ..NewStorage::default()
            },
        };
        let new = NewStorage {
            id: Some(self.id),
            is_open: true,
            ..new
        };
        storages.create(new).await?;
        storage_core::fault_point!(async "tier.rebuild.made");
        self.is_made = true;
        Ok(())
    }

    async fn add(&mut self, number: u64, packet: ChainedPacket) -> Result<(), RebuildError> {
        let raw = expand(packet.stored, packet.codec, packet.raw_size);
        let checksum = packet.raw_checksum;
        let raw = raw.filter(|raw| storage_format::checksum::crc32c(raw) == checksum);
        let Some(payload) = raw else {
            return Err(TierError::Damaged {
                key: object_tier::chain::record_key(self.id, number),
                problem: format!(
                    "packet {} of epoch {} does not match its checksum; restore the object, or \
                     delete the storage",
                    packet.position.sequence, packet.position.epoch
                ),
            }
            .into());
        };
        self.group_bytes += packet_charge(payload.len() as u64);
        self.group.push(NewPacket {
            position: packet.position,
            payload,
            checksum,
            facts: packet.facts,
        });
        if self.group_bytes >= GROUP_BYTES {
            self.push().await?;
        }
        Ok(())
    }

    /// Notes from which file packets were cut. It is derived: without it, the packets are there.
    async fn note_provenance(&self, chained: &ChainedProvenance) -> Result<(), RebuildError> {
        let Some(stream) = self.stream.clone() else {
            return Ok(());
        };
        let (engine, id) = (self.engine, self.id);
        let noted = match ReportedProvenance::of_chain(engine, id, stream, chained).await {
            Ok(Some(reported)) => self.provenances.store(engine, id, &reported).await,
            Ok(None) => return Ok(()),
            Err(ChainedProvenanceError::Storage(error)) => return Err(error.into()),
            Err(ChainedProvenanceError::Sidecar(error)) => Err(error.into()),
        };
        match noted {
            Ok(_) => Ok(()),
            Err(ProvenanceError::Storage(error)) => Err(error.into()),
            Err(ProvenanceError::Sidecar(error)) => {
                tracing::warn!(%error, storage = %id, "a chain has provenance that cannot be read; push the files once more");
                Ok(())
            }
        }
    }

    /// Stores the group.
    async fn push(&mut self) -> Result<(), RebuildError> {
        let packets = std::mem::take(&mut self.group);
        let bytes = std::mem::take(&mut self.group_bytes);
        let Some((agent, stream)) = self.stream.clone().filter(|_| !packets.is_empty()) else {
            return Ok(());
        };
        let count = packets.len() as u64;
        let permit = self
            .engine
            .budget()
            .acquire(agent.as_str(), bytes, ROOM_WAIT)
            .await?;
        let push = Push {
            agent: agent.clone(),
            stream: stream.clone(),
            packets,
            permit,
        };
        // Where packets were dropped that nobody waited for, sequences are missing.
        let pending = self.engine.ingest().submit_part(self.id, push).await?;
        let outcome = pending.await;
        if let Some(refused) = outcome.refused {
            return Err(refused.into());
        }
        if let Some(last) = outcome.receipts.last() {
            self.reached.insert((agent, stream), last.number);
        }
        self.packets += count;
        Ok(())
    }
}

/// Registers an agent with its streams and metadata, as the node before knew it.
async fn declare(engine: &Engine, file: AgentFile) -> Result<(), RebuildError> {
    let agents = engine.agents();
    let id = file.id.clone();
    if agents.get(&id).is_err() {
        let spec = AgentSpec {
            id: file.id,
            name: file.name,
            host: file.host,
            attributes: file.attributes,
        };
        agents.register(spec).await?;
    }
    for stream in file.streams {
        let known = agents.get(&id)?;
        // What the agent has declared here since is newer.
        if known
            .stream(&stream.id)
            .is_none_or(|known| known.kind != stream.kind)
        {
            agents.declare_stream(&id, stream).await?;
        }
    }
    if let Some(metadata) = file.metadata
        && agents.get(&id)?.metadata_checksum.is_none()
    {
        agents.set_metadata(&id, metadata.into()).await?;
    }
    Ok(())
}
