//! Where the packets of a storage came from: `.pidx` beside its data files.
//!
//! Who cuts a file into packets knows the file, and tells it once the packets are kept. What is
//! told is derived data: telling it again after it was deleted gives the same files again. The
//! chunk of a segment is the number of the packet in the storage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use storage_core::{Engine, PacketInfo, Selection, StorageError};
use tokio::sync::Mutex;
use trace_format::paths::FileName;
use trace_format::{AgentId, LeafId, StorageId, StreamId};
use trace_index::{Provenance, Segment, SidecarError, Source};
use trace_read::{ClosedFile, Fetch, LocalFile};

/// Packets of a stream that are looked at together.
const PAGE: usize = 1000;
/// A file of provenance that is longer is not read.
const BYTES_MAX: u64 = 256 << 20;

/// Lets one request at a time change what is known.
#[derive(Debug, Default)]
pub(crate) struct Provenances(Mutex<()>);

/// What a stretch of a file became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Sequence of the packet in its stream.
    pub(crate) sequence: u64,
    /// Begin and length in the decoded content of the file.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// First line, from 0, and lines.
    pub(crate) first_line: u64,
    pub(crate) lines: u64,
}

/// What is told of the packets of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) agent: AgentId,
    pub(crate) stream: StreamId,
    pub(crate) epoch: u64,
    pub(crate) source: Source,
    /// Ordered by sequence.
    pub(crate) stretches: Vec<Stretch>,
}

/// Why it cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProvenanceError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
}

impl Provenances {
    /// Keeps what is told of packets that are in the storage; gives how many these are.
    ///
    /// # Errors
    /// When the storage is not there, or cannot be written.
    pub(crate) async fn keep(
        &self,
        engine: &Engine,
        id: StorageId,
        told: &Told,
    ) -> Result<u64, ProvenanceError> {
        let _one_at_a_time = self.0.lock().await;
        let mut of_leaves: BTreeMap<LeafId, Vec<(u64, Stretch)>> = BTreeMap::new();
        let mut selection = Selection {
            agent: Some(told.agent.clone()),
            stream: Some(told.stream.clone()),
            kind: None,
            from: None,
            to: None,
            after: None,
            limit: PAGE,
        };
        let mut kept = 0;
        loop {
            let page = engine.descriptors(id, selection.clone()).await?;
            for packet in page.items {
                if let Some(stretch) = told.of_packet(&packet) {
                    kept += 1;
                    let of_leaf = of_leaves.entry(packet.descriptor.leaf()).or_default();
                    of_leaf.push((packet.entry.number, stretch));
                }
            }
            match page.next {
                Some(number) => selection.after = Some(number),
                None => break,
            }
        }
        let files = files(engine, id).await?;
        for (leaf, stretches) in of_leaves {
            let Some(path) = files.get(&leaf).cloned() else {
                continue;
            };
            let source = told.source.clone();
            let write = move || {
                let mut known = read(&path, &owner(id, leaf)).unwrap_or_default();
                known.owner = owner(id, leaf);
                merge(&mut known, source, &stretches);
                known.encode()
            };
            let bytes = tokio::task::spawn_blocking(write).await;
            let bytes = bytes.map_err(|_| StorageError::Stopping)??;
            let name = FileName::Provenance(leaf);
            engine.publish_derived(id, name, Bytes::from(bytes)).await?;
        }
        Ok(kept)
    }
}

impl Told {
    fn of_packet(&self, packet: &PacketInfo) -> Option<Stretch> {
        if packet.entry.epoch != self.epoch {
            return None;
        }
        let sequence = packet.entry.sequence;
        let place = self
            .stretches
            .binary_search_by_key(&sequence, |stretch| stretch.sequence);
        self.stretches.get(place.ok()?).copied()
    }
}

/// What is known of the leaves of packets; a file that is damaged or another leaf's is told in the
/// log and not believed.
///
/// # Errors
/// When the storage is not there.
pub(crate) async fn known(
    engine: &Engine,
    id: StorageId,
    leaves: impl Iterator<Item = LeafId>,
) -> Result<BTreeMap<LeafId, Provenance>, StorageError> {
    let files = files(engine, id).await?;
    let wanted: BTreeMap<LeafId, PathBuf> = leaves
        .filter_map(|leaf| Some((leaf, files.get(&leaf)?.clone())))
        .collect();
    let read_all = move || {
        let read_one =
            |(leaf, path): (LeafId, PathBuf)| Some((leaf, read(&path, &owner(id, leaf))?));
        wanted.into_iter().filter_map(read_one).collect()
    };
    let known = tokio::task::spawn_blocking(read_all).await;
    known.map_err(|_| StorageError::Stopping)
}

/// The files of provenance beside the data files, whether they are there or not.
async fn files(engine: &Engine, id: StorageId) -> Result<BTreeMap<LeafId, PathBuf>, StorageError> {
    let found = engine.leaves(id).await?;
    let beside = |data: &Path, leaf| data.with_file_name(FileName::Provenance(leaf).to_string());
    let leaves = found.leaves.iter();
    Ok(leaves
        .map(|leaf| (leaf.leaf, beside(&leaf.data, leaf.leaf)))
        .collect())
}

fn owner(id: StorageId, leaf: LeafId) -> String {
    format!("{id}/{leaf}")
}

/// What a file says; `None` where there is none, or it is not to be believed.
fn read(path: &Path, owner: &str) -> Option<Provenance> {
    let length = match LocalFile::open(path).and_then(|file| file.file().metadata()) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => return refuse(path, &error),
    };
    if length > BYTES_MAX {
        return refuse(path, &"it is too long");
    }
    let bytes = match ClosedFile(path.to_owned()).fetch_one(0..length) {
        Ok(bytes) => bytes,
        Err(error) => return refuse(path, &error),
    };
    match Provenance::read(&bytes) {
        Ok(known) if known.owner == owner => Some(known),
        Ok(_) => refuse(path, &"it is of another data file"),
        Err(error) => refuse(path, &error),
    }
}

fn refuse(path: &Path, reason: &dyn std::fmt::Display) -> Option<Provenance> {
    tracing::warn!(path = %path.display(), %reason, "provenance is not used");
    None
}

/// Puts stretches, ordered by the numbers of their packets, in the place of what was known of
/// these.
fn merge(known: &mut Provenance, source: Source, stretches: &[(u64, Stretch)]) {
    let place = known.sources.iter().position(|known| *known == source);
    let place = place.unwrap_or_else(|| {
        known.sources.push(source);
        known.sources.len() - 1
    });
    let source = u32::try_from(place).unwrap_or(u32::MAX);
    let is_told = |chunk: u64| {
        stretches
            .binary_search_by_key(&chunk, |told| told.0)
            .is_ok()
    };
    known.segments.retain(|segment| !is_told(segment.chunk));
    known
        .segments
        .extend(stretches.iter().map(|(number, stretch)| Segment {
            chunk: *number,
            source,
            group: None,
            offset: stretch.offset,
            length: stretch.length,
            first_line: stretch.first_line,
            lines: stretch.lines,
            events: 0,
        }));
    known.segments.sort_by_key(|segment| segment.chunk);
}

#[cfg(test)]
mod tests {
    use trace_index::Identity;

    use super::*;

    fn source(path: &str) -> Source {
        Source {
            path: path.to_owned(),
            identity: Identity {
                length: 9,
                modified: Some(1),
                checksum: Some(2),
            },
        }
    }

    fn stretch(sequence: u64) -> Stretch {
        Stretch {
            sequence,
            offset: sequence * 10,
            length: 10,
            first_line: sequence,
            lines: 1,
        }
    }

    #[test]
    fn what_is_told_again_takes_the_place_of_what_was_known() {
        let mut known = Provenance::default();
        merge(&mut known, source("a"), &[(3, stretch(0)), (5, stretch(1))]);
        merge(&mut known, source("b"), &[(4, stretch(0))]);
        let before = known.clone();
        merge(&mut known, source("a"), &[(3, stretch(0)), (5, stretch(1))]);
        assert_eq!(known, before);
        let of = |known: &Provenance, chunk| known.of_chunk(chunk)[0].source;
        assert_eq!((of(&known, 3), of(&known, 4), of(&known, 5)), (0, 1, 0));
        merge(&mut known, source("c"), &[(4, stretch(7))]);
        assert_eq!((of(&known, 4), known.segments.len()), (2, 3));
    }

    #[test]
    fn damaged_and_foreign_files_are_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.pidx");
        let write = |bytes: &[u8]| {
            #[expect(clippy::disallowed_methods, reason = "a test damages a file")]
            std::fs::write(&path, bytes).unwrap();
        };
        assert_eq!(read(&path, "own"), None);
        let mut known = Provenance {
            owner: "own".to_owned(),
            ..Provenance::default()
        };
        merge(&mut known, source("a"), &[(0, stretch(0))]);
        let bytes = known.encode().unwrap();
        write(&bytes);
        assert_eq!(read(&path, "own"), Some(known));
        assert_eq!(read(&path, "other"), None);
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            write(&damaged);
            assert_eq!(read(&path, "own"), None, "byte {place}");
        }
        write(&bytes[..bytes.len() - 1]);
        assert_eq!(read(&path, "own"), None);
    }
}
