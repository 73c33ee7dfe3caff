//! Indexing a leaf: its frames are read once, starting where an older index ends.

use std::io::ErrorKind;
use std::ops::ControlFlow;

use chunk_index::{
    ChromeUnpaired, DftNames, Identity, Index, IndexConfig, LeafFacts, Sidecar, Work,
};
use storage_format::checksum::crc32c;
use storage_format::frame::FrameHeader;
use storage_format::{Kind, data_file};
use trace_kinds::chrome::Unpaired;
use trace_kinds::dft::{HashNames, TimeUnit};
use trace_kinds::{Decoded, StreamContext, dimensions};

use super::chunker::Chunker;
use crate::dft::hash_names::{decode_names, encode_names, stored_unit};
use crate::skipped::unreadable_records;
use crate::slices::{self, of_attachment};
use crate::stored::frames::Frames;
use crate::stored::leaf_source::{origin_of, place_of};
use crate::stored::set::{OpenLeaf, belongs};
use crate::stored::{Leaf, StorageSet, StoredLeaf};
use crate::{ReadError, Skipped};

/// How leaves are indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafIndexOptions {
    /// Raw bytes of packets per chunk; a larger packet is a chunk of its own.
    pub chunk_bytes: u64,
    /// Fields to index in addition to those of the kind.
    pub fields: Vec<String>,
}

impl Default for LeafIndexOptions {
    fn default() -> Self {
        LeafIndexOptions {
            chunk_bytes: 2 << 20,
            fields: Vec::new(),
        }
    }
}

impl LeafIndexOptions {
    /// The configuration for a kind.
    pub fn config(&self, kind: Kind) -> IndexConfig {
        let fields = self.fields.iter().map(String::as_str);
        IndexConfig::new(dimensions(kind).iter().copied().chain(fields))
    }
}

/// The result of indexing a leaf.
#[derive(Debug)]
pub struct IndexedLeaf {
    /// The index of all durable frames.
    pub index: Index,
    /// Records of the frames that were read.
    pub decoded: Decoded,
    /// Bytes of the data file that were read.
    pub read_bytes: u64,
    /// What of the whole leaf cannot be read.
    pub skipped: Option<Skipped>,
    /// Whether the bytes are not those that were written.
    pub is_damaged: bool,
}

/// Indexes a leaf: completely, or starting where `old` ends, if that was made with the same
/// configuration. `None` for kinds without events.
///
/// # Errors
///
/// When the data file cannot be read, the metadata that its packets need is missing, or `goes_on`
/// returns false. Damaged packets, and what a data file that was cut lacks, are skipped and
/// counted.
fn index_leaf(
    open: &OpenLeaf,
    old: Option<Index>,
    options: &LeafIndexOptions,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<IndexedLeaf>, ReadError> {
    let (stored, context) = (&open.stored, &open.context);
    let leaf = &stored.leaf;
    let config = options.config(leaf.path.kind);
    let old = old.filter(|old| {
        let done = config.work(old.config_hash(), &old.dimensions()) == Work::Nothing;
        done && old.dimensions().len() == config.dimensions().len()
    });
    let Some(mut build) = Build::new(leaf, context, &config, old, options.chunk_bytes)? else {
        return Ok(None);
    };
    let mut frames = Frames::new(leaf, &*stored.data).skipping_damage();
    let from = build.covered.length;
    frames.checksum = match build.covered.checksum {
        Some(checksum) if from > 0 => u32::try_from(checksum).unwrap_or_default(),
        _ => {
            match stored.data.fetch_one(0..data_file::HEADER_BYTES as u64) {
                Ok(header) => crc32c(&header),
                // The data file was cut.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
                Err(error) => return Err(ReadError::fetch(stored.data.place(), error)),
            }
        }
    };
    let runs = leaf.runs.iter().map(|run| run.start.max(from)..run.end);
    for run in runs.filter(|run| run.start < run.end) {
        let _all = frames.read_run(run, &mut |header, offset, packet| {
            build.packet(header, offset, packet);
            if goes_on() {
                Ok(ControlFlow::Continue(()))
            } else {
                Err(ReadError::Cancelled)
            }
        })?;
    }
    build.covered.length = leaf.length;
    let (read_checksum, read_bytes) = (frames.checksum, frames.fetched_bytes);
    build.covered.checksum = Some(u64::from(read_checksum));
    let damage = frames.into_damage();
    // A query that uses the index counts the damage without reading it.
    build.counted.broken += damage.count;
    build.is_damaged = match leaf.checksum {
        Some(checksum) => checksum != read_checksum,
        None => build.is_damaged || damage.count > 0,
    };
    let is_damaged = build.is_damaged;
    let (index, decoded, unreadable) = build.finish(open);
    let mut reasons = damage.faults;
    if unreadable > damage.count {
        reasons.push(unreadable_records(&stored.data.place(), unreadable));
    }
    Ok(Some(IndexedLeaf {
        index,
        decoded,
        read_bytes,
        is_damaged,
        skipped: (unreadable > 0).then_some(Skipped {
            storage: Some(leaf.storage),
            parts: unreadable,
            reasons,
        }),
    }))
}

/// An index in the making.
struct Build {
    index: Index,
    chunker: Chunker,
    end: u64,
    covered: Identity,
    counted: Decoded,
    is_damaged: bool,
    names: HashNames,
    /// Of Chrome packets.
    unpaired: Option<Unpaired>,
}

impl Build {
    fn new(
        leaf: &Leaf,
        context: &StreamContext,
        config: &IndexConfig,
        old: Option<Index>,
        chunk_bytes: u64,
    ) -> Result<Option<Build>, ReadError> {
        let facts = |old: &Index| LeafFacts::decode(old.attachment(LeafFacts::NAME)?).ok();
        let names = |old: &Index| decode_names(old.attachment(DftNames::NAME)?, None);
        let is_chrome = leaf.path.kind == Kind::Chrome;
        let unpaired = |old: &Index| of_attachment(old.attachment(ChromeUnpaired::NAME)?);
        let old = old.filter(|old| facts(old).is_some() && (!is_chrome || unpaired(old).is_some()));
        let index = old.unwrap_or_else(|| Index::new(config));
        let last = index.chunks().last();
        let raw_offset = last.map_or(0, |chunk| chunk.raw_offset + chunk.raw_length);
        let chunker = Chunker::new(leaf.path.kind, context, config, chunk_bytes, raw_offset);
        let chunker = chunker.map_err(|source| ReadError::Decode {
            place: place_of(&origin_of(leaf)),
            source,
        })?;
        Ok(chunker.map(|chunker| Build {
            chunker,
            end: leaf.length,
            covered: *index.identity(),
            counted: facts(&index).map_or_else(Decoded::default, |facts| Decoded {
                events: 0,
                metadata: facts.metadata,
                broken: facts.broken,
            }),
            is_damaged: facts(&index).is_some_and(|facts| facts.is_damaged),
            names: names(&index).unwrap_or_default(),
            unpaired: is_chrome.then(|| {
                let mut all = Unpaired::default();
                if let Some((old, _)) = unpaired(&index) {
                    all.append(0, &old);
                }
                all
            }),
            index,
        }))
    }

    fn packet(&mut self, header: &FrameHeader, offset: u64, packet: &[u8]) {
        let frame = offset..self.end.min(offset + header.frame_bytes());
        if let Some(unpaired) = &mut self.unpaired {
            unpaired.add_packet(0, offset, packet);
        }
        self.chunker.packet(frame, header.number, packet);
    }

    fn finish(mut self, open: &OpenLeaf) -> (Index, Decoded, u64) {
        let chunked = self.chunker.finish();
        for (chunk, summary) in chunked.chunks {
            self.index.push(chunk, summary);
        }
        let mut decoded = self.counted;
        decoded += Decoded {
            events: 0,
            ..chunked.decoded
        };
        let leaf = &open.stored.leaf;
        let facts = LeafFacts {
            storage: leaf.storage,
            leaf: leaf.leaf,
            unit: stored_unit(open.context.unit),
            metadata_checksum: open.stored.trace.checksum,
            metadata: decoded.metadata,
            broken: decoded.broken,
            is_damaged: self.is_damaged,
            is_unit_lost: open.lost.unit,
            lacks_head: open.lost.head,
            cuts: leaf.cuts,
        };
        self.index.set_identity(self.covered);
        self.index.attach(LeafFacts::NAME, facts.encode());
        if let Some(unpaired) = &self.unpaired {
            let bytes = slices::attachment(unpaired, open.context.outside.as_deref());
            self.index.attach(ChromeUnpaired::NAME, bytes);
        }
        if let Some(declared) = chunked.names {
            self.names.merge(&declared);
            let bytes = encode_names(&self.names, false);
            self.index.attach(DftNames::NAME, bytes);
        }
        (self.index, chunked.decoded, facts.broken)
    }
}

impl StorageSet {
    /// The complete index of the leaf at this position in [`StorageSet::leaves`]. An existing index
    /// is extended. `None` for kinds without events.
    ///
    /// # Errors
    ///
    /// When the data file cannot be read, the metadata that its packets need is missing, or
    /// `goes_on` returns false. Damaged packets, and what a data file that was cut lacks, are
    /// skipped and counted.
    pub fn index(
        &self,
        position: usize,
        options: &LeafIndexOptions,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<IndexedLeaf>, ReadError> {
        let Some(open) = self.leaves.get(position) else {
            return Ok(None);
        };
        // An index that cannot be read, or has durations of before, is rebuilt.
        let slices = open.slices.as_ref();
        let is_current = slices.is_none_or(|(slices, number)| slices.is_current(*number));
        let old = open.stored.sidecar.as_ref().filter(|_| is_current);
        let old = old.and_then(|(fetch, length)| {
            let bytes = fetch.fetch_one(0..*length).ok()?;
            index_of(&open.stored, open.context.unit, &bytes)
        });
        index_leaf(open, old, options, goes_on)
    }
}

/// The complete index in `bytes`, to be extended, if it belongs to the leaf. One of the whole leaf
/// is not extended but replaced if the bytes were damaged: they may have been restored since.
fn index_of(stored: &StoredLeaf, unit: TimeUnit, bytes: &[u8]) -> Option<Index> {
    let index = Sidecar::read(bytes).ok()?;
    let facts = LeafFacts::decode(index.attachment(LeafFacts::NAME)?).ok()?;
    let is_whole = index.identity().length == stored.leaf.length;
    if is_whole && facts.is_damaged {
        return None;
    }
    // The leaf may have grown since.
    let leaf = Leaf {
        checksum: stored.leaf.checksum.filter(|_| is_whole),
        ..stored.leaf.clone()
    };
    let growing = StoredLeaf {
        leaf,
        ..stored.clone()
    };
    let same = facts.unit == stored_unit(unit) && belongs(&growing, &index, &facts).is_ok();
    same.then_some(index)
}
