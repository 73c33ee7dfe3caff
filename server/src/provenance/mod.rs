//! Provenance of packets: which byte range of which file each was cut from, in `.pidx` files next
//! to the data files: of each leaf, and once the storage is finalized, of all leaves of a data file
//! (`bundles`).
//!
//! A producer that cuts a file into packets reports their provenance after the packets are stored.
//! Provenance is derived: reporting it again after a deletion recreates the same files. The chunk
//! of a segment is the packet's number in the storage.
//!
//! Copied packets inherit the provenance of their originals (`copies`).

mod bundles;
mod chained;
mod copies;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use chunk_index::{BundleContent, Identity, Provenance, Segment, SidecarError, SourceFile};
use io_trace::Cause;
use query_engine::is_damage;
use storage_core::{Engine, LeafInfo, PacketInfo, Selection, StorageError};
use storage_format::paths::FileName;
use storage_format::{AgentId, LeafId, StorageId, StreamId};
use tokio::sync::{Mutex, MutexGuard};

pub(crate) use chained::ChainedProvenanceError;

use crate::leaf_sidecars::LeafSidecars;

/// Packets of a stream that are processed together.
const PAGE: usize = 1000;
/// How often provenance that is moved while it is read is looked for.
const READ_ATTEMPTS: usize = 5;

/// Serializes the requests that change provenance.
#[derive(Debug, Default)]
pub(crate) struct Provenances(Mutex<()>);

/// The range of a file that a packet was cut from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketRange {
    /// Sequence of the packet in its stream.
    pub(crate) sequence: u64,
    /// Start and length in the decoded content of the file.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// First line, from 0, and number of lines.
    pub(crate) first_line: u64,
    pub(crate) lines: u64,
}

/// The provenance that a producer reports for packets of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportedProvenance {
    pub(crate) agent: AgentId,
    pub(crate) stream: StreamId,
    pub(crate) epoch: u64,
    pub(crate) source: SourceFile,
    /// The identity of the file in earlier reports, if it has grown since.
    pub(crate) grown_from: Option<Identity>,
    /// None of these packets has a smaller number.
    pub(crate) first_number: u64,
    /// Ordered by sequence.
    pub(crate) ranges: Vec<PacketRange>,
}

/// What was stored of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Number of its packets that are in the storage.
    pub(crate) packets: u64,
    /// The number after that of the last one.
    pub(crate) next_number: Option<u64>,
}

/// Why provenance cannot be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProvenanceError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
}

impl Provenances {
    /// Lets nothing change provenance until the guard is dropped.
    pub(crate) async fn unchanged(&self) -> MutexGuard<'_, ()> {
        self.0.lock().await
    }

    /// Stores the reported provenance of packets that are in the storage.
    ///
    /// # Errors
    /// When the storage does not exist, cannot be written, or what was reported before cannot be
    /// read.
    pub(crate) async fn store(
        &self,
        engine: &Engine,
        id: StorageId,
        reported: &ReportedProvenance,
    ) -> Result<Stored, ProvenanceError> {
        let _one_at_a_time = self.0.lock().await;
        let mut of_leaves: BTreeMap<LeafId, Provenance> = BTreeMap::new();
        let mut selection = Selection {
            agent: Some(reported.agent.clone()),
            stream: Some(reported.stream.clone()),
            after: reported.first_number.checked_sub(1),
            limit: PAGE,
            ..Selection::default()
        };
        let mut stored = Stored::default();
        loop {
            let page = engine.reading().descriptors(id, selection.clone()).await?;
            for packet in page.items {
                if let Some(range) = reported.of_packet(&packet) {
                    stored.packets += 1;
                    stored.next_number = Some(packet.entry.number.saturating_add(1));
                    let of_leaf = of_leaves.entry(packet.leaf).or_default();
                    of_leaf.segments.push(range.segment(packet.entry.number));
                }
            }
            match page.next {
                // A stream has each packet once: the rest of a long one need not be read.
                Some(number) if stored.packets < reported.ranges.len() as u64 => {
                    selection.after = Some(number);
                }
                _ => break,
            }
        }
        for of_leaf in of_leaves.values_mut() {
            of_leaf.sources = vec![reported.source.clone()];
        }
        self.merge_into(engine, id, of_leaves, reported.grown_from)
            .await?;
        Ok(stored)
    }

    /// Merges provenance into the files of leaves. The caller holds the lock.
    async fn merge_into(
        &self,
        engine: &Engine,
        id: StorageId,
        of_leaves: BTreeMap<LeafId, Provenance>,
        grown_from: Option<Identity>,
    ) -> Result<(), ProvenanceError> {
        let sidecars = Arc::new(open(engine, id).await?);
        sidecars.bundles().all_read().map_err(unread)?;
        let (_, keys) = engine.reading().leaf_keys(id).await?;
        let known: BTreeSet<LeafId> = keys.iter().map(|key| key.leaf).collect();
        for (leaf, reported) in of_leaves {
            if !known.contains(&leaf) {
                continue;
            }
            let sidecars = Arc::clone(&sidecars);
            let write = move || {
                let owner = owner(id, leaf);
                let mut known = read(&sidecars, leaf, &owner)?.unwrap_or_default();
                known.owner = owner;
                if let (Some(before), [source]) = (&grown_from, &reported.sources[..]) {
                    grow(&mut known, before, source);
                }
                merge(&mut known, &reported);
                Ok::<_, ProvenanceError>(known.encode()?)
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

impl PacketRange {
    /// The segment of a packet with this number, in the first source.
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

impl ReportedProvenance {
    fn of_packet(&self, packet: &PacketInfo) -> Option<PacketRange> {
        if packet.entry.position.epoch != self.epoch {
            return None;
        }
        let sequence = packet.entry.position.sequence;
        let index = self
            .ranges
            .binary_search_by_key(&sequence, |range| range.sequence);
        self.ranges.get(index.ok()?).copied()
    }
}

/// The provenance of leaves, each read once, by id. A file that is damaged or belongs to another
/// leaf is logged and ignored.
///
/// # Errors
/// When the storage does not exist.
pub(crate) async fn load(
    engine: &Engine,
    id: StorageId,
    leaves: impl Iterator<Item = LeafId>,
) -> Result<BTreeMap<LeafId, Provenance>, StorageError> {
    // A page of packets names the leaf of each.
    let wanted: Arc<BTreeSet<LeafId>> = Arc::new(leaves.collect());
    let mut found = BTreeMap::new();
    let mut listed_before = None;
    for _ in 0..READ_ATTEMPTS {
        let (sidecars, wanted) = (open(engine, id).await?, Arc::clone(&wanted));
        let read_all = move || {
            let (mut known, mut has_moved, mut is_missing) = (BTreeMap::new(), false, false);
            for leaf in &*wanted {
                match try_read(&sidecars, *leaf, &owner(id, *leaf)) {
                    Ok(None) => is_missing = true,
                    Ok(Some(provenance)) => {
                        known.insert(*leaf, provenance);
                    }
                    Err(Unusable::Moved) => has_moved = true,
                    Err(Unusable::Invalid(reason)) => warn_of(*leaf, &reason),
                    Err(Unusable::Unread(error)) => {
                        tracing::warn!(%leaf, %error, "cannot read the provenance of a leaf now");
                    }
                }
            }
            // While files were moved, neither the old name nor the new one may have been listed.
            let listed = is_missing.then(|| sidecars.listed().clone());
            (known, has_moved, listed)
        };
        let read = tokio::task::spawn_blocking(read_all).await;
        let (known, has_moved, listed) = read.map_err(|_| StorageError::Stopping)?;
        found = known;
        if !has_moved && (listed.is_none() || listed == listed_before) {
            break;
        }
        listed_before = listed;
    }
    Ok(found)
}

/// Where the provenance of leaves is.
pub(crate) async fn open(engine: &Engine, id: StorageId) -> Result<LeafSidecars, StorageError> {
    LeafSidecars::open(engine, id, BundleContent::Provenance, Cause::Query).await
}

fn owner(id: StorageId, leaf: LeafId) -> String {
    format!("{id}/{leaf}")
}

/// Why the provenance of a leaf is not used.
#[derive(Debug)]
enum Unusable {
    /// Its file is not where it was: it is in a bundle now.
    Moved,
    Invalid(String),
    /// It cannot be read now.
    Unread(std::io::Error),
}

/// Provenance that cannot be read now: what would replace it is not written.
fn unread(source: std::io::Error) -> ProvenanceError {
    ProvenanceError::Storage(StorageError::Io {
        operation: "read the provenance of leaves in",
        path: "the folder of the storage".into(),
        source,
    })
}

fn warn_of(leaf: LeafId, reason: &str) {
    tracing::warn!(
        %leaf,
        %reason,
        "ignoring the provenance of a leaf; report it again to recreate it"
    );
}

/// The provenance of a leaf, to be replaced; `None` if there is none or it is invalid.
fn read(
    sidecars: &LeafSidecars,
    leaf: LeafId,
    owner: &str,
) -> Result<Option<Provenance>, ProvenanceError> {
    match try_read(sidecars, leaf, owner) {
        Ok(known) => Ok(known),
        Err(Unusable::Moved) => Ok(None),
        Err(Unusable::Invalid(reason)) => {
            warn_of(leaf, &reason);
            Ok(None)
        }
        Err(Unusable::Unread(error)) => Err(unread(error)),
    }
}

/// The provenance of a leaf; `None` if there is none.
fn try_read(
    sidecars: &LeafSidecars,
    leaf: LeafId,
    owner: &str,
) -> Result<Option<Provenance>, Unusable> {
    match sidecars.read(leaf) {
        Ok(Some(bytes)) => decode(&bytes, owner).map(Some).map_err(Unusable::Invalid),
        Ok(None) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Unusable::Moved),
        Err(error) if is_damage(&error) => Err(Unusable::Invalid(error.to_string())),
        Err(error) => Err(Unusable::Unread(error)),
    }
}

/// The provenance in a file, if it is that of `owner`.
fn decode(bytes: &[u8], owner: &str) -> Result<Provenance, String> {
    match Provenance::read(bytes) {
        Ok(known) if known.owner == owner => Ok(known),
        Ok(_) => Err("the file belongs to another data file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Why the provenance of a leaf is invalid, if there is one. In a finalized leaf, all packets
/// of the file must be in the leaf.
pub(crate) fn check(sidecars: &LeafSidecars, id: StorageId, leaf: &LeafInfo) -> Result<(), String> {
    let known = match try_read(sidecars, leaf.leaf, &owner(id, leaf.leaf)) {
        Ok(Some(known)) => known,
        // Nothing is known against what cannot be read now.
        Ok(None) | Err(Unusable::Moved | Unusable::Unread(_)) => return Ok(()),
        Err(Unusable::Invalid(reason)) => return Err(reason),
    };
    let mut packets: Vec<u64> = known.segments.iter().map(|segment| segment.chunk).collect();
    packets.dedup();
    let is_before = packets
        .first()
        .is_some_and(|first| *first < leaf.first_number);
    if is_before || packets.len() as u64 > leaf.totals.packets {
        Err("the file refers to packets that the data file does not have".to_owned())
    } else {
        Ok(())
    }
}

/// Updates the identity of a source file that has grown, so that earlier segments refer to the
/// longer file.
fn grow(known: &mut Provenance, before: &Identity, source: &SourceFile) {
    let is_it = |known: &&mut SourceFile| known.path == source.path && known.identity == *before;
    if let Some(known) = known.sources.iter_mut().find(is_it) {
        known.identity = source.identity;
    }
}

/// Replaces the segments of the reported packets.
fn merge(known: &mut Provenance, reported: &Provenance) {
    let mut importer = SegmentImporter::default();
    let ends = known.segments.last().zip(reported.segments.first());
    let follows = ends.is_none_or(|(last, first)| last.chunk < first.chunk);
    // Most reports are of packets that came after those of earlier ones.
    if !follows {
        remove_reported(known, reported);
    }
    for segment in &reported.segments {
        let segment = importer.take(known, reported, *segment);
        known.segments.push(segment);
    }
    if !follows {
        // A stable sort: the segments of one packet stay in order.
        known.segments.sort_by_key(|segment| segment.chunk);
    }
}

/// Removes the segments of the reported packets.
fn remove_reported(known: &mut Provenance, reported: &Provenance) {
    let is_reported: BTreeSet<u64> = reported
        .segments
        .iter()
        .map(|segment| segment.chunk)
        .collect();
    known
        .segments
        .retain(|segment| !is_reported.contains(&segment.chunk));
}

/// Copies segments from one provenance file into another.
#[derive(Debug, Default)]
struct SegmentImporter {
    /// Indices of sources and groups in the source file, with those in the target.
    sources: HashMap<u32, u32>,
    groups: HashMap<u32, u32>,
}

impl SegmentImporter {
    /// Converts a segment for `into`, adding its source and group if they are missing.
    fn take(&mut self, into: &mut Provenance, from: &Provenance, segment: Segment) -> Segment {
        let source = segment.source;
        let source = self
            .sources
            .entry(source)
            .or_insert_with(|| index_of(&mut into.sources, &from.sources[source as usize]));
        let group = segment.group.map(|group| {
            let index = self.groups.entry(group);
            *index.or_insert_with(|| index_of(&mut into.groups, &from.groups[group as usize]))
        });
        Segment {
            source: *source,
            group,
            ..segment
        }
    }
}

/// The index of an item in a list, to which it is added if it is missing.
fn index_of<T: Clone + PartialEq>(list: &mut Vec<T>, item: &T) -> u32 {
    let index = list.iter().position(|known| known == item);
    let index = index.unwrap_or_else(|| {
        list.push(item.clone());
        list.len() - 1
    });
    u32::try_from(index).expect("a provenance file has far fewer sources")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            identity: Identity {
                length: 9,
                modified: Some(1),
                checksum: Some(2),
            },
        }
    }

    fn range(sequence: u64) -> PacketRange {
        PacketRange {
            sequence,
            offset: sequence * 10,
            length: 10,
            first_line: sequence,
            lines: 1,
        }
    }

    fn reported(path: &str, packets: &[(u64, PacketRange)]) -> Provenance {
        let segments = packets.iter().map(|(number, range)| range.segment(*number));
        Provenance {
            sources: vec![source(path)],
            segments: segments.collect(),
            ..Provenance::default()
        }
    }

    #[test]
    fn a_file_that_grew_is_one_file() {
        let mut known = Provenance::default();
        let short = reported("a", &[(3, range(0))]);
        merge(&mut known, &short);
        let mut long = reported("a", &[(4, range(1))]);
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
    fn a_repeated_report_replaces_the_earlier_one() {
        let mut known = Provenance::default();
        merge(&mut known, &reported("a", &[(3, range(0)), (5, range(1))]));
        merge(&mut known, &reported("b", &[(4, range(0))]));
        let before = known.clone();
        merge(&mut known, &reported("a", &[(3, range(0)), (5, range(1))]));
        assert_eq!(known, before);
        let of = |known: &Provenance, chunk| known.of_chunk(chunk)[0].source;
        assert_eq!((of(&known, 3), of(&known, 4), of(&known, 5)), (0, 1, 0));
        merge(&mut known, &reported("c", &[(4, range(7))]));
        assert_eq!((of(&known, 4), known.segments.len()), (2, 3));
    }

    #[test]
    fn damaged_and_misplaced_files_are_ignored() {
        assert!(decode(&[], "this").is_err());
        let mut known = Provenance {
            owner: "this".to_owned(),
            ..Provenance::default()
        };
        merge(&mut known, &reported("a", &[(0, range(0))]));
        let bytes = known.encode().unwrap();
        assert_eq!(decode(&bytes, "this"), Ok(known));
        assert!(decode(&bytes, "other").is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged, "this").is_err(), "byte {at}");
        }
        assert!(decode(&bytes[..bytes.len() - 1], "this").is_err());
    }
}
