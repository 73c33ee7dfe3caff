//! What the packets of DFTracer streams declare, and which packets do.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use chunk_index::DftNames;
use query_language::FieldTable;
use storage_format::{AgentId, Kind, StreamId};
use trace_kinds::StreamContext;
use trace_kinds::dft::{Names, PacketDecoder, TimeUnit};

use super::frames::Frames;
use super::set::{OpenLeaf, StorageSet};
use crate::ReadError;
use crate::dft::hash_names::decode_names;

/// What a DFTracer stream declares.
#[derive(Debug, Clone, Default)]
pub struct StreamDeclarations {
    /// Numbers of the packets that declare something that no packet before them does, ascending.
    pub packets: Vec<u64>,
    /// What its events are decoded with.
    pub context: StreamContext,
}

impl StorageSet {
    /// The declarations of each DFTracer stream of one storage. Names are resolved with those of
    /// all streams of the set, if they are wanted.
    ///
    /// # Errors
    /// When bytes cannot be fetched.
    pub fn declarations(
        mut self,
        with_names: bool,
    ) -> Result<BTreeMap<(AgentId, StreamId), StreamDeclarations>, ReadError> {
        if with_names {
            self.resolve_all()?;
        }
        let mut streams = BTreeMap::new();
        let mut decoders: BTreeMap<_, PacketDecoder> = BTreeMap::new();
        for open in &self.leaves {
            let path = &open.stored.leaf.path;
            if path.kind != Kind::Dft {
                continue;
            }
            let key = (path.agent.clone(), path.stream.clone());
            let stream: &mut StreamDeclarations = streams.entry(key.clone()).or_default();
            stream.context = open.context.clone();
            let decoder = decoders.entry(key).or_insert_with(|| {
                PacketDecoder::new(&FieldTable::new(), Names::default(), open.context.unit)
            });
            if open.may_declare(decoder)? {
                open.find_declaring(decoder, &mut stream.packets)?;
            }
        }
        Ok(streams)
    }
}

impl OpenLeaf {
    /// Whether a packet of the leaf may declare something that the packets before it do not.
    fn may_declare(&self, before: &PacketDecoder) -> Result<bool, ReadError> {
        let Some(sidecar) = &self.sidecar else {
            return Ok(true);
        };
        if sidecar.index().identity().length != self.stored.leaf.length {
            return Ok(true);
        }
        let unit_known =
            before.declared().unit.is_some() || self.context.unit == TimeUnit::default();
        let stored = sidecar.undamaged_attachment(DftNames::NAME)?;
        let names = stored.and_then(|bytes| decode_names(&bytes, None));
        Ok(!unit_known || names.is_none_or(|names| !names.is_empty()))
    }

    /// Adds the numbers of its packets that declare something new.
    fn find_declaring(
        &self,
        decoder: &mut PacketDecoder,
        found: &mut Vec<u64>,
    ) -> Result<(), ReadError> {
        // A copy reads and reports damaged packets if it needs them.
        let mut frames = Frames::new(&self.stored.leaf, &*self.stored.data).skipping_damage();
        for run in &self.stored.leaf.runs {
            let _all = frames.read_run(run.clone(), &mut |header, _, packet| {
                if decoder.learns_from(packet) {
                    found.push(header.number);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(())
    }
}
