//! Provenance of copied packets.
//!
//! A copy of a packet, or of part of it, has the provenance of the original. If that is unknown,
//! its source is the packet itself: a range of the data file that it was read from. A packet
//! derived from several packets has no provenance.

use std::collections::{BTreeMap, BTreeSet};

use chunk_index::{Identity, Provenance, Segment, SourceFile};
use storage_core::{CopiedPacket, Engine, FileInfo};
use storage_format::paths::FileName;
use storage_format::{DataFileId, LeafId, StorageId};
use tokio::sync::mpsc::Receiver;

use super::{ProvenanceError, Provenances, SegmentImporter, load};

/// Maximum number of packets recorded at once.
const PACKETS_MAX: usize = 1 << 16;

impl Provenances {
    /// Records the provenance of copied packets until the copy ends; returns their number.
    ///
    /// # Errors
    /// When a storage was deleted, or cannot be read or written.
    pub(crate) async fn store_copies(
        &self,
        engine: &Engine,
        (source, target): (StorageId, StorageId),
        mut copied: Receiver<CopiedPacket>,
    ) -> Result<u64, ProvenanceError> {
        let mut stored = 0;
        loop {
            let mut packets = Vec::new();
            while packets.len() < PACKETS_MAX {
                match copied.recv().await {
                    Some(packet) => packets.push(packet),
                    None => break,
                }
            }
            if packets.is_empty() {
                return Ok(stored);
            }
            stored += packets.len() as u64;
            let _one_at_a_time = self.0.lock().await;
            let read = packets.iter().map(|packet| packet.from.leaf);
            let read: BTreeSet<LeafId> = read.collect();
            let origins = load(engine, source, read.iter().copied()).await?;
            let listed = engine.reading().files(source).await?;
            let files: BTreeMap<DataFileId, SourceFile> = listed
                .into_iter()
                .filter_map(|file| data_file(source, file))
                .collect();
            let of_leaves = provenance_of(&packets, &origins, &files);
            self.merge_into(engine, target, of_leaves, None).await?;
        }
    }
}

/// The provenance of copied packets, by their leaf in the target.
fn provenance_of(
    packets: &[CopiedPacket],
    origins: &BTreeMap<LeafId, Provenance>,
    files: &BTreeMap<DataFileId, SourceFile>,
) -> BTreeMap<LeafId, Provenance> {
    let mut of_leaves: BTreeMap<LeafId, Provenance> = BTreeMap::new();
    let mut importers: BTreeMap<(LeafId, LeafId), SegmentImporter> = BTreeMap::new();
    for packet in packets {
        let read = packet.from.leaf;
        let into = of_leaves.entry(packet.leaf).or_default();
        let origin = origins.get(&read);
        let known = origin.map(|origin| (origin, origin.of_chunk(packet.from.number)));
        match known {
            Some((origin, segments)) if !segments.is_empty() => {
                let importer = importers.entry((read, packet.leaf)).or_default();
                for segment in segments {
                    let imported = importer.take(into, origin, *segment);
                    into.segments.push(Segment {
                        chunk: packet.number,
                        ..imported
                    });
                }
            }
            _ => {
                let Some(file) = files.get(&packet.from.descriptor.file()) else {
                    continue;
                };
                let source = super::index_of(&mut into.sources, file);
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
    of_leaves
}

/// A data file, under its path in the API; `None` for other files.
fn data_file(storage: StorageId, file: FileInfo) -> Option<(DataFileId, SourceFile)> {
    let Ok(FileName::Data(id)) = file.name.parse() else {
        return None;
    };
    let identity = Identity {
        length: file.length,
        modified: None,
        checksum: file.checksum.map(u64::from),
    };
    let path = format!("/storage/{storage}/{}", file.name);
    Some((id, SourceFile { path, identity }))
}
