//! Copies of the buffer into a storage.

use serde::Serialize;
use storage_core::{Engine, Selection, StorageError};
use storage_format::{AgentId, StorageId};

use crate::config::{ProcessorConfig, check_chain, copy_chain};
use crate::instant::{Instant, time_range};
use crate::packet::OutPacket;
use crate::recorder::Recorder;
use crate::sink::Sink;
use crate::{ConfigError, RecordingError};

/// Which packets of the buffer are copied, and into which storage.
#[derive(Debug, Clone, PartialEq)]
pub struct CopySpec {
    /// The target; a CREATED storage is opened.
    pub storage: StorageId,
    /// Only packets of these agents; empty for all.
    pub agents: Vec<AgentId>,
    /// Only packets that may have events at or after this instant.
    pub from: Option<Instant>,
    /// Only packets that may have events before this instant.
    pub to: Option<Instant>,
    /// Only what matches this, as with the processor `query`.
    pub query: Option<String>,
    /// The processors that each packet passes.
    pub processors: Vec<ProcessorConfig>,
    /// Whether the storage is finalized afterwards.
    pub auto_finalize: bool,
}

impl CopySpec {
    /// The complete chain: the query, then the processors.
    fn chain(&self) -> Vec<ProcessorConfig> {
        copy_chain(self.query.as_ref(), &self.processors)
    }

    /// Checks that the copy can run.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_chain(&self.chain())?;
        time_range(self.from.as_ref(), self.to.as_ref()).map(drop)
    }
}

/// What a copy wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// Packets that were selected.
    pub chosen_packets: u64,
    /// Packets that are durable in the storage now, including derived ones.
    pub written_packets: u64,
    /// Their bytes before they were stored.
    pub written_bytes: u64,
}

impl Recorder {
    /// Copies the packets of the buffer through a chain into a storage. All that it counts is
    /// durable when it returns.
    ///
    /// # Errors
    /// When the chain is invalid, or the storage does not accept packets.
    pub async fn copy_buffer(&self, spec: CopySpec) -> Result<Copied, RecordingError> {
        let registry = &self.inner.registry;
        let engine = &registry.engine;
        let mut chain = registry.chain(&spec.chain())?;
        let (from, to) = time_range(spec.from.as_ref(), spec.to.as_ref())?;
        let selection = Selection {
            from,
            to,
            limit: usize::MAX,
            ..Selection::default()
        };
        let mut chosen = self.buffered(&selection);
        chosen.retain(|packet| spec.agents.is_empty() || spec.agents.contains(&packet.agent));
        engine.storages().open(spec.storage).await?;
        let mut sink = Sink::new(engine, spec.storage);
        let mut copied = Copied {
            chosen_packets: chosen.len() as u64,
            ..Copied::default()
        };
        for packet in chosen {
            let worked = tokio::task::spawn_blocking(move || {
                let out = chain.take(&packet);
                (chain, out)
            });
            let failed = |_| ConfigError::new("processors", "the chain failed".to_owned());
            let (back, out) = worked.await.map_err(failed)?;
            chain = back;
            write_all(engine, &mut sink, out, &mut copied).await?;
        }
        write_all(engine, &mut sink, chain.finish(), &mut copied).await?;
        if spec.auto_finalize {
            engine.storages().finalize(spec.storage).await?;
        }
        Ok(copied)
    }
}

/// Writes packets and waits until they are durable.
async fn write_all(
    engine: &Engine,
    sink: &mut Sink,
    packets: Vec<OutPacket>,
    copied: &mut Copied,
) -> Result<(), StorageError> {
    let mut waiting = Vec::with_capacity(packets.len());
    for packet in packets {
        copied.written_packets += 1;
        copied.written_bytes += packet.payload.len() as u64;
        let nothing = engine.budget().nothing();
        waiting.push(sink.write(packet, nothing).await?);
    }
    for pending in waiting {
        if let Some(error) = pending.await.refused {
            return Err(error);
        }
    }
    Ok(())
}
