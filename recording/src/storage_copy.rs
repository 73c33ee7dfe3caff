//! Copies of a storage, or of a part of it, through a chain.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ctf::{Leniency, Procedure};
use query_language::FieldTable;
use storage_core::{
    BytePermit, CopiedFrom, CopyListener, CopyPush, CopyReport, CopySelection, Declaring, Engine,
    LeafBases, PacketInfo, Progress, Selection, StorageError, packet_charge,
};
use storage_format::{AgentId, Kind, StorageId, StreamId};
use tokio::time::sleep;
use trace_kinds::dft::{Names, PacketDecoder, TimeUnit};
use trace_kinds::{Decoder, StreamContext};

use crate::chain::Chain;
use crate::config::{ProcessorConfig, check_chain, copy_chain};
use crate::packet::{OutPacket, Packet};
use crate::recorder::Recorder;
use crate::sink::Sink;
use crate::{ConfigError, RecordingError};

/// Packets per page of descriptors.
const PAGE_PACKETS: usize = 256;
/// Interval between two attempts to reserve memory while others have all of it.
const RESERVE_INTERVAL: Duration = Duration::from_millis(5);
/// Packets in flight to the disk.
const PENDING_MAX: usize = 64;

/// Which packets of a storage pass which chain.
#[derive(Debug, Clone)]
pub struct StorageCopySpec {
    /// The storage to read.
    pub source: StorageId,
    /// The storage to write, which must accept packets.
    pub target: StorageId,
    /// Which packets, according to the index, and the time bases of the times in it: times with
    /// another basis are not used, neither here nor in the chain.
    pub selection: CopySelection,
    /// What DFTracer streams are decoded with: their units, and the names of the whole source.
    pub contexts: HashMap<(AgentId, StreamId), StreamContext>,
    /// Only packets that match this, as with the processor `query`.
    pub query: Option<String>,
    /// The processors that each packet passes.
    pub processors: Vec<ProcessorConfig>,
}

/// Checks the chain of a copy.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_copy(
    query: Option<&String>,
    processors: &[ProcessorConfig],
) -> Result<(), ConfigError> {
    check_chain(&copy_chain(query, processors))
}

/// A copy in progress.
struct Copying<'a> {
    engine: &'a Engine,
    source: StorageId,
    bases: LeafBases,
    progress: &'a Progress,
    /// `None` while it runs on another thread.
    chain: Option<Chain>,
    sink: Sink,
    /// What packets of an agent (`ctf`) or a stream (`dft`) need to be decoded.
    contexts: HashMap<(AgentId, Option<StreamId>), Arc<StreamContext>>,
    /// Packets that are copied if others of their stream are.
    declaring: Declaring,
    /// Streams that the server knows.
    declared: HashSet<(AgentId, StreamId)>,
    pending: VecDeque<CopyPush>,
    /// When the copy began; the clock of its chain does not advance.
    began: i64,
    report: CopyReport,
    listener: Option<CopyListener>,
}

impl Recorder {
    /// Copies packets of a storage through a chain into another storage. The clock of the chain
    /// does not advance: the spans of a trace are assembled regardless of the time between their
    /// packets, as far as memory allows. What was written before a failure stays in the target. The
    /// `listener` is called for each packet that is a packet of the source, or a part of one, once
    /// it is durable.
    ///
    /// # Errors
    /// When the chain is invalid, there is no such storage, both are the same, the target does not
    /// accept packets, a packet cannot be read or written, or the copy was cancelled.
    pub async fn copy_storage(
        &self,
        spec: &StorageCopySpec,
        progress: &Arc<Progress>,
        listener: Option<CopyListener>,
    ) -> Result<CopyReport, RecordingError> {
        let registry = &self.inner.registry;
        let chain = registry.chain(&copy_chain(spec.query.as_ref(), &spec.processors))?;
        copy_storage(&registry.engine, spec, chain, progress, listener).await
    }
}

async fn copy_storage(
    engine: &Engine,
    spec: &StorageCopySpec,
    chain: Chain,
    progress: &Arc<Progress>,
    listener: Option<CopyListener>,
) -> Result<CopyReport, RecordingError> {
    let mut copying = Copying {
        engine,
        source: spec.source,
        bases: spec.selection.bases.clone(),
        progress,
        chain: Some(chain),
        sink: Sink::new(engine, spec.target),
        contexts: contexts_of(spec),
        declaring: spec.selection.declaring.clone(),
        declared: HashSet::new(),
        pending: VecDeque::new(),
        began: storage_core::clock::now_ns(),
        report: CopyReport::default(),
        listener,
    };
    engine
        .transfer()
        .watch_copy(spec.source, spec.target, &spec.selection, progress)?;
    let mut wanted = Selection {
        from: spec.selection.from,
        to: spec.selection.to,
        limit: PAGE_PACKETS,
        bases: spec.selection.bases.clone(),
        ..Selection::default()
    };
    loop {
        let page = engine
            .reading()
            .descriptors(spec.source, wanted.clone())
            .await?;
        for packet in page.items {
            progress.check()?;
            let bytes = u64::from(packet.entry.raw_size);
            if spec.selection.includes(&packet) {
                copying.copy(packet).await?;
            }
            progress.add(bytes);
        }
        match page.next {
            Some(last) => wanted.after = Some(last),
            None => break,
        }
    }
    copying.end().await
}

/// The contexts of the DFTracer streams of a copy.
fn contexts_of(spec: &StorageCopySpec) -> HashMap<(AgentId, Option<StreamId>), Arc<StreamContext>> {
    let contexts = spec.contexts.iter().map(|((agent, stream), context)| {
        let stream = (agent.clone(), Some(stream.clone()));
        (stream, Arc::new(context.clone()))
    });
    contexts.collect()
}

impl Copying<'_> {
    async fn copy(&mut self, info: PacketInfo) -> Result<(), RecordingError> {
        let stream = (info.agent.clone(), info.stream.clone());
        let from = CopiedFrom::of(&info);
        if !self.declared.contains(&stream) {
            self.engine
                .transfer()
                .adopt_stream(self.source, &info)
                .await?;
            self.declared.insert(stream);
        }
        let permit = self.reserve(u64::from(info.entry.raw_size)).await?;
        let packet = self.read(info.clone()).await?;
        let out = self.work(move |chain| chain.take(&packet)).await?;
        drop(permit);
        if out.iter().any(|packet| packet.derived.is_none()) {
            let before = self.declaring.take_before(&info);
            self.copy_unchanged(before).await?;
        }
        self.write(out, Some(from)).await
    }

    async fn read(&mut self, info: PacketInfo) -> Result<Packet, StorageError> {
        let basis = self.bases.of(info.leaf, info.kind);
        let facts = basis.known(&info.entry.facts);
        let context = self.context(&info).await?;
        Ok(Packet {
            agent: info.agent.clone(),
            stream: info.stream.clone(),
            kind: info.kind,
            // The target assigns positions.
            position: None,
            facts,
            arrival: self.began,
            payload: self
                .engine
                .reading()
                .read_payload(self.source, info)
                .await?,
            context,
        })
    }

    /// Copies the packets with these numbers past the chain.
    async fn copy_unchanged(&mut self, numbers: BTreeSet<u64>) -> Result<(), RecordingError> {
        for number in numbers {
            self.progress.check()?;
            let info = self.engine.reading().packet(self.source, number).await?;
            let from = CopiedFrom::of(&info);
            let permit = self.reserve(u64::from(info.entry.raw_size)).await?;
            let packet = self.read(info).await?;
            drop(permit);
            self.write(vec![OutPacket::of(&packet)], Some(from)).await?;
        }
        Ok(())
    }

    /// Runs the chain on a thread for blocking work.
    async fn work(
        &mut self,
        work: impl FnOnce(&mut Chain) -> Vec<OutPacket> + Send + 'static,
    ) -> Result<Vec<OutPacket>, RecordingError> {
        let failed = || ConfigError::new("processors", "the chain failed".to_owned());
        let mut chain = self.chain.take().ok_or_else(failed)?;
        let worked = tokio::task::spawn_blocking(move || {
            let out = work(&mut chain);
            (chain, out)
        });
        let (chain, out) = worked.await.map_err(|_| failed())?;
        self.chain = Some(chain);
        Ok(out)
    }

    /// Writes the output of the chain. Packets that are not derived are copies of `taken`.
    async fn write(
        &mut self,
        packets: Vec<OutPacket>,
        taken: Option<CopiedFrom>,
    ) -> Result<(), RecordingError> {
        for packet in packets {
            let from = taken.filter(|_| packet.derived.is_none());
            let size = packet.payload.len() as u64;
            let permit = self.reserve(size).await?;
            let push = self.sink.write(packet, permit).await?;
            self.pending.push_back(CopyPush { from, push });
            self.report.packets += 1;
            self.report.bytes += size;
            while self.pending.len() >= PENDING_MAX {
                self.await_oldest().await?;
            }
        }
        Ok(())
    }

    /// Waits for memory: first for the writes of this copy, then for everybody else's.
    async fn reserve(&mut self, size: u64) -> Result<BytePermit, StorageError> {
        loop {
            match self.engine.budget().try_acquire(packet_charge(size)) {
                Ok(permit) => return Ok(permit),
                Err(_) if !self.pending.is_empty() => self.await_oldest().await?,
                Err(_) => {
                    self.progress.check()?;
                    sleep(RESERVE_INTERVAL).await;
                }
            }
        }
    }

    /// Waits for the oldest write.
    async fn await_oldest(&mut self) -> Result<(), StorageError> {
        match self.pending.pop_front() {
            Some(pending) => pending.wait_durable(self.listener.as_ref()).await,
            None => Ok(()),
        }
    }

    async fn end(mut self) -> Result<CopyReport, RecordingError> {
        let out = self.work(Chain::finish).await?;
        self.write(out, None).await?;
        let rest = self.declaring.take_rest();
        self.copy_unchanged(rest).await?;
        while !self.pending.is_empty() {
            self.await_oldest().await?;
        }
        Ok(self.report)
    }

    /// What the packet needs to be decoded, from the storage that contains it.
    async fn context(&mut self, packet: &PacketInfo) -> Result<Arc<StreamContext>, StorageError> {
        let stream = match packet.kind {
            Kind::Ctf => None,
            Kind::Dft => Some(packet.stream.clone()),
            _ => return Ok(Arc::default()),
        };
        let key = (packet.agent.clone(), stream);
        if let Some(context) = self.contexts.get(&key) {
            return Ok(Arc::clone(context));
        }
        let context = Arc::new(match packet.kind {
            Kind::Ctf => StreamContext {
                procedure: procedure(self.engine, self.source, &packet.agent).await?,
                ..StreamContext::default()
            },
            _ => StreamContext {
                unit: unit(self.engine, self.source, packet).await?,
                ..StreamContext::default()
            },
        });
        self.contexts.insert(key, Arc::clone(&context));
        Ok(context)
    }
}

async fn procedure(
    engine: &Engine,
    source: StorageId,
    agent: &AgentId,
) -> Result<Option<Arc<Procedure>>, StorageError> {
    let metadata = engine.reading().metadata(source, agent).await?;
    Ok(metadata.and_then(|metadata| {
        let parsed = ctf::parse_metadata_with(&metadata, Leniency::Lenient).ok()?;
        Procedure::new(parsed.trace).ok().map(Arc::new)
    }))
}

/// The unit of time that a stream declares at its beginning.
async fn unit(
    engine: &Engine,
    source: StorageId,
    packet: &PacketInfo,
) -> Result<TimeUnit, StorageError> {
    let first = Selection {
        agent: Some(packet.agent.clone()),
        stream: Some(packet.stream.clone()),
        kind: Some(packet.kind),
        limit: 1,
        ..Selection::default()
    };
    let first = engine.reading().descriptors(source, first).await?;
    let Some(first) = first.items.into_iter().next() else {
        return Ok(TimeUnit::default());
    };
    let payload = engine.reading().read_payload(source, first).await?;
    let table = FieldTable::new();
    let mut decoder = PacketDecoder::new(&table, Names::default(), TimeUnit::default());
    // A damaged packet yields what precedes the damage.
    drop(decoder.decode(&payload, &mut |_| ControlFlow::Continue(())));
    Ok(decoder.into_declared().unit.unwrap_or_default())
}
