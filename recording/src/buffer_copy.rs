//! Copies of the buffer into a storage.

use std::collections::HashMap;
use std::sync::Arc;

use query_language::FieldTable;
use serde::Serialize;
use storage_core::{Engine, Selection, StorageError};
use storage_format::{AgentId, Kind, StorageId, StreamId};
use trace_kinds::dft::{Names, PacketDecoder};

use crate::config::{ProcessorConfig, check_chain, copy_chain};
use crate::instant::{Instant, time_range};
use crate::packet::{OutPacket, Packet};
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
            limit: usize::MAX,
            ..Selection::default()
        };
        let mut buffered = self.buffered(&selection);
        buffered.retain(|packet| spec.agents.is_empty() || spec.agents.contains(&packet.agent));
        let is_chosen = |packet: &Packet| packet.overlaps(from, to);
        let chosen_packets = buffered.iter().filter(|packet| is_chosen(packet)).count();
        engine.storages().open(spec.storage).await?;
        let mut sink = Sink::new(engine, spec.storage);
        let mut copied = Copied {
            chosen_packets: chosen_packets as u64,
            ..Copied::default()
        };
        let mut declared = BufferedDeclarations::default();
        for packet in buffered {
            let is_chosen = is_chosen(&packet);
            if !is_chosen && packet.kind != Kind::Dft {
                continue;
            }
            let worked = tokio::task::spawn_blocking(move || {
                let out = if is_chosen {
                    chain.take(&packet)
                } else {
                    Vec::new()
                };
                let out = declared.with(packet, out);
                (chain, declared, out)
            });
            let failed = |_| ConfigError::new("processors", "the chain failed".to_owned());
            let (back, known, out) = worked.await.map_err(failed)?;
            (chain, declared) = (back, known);
            write_all(engine, &mut sink, out, &mut copied).await?;
        }
        write_all(engine, &mut sink, chain.finish(), &mut copied).await?;
        if spec.auto_finalize {
            engine.storages().finalize(spec.storage).await?;
        }
        Ok(copied)
    }
}

/// The packets of the DFTracer streams of the buffer that declare what the others mean. They are
/// copied if others of their stream are.
#[derive(Default)]
struct BufferedDeclarations(HashMap<(AgentId, StreamId), BufferedStream>);

struct BufferedStream {
    decoder: PacketDecoder,
    /// Those that were not chosen.
    waiting: Vec<OutPacket>,
    is_copied: bool,
}

impl BufferedDeclarations {
    /// What is written for a packet of which the chain made `out`.
    fn with(&mut self, packet: Arc<Packet>, out: Vec<OutPacket>) -> Vec<OutPacket> {
        if packet.kind != Kind::Dft {
            return out;
        }
        let stream = (packet.agent.clone(), packet.stream.clone());
        let stream = self.0.entry(stream).or_insert_with(|| BufferedStream {
            decoder: PacketDecoder::new(&FieldTable::new(), Names::default(), packet.context.unit),
            waiting: Vec::new(),
            is_copied: false,
        });
        let declares = stream.decoder.learns_from(&packet.payload);
        if out.iter().any(|packet| packet.derived.is_none()) {
            stream.is_copied = true;
        } else if declares {
            stream.waiting.push(OutPacket::of(&packet));
        }
        if !stream.is_copied {
            return out;
        }
        let mut all = std::mem::take(&mut stream.waiting);
        all.extend(out);
        all
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
