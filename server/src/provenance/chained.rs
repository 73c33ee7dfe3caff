//! Provenance in the chain of a storage, whose packets have other numbers where they are stored
//! again.

use bytes::Bytes;
use chunk_index::{Provenance, SidecarError, SourceFile};
use storage_core::{Engine, StorageError};
use storage_format::chain_payload::ChainedProvenance;
use storage_format::{AgentId, StorageId, StreamId, StreamPosition};

use super::{PacketRange, ReportedProvenance};

impl ReportedProvenance {
    /// As it is in a chain.
    pub(crate) fn chained(&self) -> Result<ChainedProvenance, SidecarError> {
        let before = self.grown_from.map(|identity| SourceFile {
            path: String::new(),
            identity,
        });
        let ranges = self.ranges.iter();
        let provenance = Provenance {
            owner: String::new(),
            sources: [Some(self.source.clone()), before]
                .into_iter()
                .flatten()
                .collect(),
            groups: Vec::new(),
            segments: ranges.map(|range| range.segment(range.sequence)).collect(),
        };
        Ok(ChainedProvenance {
            epoch: self.epoch,
            sidecar: Bytes::from(provenance.encode()?),
        })
    }

    /// What a chain has, for the storage that is made from it; `None` if it is of no packet there.
    pub(crate) async fn of_chain(
        engine: &Engine,
        id: StorageId,
        stream: (AgentId, StreamId),
        chained: &ChainedProvenance,
    ) -> Result<Option<Self>, ChainedProvenanceError> {
        let Some(mut reported) = Self::read(stream.clone(), chained)? else {
            return Ok(None);
        };
        // If the first packet was not there when it was reported, all are searched.
        if let Some(first) = reported.ranges.first() {
            let position = StreamPosition::new(chained.epoch, first.sequence);
            let found = engine.reading().packet_at(id, stream, position).await?;
            reported.first_number = found.map_or(0, |packet| packet.entry.number);
        }
        Ok(Some(reported))
    }

    fn read(
        (agent, stream): (AgentId, StreamId),
        chained: &ChainedProvenance,
    ) -> Result<Option<Self>, SidecarError> {
        let provenance = Provenance::read(&chained.sidecar)?;
        let mut sources = provenance.sources.into_iter();
        let (source, before) = (sources.next(), sources.next());
        let ranges = provenance.segments.iter().map(|segment| PacketRange {
            sequence: segment.chunk,
            offset: segment.offset,
            length: segment.length,
            first_line: segment.first_line,
            lines: segment.lines,
        });
        Ok(source.map(|source| Self {
            agent,
            stream,
            epoch: chained.epoch,
            source,
            grown_from: before.map(|before| before.identity),
            first_number: 0,
            ranges: ranges.collect(),
        }))
    }
}

/// Why provenance in a chain is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChainedProvenanceError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
}

#[cfg(test)]
mod tests {
    use chunk_index::Identity;

    use super::*;

    #[test]
    fn provenance_survives_in_a_chain() {
        let identity = |length| Identity {
            length,
            modified: None,
            checksum: Some(77),
        };
        let range = |sequence, offset| PacketRange {
            sequence,
            offset,
            length: 4096,
            first_line: offset / 100,
            lines: 40,
        };
        for (grown_from, ranges) in [
            (None, vec![range(7, 0), range(9, 8192)]),
            (Some(identity(4096)), vec![range(u64::MAX, 4096)]),
            (None, Vec::new()),
        ] {
            let reported = ReportedProvenance {
                agent: "host".parse().unwrap(),
                stream: "file".parse().unwrap(),
                epoch: 5,
                source: SourceFile {
                    path: "/data/first.pfw".to_owned(),
                    identity: identity(12_288),
                },
                grown_from,
                first_number: 0,
                ranges,
            };
            let stream = (reported.agent.clone(), reported.stream.clone());
            let read = ReportedProvenance::read(stream, &reported.chained().unwrap());
            assert_eq!(read.unwrap().unwrap(), reported);
        }
    }
}
