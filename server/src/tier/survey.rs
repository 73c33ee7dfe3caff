//! What a node looks at in a chain before it takes the storage over: whether it can store what it
//! finds. After the takeover it would be too late to refuse.

use std::collections::HashMap;

use object_tier::TierError;
use object_tier::chain::{Record, Walker};
use storage_core::{Engine, StorageError};
use storage_format::agent_file::AgentFile;
use storage_format::chain_payload::ChainSection;
use storage_format::checksum::crc32c;
use storage_format::{AgentId, StorageId};

use super::chains::sections;
use super::takeover_error::TakeoverError;

/// A walk along a chain that is to be taken over.
pub(super) struct Survey<'a> {
    engine: &'a Engine,
    id: StorageId,
    /// The number behind the last packets.
    pub(super) end: u64,
    /// The bytes of all records.
    pub(super) bytes: u64,
    /// What the chain says last of each agent.
    agents: HashMap<AgentId, AgentFile>,
    /// Why the storage is left to its owner.
    pub(super) refused: Option<TakeoverError>,
}

impl<'a> Survey<'a> {
    pub(super) fn new(engine: &'a Engine, id: StorageId) -> Self {
        Self {
            engine,
            id,
            end: 0,
            bytes: 0,
            agents: HashMap::new(),
            refused: None,
        }
    }

    /// Whether there is room. Bytes of records are as they are stored; frames and the index come in
    /// addition.
    fn check_room(&self) -> Result<(), TakeoverError> {
        let free = self.engine.counters().disk_free_bytes.get();
        let needed = self.bytes.saturating_add(self.bytes / 4);
        if free < needed {
            return Err(TakeoverError::NoRoom { needed, free });
        }
        Ok(())
    }

    /// Whether agents mean the same here.
    fn check(&self) -> Result<(), TakeoverError> {
        for (id, there) in &self.agents {
            let Ok(here) = self.engine.agents().get(id) else {
                continue;
            };
            for stream in &there.streams {
                if let Some(known) = here.stream(&stream.id)
                    && known.kind != stream.kind
                {
                    let conflict = StorageError::StreamKindConflict {
                        agent: id.clone(),
                        stream: stream.id.clone(),
                        declared: known.kind,
                        wanted: stream.kind,
                    };
                    return Err(conflict.into());
                }
            }
            // The packets are decoded with the metadata that the agent has here.
            let metadata = there.metadata.as_deref().map(crc32c);
            if here.metadata_checksum.is_some() && here.metadata_checksum != metadata {
                return Err(StorageError::AgentMetadataConflict(id.clone()).into());
            }
        }
        Ok(())
    }
}

impl Walker for Survey<'_> {
    fn packets(&mut self, record: Record) -> Result<(), TierError> {
        self.end = record.number.saturating_add(1);
        self.bytes = self.bytes.saturating_add(record.payload.len() as u64);
        for section in sections(self.id, &record) {
            if let ChainSection::Agent(file) = section? {
                self.agents.insert(file.id.clone(), *file);
            }
        }
        Ok(())
    }

    fn may_claim(&mut self) -> Result<(), TierError> {
        let checked = self.check_room();
        checked.and_then(|()| self.check()).map_err(|refused| {
            let reason = refused.to_string();
            self.refused = Some(refused);
            TierError::Settings(reason)
        })
    }
}
