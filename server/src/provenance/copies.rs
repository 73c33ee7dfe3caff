//! Provenance of copied packets.
//!
//! A copy of a packet, or of part of it, has the provenance of the original. If that is unknown,
//! its source is the packet itself: a range of the data file that it was read from. A packet
//! derived from several packets has no provenance.

use std::collections::{BTreeMap, BTreeSet};

use chunk_index::{Identity, Provenance, Segment, Source};
use storage_core::{CopiedPacket, Engine, LeafInfo};
use storage_format::paths::FileName;
use storage_format::{LeafId, StorageId};
use tokio::sync::mpsc::Receiver;

use super::{ProvenanceError, Provenances, Taker, known};

/// Maximum number of packets recorded at once.
const PACKETS_MAX: usize = 1 << 16;

impl Provenances {
    /// Records the provenance of copied packets until the copy ends; returns their number.
    ///
    /// # Errors
    /// When a storage was deleted, or cannot be read or written.
    pub(crate) async fn keep_copies(
        &self,
        engine: &Engine,
        (source, target): (StorageId, StorageId),
        mut copied: Receiver<CopiedPacket>,
    ) -> Result<u64, ProvenanceError> {
        let mut kept = 0;
        loop {
            let mut packets = Vec::new();
            while packets.len() < PACKETS_MAX {
                match copied.recv().await {
                    Some(packet) => packets.push(packet),
                    None => break,
                }
            }
            if packets.is_empty() {
                return Ok(kept);
            }
            kept += packets.len() as u64;
            let _one_at_a_time = self.0.lock().await;
            let read = packets.iter().map(|packet| packet.from.descriptor.leaf());
            let read: BTreeSet<LeafId> = read.collect();
            let origins = known(engine, source, read.iter().copied()).await?;
            let leaves = engine.reading().leaves(source).await?;
            let leaves = leaves
                .leaves
                .iter()
                .filter(|leaf| read.contains(&leaf.leaf));
            let files = leaves.map(|leaf| (leaf.leaf, data_file(source, leaf)));
            let files: BTreeMap<LeafId, Source> = files.collect();
            let told = told(&packets, &origins, &files);
            self.merge_into(engine, target, told, None).await?;
        }
    }
}

/// The provenance of copied packets, by their leaf in the target.
fn told(
    packets: &[CopiedPacket],
    origins: &BTreeMap<LeafId, Provenance>,
    files: &BTreeMap<LeafId, Source>,
) -> BTreeMap<LeafId, Provenance> {
    let mut told: BTreeMap<LeafId, Provenance> = BTreeMap::new();
    let mut takers: BTreeMap<(LeafId, LeafId), Taker> = BTreeMap::new();
    for packet in packets {
        let read = packet.from.descriptor.leaf();
        let into = told.entry(packet.leaf).or_default();
        let origin = origins.get(&read);
        let known = origin.map(|origin| (origin, origin.of_chunk(packet.from.number)));
        match known {
            Some((origin, segments)) if !segments.is_empty() => {
                let taker = takers.entry((read, packet.leaf)).or_default();
                for segment in segments {
                    let taken = taker.take(into, origin, *segment);
                    into.segments.push(Segment {
                        chunk: packet.number,
                        ..taken
                    });
                }
            }
            _ => {
                let Some(file) = files.get(&read) else {
                    continue;
                };
                let source = super::place_of(&mut into.sources, file);
                into.segments.push(Segment {
                    chunk: packet.number,
                    source,
                    group: None,
                    offset: packet.from.descriptor.offset(),
                    length: u64::from(packet.from.descriptor.size()),
                    first_line: 0,
                    lines: 0,
                    events: 0,
                });
            }
        }
    }
    told
}

/// The data file of a leaf, under its path in the API.
fn data_file(storage: StorageId, leaf: &LeafInfo) -> Source {
    Source {
        path: format!("/storage/{storage}/{}", FileName::Data(leaf.leaf)),
        identity: Identity {
            length: leaf.length,
            modified: None,
            checksum: Some(u64::from(leaf.checksum)),
        },
    }
}
