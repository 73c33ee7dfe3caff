//! The leaves of one query, and what they share: units of times and texts of hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use chunk_index::{DftNames, FilterCache, Index, LeafFacts};
use query_language::{BareUnit, FieldPath, FieldTable, Filter};
use storage_format::{AgentId, Kind, LeafId, StorageId, StreamId, TimeBasis};
use trace_kinds::dft::{HASH_FIELDS, HashNames, Names, PacketDecoder, TimeUnit};
use trace_kinds::{Decoder, StreamContext, bare_unit, has_events};

use super::eventless::EventlessStreams;
use super::frames::Frames;
use super::leaf_source::{LeafSource, LostDeclarations, origin_of};
use super::slices::{SliceMemory, StreamSlices};
use super::undecodable::UndecodableLeaf;
use super::{Leaf, PacketTimes, StoredLeaf, times};
use crate::dft::hash_names::{decode_names, unit_of};
use crate::dft::needs_names;
use crate::evidence::EVERYTHING;
use crate::open_sidecar::OpenSidecar;
use crate::plan::needs_durations;
use crate::{Cancel, ChunkSource, ReadError, Request};

/// The leaves of one or more storages, opened for one query.
pub struct StorageSet {
    pub(crate) leaves: Vec<OpenLeaf>,
    pub(super) undecodable: Vec<UndecodableLeaf>,
    /// Streams without events.
    eventless: BTreeSet<StreamKey>,
    pub(super) cache: Option<Arc<FilterCache>>,
}

pub(crate) struct OpenLeaf {
    pub(crate) stored: StoredLeaf,
    /// The bytes of which events are wanted.
    pub(super) within: Range<u64>,
    pub(super) sidecar: Option<Arc<OpenSidecar>>,
    /// Records that cannot be read, according to the chunk index.
    unreadable: u64,
    /// Whether the chunk index is one of damaged bytes.
    is_index_of_damage: bool,
    unused: Option<String>,
    pub(crate) context: StreamContext,
    pub(crate) lost: LostDeclarations,
    /// The slices of its stream, and its number there (`chrome`).
    pub(crate) slices: Option<(Arc<StreamSlices>, usize)>,
    /// Whether the durations of its chunk index were compared with those of its slices.
    is_checked: bool,
    /// Bytes that a chunk index covers whose durations are no longer those of the slices.
    outdated: u64,
}

/// Parts of a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafRanges {
    /// The leaf.
    pub leaf: LeafId,
    /// Ranges of whole frames, ascending.
    pub ranges: Vec<Range<u64>>,
}

impl LeafRanges {
    /// Whether a byte is in one of the ranges.
    pub fn contains(&self, offset: u64) -> bool {
        let following = self.ranges.partition_point(|range| range.start <= offset);
        let range = following.checked_sub(1).and_then(|at| self.ranges.get(at));
        range.is_some_and(|range| offset < range.end)
    }
}

/// A stream of a storage.
type StreamKey = (StorageId, AgentId, StreamId);

impl StorageSet {
    /// Opens leaves and the chunk indexes that belong to them. `cache` retains filters between
    /// queries.
    ///
    /// # Errors
    ///
    /// When bytes cannot be fetched.
    pub fn open(
        leaves: Vec<StoredLeaf>,
        cache: Option<Arc<FilterCache>>,
    ) -> Result<StorageSet, ReadError> {
        let mut set = StorageSet {
            leaves: Vec::new(),
            undecodable: Vec::new(),
            eventless: BTreeSet::new(),
            cache,
        };
        let mut units: BTreeMap<StreamKey, StreamUnit> = BTreeMap::new();
        let mut leaves = leaves;
        leaves.sort_by_key(|stored| (stored.leaf.storage, stored.leaf.first_number));
        for stored in leaves {
            let leaf = &stored.leaf;
            let kind = leaf.path.kind;
            if !has_events(kind) {
                let path = &leaf.path;
                let stream = (leaf.storage, path.agent.clone(), path.stream.clone());
                set.eventless.insert(stream);
                continue;
            }
            if let Some(undecodable) = UndecodableLeaf::new(&stored) {
                set.undecodable.push(undecodable);
                continue;
            }
            let (sidecar, facts, unused) = open_sidecar(&stored);
            let key = (
                leaf.storage,
                leaf.path.agent.clone(),
                leaf.path.stream.clone(),
            );
            let known = match (units.get(&key), facts) {
                (Some(known), _) => *known,
                (None, Some(facts)) => StreamUnit {
                    unit: unit_of(facts.unit),
                    is_lost: facts.is_unit_lost,
                    lacks_head: facts.lacks_head,
                },
                (None, None) if kind == Kind::Dft => declared_unit(&stored)?,
                (None, None) => StreamUnit::default(),
            };
            let unit = known.unit;
            units.insert(key, known);
            set.leaves.push(OpenLeaf {
                context: StreamContext {
                    procedure: stored.trace.procedure.clone(),
                    names: Names::default(),
                    unit,
                    outside: None,
                },
                // An index that was made with another unit has other times.
                sidecar: sidecar.filter(|_| facts.is_some_and(|facts| unit_of(facts.unit) == unit)),
                unreadable: facts.map_or(0, |facts| facts.broken),
                is_index_of_damage: facts.is_some_and(|facts| facts.is_damaged),
                unused,
                stored,
                within: EVERYTHING,
                lost: LostDeclarations {
                    unit: known.is_lost,
                    head: known.lacks_head,
                    names: false,
                },
                slices: None,
                is_checked: false,
                outdated: 0,
            });
        }
        set.find_slices();
        Ok(set)
    }

    /// Prepares the slices between the packets of each Chrome stream. They are not looked for yet.
    fn find_slices(&mut self) {
        let mut of_streams: BTreeMap<StreamKey, Vec<usize>> = BTreeMap::new();
        for (place, open) in self.leaves.iter().enumerate() {
            let leaf = &open.stored.leaf;
            if leaf.path.kind == Kind::Chrome {
                of_streams.entry(stream_key(leaf)).or_default().push(place);
            }
        }
        let memory = Arc::new(SliceMemory::default());
        for places in of_streams.into_values() {
            let leaves = places.iter().filter_map(|place| self.leaves.get(*place));
            let leaves = leaves.map(|open| (open.stored.clone(), open.sidecar.clone()));
            let stream = StreamSlices::new(leaves.collect(), Arc::clone(&memory));
            let stream = Arc::new(stream);
            for (number, place) in places.into_iter().enumerate() {
                if let Some(open) = self.leaves.get_mut(place) {
                    open.context.outside = Some(Arc::new(stream.of_leaf(number)));
                    open.slices = Some((Arc::clone(&stream), number));
                }
            }
        }
    }

    /// Ends the search for the durations of slices when `cancel` is cancelled.
    pub fn end_with(&self, cancel: &Cancel) {
        for (slices, _) in self.leaves.iter().filter_map(|open| open.slices.as_ref()) {
            slices.end_with(cancel);
        }
    }

    /// Drops the indexes that were made when fewer slices had ended, of the leaves that `request`
    /// may find something in. All packets of these streams that no index covers may be read for
    /// that. [`StorageSet::sources`] and [`StorageSet::candidates`] do the same.
    ///
    /// # Errors
    ///
    /// When the request is cancelled or invalid for the streams, or the index of the storage cannot
    /// be read.
    pub fn drop_outdated(&mut self, request: &Request) -> Result<(), ReadError> {
        let filter = self.bind(request)?;
        self.end_with(&request.cancel);
        for open in &mut self.leaves {
            open.drop_outdated(filter.as_ref())?;
            // A search that was cancelled found too few durations.
            request.cancel.check()?;
        }
        Ok(())
    }

    /// The time basis of each leaf.
    pub fn time_bases(&self) -> impl Iterator<Item = (LeafId, TimeBasis)> {
        self.leaves.iter().map(|open| {
            let leaf = &open.stored.leaf;
            let basis = times::basis(leaf.path.kind, &open.stored.trace, &open.context);
            (leaf.leaf, basis)
        })
    }

    /// Leaves with a chunk index that is not used, and why.
    pub fn unused_indexes(&self) -> impl Iterator<Item = (LeafId, &str)> {
        let leaves = self.leaves.iter();
        leaves.filter_map(|open| Some((open.stored.leaf.leaf, open.unused.as_deref()?)))
    }

    /// Whether the chunk index of the leaf at this position in [`StorageSet::leaves`] was made from
    /// damaged bytes: if these were restored since, another one knows more.
    pub fn is_index_of_damage(&self, position: usize) -> bool {
        let open = self.leaves.get(position);
        open.is_some_and(|open| open.is_index_of_damage && open.sidecar.is_some())
    }

    /// Events of the leaf at this position in [`StorageSet::leaves`], as far as its chunk index
    /// covers it.
    pub fn indexed_events(&self, position: usize) -> u64 {
        let open = self.leaves.get(position);
        let sidecar = open.and_then(|open| open.sidecar.as_ref());
        let chunks = sidecar.map_or(&[][..], |sidecar| sidecar.index().chunks());
        let events = chunks.iter().map(|chunk| chunk.events);
        events.fold(0, u64::saturating_add)
    }

    /// The packets of the leaf at this position in [`StorageSet::leaves`] in the index of the
    /// storage, if that is available.
    pub fn packet_times(&self, position: usize) -> Option<&dyn PacketTimes> {
        let open = self.leaves.get(position)?;
        open.stored.times.as_deref()
    }

    /// The leaves, each with the bytes that its chunk index does not cover. An index that
    /// [`StorageSet::drop_outdated`] dropped covers none.
    pub fn leaves(&self) -> impl Iterator<Item = (&Leaf, u64)> {
        self.leaves.iter().map(|open| {
            let leaf = &open.stored.leaf;
            // Of a finalized storage, it is made again at once.
            let outdated = if leaf.checksum.is_some() {
                0
            } else {
                open.outdated
            };
            (leaf, leaf.length - open.covered().max(outdated))
        })
    }

    /// The leaves as sources, with the texts of hashes if the query or its rows need them.
    ///
    /// # Errors
    ///
    /// When bytes cannot be fetched, or the query is invalid for the streams.
    pub fn sources(
        mut self,
        request: &Request,
        fields: &[FieldPath],
    ) -> Result<Vec<Box<dyn ChunkSource>>, ReadError> {
        let filter = self.bind(request)?;
        self.drop_outdated(request)?;
        self.resolve(filter.as_ref(), fields)?;
        let has_events = !self.leaves.is_empty() || !self.undecodable.is_empty();
        let is_eventless = !has_events && !self.eventless.is_empty();
        let mut sources: Vec<Box<dyn ChunkSource>> = Vec::new();
        for leaf in std::mem::take(&mut self.undecodable) {
            sources.push(Box::new(leaf));
        }
        for open in self
            .leaves
            .into_iter()
            .filter(|open| !open.within.is_empty())
        {
            let (indexed, rest) = open.into_sources(filter.as_ref(), self.cache.clone())?;
            if let Some(indexed) = indexed {
                sources.push(Box::new(indexed));
            }
            if !rest.is_empty() {
                sources.push(Box::new(rest));
            }
        }
        if is_eventless {
            sources.push(Box::new(EventlessStreams::new(self.eventless.len())));
        }
        Ok(sources)
    }

    /// The ranges of each data file that may contain matching events: those that no chunk index
    /// rules out, and those that none covers.
    ///
    /// # Errors
    ///
    /// As [`StorageSet::sources`].
    pub fn candidates(mut self, request: &Request) -> Result<Vec<LeafRanges>, ReadError> {
        let filter = self.bind(request)?;
        self.drop_outdated(request)?;
        self.resolve(filter.as_ref(), &[])?;
        let mut candidates = Vec::new();
        for open in self.leaves {
            let leaf = open.stored.leaf.leaf;
            let (indexed, rest) = open.into_sources(filter.as_ref(), self.cache.clone())?;
            let mut ranges = match indexed {
                Some(indexed) => indexed.candidates(filter.as_ref())?,
                None => Vec::new(),
            };
            ranges.extend(rest.candidates(filter.as_ref())?);
            candidates.push(LeafRanges { leaf, ranges });
        }
        Ok(candidates)
    }

    /// Whether a reader of single packets finds all events of the query: not if it asks for
    /// durations of slices that begin in one packet and end in another.
    ///
    /// # Errors
    ///
    /// When the query has no meaning in all leaves together: their bare numbers have different
    /// units.
    pub fn is_of_packets(&self, request: &Request) -> Result<bool, ReadError> {
        let filter = self.bind(request)?;
        if !needs_durations(filter.as_ref(), &FieldTable::new()) {
            return Ok(true);
        }
        let spans_packets = |open: &OpenLeaf| {
            let slices = open.slices.as_ref();
            // Without an index, nobody knows.
            let begins = |(stream, number): &(Arc<StreamSlices>, usize)| {
                open.sidecar.is_none() || stream.has_begins(*number)
            };
            slices.is_some_and(begins)
        };
        Ok(!self.leaves.iter().any(spans_packets))
    }

    pub(super) fn bind(&self, request: &Request) -> Result<Option<Filter>, ReadError> {
        request.bind_all(self.units(request)?)
    }

    /// The units of numbers without one in a request.
    pub(super) fn units(&self, request: &Request) -> Result<Vec<BareUnit>, ReadError> {
        let leaves = self.leaves.iter();
        let with_unit = leaves.map(|open| {
            let leaf = &open.stored.leaf;
            (bare_unit(leaf.path.kind, &open.context), leaf)
        });
        let is_excluded =
            |leaf: &&Leaf, filter: &Filter| origin_of(leaf).answer(filter).passes_none();
        request.units(with_unit.collect(), &is_excluded)
    }

    /// Loads the texts of hashes: from the indexes, and by reading what these do not cover.
    pub(super) fn resolve(
        &mut self,
        filter: Option<&Filter>,
        columns: &[FieldPath],
    ) -> Result<(), ReadError> {
        let text = |path: &FieldPath| HASH_FIELDS.iter().any(|field| field.text == path.as_str());
        if !filter.is_some_and(needs_names) && !columns.iter().any(text) {
            return Ok(());
        }
        self.resolve_all()
    }

    /// Loads the texts of all hashes.
    pub(super) fn resolve_all(&mut self) -> Result<(), ReadError> {
        let mut of_streams: BTreeMap<StreamKey, HashNames> = BTreeMap::new();
        let mut of_set = HashNames::default();
        let dft = |open: &&mut OpenLeaf| open.stored.leaf.path.kind == Kind::Dft;
        for open in self.leaves.iter_mut().filter(dft) {
            let (own, is_damaged) = open.names()?;
            open.lost.names = is_damaged;
            of_streams
                .entry(stream_key(&open.stored.leaf))
                .or_default()
                .merge(&own);
        }
        // In the order of their ids: that in which packets arrived is another at each push.
        of_streams.values().for_each(|own| of_set.merge(own));
        let of_streams: BTreeMap<StreamKey, Arc<HashNames>> = of_streams
            .into_iter()
            .map(|(key, names)| (key, Arc::new(names)))
            .collect();
        let of_set = Arc::new(of_set);
        for open in self.leaves.iter_mut().filter(dft) {
            if let Some(own) = of_streams.get(&stream_key(&open.stored.leaf)) {
                open.context.names = Names {
                    own: Arc::clone(own),
                    set: Arc::clone(&of_set),
                };
            }
        }
        Ok(())
    }
}

fn stream_key(leaf: &Leaf) -> StreamKey {
    let path = &leaf.path;
    (leaf.storage, path.agent.clone(), path.stream.clone())
}

/// The index of a leaf with its facts, or why it is not used.
fn open_sidecar(
    stored: &StoredLeaf,
) -> (Option<Arc<OpenSidecar>>, Option<LeafFacts>, Option<String>) {
    let Some((fetch, length)) = &stored.sidecar else {
        return (None, None, None);
    };
    let place = fetch.place();
    let refused = |reason: String| (None, None, Some(format!("{place}: {reason}")));
    let open = match OpenSidecar::of_file(Arc::clone(fetch), *length) {
        Ok(open) => open,
        // It was moved to a bundle, or removed.
        Err(ReadError::Fetch { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return (None, None, None);
        }
        Err(error) => return refused(reason_of(&error)),
    };
    let facts = open.attachment(LeafFacts::NAME);
    let facts = match facts.map(|bytes| bytes.and_then(|bytes| LeafFacts::decode(&bytes).ok())) {
        Ok(Some(facts)) => facts,
        Ok(None) => return refused("it was written by another version".to_owned()),
        Err(error) => return refused(reason_of(&error)),
    };
    match belongs(stored, open.index(), &facts) {
        Ok(()) => (Some(Arc::new(open)), Some(facts), None),
        Err(reason) => refused(reason.to_owned()),
    }
}

fn reason_of(error: &ReadError) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// Whether an index belongs to this leaf as it is now.
pub(crate) fn belongs(
    stored: &StoredLeaf,
    index: &Index,
    facts: &LeafFacts,
) -> Result<(), &'static str> {
    let leaf = &stored.leaf;
    let covered = index.identity();
    if (facts.storage, facts.leaf) != (leaf.storage, leaf.leaf) {
        return Err("it is the index of another leaf");
    }
    if facts.metadata_checksum != stored.trace.checksum {
        return Err("it was made with other trace metadata");
    }
    if covered.length > leaf.length {
        return Err("it covers more bytes than the data file has");
    }
    // The checksum of a leaf that grows says nothing of its beginning.
    if leaf.checksum.is_none() && facts.cuts != leaf.cuts {
        return Err("the storage was repaired since it was made");
    }
    // An index of damaged bytes has another checksum than the bytes that were written.
    if let Some(checksum) = leaf.checksum
        && (covered.length != leaf.length
            || (!facts.is_damaged && covered.checksum != Some(u64::from(checksum))))
    {
        return Err("the data file has another length or checksum than when it was indexed");
    }
    let inside = |chunk: &chunk_index::Chunk| {
        let end = chunk.offset.checked_add(chunk.length);
        end.is_some_and(|end| end <= covered.length)
    };
    if index.chunks().iter().all(inside) {
        Ok(())
    } else {
        Err("a chunk is outside of the bytes that it covers")
    }
}

/// Bytes of packets at the start of a stream that are searched for its unit, as in files.
const HEAD_BYTES: u64 = 256 << 10;
/// Bytes of the text of one of them, if it is compressed: as many as a packet of text may have.
const HEAD_TEXT_BYTES: u64 = 32 << 20;

/// What is known of the unit of times of a stream.
#[derive(Debug, Clone, Copy, Default)]
struct StreamUnit {
    unit: TimeUnit,
    /// Whether a packet that cannot be read may have declared another.
    is_lost: bool,
    /// Whether a packet before those that are here may have.
    lacks_head: bool,
}

/// The unit that the first packets of a stream declare.
fn declared_unit(stored: &StoredLeaf) -> Result<StreamUnit, ReadError> {
    let mut decoder = PacketDecoder::new(&FieldTable::new(), Names::default(), TimeUnit::default());
    // The query reports damaged packets.
    let mut frames = Frames::new(&stored.leaf, &*stored.data).skipping_damage();
    let (mut read_bytes, mut first) = (0, None);
    for run in &stored.leaf.runs {
        let flow = frames.read_run(run.clone(), &mut |header, _, packet| {
            first.get_or_insert(header.position.sequence);
            // A packet that cannot be decoded declares nothing; the query reports it.
            decoder.learn_from_head(packet, HEAD_TEXT_BYTES);
            read_bytes += packet.len() as u64;
            let found = decoder.declared().unit.is_some();
            Ok(if found || read_bytes >= HEAD_BYTES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        if flow.is_break() {
            break;
        }
    }
    let declared = decoder.into_declared().unit;
    let is_damaged = frames.into_damage().count > 0;
    Ok(StreamUnit {
        unit: declared.unwrap_or_default(),
        is_lost: declared.is_none() && is_damaged,
        lacks_head: declared.is_none() && !is_damaged && first.is_some_and(|first| first > 0),
    })
}

impl OpenLeaf {
    /// The part that the chunk index covers, and the rest.
    pub(super) fn into_sources(
        self,
        filter: Option<&Filter>,
        cache: Option<Arc<FilterCache>>,
    ) -> Result<(Option<LeafSource>, LeafSource), ReadError> {
        let (mut from, mut cut, mut indexed) = (0, Vec::new(), None);
        if let Some(sidecar) = self.sidecar {
            from = sidecar.index().identity().length;
            // The index does not say where, so the beginning of the leaf tells.
            let unreadable = if self.within.start == 0 {
                self.unreadable
            } else {
                0
            };
            let (context, sidecar) = (self.context.clone(), (sidecar, unreadable));
            let source = LeafSource::indexed(&self.stored, context, sidecar, cache);
            // Where a window rules out the leaf of a stream that grows, its end is not read.
            let knows_slices = self.is_checked || self.stored.leaf.checksum.is_some();
            let source = source.lacking(self.lost).within(&self.within);
            let source = source.knowing_slices(knows_slices);
            cut = source.cut_chunks();
            indexed = Some(source);
        }
        let rest = LeafSource::plain(&self.stored, self.context, from, self.unused);
        let rest = rest.lacking(self.lost).within(&self.within).and(cut);
        Ok((indexed, rest.timed(&self.stored, filter)?))
    }

    /// Bytes that the chunk index covers, including the header of the file.
    fn covered(&self) -> u64 {
        let sidecar = self.sidecar.as_ref();
        sidecar.map_or(0, |sidecar| sidecar.index().identity().length)
    }

    /// Drops the chunk index if more slices that began in its leaf have ended since it was made,
    /// and `filter` may find something there.
    fn drop_outdated(&mut self, filter: Option<&Filter>) -> Result<(), ReadError> {
        let Some((slices, number)) = &self.slices else {
            return Ok(());
        };
        if self.is_checked || self.sidecar.is_none() || self.within.is_empty() {
            return Ok(());
        }
        // To find out, all of the stream that is not indexed may have to be read.
        if slices.has_begins(*number) && !self.may_match(filter)? {
            return Ok(());
        }
        self.is_checked = true;
        if !slices.is_current(*number) {
            self.outdated = self.covered();
            self.sidecar = None;
            self.unused = Some(format!(
                "{}: slices that began in it have ended since it was made",
                self.stored.data.place()
            ));
        }
        Ok(())
    }

    /// Whether the times of its packets do not rule the leaf out.
    fn may_match(&self, filter: Option<&Filter>) -> Result<bool, ReadError> {
        let whole = LeafSource::plain(&self.stored, self.context.clone(), 0, None);
        let whole = whole.timed(&self.stored, filter)?;
        Ok(!whole.candidates(filter)?.is_empty())
    }

    /// The texts of hashes that the packets of the leaf declare, and whether some of these packets
    /// cannot be read.
    fn names(&self) -> Result<(HashNames, bool), ReadError> {
        let (mut names, mut from) = (HashNames::default(), 0);
        if let Some(sidecar) = &self.sidecar
            && let Some(bytes) = sidecar.undamaged_attachment(DftNames::NAME)?
            && let Some(decoded) = decode_names(&bytes, None)
        {
            (names, from) = (decoded, sidecar.index().identity().length);
        }
        let unit = self.context.unit;
        let mut decoder = PacketDecoder::new(&FieldTable::new(), Names::default(), unit);
        // The query reads and reports the damaged packets.
        let mut frames = Frames::new(&self.stored.leaf, &*self.stored.data).skipping_damage();
        let runs = self.stored.leaf.runs.iter();
        let runs = runs.map(|run| run.start.max(from)..run.end);
        for run in runs.filter(|run| run.start < run.end) {
            let _all = frames.read_run(run, &mut |_, _, packet| {
                let _decoded = decoder.decode(packet, &mut |_| ControlFlow::Continue(()));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        names.merge(&decoder.into_declared().names);
        Ok((names, frames.into_damage().count > 0))
    }
}
