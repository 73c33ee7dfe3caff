//! The storage that a trace goes to.

use std::time::Duration;

use bytes::Bytes;
use storage_core::{AgentSpec, Engine, NewPacket, NewStorage, Push, StorageError};
use storage_format::agent_file::StreamSpec;
use storage_format::frame::Facts;
use storage_format::{AgentId, Codec, Kind, LeafType, StorageId, StreamId, StreamPosition};
use tokio::time::{Instant, sleep};
use trace_kinds::io_trace::metadata;

use super::error::IoTraceError;

/// Who pushes the trace.
const AGENT: &str = "tracehold";
/// The stream it is.
const STREAM: &str = "io-trace";

/// The producer epoch of a trace: each has a storage of its own.
const EPOCH: u64 = 1;

/// How long a push waits for room among the bytes under way, and how often it looks.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
const ROOM_INTERVAL: Duration = Duration::from_millis(5);

/// The storage of a trace, and what is pushed into it next.
pub(super) struct TraceStorage {
    engine: Engine,
    id: StorageId,
    agent: AgentId,
    stream: StreamId,
    next_sequence: u64,
}

impl TraceStorage {
    /// Registers ourselves as the agent, and makes an open storage.
    pub(super) async fn make(engine: &Engine, name: &str) -> Result<Self, IoTraceError> {
        let agent: AgentId = AGENT.parse()?;
        let spec = AgentSpec {
            id: agent.clone(),
            name: "Tracehold's own I/O".to_owned(),
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
            // Compressing would be most of what tracing costs; `bytes_max` bounds it as it is.
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

    /// A storage that is there and takes the packet `next_sequence` next.
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

    /// Whether nothing was pushed yet.
    pub(super) fn is_empty(&self) -> bool {
        self.next_sequence == 0
    }

    /// Makes a packet durable.
    pub(super) async fn push(&mut self, bytes: Bytes, facts: Facts) -> Result<(), StorageError> {
        let deadline = Instant::now() + ROOM_WAIT_MAX;
        let permit = loop {
            match self.engine.budget().try_acquire(bytes.len() as u64) {
                Ok(permit) => break permit,
                Err(error) if Instant::now() >= deadline => return Err(error),
                // Others are being written; meanwhile the buffers fill, and count what they drop.
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

    /// Pushes what the ring beside the storage kept, behind the first packet; what was pushed
    /// already is known again by its sequence. Gives the number of packets.
    pub(super) async fn take_ring(&mut self) -> Result<u64, StorageError> {
        let mut packets = 0;
        for segment in self.engine.rings().segments(self.id).await? {
            let (kept, fault) = self.engine.rings().packets(segment.clone()).await?;
            for packet in kept {
                self.push(packet.payload, packet.facts).await?;
                packets += 1;
            }
            if let Some(fault) = fault {
                // What a crash tore is at the end of the last one.
                tracing::warn!(segment = %segment.display(), %fault, "a ring is cut here");
            }
        }
        Ok(packets)
    }
}

/// Publishes the rings that a killed server left: each into its storage, which stays open.
pub(super) async fn take_up_rings(engine: &Engine) -> Result<(), IoTraceError> {
    for id in engine.rings().all().await? {
        // How the trace was started is the first packet, and was never in the ring.
        let mut storage = TraceStorage::of(engine, id, 1)?;
        match storage.take_ring().await {
            Ok(packets) => {
                engine.rings().remove(id).await?;
                tracing::info!(storage = %id, packets, "the ring of a cut I/O trace is in its storage");
            }
            // It stays where it is, and is tried again at the next start.
            Err(error) => tracing::error!(storage = %id, %error, "a ring cannot be taken up"),
        }
    }
    Ok(())
}
