//! Writes the packets of a chain into a storage.

use std::collections::HashMap;

use storage_core::{BytePermit, Engine, NewPacket, PendingPush, Push, StorageError};
use storage_format::agent_file::StreamSpec;
use storage_format::{AgentId, Codec, Kind, LeafType, StorageId, StreamId, StreamPosition};

use crate::packet::OutPacket;

/// A storage as the target of a chain. Packets without a position (OTLP packets and derived ones)
/// get one: an epoch that begins with this sink, and sequences from 0.
pub struct Sink {
    engine: Engine,
    storage: StorageId,
    began: u64,
    /// Next position of each stream whose packets have none.
    next_positions: HashMap<(AgentId, StreamId), StreamPosition>,
}

/// The stream as the server declares it for an agent that does not declare it.
#[must_use]
pub fn stream_spec(id: StreamId, kind: Kind) -> StreamSpec {
    StreamSpec {
        id,
        kind,
        leaf_type: LeafType::Array,
        codec: Codec::Zstd,
    }
}

impl Sink {
    /// A sink for a storage that accepts packets.
    #[must_use]
    pub fn new(engine: &Engine, storage: StorageId) -> Self {
        Self {
            engine: engine.clone(),
            storage,
            began: storage_core::clock::now_ns().unsigned_abs(),
            next_positions: HashMap::new(),
        }
    }

    /// The storage.
    #[must_use]
    pub fn storage(&self) -> StorageId {
        self.storage
    }

    /// Submits a packet to the writer of the storage; it is durable when the result resolves.
    ///
    /// # Errors
    /// When the storage does not accept packets, or the stream cannot be declared.
    pub async fn write(
        &mut self,
        packet: OutPacket,
        permit: BytePermit,
    ) -> Result<PendingPush, StorageError> {
        let push = self.push(packet, permit).await?;
        self.engine.ingest().submit_part(self.storage, push).await
    }

    /// Submits a droppable packet: it is dropped and counted if its memory is needed before the
    /// writer has taken it.
    ///
    /// # Errors
    /// As for [`Self::write`], and when the packet is refused at once.
    pub async fn write_droppable(
        &mut self,
        packet: OutPacket,
        permit: BytePermit,
    ) -> Result<(), StorageError> {
        let push = self.push(packet, permit).await?;
        let accepted = self
            .engine
            .ingest()
            .submit_droppable(self.storage, push, true)?;
        accepted.refused.map_or(Ok(()), Err)
    }

    async fn push(&mut self, packet: OutPacket, permit: BytePermit) -> Result<Push, StorageError> {
        let position = match packet.position {
            Some(position) => position,
            None => self.take_position(&packet).await?,
        };
        Ok(Push {
            packets: vec![NewPacket::new(position, packet.payload, packet.facts)],
            agent: packet.agent,
            stream: packet.stream,
            permit,
        })
    }

    async fn take_position(&mut self, packet: &OutPacket) -> Result<StreamPosition, StorageError> {
        let key = (packet.agent.clone(), packet.stream.clone());
        if let Some(next) = self.next_positions.get_mut(&key) {
            let position = *next;
            *next = position.next();
            return Ok(position);
        }
        if packet.derived.is_some() {
            let spec = stream_spec(packet.stream.clone(), packet.kind);
            self.engine
                .agents()
                .declare_stream(&packet.agent, spec)
                .await?;
        }
        let last = self
            .engine
            .ingest()
            .next_position(self.storage, &packet.agent, &packet.stream)
            .await?;
        // The clock may have been set back since the last write to the storage.
        let epoch = self.began.max(last.epoch.saturating_add(1));
        let first = StreamPosition::new(epoch, 0);
        self.next_positions.insert(key, first.next());
        Ok(first)
    }
}
