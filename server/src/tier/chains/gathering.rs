//! The next record of a chain: the packets that it does not have, and what belongs to them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use object_tier::chain::PAYLOAD_BYTES_MAX;
use storage_core::{Agent, Engine, PacketInfo, StorageError, StorageInfo};
use storage_format::agent_file::AgentFile;
use storage_format::chain_payload::{ChainSection, ChainedPacket};
use storage_format::storage_file::{StorageState, Totals};
use storage_format::{AgentId, LeafId, StorageId};

use super::StreamKey;
use super::storage_chain::{Grown, StorageChain};

/// A record has about this many bytes when there is much to append.
const RECORD_BYTES: u64 = 8 << 20;
/// Where a report of provenance ends in a record at the latest; the longest has 64 MiB.
const REPORT_END_MAX: u64 = PAYLOAD_BYTES_MAX as u64 - 1024;
/// Packets of a stream that are looked up at once.
const PAGE_PACKETS: usize = 256;

/// The content of a record.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) pieces: Vec<Bytes>,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    /// The last packet of each stream in it.
    pub(super) reached: Vec<(StreamKey, u64)>,
    /// The number behind the last report of provenance in it.
    pub(super) next_report: Option<u64>,
    /// What does not fit any more.
    rest: Grown,
}

impl Gathered {
    fn has_room(&self) -> bool {
        self.bytes < RECORD_BYTES
    }

    /// How many packets fit; at least one if there is none yet, however long it is.
    fn fitting(&self, page: &[PacketInfo]) -> usize {
        let sizes = page.iter().map(|packet| packet.entry.stored_size);
        fitting(self.bytes, self.packets == 0, sizes)
    }

    /// Whether more waits already.
    pub(super) fn is_full(&self) -> bool {
        !self.has_room()
    }

    fn add(&mut self, section: &ChainSection, damaged: &str) -> Result<(), StorageError> {
        let before = self.pieces.len();
        let encoded = section.encode(&mut self.pieces);
        encoded.map_err(|error| StorageError::Invalid {
            what: "chain record",
            problem: format!("{damaged}: {error}"),
        })?;
        let added = self.pieces.iter().skip(before);
        self.bytes += added.map(|piece| piece.len() as u64).sum::<u64>();
        Ok(())
    }
}

/// What the chain was told already, by this node.
#[derive(Debug, Default)]
pub(super) struct Told {
    storage: Option<StorageInfo>,
    agents: HashMap<AgentId, Arc<Agent>>,
}

impl Told {
    /// Gathers the next record. What was taken of `chain` and is not in it is put back.
    pub(super) async fn gather(
        &mut self,
        engine: &Engine,
        chain: &StorageChain,
    ) -> Result<Gathered, StorageError> {
        // Before the packets are taken: those of an earlier report are among them, or in the chain.
        let reported = chain.reported();
        let grown = chain.take_grown();
        let is_redescribed = chain.take_redescribed();
        let mut gathered = Gathered::default();
        let filled = self.fill(engine, chain, (&grown, is_redescribed), &mut gathered);
        let filled = match filled.await {
            Ok(told) => {
                let reports = (reported, told);
                self.report(engine, chain, reports, &mut gathered).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = filled {
            chain.put_back(grown);
            if is_redescribed {
                chain.redescribe();
            }
            return Err(error);
        }
        chain.put_back(std::mem::take(&mut gathered.rest));
        Ok(gathered)
    }

    /// Adds descriptions and packets; returns what the chain is told by them.
    async fn fill(
        &self,
        engine: &Engine,
        chain: &StorageChain,
        (grown, is_redescribed): (&Grown, bool),
        gathered: &mut Gathered,
    ) -> Result<Self, StorageError> {
        let mut told = Self::default();
        if is_redescribed {
            self.describe_storage(engine, chain.id, (&mut told, &mut *gathered))?;
            for agent in self.agents.keys() {
                if !gathered.has_room() {
                    chain.redescribe();
                    break;
                }
                self.describe_agent(engine, agent, (&mut told, &mut *gathered))
                    .await?;
            }
        }
        for (key, leaves) in grown {
            let place = (chain.id, key, leaves);
            let mut after = chain.last(key);
            let is_whole = self
                .add_stream(engine, place, &mut after, (&mut told, &mut *gathered))
                .await?;
            if after != chain.last(key) {
                gathered
                    .reached
                    .extend(after.map(|last| (key.clone(), last)));
            }
            if !is_whole {
                gathered.rest.insert(key.clone(), leaves.clone());
            }
        }
        Ok(told)
    }

    /// Adds the provenance before report `end`, behind the packets that it is of. With it, the
    /// chain was told all that `told` says.
    async fn report(
        &mut self,
        engine: &Engine,
        chain: &StorageChain,
        (end, mut told): (u64, Self),
        gathered: &mut Gathered,
    ) -> Result<(), StorageError> {
        let mut next = 0;
        while gathered.has_room()
            && let Some(report) = chain.next_report(next)
            && report.number < end
            && !gathered.rest.contains_key(&report.stream)
        {
            let length = report.provenance.sidecar.len() as u64;
            if gathered.bytes > 0 && gathered.bytes.saturating_add(length) > RECORD_BYTES {
                break;
            }
            self.introduce(engine, (chain.id, &report.stream), (&mut told, gathered))
                .await?;
            // Beside the longest metadata of an agent there may be no room: then it is next.
            if gathered.bytes.saturating_add(length) > REPORT_END_MAX {
                break;
            }
            let section = ChainSection::Provenance(report.provenance);
            gathered.add(&section, "provenance")?;
            next = report.number + 1;
            gathered.next_report = Some(next);
        }
        self.storage = told.storage.or(self.storage.take());
        self.agents.extend(told.agents);
        Ok(())
    }

    /// Adds packets of one stream; whether all of them.
    async fn add_stream(
        &self,
        engine: &Engine,
        (id, key, leaves): (StorageId, &StreamKey, &BTreeSet<LeafId>),
        after: &mut Option<u64>,
        (told, gathered): (&mut Self, &mut Gathered),
    ) -> Result<bool, StorageError> {
        let leaves: Vec<_> = leaves.iter().copied().collect();
        let mut is_introduced = false;
        while gathered.has_room() {
            let reading = engine.reading();
            let page = reading.stream_packets(id, leaves.clone(), *after, PAGE_PACKETS);
            let mut page = page.await?;
            if page.is_empty() {
                return Ok(true);
            }
            if !is_introduced {
                self.introduce(engine, (id, key), (&mut *told, &mut *gathered))
                    .await?;
                is_introduced = true;
            }
            // What was said may take all of the record.
            let is_last = page.len() < PAGE_PACKETS;
            let count = gathered.fitting(&page);
            let is_cut = count < page.len();
            page.truncate(count);
            let Some(last) = page.last().map(|packet| packet.entry.number) else {
                return Ok(false);
            };
            add_packets(engine, id, page, gathered).await?;
            *after = Some(last);
            if is_last && !is_cut {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says whose packets follow, and what the storage and the agent are unless that was said.
    async fn introduce(
        &self,
        engine: &Engine,
        (id, key): (StorageId, &StreamKey),
        (told, gathered): (&mut Self, &mut Gathered),
    ) -> Result<(), StorageError> {
        let (agent, stream) = key;
        self.describe_storage(engine, id, (&mut *told, &mut *gathered))?;
        self.describe_agent(engine, agent, (told, &mut *gathered))
            .await?;
        let section = ChainSection::Stream(agent.clone(), stream.clone());
        gathered.add(&section, "a stream")
    }

    /// Says what the storage is, unless the chain has it.
    fn describe_storage(
        &self,
        engine: &Engine,
        id: StorageId,
        (told, gathered): (&mut Self, &mut Gathered),
    ) -> Result<(), StorageError> {
        let info = engine.storages().get(id)?;
        let known = told.storage.as_ref().or(self.storage.as_ref());
        if known.is_some_and(|known| is_described(known, &info)) {
            return Ok(());
        }
        let file = StorageInfo {
            state: StorageState::Open,
            finalized: None,
            totals: Totals::default(),
            files: Vec::new(),
            ..info.clone()
        };
        told.storage = Some(info);
        gathered.add(&ChainSection::Storage(Box::new(file)), "the storage")
    }

    /// Says what an agent is, unless the chain has it.
    async fn describe_agent(
        &self,
        engine: &Engine,
        id: &AgentId,
        (told, gathered): (&mut Self, &mut Gathered),
    ) -> Result<(), StorageError> {
        let agent = engine.agents().get(id)?;
        let known = told.agents.get(id).or(self.agents.get(id));
        if known.is_some_and(|known| **known == *agent) {
            return Ok(());
        }
        let file = AgentFile {
            id: id.clone(),
            name: agent.spec.name.clone(),
            host: agent.spec.host.clone(),
            attributes: agent.spec.attributes.clone(),
            streams: agent.streams.clone(),
            metadata: engine.agents().metadata(id).await?,
        };
        told.agents.insert(id.clone(), agent);
        gathered.add(&ChainSection::Agent(Box::new(file)), "an agent")
    }
}

fn fitting(mut bytes: u64, is_empty: bool, sizes: impl Iterator<Item = u32>) -> usize {
    let has_room = bytes < RECORD_BYTES;
    let fit = sizes.enumerate().take_while(|(at, size)| {
        bytes = bytes.saturating_add(u64::from(*size));
        has_room && (bytes <= RECORD_BYTES || is_empty && *at == 0)
    });
    fit.count()
}

/// Whether the description that the chain has is still right.
fn is_described(known: &StorageInfo, info: &StorageInfo) -> bool {
    (&known.name, &known.description, &known.labels)
        == (&info.name, &info.description, &info.labels)
}

async fn add_packets(
    engine: &Engine,
    id: StorageId,
    page: Vec<PacketInfo>,
    gathered: &mut Gathered,
) -> Result<(), StorageError> {
    let payloads = engine.reading().read_stored(id, page.clone()).await?;
    for (packet, stored) in page.into_iter().zip(payloads) {
        let entry = packet.entry;
        let packet = ChainedPacket {
            position: entry.position,
            facts: entry.facts,
            codec: entry.codec,
            raw_size: entry.raw_size,
            raw_checksum: entry.raw_checksum,
            stored,
        };
        gathered.add(&ChainSection::Packet(packet), "a packet")?;
        gathered.packets += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{RECORD_BYTES, fitting};

    #[test]
    fn a_record_is_long_only_for_one_long_packet() {
        let check = |bytes, is_empty, sizes: &[u32], expected| {
            let found = fitting(bytes, is_empty, sizes.iter().copied());
            assert_eq!(found, expected, "{bytes} {is_empty} {sizes:?}");
        };
        let mib = 1 << 20;
        check(0, true, &[], 0);
        check(0, true, &[3 * mib; 4], 2);
        check(0, true, &[64 * mib, 1], 1);
        check(RECORD_BYTES - 1, true, &[64 * mib, 1], 1);
        check(RECORD_BYTES - 1, false, &[64 * mib, 1], 0);
        check(RECORD_BYTES, true, &[1], 0);
        check(RECORD_BYTES - 5, false, &[2, 3, 1], 2);
    }
}
