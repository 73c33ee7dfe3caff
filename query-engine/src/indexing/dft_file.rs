//! Indexing a DFTracer file in one pass: checkpoints, chunks, summaries, names and the unit.

use std::io::Read;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use chunk_index::{
    Checkpoint, Chunk, ChunkBuilder, ChunkSummary, DftDamage, DftFacts, DftNames, DistinctValues,
    FileDictionary, FileStamp, Identity, Index, IndexConfig,
};
use query_language::{FieldPath, FieldTable};
use trace_kinds::dft::{
    DIMENSIONS, DftDecoder, DftVisitor, HashNames, Lines, Metadata, Names, Part, SHAPED_FIELDS,
    Shapes, TimeUnit,
};
use trace_kinds::gzip::{Entry, GzipDamage, ScanOptions, TextSink};
use trace_kinds::{Decoded, Event};

use super::checkpoints::{Begin, checkpoint, compressed_range};
use super::columns::{BuiltColumns, ColumnsSink};
use super::sidecar_writer::ChecksummedFile;
use crate::dft::hash_names::{
    DICTIONARY_FIELD, TextLimits, dictionary_of, encode_names, stored_unit,
};
use crate::dft::{head_of, stored_damage};
use crate::source::Scratch;
use crate::{LocalFile, ReadError};

/// How a DFTracer file is indexed.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildOptions {
    /// What is indexed of each chunk.
    pub config: IndexConfig,
    /// Approximate bytes of text of a chunk.
    pub chunk_bytes: u64,
    /// Least bytes of text between two checkpoints of a gzip file.
    pub spacing_bytes: u64,
    /// Whether to also write columns: the times and values of every event.
    pub columns: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions {
            config: IndexConfig::new(DIMENSIONS),
            chunk_bytes: 16 << 20,
            spacing_bytes: 16 << 20,
            columns: false,
        }
    }
}

/// The result of indexing a file.
#[derive(Debug)]
pub struct Built {
    /// The index.
    pub index: Index,
    /// Records of the file.
    pub decoded: Decoded,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Which parts of the file were skipped or are unverified.
    pub damage: Vec<GzipDamage>,
    /// The columns, if they were requested.
    pub columns: Option<BuiltColumns>,
}

const READ_BYTES: usize = 1 << 20;
/// A chunk may be longer than requested by this fraction of its length.
const SLACK_PART: u64 = 8;

/// Indexes the DFTracer file at `path`, compressed or not.
///
/// # Errors
///
/// When the file cannot be read. Damage is reported in [`Built::damage`]; the rest is indexed.
pub fn build(
    path: &Path,
    options: &BuildOptions,
    scratch: &mut Scratch,
) -> Result<Built, ReadError> {
    Ok(pass(path, options, scratch)?.into_built(&options.config))
}

/// Reads the file once and collects everything that an index contains.
pub(super) fn pass(
    path: &Path,
    options: &BuildOptions,
    scratch: &mut Scratch,
) -> Result<Pass, ReadError> {
    // A member that is too long to be withheld is indexed before it is verified.
    let mut damaged = Vec::new();
    loop {
        match attempt(path, options, &damaged, scratch)? {
            Attempt::Complete(pass) => return Ok(*pass),
            Attempt::Unverified(offset) => damaged.push(offset),
        }
    }
}

/// The end of a pass.
enum Attempt {
    Complete(Box<Pass>),
    /// The long member at this offset is damaged.
    Unverified(u64),
}

/// Indexes a file without the long members that are known to be `damaged`.
fn attempt(
    path: &Path,
    options: &BuildOptions,
    damaged: &[u64],
    scratch: &mut Scratch,
) -> Result<Attempt, ReadError> {
    let place = path.display().to_string();
    let failed = |error| ReadError::fetch(&*place, error);
    let mut source = ChecksummedFile::open(path, &scratch.progress).map_err(failed)?;
    let local = LocalFile::open(path).map_err(failed)?;
    let len = local.file().metadata().map_err(failed)?.len();
    let head = head_of(&local, len, &mut scratch.scanner)?;
    let mut build = Build::new(options, head.unit);
    if options.columns {
        build.visitor.builder.keep_columns();
        build.columns = Some(ColumnsSink::new(path, &options.config)?);
    }
    let mut damage = Vec::new();
    if head.gzip {
        let scan_options = ScanOptions {
            spacing_bytes: Some(options.spacing_bytes),
            damaged,
            ..ScanOptions::default()
        };
        let scanned = scratch
            .scanner
            .scan(&mut source, scan_options, &mut build)
            .map_err(|source| ReadError::Gzip {
                place: place.clone(),
                source,
            })?;
        if let Some(offset) = scanned.unverified {
            return Ok(Attempt::Unverified(offset));
        }
        damage = scanned.damage;
    } else {
        build.plain(&mut source).map_err(failed)?;
    }
    // Bytes after the damage are part of the file, too.
    let identified = source.finish().map_err(failed)?;
    let pass = build.finish(identified, damage)?;
    Ok(Attempt::Complete(Box::new(pass)))
}

/// An index in the making.
pub(super) struct Build<'o> {
    options: &'o BuildOptions,
    /// Where the source begins in the file.
    begin: Begin,
    lines: Lines,
    decoder: DftDecoder,
    shapes: Shapes,
    visitor: Visitor,
    pub(super) decoded: Decoded,
    /// The open chunk.
    chunk: Chunk,
    chunks: Vec<(Chunk, ChunkSummary)>,
    entries: Vec<Entry>,
    columns: Option<ColumnsSink>,
    /// A checkpoint is inside the open line: the chunk ends after that line.
    cut_after_line: bool,
    unit: TimeUnit,
}

struct Visitor {
    builder: ChunkBuilder,
    names: HashNames,
}

/// A visitor of the records of a text.
struct Visit<'v, 't> {
    visitor: &'v mut Visitor,
    text: &'t [u8],
    raw_offset: u64,
    lines: u64,
}

impl DftVisitor for Visit<'_, '_> {
    #[inline]
    fn event<E: Event>(&mut self, event: &E, line: Range<usize>) -> ControlFlow<()> {
        let raw_offset = self.raw_offset + line.start as u64;
        let record = self.text.get(line).unwrap_or_default();
        let builder = &mut self.visitor.builder;
        builder.add_record(event, event.shape(), raw_offset, record);
        ControlFlow::Continue(())
    }

    #[inline]
    fn line(&mut self) {
        self.lines += 1;
    }

    fn metadata(&mut self, metadata: Metadata) {
        // The unit was read from the start of the file.
        metadata.apply(&mut self.visitor.names, &mut None);
    }
}

impl<'o> Build<'o> {
    /// Begins at the start of a file.
    fn new(options: &'o BuildOptions, unit: TimeUnit) -> Self {
        Self::at(Begin::default(), HashNames::default(), (options, unit))
    }

    /// Begins after a part of a file that declares `names`.
    pub(super) fn at(
        begin: Begin,
        names: HashNames,
        (options, unit): (&'o BuildOptions, TimeUnit),
    ) -> Self {
        let mut table = FieldTable::new();
        let mut builder = ChunkBuilder::new(options.config.clone(), &mut table);
        builder.share_by_shape(&SHAPED_FIELDS);
        builder.collect_distinct(&FieldPath::new(DICTIONARY_FIELD));
        let visitor = Visitor { builder, names };
        Build {
            options,
            begin,
            lines: Lines::default(),
            // Without names, the value of a text field is the text in the record, as it is indexed.
            decoder: DftDecoder::new(&table, Names::default(), unit),
            shapes: Shapes::default(),
            visitor,
            decoded: Decoded::default(),
            chunk: Chunk {
                raw_offset: begin.raw_offset,
                first_line: begin.line,
                number: begin.chunks,
                ..Chunk::default()
            },
            chunks: Vec::new(),
            entries: Vec::new(),
            columns: None,
            cut_after_line: false,
            unit,
        }
    }

    pub(super) fn plain(&mut self, source: &mut impl Read) -> std::io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match source.read(&mut buffer)? {
                0 => return Ok(()),
                read => {
                    if self.add_text(&buffer[..read]).is_break() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn add_text(&mut self, text: &[u8]) -> ControlFlow<()> {
        let mut lines = std::mem::take(&mut self.lines);
        let flow = lines.feed(text, |part| self.part(part));
        self.lines = lines;
        flow
    }

    fn part(&mut self, part: Part<'_>) -> ControlFlow<()> {
        match part {
            Part::Skipped(len, ends) => {
                self.chunk.raw_length += len;
                self.decoded.broken += u64::from(ends);
                self.chunk.lines += u64::from(ends);
            }
            Part::Lines(text) => {
                let mut rest = text;
                while !rest.is_empty() {
                    let lines = if self.cut_after_line {
                        1
                    } else {
                        self.capacity()
                    };
                    let (now, later) = rest.split_at(after_line(rest, lines));
                    self.records(now);
                    if std::mem::take(&mut self.cut_after_line) || self.is_full(later) {
                        self.cut();
                    }
                    rest = later;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Bytes of text that the open chunk accepts before it is checked again.
    fn capacity(&self) -> u64 {
        let (wanted, slack) = (self.options.chunk_bytes, self.slack());
        let most = if self.chunk.raw_length < wanted {
            wanted
        } else {
            wanted + slack
        };
        most.saturating_sub(self.chunk.raw_length)
    }

    /// Whether the open chunk ends before `later`. A short rest of a gzip member does not become a
    /// chunk of its own.
    fn is_full(&self, later: &[u8]) -> bool {
        let (wanted, slack) = (self.options.chunk_bytes, self.slack());
        let over = self.chunk.raw_length.checked_sub(wanted);
        over.is_some_and(|over| over >= slack || later.len() as u64 >= slack)
    }

    fn slack(&self) -> u64 {
        self.options.chunk_bytes / SLACK_PART
    }

    fn records(&mut self, text: &[u8]) {
        let mut visit = Visit {
            visitor: &mut self.visitor,
            text,
            raw_offset: self.chunk.raw_offset + self.chunk.raw_length,
            lines: 0,
        };
        let decoder = &self.decoder;
        self.decoded += decoder.walk_shaped(text, &mut self.shapes, &mut visit);
        self.chunk.lines += visit.lines;
        self.chunk.raw_length += text.len() as u64;
    }

    /// Ends the open chunk and starts the next one.
    fn cut(&mut self) {
        if self.chunk.raw_length == 0 {
            return;
        }
        let next = Chunk {
            raw_offset: self.chunk.raw_offset + self.chunk.raw_length,
            first_line: self.chunk.first_line + self.chunk.lines,
            number: self.chunk.number + 1,
            ..Chunk::default()
        };
        let chunk = std::mem::replace(&mut self.chunk, next);
        let builder = &mut self.visitor.builder;
        if let Some((sink, columns)) = self.columns.as_mut().zip(builder.finish_columns()) {
            sink.chunk(&chunk, columns);
        }
        self.chunks.push((chunk, builder.finish()));
    }

    /// Ends the last line.
    pub(super) fn end(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        let _whole = lines.finish(|part| self.part(part));
    }

    pub(super) fn finish(
        mut self,
        (identity, stamp): (Identity, Option<FileStamp>),
        damage: Vec<GzipDamage>,
    ) -> Result<Pass, ReadError> {
        self.end();
        self.cut();
        let checkpoints: Vec<Checkpoint> = self.entries.into_iter().map(checkpoint).collect();
        for (chunk, _) in &mut self.chunks {
            (chunk.offset, chunk.length) = if checkpoints.is_empty() {
                (chunk.raw_offset, chunk.raw_length)
            } else {
                compressed_range(&checkpoints, chunk, identity.length)
            };
        }
        let columns = self.columns.map(|sink| sink.finish(&identity));
        Ok(Pass {
            chunks: self.chunks,
            columns: columns.transpose()?,
            checkpoints,
            identity,
            stamp,
            unit: self.unit,
            members: self.visitor.builder.take_distinct(),
            names: self.visitor.names,
            decoded: self.decoded,
            text_bytes: self.chunk.raw_offset,
            damage,
        })
    }
}

/// The result of one pass over a file.
pub(super) struct Pass {
    pub(super) chunks: Vec<(Chunk, ChunkSummary)>,
    columns: Option<BuiltColumns>,
    pub(super) checkpoints: Vec<Checkpoint>,
    pub(super) identity: Identity,
    pub(super) stamp: Option<FileStamp>,
    unit: TimeUnit,
    /// The values to build filters of.
    members: Option<DistinctValues>,
    pub(super) names: HashNames,
    pub(super) decoded: Decoded,
    pub(super) text_bytes: u64,
    pub(super) damage: Vec<GzipDamage>,
}

impl Pass {
    /// Builds the filters of the chunks; returns the dictionary if they refer to its entries.
    pub(super) fn build_filters(
        &mut self,
        config: &IndexConfig,
        dictionary: Option<FileDictionary>,
    ) -> Option<FileDictionary> {
        let members = self.members.take()?;
        let summaries = self.chunks.iter_mut().map(|(_, summary)| summary);
        if members.build_filters(dictionary.as_ref(), config, summaries) {
            dictionary
        } else {
            None
        }
    }

    /// The index, made with the configuration of the pass.
    pub(super) fn into_built(mut self, config: &IndexConfig) -> Built {
        let mut index = Index::new(config);
        index.set_identity(self.identity);
        let dictionary = self.build_filters(config, dictionary_of(&self.names));
        let has_dictionary = dictionary.is_some();
        if let Some(dictionary) = dictionary {
            index.set_file_dictionary(&FieldPath::new(DICTIONARY_FIELD), dictionary);
        }
        for (chunk, summary) in self.chunks {
            index.push(chunk, summary);
        }
        index.set_checkpoints(self.checkpoints);
        let facts = DftFacts {
            unit: stored_unit(self.unit),
            metadata: self.decoded.metadata,
            broken: self.decoded.broken,
            text_limits: TextLimits::of(&self.names).0,
        };
        index.attach(DftFacts::NAME, facts.encode());
        if let Some(stamp) = self.stamp {
            index.attach(FileStamp::NAME, stamp.encode());
        }
        if !self.damage.is_empty() {
            index.attach(DftDamage::NAME, stored_damage(&self.damage).encode());
        }
        index.attach(DftNames::NAME, encode_names(&self.names, has_dictionary));
        Built {
            index,
            decoded: self.decoded,
            text_bytes: self.text_bytes,
            damage: self.damage,
            columns: self.columns,
        }
    }
}

impl TextSink for Build<'_> {
    fn entry(&mut self, entry: Entry) {
        // A chunk that ends at a checkpoint is read without the text after it.
        if self.lines.inside_line() {
            self.cut_after_line = true;
        } else {
            self.cut();
        }
        self.entries.push(Entry {
            bit_offset: self.begin.offset * 8 + entry.bit_offset,
            text_offset: self.begin.raw_offset + entry.text_offset,
            ..entry
        });
    }

    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        self.add_text(text)
    }

    fn gap(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        let _all = lines.gap(|part| self.part(part));
        self.lines = lines;
        self.cut();
    }
}

/// Offset after the first line end at or after byte `len - 1`.
fn after_line(text: &[u8], len: u64) -> usize {
    let from = usize::try_from(len.saturating_sub(1))
        .unwrap_or(usize::MAX)
        .min(text.len());
    memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |newline| from + newline + 1)
}
