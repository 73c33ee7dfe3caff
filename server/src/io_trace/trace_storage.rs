//! The storage of an I/O trace.

use std::time::Duration;

use bytes::Bytes;
use storage_core::{
    AgentSpec, Engine, LeftRing, NewPacket, NewStorage, Push, StorageError, packet_charge,
};
use storage_format::agent_file::StreamSpec;
use storage_format::frame::Facts;
use storage_format::{AgentId, Codec, Kind, LeafType, StorageId, StreamId, StreamPosition};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use trace_kinds::io_trace::metadata;

use super::error::IoTraceError;

/// The agent that pushes the trace.
const AGENT: &str = "tracehold";
/// Its stream.
const STREAM: &str = "io-trace";

/// The producer epoch of a trace: each trace has its own storage.
const EPOCH: u64 = 1;

/// How long a push waits for free memory, and the interval between attempts.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
const ROOM_INTERVAL: Duration = Duration::from_millis(5);

/// The storage of a trace and the position of the next packet.
pub(super) struct TraceStorage {
    engine: Engine,
    id: StorageId,
    agent: AgentId,
    stream: StreamId,
    next_sequence: u64,
}

impl TraceStorage {
    /// Registers the server as an agent and creates an open storage.
    pub(super) async fn create(engine: &Engine, name: &str) -> Result<Self, IoTraceError> {
        let agent: AgentId = AGENT.parse()?;
        let spec = AgentSpec {
            id: agent.clone(),
            name: "I/O of the Tracehold server".to_owned(),
            host: String::new(),
            attributes: Default::default(),
        };
        engine.agents().register(spec).await?;
        engine
            .agents()
            .set_metadata(&agent, metadata().into())
            .await?;
        let spec = StreamSpec {
            id: STREAM.parse()?,
            kind: Kind::IoTrace,
            leaf_type: LeafType::Array,
            // Compression would dominate the cost of tracing; `bytes_max` limits the size without
            // it.
            codec: Codec::None,
        };
        engine.agents().declare_stream(&agent, spec).await?;
        let new = NewStorage {
            name: name.to_owned(),
            ..NewStorage::default()
        };
        let (info, _) = engine.storages().create(new).await?;
        engine.storages().open(info.id).await?;
        Self::of(engine, info.id, 0)
    }

    /// An existing storage whose next packet has the sequence `next_sequence`.
    fn of(engine: &Engine, id: StorageId, next_sequence: u64) -> Result<Self, IoTraceError> {
        Ok(Self {
            engine: engine.clone(),
            id,
            agent: AGENT.parse()?,
            stream: STREAM.parse()?,
            next_sequence,
        })
    }

    /// Its id.
    pub(super) fn id(&self) -> StorageId {
        self.id
    }

    /// Whether no packet was pushed yet.
    pub(super) fn is_empty(&self) -> bool {
        self.next_sequence == 0
    }

    /// Makes a packet durable.
    pub(super) async fn push(&mut self, bytes: Bytes, facts: Facts) -> Result<(), StorageError> {
        let deadline = Instant::now() + ROOM_WAIT_MAX;
        let permit = loop {
            match self
                .engine
                .budget()
                .try_acquire(packet_charge(bytes.len() as u64))
            {
                Ok(permit) => break permit,
                Err(error) if Instant::now() >= deadline => return Err(error),
                // Other packets are being written; meanwhile the buffers fill up and count the
                // operations they drop.
                Err(_) => sleep(ROOM_INTERVAL).await,
            }
        };
        let push = Push {
            agent: self.agent.clone(),
            stream: self.stream.clone(),
            packets: vec![NewPacket::new(
                StreamPosition::new(EPOCH, self.next_sequence),
                bytes,
                facts,
            )],
            permit,
        };
        let outcome = self.engine.ingest().submit(self.id, push).await?.await;
        self.next_sequence += 1;
        outcome.refused.map_or(Ok(()), Err)
    }

    /// Pushes the packets of the ring after the first packet. Packets that were pushed before are
    /// recognized by their sequence. Returns the number of packets.
    pub(super) async fn recover_ring(&mut self) -> Result<u64, StorageError> {
        let mut packets = 0;
        for segment in self.engine.rings().segments(self.id).await? {
            let (packets_of_segment, fault) = self.engine.rings().packets(segment.clone()).await?;
            for packet in packets_of_segment {
                self.push(packet.payload, packet.facts).await?;
                packets += 1;
            }
            if let Some(fault) = fault {
                // A crash tears only the end of the last segment.
                tracing::warn!(
                    segment = %segment.display(),
                    %fault,
                    "the end of a ring segment is torn; the packets before it are recovered"
                );
            }
        }
        Ok(packets)
    }
}

/// Moves the rings of a killed server into their storages, which stay open, once these are
/// recovered.
pub(super) async fn recover_rings(engine: Engine, rings: Vec<LeftRing>) {
    let mut recovering: JoinSet<()> = rings
        .into_iter()
        .map(|ring| recover_and_log(engine.clone(), ring))
        .collect();
    // A panic in there is logged by the runtime; the next start finds the ring.
    while recovering.join_next().await.is_some() {}
}

async fn recover_and_log(engine: Engine, ring: LeftRing) {
    let id = ring.storage;
    match recover_ring(&engine, id).await {
        Ok(packets) => tracing::info!(
            storage = %id,
            packets,
            "recovered the ring of an interrupted I/O trace"
        ),
        // The ring is retained and recovered at the next start.
        Err(error) => tracing::error!(
            storage = %id,
            %error,
            "cannot recover the ring of an I/O trace; retrying at the next start"
        ),
    }
}

/// Moves the ring of a storage; returns the number of its packets.
async fn recover_ring(engine: &Engine, id: StorageId) -> Result<u64, IoTraceError> {
    engine.storages().recovered(id).await?;
    // The first packet describes the start of the trace and was never in the ring.
    let packets = TraceStorage::of(engine, id, 1)?.recover_ring().await?;
    engine.rings().remove(id).await?;
    Ok(packets)
}
