//! A leaf of a storage as a source.

use std::ops::Range;
use std::sync::Arc;

use chunk_index::{Chunk, FilterCache, Index, Pruner};
use query_language::{BareUnit, FieldTable, Filter};
use storage_format::{Kind, StorageId};
use trace_kinds::{EachEvent, Origin, StreamContext, bare_unit};

use super::frames::Frames;
use super::packet_events::PacketEvents;
use super::pieces::TimedPackets;
use super::ranges::{inside, joined};
use super::times;
use super::{Leaf, StoredLeaf};
use crate::evidence::EVERYTHING;
use crate::open_sidecar::OpenSidecar;
use crate::skipped::unreadable_records;
use crate::slices::{Pairing, pairing_in};
use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task, chunk_tasks};
use crate::{Evidence, Fetch, ReadError};

/// The part of a leaf that its chunk index covers, or the part after that.
pub struct LeafSource {
    leaf: Leaf,
    data: Arc<dyn Fetch>,
    context: StreamContext,
    origin: Origin,
    part: Part,
    /// Only these bytes of the leaf belong to the source.
    within: Range<u64>,
    cache: Option<Arc<FilterCache>>,
    unused: Option<String>,
    lost: LostDeclarations,
    /// Whether nothing has to be read to find the slices that begin in the indexed part.
    knows_slices: bool,
    /// The times of the packets of the indexed part, where parts of chunks are worth reading.
    packets: Option<TimedPackets>,
}

/// What packets that cannot be read may have declared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LostDeclarations {
    /// The unit of times, which no other packet declares.
    pub(crate) unit: bool,
    /// The same, of packets before the first that is here.
    pub(crate) head: bool,
    /// Texts of hashes.
    pub(crate) names: bool,
}

/// What the loss of a packet before the first declared unit means.
pub(crate) const UNIT_LOST: &str =
    "; it may have declared the unit of times, which are read as microseconds";

enum Part {
    /// With the number of records that cannot be read.
    Indexed(Arc<OpenSidecar>, u64),
    Runs(Vec<Range<u64>>),
    /// Runs, in chunks with known times.
    Timed(Arc<Index>),
}

impl LeafSource {
    /// The part that `sidecar` covers.
    pub(super) fn indexed(
        stored: &StoredLeaf,
        context: StreamContext,
        (sidecar, unreadable): (Arc<OpenSidecar>, u64),
        cache: Option<Arc<FilterCache>>,
    ) -> LeafSource {
        LeafSource {
            part: Part::Indexed(sidecar, unreadable),
            packets: TimedPackets::of(stored, &context),
            cache,
            ..LeafSource::plain(stored, context, 0, None)
        }
    }

    /// The part that starts at byte `from`; `unused` says why an existing index is not used.
    pub(super) fn plain(
        stored: &StoredLeaf,
        context: StreamContext,
        from: u64,
        unused: Option<String>,
    ) -> LeafSource {
        let leaf = stored.leaf.clone();
        let runs = leaf
            .runs
            .iter()
            .map(|run| run.start.max(from)..run.end)
            .filter(|run| run.start < run.end)
            .collect();
        LeafSource {
            data: Arc::clone(&stored.data),
            context,
            origin: origin_of(&leaf),
            part: Part::Runs(runs),
            within: EVERYTHING,
            cache: None,
            unused,
            lost: LostDeclarations::default(),
            knows_slices: false,
            packets: None,
            leaf,
        }
    }

    /// The same part of a leaf whose packets may have declared more than is known.
    pub(super) fn lacking(self, lost: LostDeclarations) -> LeafSource {
        LeafSource { lost, ..self }
    }

    pub(super) fn knowing_slices(self, knows_slices: bool) -> LeafSource {
        LeafSource {
            knows_slices,
            ..self
        }
    }

    /// Only what is in these bytes, which begin and end between packets.
    pub(super) fn within(mut self, within: &Range<u64>) -> LeafSource {
        if let Part::Runs(runs) = &mut self.part {
            *runs = runs.iter().filter_map(|run| inside(run, within)).collect();
        }
        self.within = within.clone();
        self
    }

    /// Also what is in these bytes, which are before the others and are read without an index.
    pub(super) fn and(mut self, mut before: Vec<Range<u64>>) -> LeafSource {
        if let Part::Runs(runs) = &mut self.part {
            before.append(runs);
            *runs = before;
        }
        self
    }

    /// The parts of chunks of which only a part belongs to the source: no summary is about them.
    pub(super) fn cut_chunks(&self) -> Vec<Range<u64>> {
        let Part::Indexed(open, _) = &self.part else {
            return Vec::new();
        };
        let chunks = open.index().chunks().iter();
        let whole = chunks.map(|chunk| chunk.offset..chunk.offset + chunk.length);
        let parts = whole.filter_map(|whole| {
            let part = inside(&whole, &self.within)?;
            (part != whole).then_some(part)
        });
        parts.collect()
    }

    /// The same part in chunks with the times of their packets, if the index of the storage
    /// contains these and `filter` uses them.
    pub(super) fn timed(
        self,
        stored: &StoredLeaf,
        filter: Option<&Filter>,
    ) -> Result<LeafSource, ReadError> {
        // Times decide nothing where the packets that cannot be read have to be found.
        if self.lost.names || !filter.is_some_and(times::uses_time) {
            return Ok(self);
        }
        self.chunked(stored)
    }

    /// The same part in chunks of packets, as far as the index of the storage contains these.
    pub(super) fn chunked(mut self, stored: &StoredLeaf) -> Result<LeafSource, ReadError> {
        if let Part::Runs(runs) = &self.part
            && let Some(times) = stored.times.as_deref()
        {
            let basis = times::basis(self.leaf.path.kind, &stored.trace, &self.context);
            let index = times::timed_chunks(times, basis, runs);
            let index = index.map_err(|error| ReadError::fetch(self.place(), error))?;
            self.part = Part::Timed(Arc::new(index));
        }
        Ok(self)
    }

    /// The chunks, if there are any.
    fn chunk_index(&self) -> Option<&Index> {
        match &self.part {
            Part::Indexed(sidecar, _) => Some(sidecar.index()),
            Part::Timed(index) => Some(index),
            Part::Runs(_) => None,
        }
    }

    /// Whether it is in chunks with the times of their packets.
    pub(super) fn is_timed(&self) -> bool {
        matches!(self.part, Part::Timed(_))
    }

    /// Whether there is nothing to read.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.part, Part::Runs(runs) if runs.is_empty())
    }

    /// The ranges in which the filter may find events.
    pub(super) fn candidates(&self, filter: Option<&Filter>) -> Result<Vec<Range<u64>>, ReadError> {
        let kept = self.kept(filter)?.into_iter();
        Ok(joined(kept.map(|part| part.range)))
    }

    /// Whether the filter passes no event of the stream.
    pub(super) fn is_excluded(&self, filter: Option<&Filter>) -> bool {
        filter.is_some_and(|filter| self.localize(filter).evaluate.passes_none())
    }

    /// The number of its chunks, or of its runs.
    pub(super) fn parts(&self) -> usize {
        match &self.part {
            Part::Runs(runs) => runs.len(),
            Part::Indexed(..) | Part::Timed(_) => {
                self.chunk_index().map_or(0, |index| index.chunks().len())
            }
        }
    }

    /// The chunks in which the filter may find events. Without an index, that is everything.
    pub(super) fn kept(&self, filter: Option<&Filter>) -> Result<Vec<KeptPart>, ReadError> {
        if self.is_excluded(filter) {
            return Ok(Vec::new());
        }
        if let Part::Runs(runs) = &self.part {
            let runs = runs.iter().cloned();
            return Ok(runs.map(|range| KeptPart { range, events: 0 }).collect());
        }
        let (Some(index), Some(mut evidence)) = (self.chunk_index(), self.evidence()?) else {
            return Ok(Vec::new());
        };
        let local = filter.map(|filter| self.localize(filter));
        let all = Filter::And(Vec::new());
        let pruner = Pruner::new(local.as_ref().map_or(&all, |local| &local.prune));
        let left = match evidence.prune(&pruner) {
            Ok(pruning) => pruning.candidates,
            // A damaged index rules nothing out.
            Err(error) if error.is_of_index() => evidence.chunks(),
            Err(error) => return Err(error),
        };
        let chunks = left.iter().filter_map(|number| index.chunks().get(*number));
        Ok(chunks.map(KeptPart::of).collect())
    }

    /// All of its chunks, or its runs.
    pub(super) fn all(&self) -> Vec<KeptPart> {
        match self.chunk_index() {
            Some(index) => index.chunks().iter().map(KeptPart::of).collect(),
            None => self.kept(None).unwrap_or_default(),
        }
    }
}

/// A part of a leaf that must be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptPart {
    /// Whole frames.
    pub(super) range: Range<u64>,
    /// The number of its events; 0 if it is unknown.
    pub(super) events: u64,
}

impl KeptPart {
    fn of(chunk: &Chunk) -> KeptPart {
        KeptPart {
            range: chunk.offset..chunk.offset + chunk.length,
            events: chunk.events,
        }
    }
}

/// The origin of the events of a leaf.
pub(crate) fn origin_of(leaf: &Leaf) -> Origin {
    Origin {
        agent: Some(leaf.path.agent.to_string()),
        stream: Some(leaf.path.stream.to_string()),
        storage: Some(leaf.storage_name.clone()),
        kind: leaf.path.kind.as_str(),
    }
}

/// Describes a stream in messages.
pub(crate) fn place_of(origin: &Origin) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    format!(
        "stream {} of agent {} in storage {}",
        word(&origin.stream),
        word(&origin.agent),
        word(&origin.storage)
    )
}

impl ChunkSource for LeafSource {
    fn place(&self) -> String {
        self.data.place()
    }

    fn unit(&self) -> Option<BareUnit> {
        Some(bare_unit(self.leaf.path.kind, &self.context))
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        match &self.part {
            Part::Runs(_) => Ok(None),
            Part::Timed(index) => Ok(Some(Evidence::Times(Arc::clone(index)))),
            Part::Indexed(open, _) => Ok(Some(Evidence::Sidecar {
                sidecar: open.sidecar(),
                fetch: Arc::clone(&open.fetch),
                fetched_bytes: open.fetched_bytes,
                cache: self.cache.clone(),
                within: self.within.clone(),
            })),
        }
    }

    fn unused_index(&self) -> Option<String> {
        self.unused.clone()
    }

    fn faults(&self) -> Vec<String> {
        match &self.part {
            Part::Indexed(_, records @ 1..) if self.lost.unit => {
                let records = unreadable_records(&self.place(), *records);
                vec![format!("{records}{UNIT_LOST}")]
            }
            _ => Vec::new(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let note = self.lost.head.then(|| {
            format!(
                "the first packets of {} are not here: they may have declared the unit of times, \
                 which are read as microseconds, and names of hashes",
                place_of(&self.origin)
            )
        });
        note.into_iter().collect()
    }

    fn unreadable(&self) -> Option<u64> {
        match &self.part {
            Part::Indexed(_, records) => Some(*records),
            Part::Runs(_) | Part::Timed(_) => None,
        }
    }

    fn origin(&self) -> Option<&Origin> {
        Some(&self.origin)
    }

    fn storage(&self) -> Option<StorageId> {
        Some(self.leaf.storage)
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        let filter = self.origin.answer(filter);
        match self.leaf.path.kind {
            Kind::Dft => crate::dft::localize(&filter, &self.context.names),
            _ => LocalFilter {
                evaluate: filter.clone(),
                prune: filter,
            },
        }
    }

    fn pairing(&self) -> Pairing {
        match &self.part {
            Part::Indexed(open, _) if self.knows_slices => {
                pairing_in(open.index(), &self.within, self.context.outside.as_deref())
            }
            Part::Indexed(..) | Part::Runs(_) | Part::Timed(_) => Pairing::default(),
        }
    }

    fn tasks(&self, chunks: Option<&[usize]>) -> Vec<Task> {
        if let Some(index) = self.chunk_index() {
            let all: Vec<usize> = (0..index.chunks().len()).collect();
            return chunk_tasks(index, chunks.unwrap_or(&all), self.data.batch_bytes());
        }
        let Part::Runs(runs) = &self.part else {
            return Vec::new();
        };
        let task = |(number, run): (usize, &Range<u64>)| Task {
            chunks: vec![number],
            within: None,
            first_ts: None,
            bytes: run.end - run.start,
            records: None,
        };
        runs.iter().enumerate().map(task).collect()
    }

    fn tasks_by_time(&self, chunks: &[usize]) -> Option<Vec<Task>> {
        let Part::Indexed(open, _) = &self.part else {
            return None;
        };
        let packets = self.packets.as_ref()?;
        packets.tasks(open.index(), chunks, &self.within)
    }

    fn read(
        &self,
        task: &Task,
        fields: &FieldTable,
        _: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        let kind = self.leaf.path.kind;
        let events = PacketEvents::new(
            kind,
            &self.context,
            &self.origin,
            fields,
            (each, matches!(self.part, Part::Indexed(..))),
        )?;
        let Some(mut events) = events else {
            return Ok(Counters::default());
        };
        let mut frames = Frames::new(&self.leaf, &*self.data).skipping_damage();
        let place = |offset| format!("{}: packet at {offset}", self.data.place());
        let mut each_packet =
            |_: &_, offset, packet: &[u8]| Ok(events.packet(offset, packet, &|| place(offset)));
        if let (Some(within), Some(_)) = (&task.within, self.chunk_index()) {
            let _all = frames.read_ranges(std::slice::from_ref(within), &mut each_packet)?;
        } else if let Some(index) = self.chunk_index() {
            let chunks = index.chunks();
            let wanted = task.chunks.iter().filter_map(|number| chunks.get(*number));
            let ranges = joined(wanted.map(|chunk| chunk.offset..chunk.offset + chunk.length));
            let _all = frames.read_ranges(&ranges, &mut each_packet)?;
        } else if let Part::Runs(runs) = &self.part {
            for run in task.chunks.iter().filter_map(|number| runs.get(*number)) {
                let flow = frames.read_run(run.clone(), &mut each_packet)?;
                if flow.is_break() {
                    break;
                }
            }
        }
        let mut counters = events.counters;
        counters.fetched_bytes += frames.fetched_bytes;
        let mut damage = frames.into_damage();
        if let Some(fault) = damage.faults.first_mut().filter(|_| self.lost.unit) {
            fault.push_str(UNIT_LOST);
        }
        counters.decoded.broken += damage.count;
        counters.faults.extend(damage.faults);
        Ok(counters)
    }
}
