//! Where the packets of a storage came from: `.pidx` beside its data files.
//!
//! Who cuts a file into packets knows the file, and tells it once the packets are kept. What is
//! told is derived data: telling it again after it was deleted gives the same files again. The
//! chunk of a segment is the number of the packet in the storage.
//!
//! Copies come from where the packets that they were copied from came from (`copies`).

mod copies;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use chunk_index::{Identity, Provenance, Segment, SidecarError, Source};
use query_engine::{ClosedFile, Fetch, LocalFile};
use storage_core::{Engine, LeafInfo, PacketInfo, Selection, StorageError};
use storage_format::paths::FileName;
use storage_format::{AgentId, LeafId, StorageId, StreamId};
use tokio::sync::Mutex;

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
    /// What the file was when it was told of before, and has grown since.
    pub(crate) grown_from: Option<Identity>,
    /// Number of a packet before which none of these is.
    pub(crate) first_number: u64,
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
        let mut of_leaves: BTreeMap<LeafId, Provenance> = BTreeMap::new();
        let mut selection = Selection {
            agent: Some(told.agent.clone()),
            stream: Some(told.stream.clone()),
            after: told.first_number.checked_sub(1),
            limit: PAGE,
            ..Selection::default()
        };
        let mut kept = 0;
        loop {
            let page = engine.reading().descriptors(id, selection.clone()).await?;
            for packet in page.items {
                if let Some(stretch) = told.of_packet(&packet) {
                    kept += 1;
                    let of_leaf = of_leaves.entry(packet.descriptor.leaf()).or_default();
                    of_leaf.segments.push(stretch.segment(packet.entry.number));
                }
            }
            match page.next {
                Some(number) => selection.after = Some(number),
                None => break,
            }
        }
        for of_leaf in of_leaves.values_mut() {
            of_leaf.sources = vec![told.source.clone()];
        }
        self.merge_into(engine, id, of_leaves, told.grown_from)
            .await?;
        Ok(kept)
    }

    /// Merges what is told into the files beside the data files. The caller is the only one who
    /// does so at the moment.
    async fn merge_into(
        &self,
        engine: &Engine,
        id: StorageId,
        of_leaves: BTreeMap<LeafId, Provenance>,
        grown_from: Option<Identity>,
    ) -> Result<(), ProvenanceError> {
        let files = files(engine, id).await?;
        for (leaf, told) in of_leaves {
            let Some(path) = files.get(&leaf).cloned() else {
                continue;
            };
            let write = move || {
                let mut known = read(&path, &owner(id, leaf)).unwrap_or_default();
                known.owner = owner(id, leaf);
                if let (Some(before), [source]) = (&grown_from, &told.sources[..]) {
                    grow(&mut known, before, source);
                }
                merge(&mut known, &told);
                known.encode()
            };
            let bytes = tokio::task::spawn_blocking(write).await;
            let bytes = bytes.map_err(|_| StorageError::Stopping)??;
            let name = FileName::Provenance(leaf);
            engine
                .derived_files()
                .publish(id, name, Bytes::from(bytes))
                .await?;
        }
        Ok(())
    }
}

impl Stretch {
    /// The stretch as a packet with this number, of the first source.
    fn segment(&self, number: u64) -> Segment {
        Segment {
            chunk: number,
            source: 0,
            group: None,
            offset: self.offset,
            length: self.length,
            first_line: self.first_line,
            lines: self.lines,
            events: 0,
        }
    }
}

impl Told {
    fn of_packet(&self, packet: &PacketInfo) -> Option<Stretch> {
        if packet.entry.position.epoch != self.epoch {
            return None;
        }
        let sequence = packet.entry.position.sequence;
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
    let found = engine.reading().leaves(id).await?;
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
    match try_read(path, owner) {
        Ok(known) => known,
        Err(reason) => {
            tracing::warn!(path = %path.display(), %reason, "provenance is not used");
            None
        }
    }
}

/// What a file says; `None` where there is none. An error says why it is not to be believed.
fn try_read(path: &Path, owner: &str) -> Result<Option<Provenance>, String> {
    let length = match LocalFile::open(path).and_then(|file| file.file().metadata()) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if length > BYTES_MAX {
        return Err("it is too long".to_owned());
    }
    let bytes = ClosedFile(path.to_owned()).fetch_one(0..length);
    let known = Provenance::read(&bytes.map_err(|error| error.to_string())?);
    match known {
        Ok(known) if known.owner == owner => Ok(Some(known)),
        Ok(_) => Err("it is of another data file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Why the file beside the data file of a leaf is not to be believed, where there is one. Of a leaf
/// that grows no more, every packet it tells of must be one of the leaf's.
pub(crate) fn check(id: StorageId, leaf: &LeafInfo) -> Result<(), String> {
    let name = FileName::Provenance(leaf.leaf).to_string();
    let known = try_read(&leaf.data.with_file_name(name), &owner(id, leaf.leaf))?;
    let Some(known) = known else {
        return Ok(());
    };
    let mut packets: Vec<u64> = known.segments.iter().map(|segment| segment.chunk).collect();
    packets.dedup();
    let is_before = packets
        .first()
        .is_some_and(|first| *first < leaf.first_number);
    if is_before || packets.len() as u64 > leaf.totals.packets {
        Err("it tells of packets that the data file does not have".to_owned())
    } else {
        Ok(())
    }
}

/// A file that was told of has grown: all that is known of it is of the longer one as well.
fn grow(known: &mut Provenance, before: &Identity, source: &Source) {
    let is_it = |known: &&mut Source| known.path == source.path && known.identity == *before;
    if let Some(known) = known.sources.iter_mut().find(is_it) {
        known.identity = source.identity;
    }
}

/// Puts what is told of packets in the place of what was known of these.
fn merge(known: &mut Provenance, told: &Provenance) {
    let is_told: BTreeSet<u64> = told.segments.iter().map(|segment| segment.chunk).collect();
    known
        .segments
        .retain(|segment| !is_told.contains(&segment.chunk));
    let mut taker = Taker::default();
    for segment in &told.segments {
        let segment = taker.take(known, told, *segment);
        known.segments.push(segment);
    }
    // What is told of one packet keeps its order.
    known.segments.sort_by_key(|segment| segment.chunk);
}

/// Takes segments of one file of provenance over into another.
#[derive(Debug, Default)]
struct Taker {
    /// Places of sources and groups there and here.
    sources: HashMap<u32, u32>,
    groups: HashMap<u32, u32>,
}

impl Taker {
    /// The segment as it has to stand in `into`, which knows its source and group then.
    fn take(&mut self, into: &mut Provenance, from: &Provenance, segment: Segment) -> Segment {
        let source = segment.source;
        let source = self
            .sources
            .entry(source)
            .or_insert_with(|| place_of(&mut into.sources, &from.sources[source as usize]));
        let group = segment.group.map(|group| {
            let place = self.groups.entry(group);
            *place.or_insert_with(|| place_of(&mut into.groups, &from.groups[group as usize]))
        });
        Segment {
            source: *source,
            group,
            ..segment
        }
    }
}

/// The place of an item in a list, which has it then.
fn place_of<T: Clone + PartialEq>(list: &mut Vec<T>, item: &T) -> u32 {
    let place = list.iter().position(|known| known == item);
    let place = place.unwrap_or_else(|| {
        list.push(item.clone());
        list.len() - 1
    });
    u32::try_from(place).expect("a file of provenance has far fewer sources")
}

#[cfg(test)]
mod tests {
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

    fn told(path: &str, packets: &[(u64, Stretch)]) -> Provenance {
        let segments = packets
            .iter()
            .map(|(number, stretch)| stretch.segment(*number));
        Provenance {
            sources: vec![source(path)],
            segments: segments.collect(),
            ..Provenance::default()
        }
    }

    #[test]
    fn a_file_that_grew_is_one_file() {
        let mut known = Provenance::default();
        let short = told("a", &[(3, stretch(0))]);
        merge(&mut known, &short);
        let mut long = told("a", &[(4, stretch(1))]);
        long.sources[0].identity.length = 99;
        let grown = |known: &Provenance, before: &Identity| {
            let mut known = known.clone();
            grow(&mut known, before, &long.sources[0]);
            merge(&mut known, &long);
            known
        };
        let one = grown(&known, &short.sources[0].identity);
        assert_eq!(one.sources, long.sources);
        assert_eq!(one.segments.len(), 2);
        let other = Identity {
            checksum: Some(7),
            ..short.sources[0].identity
        };
        let two = grown(&known, &other);
        assert_eq!(two.sources, [short.sources, long.sources.clone()].concat());
        assert_eq!((two.segments[0].source, two.segments[1].source), (0, 1));
    }

    #[test]
    fn what_is_told_again_takes_the_place_of_what_was_known() {
        let mut known = Provenance::default();
        merge(&mut known, &told("a", &[(3, stretch(0)), (5, stretch(1))]));
        merge(&mut known, &told("b", &[(4, stretch(0))]));
        let before = known.clone();
        merge(&mut known, &told("a", &[(3, stretch(0)), (5, stretch(1))]));
        assert_eq!(known, before);
        let of = |known: &Provenance, chunk| known.of_chunk(chunk)[0].source;
        assert_eq!((of(&known, 3), of(&known, 4), of(&known, 5)), (0, 1, 0));
        merge(&mut known, &told("c", &[(4, stretch(7))]));
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
        merge(&mut known, &told("a", &[(0, stretch(0))]));
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
